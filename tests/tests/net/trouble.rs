//! Failures of interfaces: each has a defined outcome, and the VM continues if possible.

use super::{COMPILER, PATIENCE, Server, Stats, Tap, echo, ip, pattern, quit, serve};
use hartline_tests::process;
use hartline_tests::{Result, compile, hartline, paths};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub fn refused_with(options: &[&str], net: &str, word: &str) -> Result<()> {
    refused_as(125, options, net, word)
}

/// As [`refused_with`], with the exit code.
pub fn refused_as(code: i32, options: &[&str], net: &str, word: &str) -> Result<()> {
    let mut command = hartline::command("run")?;
    command.args(["--net", net]).args(options);
    command.arg(compile::alone("wire", COMPILER)?);
    let outcome = process::run(command.args(["serve", "1"]), b"")?;
    let text = outcome.stderr_text();
    match outcome.code == code && text.contains(word) && text.lines().count() == 1 {
        true => Ok(()),
        false => Err(format!("{net}: {outcome:?}").into()),
    }
}

pub fn bad_interfaces() -> Result<()> {
    let mut tap = Tap::new()?;
    let refused = |net: &str, word: &str| refused_with(&[], net, word);
    refused("tap:nowhere", "no network interface nowhere")?;
    refused("tap:lo", "lo is not a TAP")?;
    let mistake = |net: &str, word: &str| refused_as(2, &[], net, word);
    refused("tap:a-name-that-is-too-long", "not the name")?;
    mistake(
        &format!("tap:{},queues=2", tap.name),
        "more than the 1 vCPUs",
    )?;
    let server = serve(&tap, &[])?;
    refused(&tap.option(), "in use")?;
    quit(&tap)?;
    server.finish()?;
    tap.queues = 2;
    refused_with(&["--cpus", "2"], &tap.option(), "mode tap multi_queue")?;
    let mut tap = Tap::with_queues(2)?;
    tap.queues = 1;
    refused(&tap.option(), "with one queue")
}

