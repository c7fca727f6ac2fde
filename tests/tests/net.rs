//! The network of a VM. The backend is a TAP interface in a network namespace that this process
//! makes, or the one without privileges; peers are this machine's programs on the other side.
//!
//! The tests need root and `/dev/net/tun`; otherwise they are listed as ignored.

#[path = "net/large.rs"]
mod large;
#[path = "net/last.rs"]
mod last;
#[path = "net/nat.rs"]
mod nat;
#[path = "net/several.rs"]
mod several;
#[path = "net/tap.rs"]
mod tap;
#[path = "net/trouble.rs"]
mod trouble;

use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, compile, hartline, paths};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tap::{Server, Stats, Tap, enter_namespace, ip};

const COMPILER: &str = "riscv64-linux-gnu-gcc";
/// Longest wait for a packet.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let namespace = enter_namespace();
    let mut suite = Suite::new();
    for (name, test) in TESTS {
        let test = *test;
        match &namespace {
            Ok(()) => suite.add_kvm(*name, test),
            Err(reason) => suite.add_unless(*name, reason, test),
        }
    }
    suite.run()
}

type Test = fn() -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("ping", answers_ping),
    ("TCP server", tcp_server),
    ("TCP server on two vCPUs", tcp_server_two),
    ("TCP server, injected interrupts", tcp_server_injected),
    (
        "TCP server on two vCPUs, injected interrupts",
        tcp_server_injected_two,
    ),
    ("two pairs of queues", two_pairs),
    ("threads in their places", places),
    ("TCP client", tcp_client),
    ("TCP client over IPv6", tcp_client_v6),
    ("many connections", many_connections),
    ("UDP server", udp_server),
    ("UDP client", udp_client),
    ("several datagrams in one packet", several::over_tap),
    ("large segments", large::over_tap),
    (
        "large segments where packets are small",
        large::over_small_packets,
    ),
    ("connections that are refused or reset", failures),
    ("large files", large_files),
    ("DHCP", dhcp),
    ("a VM that does nothing", idle),
    ("interfaces that cannot be used", trouble::bad_interfaces),
    ("an interface that goes away", trouble::vanishing),
    ("an interface that is down for a while", trouble::down),
    ("peers that say nothing", trouble::silent),
    ("a peer that forgets connections", trouble::forgetful),
    ("another MTU than when the VM started", trouble::mtu),
    ("more packets than a stopped VM takes", trouble::flood),
    ("what a program sends before its end", last::over_tap),
    ("NAT: what a program sends before its end", last::over_nat),
    (
        "a peer that reads nothing after the end",
        last::without_reader,
    ),
    ("NAT: TCP server", nat::tcp_server),
    ("NAT: TCP client", nat::tcp_client),
    ("NAT: limited", nat::limited),
    ("NAT: many connections", nat::many_connections),
    ("NAT: UDP server", nat::udp_server),
    ("NAT: UDP client", nat::udp_client),
    ("NAT: several datagrams by one call", several::over_nat),
    ("NAT: connections that are refused or reset", nat::failures),
    ("NAT: ports that cannot be had", nat::bad_ports),
    ("NAT: large files", nat::large_files),
];

fn serve(tap: &Tap, options: &[&str]) -> Result<Server> {
    Server::start(tap.wire(options, &["serve", "7000"])?)
}

fn quit(tap: &Tap) -> Result<()> {
    let socket = UdpSocket::bind((tap.host(), 0))?;
    socket.send_to(b"quit", (tap.guest(), 7000))?;
    Ok(())
}

