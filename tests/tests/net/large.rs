//! Large TCP segments, which the host's kernel splits: the number of packets that the device gets,
//! and the segment sizes that the kernel sees.

use super::{PATIENCE, Stats, Tap, echo, ip, pattern, quit, serve};
use hartline_tests::Result;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Bytes sent and echoed over each connection.
const LENGTH: usize = 8_000_000;
/// The least average length of the guest's packets, including its acknowledgements, bytes.
const AVERAGE: u64 = 6000;
/// Length of a TCP header, bytes.
const TCP: u32 = 20;

/// Returns the largest segments sent to a peer and received from it, as the kernel sees them,
/// bytes.
fn segments(stream: &TcpStream) -> std::io::Result<[u32; 2]> {
    // SAFETY: all zeros are a valid structure.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the structure and its length.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok([info.tcpi_snd_mss, info.tcpi_rcv_mss]),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the packets and bytes that the guest has sent.
fn sent(stats: &mut Stats, server: &super::Server) -> Result<[u64; 2]> {
    let stats = stats.read(server)?;
    let count = |name: &str| stats["net"][name].as_u64().ok_or("no such count");
    Ok([count("sent_packets")?, count("sent_bytes")?])
}

/// Sends bytes to a server in a VM and back. The interface has the MTU `at_start` when the VM
/// starts, and `later` when its peers connect.
fn exchange(at_start: u32, later: u32) -> Result<()> {
    let tap = Tap::new()?;
    ip(&format!("link set dev {} mtu {at_start}", tap.name))?;
    let mut server = serve(&tap, &["--stats=json"])?;
    let mut stats = Stats::of(&mut server)?;
    ip(&format!("link set dev {} mtu {later}", tap.name))?;
    for guest in [tap.guest(), tap.guest_v6()] {
        let headers = TCP + if guest.is_ipv4() { 20 } else { 40 };
        let largest = at_start.min(later) - headers;
        let before = sent(&mut stats, &server)?;
        let found = one(guest)?;
        // The peer may have the bytes before the device has counted them.
        let begin = Instant::now();
        let [packets, bytes] = loop {
            let after = sent(&mut stats, &server)?;
            let [packets, bytes] = [0, 1].map(|n| after[n] - before[n]);
            if bytes > LENGTH as u64 || begin.elapsed() > PATIENCE {
                break [packets, bytes];
            }
        };
        let is_right = found.iter().all(|size| *size <= largest)
            && found[1] == largest
            && bytes > LENGTH as u64
            && bytes / packets > AVERAGE;
        if !is_right {
            let text = format!("{found:?} of {largest}, {packets} packets, {bytes} bytes");
            return Err(format!("{guest}, {at_start}, {later}: {text}").into());
        }
    }
    quit(&tap)?;
    server.finish()?;
    Ok(())
}

fn one(guest: IpAddr) -> Result<[u32; 2]> {
    let to = SocketAddr::new(guest, 7000);
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    echo(&stream, &pattern(LENGTH))?;
    Ok(segments(&stream)?)
}

pub fn over_tap() -> Result<()> {
    exchange(1500, 1500)
}

/// Uses the smallest MTU of IPv6 on both sides.
pub fn over_small_packets() -> Result<()> {
    exchange(1280, 1280)?;
    exchange(1500, 1280)?;
    exchange(1280, 9000)
}
