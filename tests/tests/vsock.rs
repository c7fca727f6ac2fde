//! The socket device: programs in a VM, and programs of the host at Unix sockets.

use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// The longest wait for bytes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Port of the server in the VM.
const PORT: u32 = 5000;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for (name, test) in TESTS {
        suite.add_kvm(*name, *test);
    }
    suite.run()
}

type Test = fn() -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("within the VM", local),
    ("within a VM without a device", local_alone),
    ("the host connects", || serve(&[])),
    ("the host connects, two vCPUs", || serve(&["--cpus", "2"])),
    ("the host connects, injected interrupts", || {
        serve(&["--interrupts", "injected"])
    }),
    ("the program connects", connect),
    ("both ends are slow", slow),
    ("many connections of the host", many_from_host),
    ("many connections of the program", many_from_guest),
    ("nobody listens", refused),
    ("the host's program is killed", killed),
    ("what was sent last", last),
    ("sockets that cannot be made", bad_sockets),
];

/// A folder with the device's socket.
struct Place {
    folder: Scratch,
}

impl Place {
    fn new() -> Result<Place> {
        Ok(Place {
            folder: Scratch::new()?,
        })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("v.sock")
    }

    /// Listens at the socket for a port of the host.
    fn listen(&self, port: u32) -> Result<UnixListener> {
        let path = self.folder.path().join(format!("v.sock_{port}"));
        Ok(UnixListener::bind(path)?)
    }

    /// Returns `hartline run` of `vsock.c`.
    fn command(&self, options: &[&str], arguments: &[&str]) -> Result<Command> {
        let program = program()?;
        let mut command = hartline::command("run")?;
        let device = format!("cid=42,socket={}", self.socket().display());
        command.args(["--vsock", &device]).args(options);
        command.arg(program).args(arguments);
        Ok(command)
    }

    fn run(&self, arguments: &[&str], text: &str) -> Result<()> {
        let outcome = process::run(&mut self.command(&[], arguments)?, b"")?;
        expect(&outcome, text)
    }

    /// Connects to the server in the VM.
    fn connect(&self, port: u32) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        writeln!(stream, "CONNECT {port}")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte)?;
            line.extend(byte);
        }
        match line.strip_prefix(b"OK ") {
            Some(_) => Ok(stream),
            None => Err(format!("{:?}", String::from_utf8_lossy(&line)).into()),
        }
    }
}

/// Returns `vsock.c`, translated.
fn program() -> Result<PathBuf> {
    let program = compile::alone("vsock", "riscv64-linux-gnu-gcc")?;
    hartline::translate(&program)?;
    Ok(program)
}

fn expect(outcome: &Outcome, text: &str) -> Result<()> {
    match outcome.code == 0 && outcome.stdout_text() == text {
        true => Ok(()),
        false => Err(format!("{outcome:?}").into()),
    }
}

/// Returns bytes that depend on their offsets.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + (at >> 10)) as u8).collect()
}

/// Sends bytes to the echo server and reads them back, with pauses of length `pause` between pieces
/// of 100,000 bytes.
fn echo(stream: &UnixStream, data: &[u8], pause: Duration) -> Result<()> {
    let mut back = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stream = stream;
            for piece in data.chunks(100_000) {
                stream.write_all(piece)?;
                thread::sleep(pause);
            }
            stream.shutdown(Shutdown::Write)
        });
        let mut reader = stream;
        let mut piece = vec![0; 100_000];
        let read = loop {
            match reader.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(count) => back.extend_from_slice(&piece[..count]),
                Err(error) => break Err(error),
            }
            thread::sleep(pause);
        };
        writer.join().map_err(|_| "the writer panicked")??;
        read?;
        match back == data {
            true => Ok(()),
            false => Err(format!("{} of {} bytes came back", back.len(), data.len()).into()),
        }
    })
}