fn expect(outcome: &Outcome, text: &str) -> Result<()> {
    match outcome.code == 0 && outcome.stdout_text() == text {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

fn busybox(applet: &str) -> Command {
    let mut command = Command::new(paths::debian_amd64().join("usr/bin/busybox"));
    command.arg(applet);
    command
}

fn ping(address: IpAddr) -> Result<()> {
    let mut ping = busybox("ping");
    ping.args(["-c", "3", "-i", "0.2", "-W", "5", "-s", "1000"]);
    let outcome = process::run(ping.arg(address.to_string()), b"")?;
    match outcome.stdout_text().contains(" 3 packets received") {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Returns bytes that depend on their offsets.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + (at >> 10)) as u8).collect()
}

/// Sends bytes to the echo server and reads them back.
fn echo(stream: &TcpStream, data: &[u8]) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut back = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stream = stream;
            stream.write_all(data)?;
            stream.shutdown(Shutdown::Write)
        });
        let mut reader = stream;
        let read = reader.read_to_end(&mut back);
        writer.join().map_err(|_| "the writer panicked")??;
        read?;
        match back == data {
            true => Ok(()),
            false => Err(format!("{} of {} bytes came back", back.len(), data.len()).into()),
        }
    })
}

fn answers_ping() -> Result<()> {
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    ping(tap.guest())?;
    ping(tap.guest_v6())?;
    quit(&tap)?;
    server.finish()?;
    Ok(())
}

fn tcp_server() -> Result<()> {
    serve_tcp(&[])
}

fn tcp_server_two() -> Result<()> {
    serve_tcp(&["--cpus", "2"])
}

fn tcp_server_injected() -> Result<()> {
    let stats = serve_tcp_counted(&["--interrupts", "injected"])?;
    let count = |name: &str| stats["interrupts"][name].as_u64().unwrap_or(0);
    let per_packet = stats["net"]["exits_per_packet"].as_f64();
    let right = stats["interrupts"]["mode"] == "injected"
        && count("delivered_by_vector") > 0
        && count("delivered_by_vector") <= count("raised")
        && per_packet.is_some_and(|exits| exits > 0.0);
    match right {
        true => Ok(()),
        false => Err(stats.to_string().into()),
    }
}

fn tcp_server_injected_two() -> Result<()> {
    let stats = serve_tcp_counted(&["--interrupts", "injected", "--cpus", "2"])?;
    match stats["interrupts"]["delivered_by_vector"].as_u64() {
        Some(1..) => Ok(()),
        _ => Err(stats.to_string().into()),
    }
}

/// Serves over TCP. Result: the statistics.
fn serve_tcp_counted(options: &[&str]) -> Result<Value> {
    counted(&Tap::new()?, options, serve_all)
}

/// Returns the statistics after the server has done some work.
fn counted(
    tap: &Tap,
    options: &[&str],
    act: impl FnOnce(&Tap, Server) -> Result<()>,
) -> Result<Value> {
    let options = [options, &["--stats=json"]].concat();
    let mut server = serve(tap, &options)?;
    let errors = server.child.stderr.take().ok_or("no stderr")?;
    act(tap, server)?;
    let errors = std::io::read_to_string(errors)?;
    let json = errors
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    json.ok_or_else(|| errors.into())
}

fn serve_tcp(options: &[&str]) -> Result<()> {
    let tap = Tap::new()?;
    let server = serve(&tap, options)?;
    serve_all(&tap, server)
}

fn serve_all(tap: &Tap, server: Server) -> Result<()> {
    for (address, length) in [
        (tap.guest(), 1),
        (tap.guest(), 3_000_000),
        (tap.guest_v6(), 500_000),
    ] {
        let stream = TcpStream::connect_timeout(&SocketAddr::new(address, 7000), PATIENCE)?;
        echo(&stream, &pattern(length))?;
    }
    quit(tap)?;
    let output = server.finish()?;
    match output == "3 connections 3500001 bytes\n" {
        true => Ok(()),
        false => Err(output.into()),
    }
}

