//! Several UDP datagrams in one call, in both directions: in one packet where the network supports
//! it.

use super::{PATIENCE, Tap, nat};
use hartline_tests::{Result, process};
use serde_json::Value;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

/// The values in `wire.c`.
const SIZE: usize = 1200;
const COUNT: usize = 41;
const LENGTH: usize = 40 * SIZE + 7;
const ROUNDS: usize = 10;
/// The number of rounds in which `wire.c` receives several datagrams as one message.
const TOGETHER: usize = 4;

/// Starts a peer that answers each round with one call.
fn peer(host: IpAddr) -> Result<(u16, thread::JoinHandle<std::io::Result<()>>)> {
    /// `UDP_SEGMENT`
    const SEGMENT: libc::c_int = 103;
    let socket = UdpSocket::bind((host, 0))?;
    let port = socket.local_addr()?.port();
    socket.set_read_timeout(Some(PATIENCE))?;
    let size = SIZE as libc::c_int;
    // SAFETY: the option is a number.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let answer = move || {
        for _ in 0..ROUNDS {
            let mut all = Vec::new();
            let mut from = None;
            for number in 1..=COUNT {
                let mut datagram = [0; 65_536];
                let (length, sender) = socket.recv_from(&mut datagram)?;
                let expected = if number < COUNT { SIZE } else { LENGTH % SIZE };
                if length != expected {
                    let text = format!("datagram {number} has {length} bytes");
                    return Err(std::io::Error::other(text));
                }
                all.extend_from_slice(&datagram[..length]);
                from = Some(sender);
            }
            let to = from.ok_or(std::io::ErrorKind::NotFound)?;
            socket.send_to(&all, to)?;
        }
        Ok(())
    };
    Ok((port, thread::spawn(answer)))
}

/// Runs `wire.c` with a peer. Result: the number of messages it received, and the statistics.
fn run(host: IpAddr, wire: impl FnOnce(&[&str]) -> Result<Command>) -> Result<(usize, Value)> {
    let (port, peer) = peer(host)?;
    let mut command = wire(&["several", &host.to_string(), &port.to_string()])?;
    let outcome = process::run(&mut command, b"")?;
    let text = outcome.stdout_text();
    let messages = text.strip_suffix(" messages came back\n");
    let messages = messages.and_then(|count| count.parse().ok());
    let errors = outcome.stderr_text();
    let stats = errors
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    let peer = peer.join().map_err(|_| "the peer panicked")?;
    match (messages, stats, peer) {
        (Some(messages), Some(stats), Ok(())) => Ok((messages, stats)),
        (.., peer) => Err(format!("{outcome:?} {peer:?}").into()),
    }
}

/// Returns whether TAP interfaces of this host accept several datagrams in one packet: since Linux
/// 6.2.
fn host_has_them() -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= (6, 2)),
        _ => Err(release.into()),
    }
}

pub fn over_tap() -> Result<()> {
    let tap = Tap::new()?;
    let has_them = host_has_them()?;
    for host in [tap.host(), tap.host_v6()] {
        let (messages, stats) = run(host, |arguments| tap.wire(&["--stats=json"], arguments))?;
        let expected = match has_them {
            true => TOGETHER + (ROUNDS - TOGETHER) * COUNT,
            false => ROUNDS * COUNT,
        };
        let packets = |name: &str| stats["net"][name].as_u64().unwrap_or(u64::MAX);
        let [sent, received] = ["sent_packets", "received_packets"].map(packets);
        // Includes some packets for neighbour discovery and multicast groups.
        let most = if has_them {
            3 * ROUNDS
        } else {
            2 * ROUNDS * COUNT
        } as u64;
        if messages != expected || sent > most || received > most {
            return Err(format!("{messages} messages, {stats}").into());
        }
    }
    Ok(())
}

pub fn over_nat() -> Result<()> {
    nat::addresses()?;
    let options = ["--net", "user", "--stats=json"];
    let (messages, _) = run(nat::HOST, |arguments| nat::wire(&options, arguments))?;
    match messages == ROUNDS * COUNT {
        true => Ok(()),
        false => Err(format!("{messages} messages").into()),
    }
}