/// The echo server in a VM, which has printed that it is ready.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(place: &Place, options: &[&str]) -> Result<Server> {
        let options = [options, &["--stats=json"]].concat();
        let mut child = place
            .command(&options, &["serve", &PORT.to_string()])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut server = Server {
            child,
            output: BufReader::new(output),
        };
        let mut line = String::new();
        server.output.read_line(&mut line)?;
        match line.as_str() {
            "ready 42\n" => Ok(server),
            _ => Err(format!("{line:?}, {}", server.errors()?).into()),
        }
    }

    fn errors(&mut self) -> Result<String> {
        let mut text = String::new();
        let mut errors = self.child.stderr.take().ok_or("no errors")?;
        errors.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Ends the server and checks how much it has served. Result: its statistics.
    fn quit(mut self, place: &Place, connections: usize, bytes: usize) -> Result<Value> {
        let mut stream = place.connect(PORT)?;
        stream.write_all(b"quit")?;
        // Bytes that the server sent before its end still arrive.
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        if back != b"quit" {
            return Err(format!("{back:?}").into());
        }
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let errors = self.errors()?;
        let status = process::wait(&mut self.child)?;
        let expected = format!("{} connections {} bytes\n", connections + 1, bytes + 4);
        match status.is_some_and(|status| status.success()) && text == expected {
            true => Ok(serde_json::from_str(&errors)?),
            false => Err(format!("{status:?}: {text}{errors}").into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The VM has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn local() -> Result<()> {
    Place::new()?.run(&["local"], "local\n")
}

/// Without a device, `AF_VSOCK` still connects programs within the VM.
fn local_alone() -> Result<()> {
    let mut command = hartline::command("run")?;
    let outcome = process::run(command.arg(program()?).arg("local"), b"")?;
    expect(&outcome, "local\n")
}

fn serve(options: &[&str]) -> Result<()> {
    const LENGTHS: [usize; 3] = [1, 10_000_000, 500_000];
    let place = Place::new()?;
    let server = Server::start(&place, options)?;
    for length in LENGTHS {
        echo(&place.connect(PORT)?, &pattern(length), Duration::ZERO)?;
    }
    let all: usize = LENGTHS.iter().sum();
    let stats = server.quit(&place, LENGTHS.len(), all)?;
    let vsock = |name: &str| stats["vsock"][name].as_u64().unwrap_or(0) as usize;
    let right = vsock("connections") == LENGTHS.len() + 1
        && vsock("received_bytes") == all + 4
        && vsock("sent_bytes") == all + 4;
    match right && !place.socket().exists() {
        true => Ok(()),
        false => Err(stats.to_string().into()),
    }
}

/// Echoes `count` connections to a port of the host, each on a new thread, with pauses.
fn echo_server(listener: UnixListener, count: usize, pause: Duration) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::scope(|scope| {
            for stream in listener.incoming().take(count).flatten() {
                scope.spawn(move || {
                    let mut piece = vec![0; 50_000];
                    // The other end sees a failure.
                    let _ = stream.set_read_timeout(Some(PATIENCE));
                    while let Ok(length @ 1..) = (&stream).read(&mut piece) {
                        let _ = (&stream).write_all(&piece[..length]);
                        thread::sleep(pause);
                    }
                });
            }
        });
    })
}

fn connect_with(what: &str, pause: Duration) -> Result<()> {
    let place = Place::new()?;
    let server = echo_server(place.listen(1000)?, 1, pause);
    let text = "10000000 bytes came back\n";
    place.run(&[what, "1000", "10000000"], text)?;
    server.join().map_err(|_| "the server panicked".into())
}

fn connect() -> Result<()> {
    connect_with("connect", Duration::ZERO)
}

fn slow() -> Result<()> {
    connect_with("slow", Duration::from_millis(1))?;
    let place = Place::new()?;
    let server = Server::start(&place, &[])?;
    let data = pattern(10_000_000);
    echo(&place.connect(PORT)?, &data, Duration::from_millis(2))?;
    server.quit(&place, 1, data.len())?;
    Ok(())
}

fn many_from_host() -> Result<()> {
    const CONNECTIONS: usize = 300;
    let place = Place::new()?;
    let server = Server::start(&place, &[])?;
    let streams: Vec<UnixStream> = (0..CONNECTIONS)
        .map(|_| place.connect(PORT))
        .collect::<Result<_>>()?;
    for stream in streams.iter().rev() {
        echo(stream, &pattern(500), Duration::ZERO)?;
    }
    server.quit(&place, CONNECTIONS, 500 * CONNECTIONS)?;
    Ok(())
}

fn many_from_guest() -> Result<()> {
    const CONNECTIONS: usize = 300;
    let place = Place::new()?;
    let server = echo_server(place.listen(1000)?, CONNECTIONS, Duration::ZERO);
    let text = format!("{CONNECTIONS} connections\n");
    place.run(&["many", "1000", &CONNECTIONS.to_string()], &text)?;
    server.join().map_err(|_| "the server panicked".into())
}

fn refused() -> Result<()> {
    let place = Place::new()?;
    // A socket without a listener behaves like a missing one.
    drop(place.listen(1001)?);
    place.run(&["refused", "1000"], "refused\n")?;
    place.run(&["refused", "1001"], "refused\n")?;
    let server = Server::start(&place, &[])?;
    for line in [format!("CONNECT {}\n", PORT + 1), "HELLO\n".into()] {
        let mut stream = UnixStream::connect(place.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(line.as_bytes())?;
        if stream.read(&mut [0])? != 0 {
            return Err(format!("{line:?} was answered").into());
        }
    }
    server.quit(&place, 0, 0)?;
    Ok(())
}

fn killed() -> Result<()> {
    let place = Place::new()?;
    let listener = place.listen(1000)?;
    let host = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0; 2])?;
        stream.write_all(b"last")
    });
    place.run(&["killed", "1000"], "killed\n")?;
    host.join().map_err(|_| "the host's program panicked")??;
    // In the other direction, the VM is killed.
    let mut server = Server::start(&place, &[])?;
    let mut stream = place.connect(PORT)?;
    server.child.kill()?;
    let end = stream.read(&mut [0]);
    let ended = match &end {
        Ok(count) => *count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    match ended {
        true => Ok(()),
        false => Err(format!("{end:?}").into()),
    }
}