fn places() -> Result<()> {
    let tap = Tap::new()?;
    let wrong = |code: i32, option: &str, word: &str| {
        trouble::refused_as(code, &["--pin", option], "user", word)
    };
    // The CPUs of this test: a machine may have only one, and with another number.
    let own = process::places(std::process::id())?;
    let list = own.first().map_or("", |(_, list)| list);
    let all: Vec<&str> = list.split([',', '-']).collect();
    let (first, last) = (all[0], all[all.len() - 1]);
    wrong(2, first, "must be 2")?;
    wrong(125, &format!("{first},1023"), "CPU 1023")?;
    let pin = format!("{first},{first},{last}");
    let server = serve(&tap, &["--cpus", "2", "--pin", &pin])?;
    let found = process::places(server.child.id())?;
    let place = |name: &str| {
        let mut places = found.iter().filter(|place| place.0 == name);
        places.next().map(|place| place.1.as_str())
    };
    let right = place("vcpu0") == Some(first)
        && place("vcpu1") == Some(first)
        && place("net") == Some(last)
        && place("hartline") == Some(last);
    if !right {
        return Err(format!("{found:?}").into());
    }
    serve_all(&tap, server)
}

/// Many connections at once, which both queue pairs share.
fn two_pairs() -> Result<()> {
    const CONNECTIONS: usize = 24;
    const LENGTH: usize = 200_000;
    let act = |tap: &Tap, server: Server| {
        let to = SocketAddr::new(tap.guest(), 7000);
        let one = || {
            let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            echo(&stream, &pattern(LENGTH))
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
            let mut joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.try_for_each(|result| result.map_err(|_| "a connection panicked")?)
        })?;
        ping(tap.guest())?;
        quit(tap)?;
        let output = server.finish()?;
        match output == format!("{CONNECTIONS} connections {} bytes\n", CONNECTIONS * LENGTH) {
            true => Ok(()),
            false => Err(output.into()),
        }
    };
    let stats = counted(&Tap::with_queues(2)?, &["--cpus", "2"], act)?;
    for name in ["received_packets", "sent_packets"] {
        let count = |device: &str| stats[device][name].as_u64().unwrap_or(0);
        let [all, first, second] = ["net", "net_pair0", "net_pair1"].map(count);
        // By chance, all connections take the same pair once in millions of runs.
        if all != first + second || first.min(second) < 20 {
            return Err(format!("{name}: {stats}").into());
        }
    }
    Ok(())
}

/// Echoes one connection.
fn echo_once(listener: TcpListener) -> thread::JoinHandle<std::io::Result<u64>> {
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let count = std::io::copy(&mut &stream, &mut &stream)?;
        stream.shutdown(Shutdown::Write)?;
        Ok(count)
    })
}

fn tcp_client() -> Result<()> {
    let tap = Tap::new()?;
    connect(&tap, tap.host())
}

fn tcp_client_v6() -> Result<()> {
    let tap = Tap::new()?;
    connect(&tap, tap.host_v6())
}

