//! The network that needs no privileges: `-p` and `--net user`. Peers are servers of this machine,
//! at a non-loopback address of its loopback interface.

use super::{
    PATIENCE, Server, busybox, echo, echo_once, expect, fetch_back, ip, is_reset, pattern,
};
use hartline_tests::process::{self, Outcome};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

/// The address of this machine that the guest may reach.
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Adds the addresses, once.
pub fn addresses() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = ip("link set dev lo up").and_then(|()| ip(&format!("addr add {HOST}/32 dev lo")));
    });
    result
}

/// Returns a free port of this machine.
fn free_port() -> Result<u16> {
    addresses()?;
    Ok(TcpListener::bind((LOOPBACK, 0))?.local_addr()?.port())
}

/// Returns `hartline run` of `wire.c` with options.
pub fn wire(options: &[&str], arguments: &[&str]) -> Result<Command> {
    addresses()?;
    let program = compile::alone("wire", super::COMPILER)?;
    let mut command = hartline::command("run")?;
    command.args(options).arg(program).args(arguments);
    Ok(command)
}

fn connect(port: u16) -> Result<TcpStream> {
    Ok(TcpStream::connect_timeout(
        &SocketAddr::new(LOOPBACK, port),
        PATIENCE,
    )?)
}

/// Starts a server in the VM. Result: the server, and its port, which is the same for TCP and UDP.
fn serve() -> Result<(Server, u16)> {
    let port = free_port()?;
    let (tcp, udp) = (format!("{port}:7000"), format!("{port}:7000/udp"));
    let server = Server::start(wire(&["-p", &tcp, "-p", &udp], &["serve", "7000"])?)?;
    Ok((server, port))
}

fn quit(port: u16) -> Result<()> {
    let socket = UdpSocket::bind((LOOPBACK, 0))?;
    socket.send_to(b"quit", (LOOPBACK, port))?;
    Ok(())
}

pub fn tcp_server() -> Result<()> {
    let (server, port) = serve()?;
    for length in [1, 20_000_000, 100_000] {
        echo(&connect(port)?, &pattern(length))?;
    }
    // The port is bound to this machine's loopback address only.
    if TcpStream::connect((HOST, port)).is_ok() {
        return Err("the port is open to others".into());
    }
    quit(port)?;
    let output = server.finish()?;
    match output == "3 connections 20100001 bytes\n" {
        true => Ok(()),
        false => Err(output.into()),
    }
}