fn last() -> Result<()> {
    let place = Place::new()?;
    let listener = place.listen(1000)?;
    let host = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    });
    place.run(&["last", "1000"], "")?;
    let text = host.join().map_err(|_| "the host's program panicked")??;
    match text == "the last line\n" {
        true => Ok(()),
        false => Err(format!("{text:?}").into()),
    }
}

fn bad_sockets() -> Result<()> {
    let place = Place::new()?;
    let outcome = |text: &str| {
        let mut command = hartline::command("run")?;
        process::run(command.args(["--vsock", text]).arg(program()?), b"")
    };
    fs::write(place.socket(), "a file")?;
    let taken = format!("cid=3,socket={}", place.socket().display());
    let long = format!("cid=3,socket=/tmp/{}", "x".repeat(100));
    for (text, code, message) in [
        (taken.as_str(), 125, "exists already"),
        (long.as_str(), 125, "longer than"),
        ("cid=3,socket=/nonexistent/v", 125, "/nonexistent/v"),
        ("cid=2,socket=/tmp/v", 2, "not a CID"),
    ] {
        let outcome = outcome(text)?;
        let errors = outcome.stderr_text();
        if outcome.code != code || !errors.contains(message) {
            return Err(format!("{text}: {outcome:?}").into());
        }
    }
    match fs::read_to_string(place.socket())? == "a file" {
        true => Ok(()),
        false => Err("the file was changed".into()),
    }
}