/// Opens a connection that sends a reset when it is closed.
fn connect_from(from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

/// A peer that has lost a connection opens a new one between the same addresses and ports.
pub fn forgetful() -> Result<()> {
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    let to = SocketAddr::new(tap.guest(), 7000);
    let from = SocketAddr::new(tap.host(), 4000);
    let mut first = connect_from(from, to)?;
    first.write_all(b"a")?;
    first.read_exact(&mut [0])?;
    // The reset of the first connection is lost.
    ip(&format!("link set dev {} down", tap.name))?;
    drop(first);
    ip(&format!("link set dev {} up", tap.name))?;
    let second = connect_from(from, to)?;
    echo(&second, &pattern(100_000))?;
    quit(&tap)?;
    server.finish()?;
    Ok(())
}

/// The program continues without its interface.
pub fn vanishing() -> Result<()> {
    let tap = Tap::new()?;
    let mut command = hartline::command("run")?;
    command.args(["--net", &tap.option()]).arg(paths::busybox());
    let host = tap.host();
    let script = format!(
        "echo ready; /busybox sleep 1; /busybox nc -w 2 {host} 9 </dev/null; echo $?; exit 7"
    );
    command.args(["sh", "-c", &script]);
    let mut server = Server::start(command)?;
    ip(&format!("link del dev {}", tap.name))?;
    let mut text = String::new();
    server.output.read_to_string(&mut text)?;
    let code = process::wait(&mut server.child)?.map(process::shell_code);
    match text == "1\n" && code == Some(7) {
        true => Ok(()),
        false => Err(format!("{code:?} {text:?} {}", server.errors()).into()),
    }
}

/// Sends bytes both ways over a connection and, as one datagram of `length` bytes, over UDP.
fn check(tap: &Tap, length: usize) -> Result<()> {
    let to = SocketAddr::new(tap.guest(), 7000);
    echo(
        &TcpStream::connect_timeout(&to, PATIENCE)?,
        &pattern(300_000),
    )?;
    let socket = UdpSocket::bind((tap.host(), 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (data, mut back) = (pattern(length), vec![0; 65_536]);
    socket.send_to(&data, to)?;
    let count = socket.recv(&mut back)?;
    match back[..count] == data {
        true => Ok(()),
        false => Err(format!("{count} of {length} bytes came back").into()),
    }
}

/// The guest keeps the MTU that it started with. Larger packets of the host fit its buffers, and
/// the guest may send larger packets than the host.
pub fn mtu() -> Result<()> {
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    let to = SocketAddr::new(tap.guest(), 7000);
    let early = TcpStream::connect_timeout(&to, PATIENCE)?;
    for mtu in [576, 9000] {
        ip(&format!("link set dev {} mtu {mtu}", tap.name))?;
        check(&tap, 1400)?;
        check(&tap, 8000)?;
    }
    echo(&early, &pattern(300_000))?;
    quit(&tap)?;
    server.finish()?;
    Ok(())
}

/// Packets that the guest sends while the interface is down are lost, and sent again later.
pub fn down() -> Result<()> {
    const LENGTH: usize = 1_000_000;
    let tap = Tap::new()?;
    let listener = TcpListener::bind((tap.host(), 0))?;
    let port = listener.local_addr()?.port().to_string();
    let host = tap.host();
    // Connections to unreachable addresses send packets all the time.
    let script = format!(
        "echo ready
         {{ /busybox head -c {LENGTH} /dev/zero | /busybox nc {host} {port} | /busybox wc -c
            : >/done; }} &
         while [ ! -e /done ]; do /busybox nc -w 1 {host} 9 </dev/null 2>/dev/null; done
         exit 0"
    );
    let mut command = hartline::command("run")?;
    command.args(["--stats=json", "--net", &tap.option()]);
    command.arg(paths::busybox()).args(["sh", "-c", &script]);
    let mut server = Server::start(command)?;
    let mut stats = Stats::of(&mut server)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The guest has more to send.
    stream.read_exact(&mut [0; 1000])?;
    ip(&format!("link set dev {} down", tap.name))?;
    let begin = Instant::now();
    while stats.read(&server)?["net"]["dropped"].as_u64() == Some(0) {
        if begin.elapsed() > PATIENCE {
            return Err("nothing was lost".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    ip(&format!("link set dev {} up", tap.name))?;
    stream.write_all(&pattern(1000))?;
    let mut rest = Vec::new();
    let count = stream.read_to_end(&mut rest)?;
    drop(stream);
    let text = server.finish()?;
    match text == "1000\n" && count == LENGTH - 1000 {
        true => Ok(()),
        false => Err(format!("{count} more, {text:?}").into()),
    }
}

/// A peer that disappears silently is detected by connections with keepalive or a user timeout, and
/// by no others.
pub fn silent() -> Result<()> {
    let tap = Tap::new()?;
    let listener = TcpListener::bind((tap.host(), 0))?;
    let port = listener.local_addr()?.port().to_string();
    let mut command = hartline::command("run")?;
    command.args(["--net", &tap.option()]);
    command.arg(compile::alone("wire", COMPILER)?);
    command.args(["silent", &tap.host().to_string(), &port]);
    let server = Server::start(command)?;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(listener.accept()?.0);
    }
    // This is longer than the allowed silence. The host's kernel answers keepalive probes.
    thread::sleep(Duration::from_secs(4));
    for stream in &mut streams {
        stream.write_all(b"x")?;
    }
    // The guest has taken the bytes when it answers.
    for stream in &mut streams {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0])?;
    }
    ip(&format!("link set dev {} down", tap.name))?;
    let text = server.finish()?;
    match text.as_str() {
        "keep-alive: timed out\nuser timeout: timed out\nneither: open\n" => Ok(()),
        _ => Err(format!("{text:?}").into()),
    }
}

/// Packets that the guest does not receive wait in the interface's queue or are dropped there: the
/// VMM keeps none. The VM answers when it continues.
pub fn flood() -> Result<()> {
    const TIME: Duration = Duration::from_millis(700);
    // Else LLVM translates the program in the same process meanwhile, and its memory is counted too.
    hartline::translate(&compile::alone("wire", COMPILER)?)?;
    let tap = Tap::new()?;
    let server = serve(&tap, &[])?;
    check(&tap, 1400)?;
    let memory = || -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().next());
        Ok(words.ok_or("no VmRSS")?.parse()?)
    };
    let signal = |number| {
        // SAFETY: no memory is involved; the child is not reaped yet, so its process id is not
        // reused.
        unsafe { libc::kill(server.child.id().cast_signed(), number) };
    };
    let before = memory()?;
    let is_over = AtomicBool::new(false);
    let sent = thread::scope(|scope| -> Result<u64> {
        let flood = scope.spawn(|| -> std::io::Result<u64> {
            let socket = UdpSocket::bind((tap.host(), 0))?;
            let data = pattern(1400);
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                // One port has a socket, the other has none. The queue may be full.
                for port in [7000, 7001] {
                    sent += u64::from(socket.send_to(&data, (tap.guest(), port)).is_ok());
                }
            }
            Ok(sent)
        });
        signal(libc::SIGSTOP);
        thread::sleep(TIME);
        signal(libc::SIGCONT);
        thread::sleep(TIME);
        is_over.store(true, Ordering::Relaxed);
        Ok(flood.join().map_err(|_| "the flood panicked")??)
    })?;
    check(&tap, 1400)?;
    let grown = memory()?.saturating_sub(before);
    quit(&tap)?;
    server.finish()?;
    // In KiB. The ring's receive buffers take 4 MiB, and the program's socket has buffers too.
    match sent > 1000 && grown < 48 << 10 {
        true => Ok(()),
        false => Err(format!("{sent} packets, {grown} KiB more").into()),
    }
}