/// A rate limit takes effect in both directions.
pub fn limited() -> Result<()> {
    const RATE: usize = 2_000_000;
    addresses()?;
    let listener = TcpListener::bind((HOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let peer = echo_once(listener);
    let bytes = (2 * RATE).to_string();
    let net = format!("user,rate={RATE}");
    let arguments = ["connect", &HOST.to_string(), &port, &bytes];
    let start = Instant::now();
    let outcome = process::run(&mut wire(&["--net", &net], &arguments)?, b"")?;
    expect(&outcome, &format!("{bytes} bytes came back\n"))?;
    peer.join().map_err(|_| "the peer panicked")??;
    match start.elapsed() {
        // Two seconds, minus the burst that a limit allows.
        time if time > Duration::from_millis(1800) => Ok(()),
        time => Err(format!("{time:?}").into()),
    }
}

pub fn tcp_client() -> Result<()> {
    addresses()?;
    let listener = TcpListener::bind((HOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let peer = echo_once(listener);
    let arguments = ["connect", &HOST.to_string(), &port, "20000000"];
    let outcome = process::run(&mut wire(&["--net", "user"], &arguments)?, b"")?;
    expect(&outcome, "20000000 bytes came back\n")?;
    peer.join().map_err(|_| "the peer panicked")??;
    Ok(())
}

pub fn many_connections() -> Result<()> {
    const CONNECTIONS: usize = 300;
    let (server, port) = serve()?;
    let streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| connect(port))
        .collect::<Result<_>>()?;
    for stream in streams.iter().rev() {
        echo(stream, &pattern(5000))?;
    }
    quit(port)?;
    let output = server.finish()?;
    match output == format!("{CONNECTIONS} connections {} bytes\n", 5000 * CONNECTIONS) {
        true => Ok(()),
        false => Err(output.into()),
    }
}

pub fn udp_server() -> Result<()> {
    let (server, port) = serve()?;
    let open = || -> Result<UdpSocket> {
        let socket = UdpSocket::bind((LOOPBACK, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect((LOOPBACK, port))?;
        Ok(socket)
    };
    let sockets = [open()?, open()?];
    for length in [0, 1, 1400, 8000, 60_000] {
        for (number, socket) in sockets.iter().enumerate() {
            let data = pattern(length + number);
            socket.send(&data)?;
            let mut back = vec![0; 65_536];
            let count = socket.recv(&mut back)?;
            if back[..count] != data {
                return Err(format!("{count} of {length} bytes came back").into());
            }
        }
    }
    quit(port)?;
    server.finish()?;
    Ok(())
}

pub fn udp_client() -> Result<()> {
    addresses()?;
    let socket = UdpSocket::bind((HOST, 0))?;
    let port = socket.local_addr()?.port().to_string();
    socket.set_read_timeout(Some(PATIENCE))?;
    let peer = thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; 65_536];
        for _ in 0..7 {
            let (length, from) = socket.recv_from(&mut buffer)?;
            socket.send_to(&buffer[..length], from)?;
        }
        Ok(())
    });
    let arguments = ["udp", &HOST.to_string(), &port];
    let outcome = process::run(&mut wire(&["--net", "user"], &arguments)?, b"")?;
    expect(&outcome, "all datagrams came back\n")?;
    peer.join().map_err(|_| "the peer panicked")??;
    Ok(())
}

/// Runs a script in busybox's shell under Hartline.
fn shell(options: &[&str], script: &str) -> Result<Outcome> {
    addresses()?;
    let mut command = hartline::command("run")?;
    command.args(options).arg(paths::busybox());
    command.args(["sh", "-c", &script.replace("busybox ", "/busybox ")]);
    process::run(&mut command, b"")
}

/// Connections that no server accepts, that are not allowed, and that are reset.
pub fn failures() -> Result<()> {
    addresses()?;
    // A server listens here, but the guest may not reach it.
    let hidden = TcpListener::bind((LOOPBACK, 0))?.local_addr()?.port();
    let script = format!(
        "for host in {HOST} 127.0.0.1 10.0.2.2 169.254.169.254; do
             busybox nc -w 5 $host {hidden} </dev/null >/dev/null 2>&1; echo $?
         done
         busybox cat /etc/resolv.conf"
    );
    let outcome = shell(&["--net", "user"], &script)?;
    expect(&outcome, "1\n1\n1\n1\nnameserver 10.0.2.3\n")?;
    is_reset(HOST, |arguments| wire(&["--net", "user"], arguments))?;
    // A forwarded port without a server in the guest.
    let (server, port) = {
        let port = free_port()?;
        let forward = format!("{port}:7001");
        let options = ["-p", &forward];
        (Server::start(wire(&options, &["serve", "7000"])?)?, port)
    };
    let mut byte = [0];
    let ended = connect(port)?.read(&mut byte);
    drop(server);
    match ended {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Ports that cannot be bound.
pub fn bad_ports() -> Result<()> {
    addresses()?;
    let busy = TcpListener::bind((LOOPBACK, 0))?;
    let busy_udp = UdpSocket::bind((LOOPBACK, 0))?;
    let (tcp, udp) = (busy.local_addr()?.port(), busy_udp.local_addr()?.port());
    for (options, code, words) in [
        (vec!["-p", &*format!("{tcp}:80")], 125, "Address in use"),
        (vec!["-p", &*format!("{udp}:80/udp")], 125, "Address in use"),
        (vec!["-p", "192.0.2.77:8080:80"], 125, "192.0.2.77:8080"),
        (vec!["--net", "tap:lo", "-p", "8080:80"], 2, "TAP"),
    ] {
        let outcome = process::run(&mut wire(&options, &["serve", "1"])?, b"")?;
        let text = outcome.stderr_text();
        // The system's messages for a port in use differ.
        let text = text.replace("Address already in use", "Address in use");
        if outcome.code != code || !text.contains(words) || text.lines().count() != 1 {
            return Err(format!("{options:?}: {outcome:?}").into());
        }
    }
    Ok(())
}

/// Transfers files over HTTP in both directions, with busybox at both ends.
pub fn large_files() -> Result<()> {
    const LENGTH: usize = 20 << 20;
    addresses()?;
    let folder = Scratch::new()?;
    let data = pattern(LENGTH);
    std::fs::write(folder.path().join("file"), &data)?;
    let address = format!("{HOST}:8000");
    let mut server = busybox("httpd");
    server.args(["-f", "-p", &address, "-h"]).arg(folder.path());
    let mut server = server.spawn()?;
    let script = format!(
        "/busybox wget -q -O /tmp/file http://{address}/file && /busybox sha256sum < /tmp/file &&
         echo ready && exec /busybox httpd -f -p 8001 -h /tmp"
    );
    let port = free_port()?;
    let mut command = hartline::command("run")?;
    command.args(["-p", &format!("{port}:8001")]);
    command.arg(paths::busybox()).args(["sh", "-c", &script]);
    let url = format!("http://127.0.0.1:{port}/file");
    let result = fetch_back(command, &url, &data);
    server.kill()?;
    server.wait()?;
    result
}
