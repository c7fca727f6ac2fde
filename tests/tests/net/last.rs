//! What a program has sent before its end reaches other hosts, as on Linux, where the kernel goes on after the
//! program.

use super::nat::{HOST, wire};
use super::tap::Tap;
use super::{PATIENCE, process};
use hartline_tests::Result;
use socket2::SockRef;
use std::io::Read;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program's exit code.
const CODE: i32 = 4;

/// A peer at an address of this machine, whose port is the same for TCP and UDP.
struct Peer {
    listener: TcpListener,
    datagrams: UdpSocket,
}

impl Peer {
    fn new(host: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((host, 0))?;
        let datagrams = UdpSocket::bind(listener.local_addr()?)?;
        datagrams.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            listener,
            datagrams,
        })
    }

    /// The arguments of a program that sends `length` bytes.
    fn arguments(&self, length: usize) -> Result<[String; 4]> {
        let address = self.listener.local_addr()?;
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        Ok(["leave".into(), ip, port, length.to_string()])
    }
}

/// Starts a program.
fn start(command: &mut Command) -> Result<Child> {
    Ok(command.stdin(Stdio::null()).spawn()?)
}

/// Receives what programs send: at once, later, and slowly. `command` is that of the program with arguments.
fn all_arrives(host: IpAddr, command: impl Fn(&[&str]) -> Result<Command>) -> Result<()> {
    let rows = [
        (1, 0, 0),
        (100_000, 0, 0),
        (3_000_000, 0, 0),
        (3_000_000, 500, 1),
    ];
    for (length, late, slow) in rows {
        let peer = Peer::new(host)?;
        let arguments = peer.arguments(length)?;
        let mut child = start(&mut command(&arguments.each_ref().map(|text| &text[..]))?)?;
        let (mut stream, _) = peer.listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        thread::sleep(Duration::from_millis(late));
        let (mut bytes, mut count) = (vec![0; 64 << 10], 0);
        loop {
            match stream.read(&mut bytes)? {
                0 => break,
                more => count += more,
            }
            thread::sleep(Duration::from_millis(slow));
        }
        let mut datagram = [0; 10];
        let last = peer.datagrams.recv(&mut datagram)?;
        let status = process::wait(&mut child)?.ok_or("the program does not end")?;
        if count != length || &datagram[..last] != b"last" || status.code() != Some(CODE) {
            return Err(format!("{count} bytes of {length}, {last}, {status}").into());
        }
    }
    Ok(())
}

pub fn over_tap() -> Result<()> {
    let tap = Tap::new()?;
    all_arrives(tap.host(), |arguments| tap.wire(&[], arguments))
}

pub fn over_nat() -> Result<()> {
    super::nat::addresses()?;
    all_arrives(HOST, |arguments| wire(&["--net", "user"], arguments))
}

/// The VM ends without the peer, after a time, or at once after a signal.
pub fn without_reader() -> Result<()> {
    let tap = Tap::new()?;
    for is_interrupted in [false, true] {
        let peer = Peer::new(tap.host())?;
        // Connections inherit it. The peer takes much less than the program's buffer then.
        SockRef::from(&peer.listener).set_recv_buffer_size(4096)?;
        let arguments = peer.arguments(100_000)?;
        let arguments = arguments.each_ref().map(|text| &text[..]);
        let mut child = start(&mut tap.wire(&[], &arguments)?)?;
        let _stream = peer.listener.accept()?;
        // It is the last that the program does. The program may still be there for a moment, and ignores the
        // signal, so the signal is sent until the VM ends.
        peer.datagrams.recv(&mut [0; 10])?;
        let begin = Instant::now();
        while is_interrupted && child.try_wait()?.is_none() && begin.elapsed() < PATIENCE {
            process::signal(child.id(), libc::SIGINT);
            thread::sleep(Duration::from_millis(50));
        }
        let status = process::wait(&mut child)?.ok_or("the program does not end")?;
        let time = begin.elapsed();
        let is_right = match is_interrupted {
            true => time < Duration::from_secs(9),
            false => time >= Duration::from_secs(5),
        };
        if !is_right || status.code() != Some(CODE) {
            return Err(format!("interrupted: {is_interrupted}, {status} after {time:?}").into());
        }
    }
    Ok(())
}