fn connect(tap: &Tap, host: IpAddr) -> Result<()> {
    let listener = TcpListener::bind((host, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let peer = echo_once(listener);
    let arguments = ["connect", &host.to_string(), &port, "2000000"];
    let outcome = process::run(&mut tap.wire(&[], &arguments)?, b"")?;
    expect(&outcome, "2000000 bytes came back\n")?;
    peer.join().map_err(|_| "the peer panicked")??;
    Ok(())
}

fn many_connections() -> Result<()> {
    const CONNECTIONS: usize = 300;
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    let to = SocketAddr::new(tap.guest(), 7000);
    let open = |_| TcpStream::connect_timeout(&to, PATIENCE);
    let streams: Vec<TcpStream> = (0..CONNECTIONS).map(open).collect::<std::io::Result<_>>()?;
    for stream in streams.iter().rev() {
        echo(stream, &pattern(500))?;
    }
    quit(&tap)?;
    let output = server.finish()?;
    match output == format!("{CONNECTIONS} connections {} bytes\n", 500 * CONNECTIONS) {
        true => Ok(()),
        false => Err(output.into()),
    }
}

fn udp_server() -> Result<()> {
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    for (host, guest) in [(tap.host(), tap.guest()), (tap.host_v6(), tap.guest_v6())] {
        let socket = UdpSocket::bind((host, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect((guest, 7000))?;
        // Fragments of IPv6 packets are not reassembled.
        let most = if host.is_ipv4() { 6 } else { 3 };
        for length in [0, 1, 1400, 1473, 8000, 30_000].into_iter().take(most) {
            let data = pattern(length);
            socket.send(&data)?;
            let mut back = vec![0; 65_536];
            let count = socket.recv(&mut back)?;
            if back[..count] != data {
                return Err(format!("{count} of {length} bytes came back").into());
            }
        }
    }
    quit(&tap)?;
    server.finish()?;
    Ok(())
}

fn udp_client() -> Result<()> {
    let tap = Tap::new()?;
    for host in [tap.host(), tap.host_v6()] {
        let socket = UdpSocket::bind((host, 0))?;
        let port = socket.local_addr()?.port().to_string();
        socket.set_read_timeout(Some(PATIENCE))?;
        let peer = thread::spawn(move || -> std::io::Result<()> {
            let count = if host.is_ipv4() { 7 } else { 4 };
            let mut buffer = vec![0; 65_536];
            for _ in 0..count {
                let (length, from) = socket.recv_from(&mut buffer)?;
                socket.send_to(&buffer[..length], from)?;
            }
            Ok(())
        });
        let arguments = ["udp", &host.to_string(), &port];
        let outcome = process::run(&mut tap.wire(&[], &arguments)?, b"")?;
        expect(&outcome, "all datagrams came back\n")?;
        peer.join().map_err(|_| "the peer panicked")??;
    }
    Ok(())
}

fn failures() -> Result<()> {
    let tap = Tap::new()?;
    let host = tap.host().to_string();
    let outcome = process::run(&mut tap.wire(&[], &["refused", &host, "9"])?, b"")?;
    expect(&outcome, "refused\n")?;
    is_reset(tap.host(), |arguments| tap.wire(&[], arguments))
}

/// Runs `wire.c` with a peer at `host` that resets its connection.
fn is_reset(host: IpAddr, wire: impl FnOnce(&[&str]) -> Result<Command>) -> Result<()> {
    let listener = TcpListener::bind((host, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let peer = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut byte = [0];
        stream.peek(&mut byte)?;
        stream.write_all(&byte)?;
        thread::sleep(Duration::from_millis(200));
        // Closing a socket with an unread byte sends a reset.
        Ok(())
    });
    let arguments = ["reset", &host.to_string(), &port];
    let outcome = process::run(&mut wire(&arguments)?, b"")?;
    expect(&outcome, "reset\n")?;
    peer.join().map_err(|_| "the peer panicked")??;
    Ok(())
}

/// Transfers files over HTTP, with busybox at both ends and in both directions.
fn large_files() -> Result<()> {
    const LENGTH: usize = 20 << 20;
    let tap = Tap::new()?;
    let folder = hartline_tests::tree::Scratch::new()?;
    let data = pattern(LENGTH);
    std::fs::write(folder.path().join("file"), &data)?;
    let address = format!("{}:8000", tap.host());
    let mut server = busybox("httpd");
    server.args(["-f", "-p", &address, "-h"]).arg(folder.path());
    let mut server = server.spawn()?;
    let script = format!(
        "busybox wget -q -O /tmp/file http://{address}/file && busybox sha256sum < /tmp/file &&
         echo ready && exec busybox httpd -f -p 8001 -h /tmp"
    );
    let mut command = hartline::command("run")?;
    command.args(["--net", &tap.option()]).arg(paths::busybox());
    command.args(["sh", "-c", &script.replace("busybox ", "/busybox ")]);
    let result = fetch_back(command, &format!("http://{}:8001/file", tap.guest()), &data);
    server.kill()?;
    server.wait()?;
    result
}

fn fetch_back(mut command: Command, url: &str, data: &[u8]) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let (mut sum, mut ready) = (String::new(), String::new());
    output.read_line(&mut sum)?;
    output.read_line(&mut ready)?;
    let expected = process::run(busybox("sha256sum").arg("-"), data)?;
    let fetched = process::run(busybox("wget").args(["-q", "-O", "-", url]), b"");
    child.kill()?;
    child.wait()?;
    let fetched = fetched?;
    let same = sum == expected.stdout_text() && ready == "ready\n";
    match same && fetched.stdout == data {
        true => Ok(()),
        false => Err(format!("{sum:?} {ready:?} {:?}", fetched.stdout.len()).into()),
    }
}

fn dhcp() -> Result<()> {
    let tap = Tap::new()?;
    let folder = hartline_tests::tree::Scratch::new()?;
    let leases = folder.path().join("leases");
    std::fs::write(&leases, "")?;
    let configuration = folder.path().join("configuration");
    let guest = tap.guest();
    std::fs::write(
        &configuration,
        format!(
            "start {guest}\nend {guest}\ninterface {}\nlease_file {}\npidfile {}\n\
             option subnet 255.255.255.0\noption router {}\n\
             option dns 192.0.2.53\n",
            tap.name,
            leases.display(),
            folder.path().join("pid").display(),
            tap.host()
        ),
    )?;
    let mut server = busybox("udhcpd")
        .arg("-f")
        .arg(&configuration)
        .stderr(Stdio::null())
        .spawn()?;
    let program = compile::alone("wire", COMPILER)?;
    let mut command = hartline::command("run")?;
    command.args(["--net", &known(&tap)]);
    command.arg(program).args(["serve", "7000"]);
    let result = Server::start(command).and_then(|running| {
        // The DHCP server checks whether the address is in use before it assigns it.
        (0..5).find(|_| ping(guest).is_ok()).ok_or("no answer")?;
        quit(&tap)?;
        running.finish()?;
        name_server(&tap)
    });
    server.kill()?;
    server.wait()?;
    result.map(drop)
}

/// Returns the option with a MAC address that the DHCP server recognises: it has one address only.
fn known(tap: &Tap) -> String {
    format!("tap:{},mac=02:00:00:00:00:42", tap.name)
}

/// A program finds the name server from DHCP, and its interface has the address.
fn name_server(tap: &Tap) -> Result<()> {
    let script = "until [ -e /etc/resolv.conf ]; do usleep 10000; done
                  read -r line </etc/resolv.conf; echo \"$line\"; ifconfig eth0";
    let mut command = hartline::command("run")?;
    command.args(["--interpret", "--net", &known(tap)]);
    let shell = ["sh", "-c", script];
    let outcome = process::run(command.arg(paths::busybox()).args(shell), b"")?;
    let text = outcome.stdout_text();
    let address = format!("inet addr:{}  Bcast:", tap.guest());
    match text.starts_with("nameserver 192.0.2.53\n") && text.contains(&address) {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// A VM that waits for packets causes no load on the host.
fn idle() -> Result<()> {
    const TIME: Duration = Duration::from_secs(2);
    let tap = Tap::new()?;
    // Translation in the background would be load.
    let mut server = serve(&tap, &["--interpret", "--stats=json"])?;
    let mut stats = Stats::of(&mut server)?;
    let used = |server: &Server| -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id()))?;
        let fields = stat.rsplit(')').next().ok_or("no fields")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // User and system time, in ticks of 10 ms.
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    };
    // Exits of the vCPU, as KVM counts them.
    let mut exits = |server: &Server| -> Result<u64> {
        let stats = stats.read(server)?;
        Ok(stats["vcpu"]["exits"].as_u64().ok_or("no exits")?)
    };
    // The VM may still be starting.
    let begin = Instant::now();
    let mut last = u64::MAX;
    while std::mem::replace(&mut last, used(&server)?) != last {
        if begin.elapsed() > PATIENCE {
            return Err("it does not come to rest".into());
        }
        thread::sleep(TIME / 4);
    }
    let before = (used(&server)?, exits(&server)?);
    thread::sleep(TIME);
    let ticks = used(&server)? - before.0;
    let exits = exits(&server)? - before.1;
    quit(&tap)?;
    server.finish()?;
    // The limit is one per cent of a core, plus a tick for rounding, and 20 exits per second.
    match ticks <= 3 && exits <= 20 * TIME.as_secs() {
        true => Ok(()),
        false => Err(format!("{ticks} ticks of 10 ms, {exits} exits in {TIME:?}").into()),
    }
}
