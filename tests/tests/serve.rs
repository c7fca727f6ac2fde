//! `hartline serve`: each connection gets a VM in the state of the snapshot, whatever earlier connections have done
//! there.

#[path = "serve/killed.rs"]
mod killed;
#[path = "serve/service.rs"]
mod service;

use hartline_tests::compare::Run;
use hartline_tests::dynamic::Root;
use hartline_tests::network::{inside, namespace};
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline, paths};
use serde_json::Value;
use service::{GUEST, PORT, Service, get, request, statistics};
use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_root_kvm("connections find nothing of earlier ones", || {
        in_network(nothing_stays)
    });
    suite.add_root_kvm("the clock goes on", || in_network(clock));
    suite.add_root_kvm("without resets, connections find earlier ones", || {
        in_network(stays)
    });
    suite.add_root_kvm("crashes, ends and endless requests", || {
        in_network(failures)
    });
    suite.add_root_kvm("much memory, processes and threads", || in_network(dirty));
    suite.add_root_kvm("one connection at a time", || in_network(in_turn));
    suite.add_root_kvm("many clients at once", || in_network(many));
    suite.add_root_kvm("clients that vanish and clients that wait", || {
        in_network(clients)
    });
    suite.add_root_kvm("a server that has worked once", || in_network(warm));
    suite.add_root_kvm("signals", || in_network(signals));
    suite.add_root_kvm("killed while its VMs are restored", || {
        in_network(killed::restoring)
    });
    suite.add_root_kvm("output and statistics", || in_network(output));
    suite.add_root_kvm("mistakes", || in_network(mistakes));
    suite.add_root_kvm("programs that serve nobody", || in_network(no_servers));
    suite.add_root_kvm("python3's HTTP server", || in_network(python));
    suite.run()
}

/// A folder, and a snapshot of the server in it.
struct Place {
    folder: Scratch,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn snapshot(&self) -> PathBuf {
        self.path("snapshot")
    }

    /// Starts a service, and waits until it is ready.
    fn serve(&self, options: &[&str]) -> Result<Service> {
        Service::start(&self.snapshot(), options)
    }
}

/// Runs a test with a snapshot of the server, in a network namespace of its own.
fn in_network(test: fn(&Place) -> Result<()>) -> Result<()> {
    // They may have to be built, which needs this network.
    hartline::binary()?;
    let program = compile::alone("visited", "riscv64-linux-gnu-gcc")?;
    hartline::translate(&program)?;
    inside(Some(&namespace()?), move || {
        let place = Place {
            folder: Scratch::new()?,
        };
        let run = Run::new(&program, [GUEST.to_string()]);
        write(&run, &place.snapshot(), &format!("{PORT}:{GUEST}"))?;
        test(&place)
    })
}

/// Writes a snapshot of a server when it waits for connections. `port` is the value of `-p`.
fn write(run: &Run, snapshot: &Path, port: &str) -> Result<()> {
    let path = snapshot.display().to_string();
    let options = [
        "-p",
        port,
        "--snapshot",
        &path,
        "--snapshot-at",
        "listen",
        "--snapshot-end",
    ];
    let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
    match outcome.code {
        0 => Ok(()),
        _ => Err(format!("{outcome:?}").into()),
    }
}

fn expect(path: &str, expected: &str) -> Result<()> {
    match get(path)? {
        body if body == expected => Ok(()),
        body => Err(format!("{path}: {body:?}, expected {expected:?}").into()),
    }
}

fn nothing_stays(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "2"])?;
    let mut random = HashSet::new();
    for turn in 0..10 {
        expect("/count", "1")?;
        expect(&format!("/keep/word{turn}"), "nothing nothing")?;
        for word in get("/random")?.split(' ') {
            if !random.insert(word.to_owned()) {
                return Err(format!("{word} twice").into());
            }
        }
    }
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [30, 0, 0])
}

fn clock(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "1"])?;
    let mut last = 0;
    for _ in 0..10 {
        let now: u64 = get("/time")?.parse()?;
        if now < last {
            return Err(format!("the clock went from {last} back to {now}").into());
        }
        last = now;
    }
    service.end(libc::SIGTERM)?;
    Ok(())
}

/// Checks the numbers of connections, of late ones, and of crashes.
fn check_counters(statistics: &Value, expected: [u64; 3]) -> Result<()> {
    let found = ["connections", "late", "crashed"].map(|name| statistics[name].as_u64());
    match found == expected.map(Some) {
        true => Ok(()),
        false => Err(format!("{statistics}, expected {expected:?}").into()),
    }
}

fn stays(place: &Place) -> Result<()> {
    let service = place.serve(&["--workers", "1"])?;
    for turn in 1..=3 {
        expect("/count", &turn.to_string())?;
    }
    expect("/keep/first", "nothing nothing")?;
    expect("/keep/second", "first first")?;
    // After a crash there is nothing but the snapshot.
    ends_early("/crash")?;
    expect("/count", "1")?;
    expect("/count", "2")?;
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [8, 0, 1])
}

/// Fails if the server answers.
fn ends_early(path: &str) -> Result<()> {
    match request(path) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::InvalidData
            ) =>
        {
            Ok(())
        }
        other => Err(format!("{path}: {other:?}").into()),
    }
}

fn failures(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "1", "--limit", "2"])?;
    for path in ["/crash", "/exit", "/crash"] {
        ends_early(path)?;
        expect("/count", "1")?;
    }
    let start = Instant::now();
    ends_early("/loop")?;
    if start.elapsed() < Duration::from_secs(2) {
        return Err(format!("ended after {:?}", start.elapsed()).into());
    }
    expect("/keep/a", "nothing nothing")?;
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [8, 1, 3])?;
    match statistics["vms"].as_u64() {
        Some(1) => Ok(()),
        _ => Err(format!("{statistics}").into()),
    }
}

/// The child has the connection too, so only the limit ends it.
fn dirty(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "2", "--limit", "1"])?;
    for size in [1, 16, 64, 200] {
        let begin = request(&format!("/dirty/{size}"));
        // The answer has come, or the limit was before it on a busy machine.
        if let Ok(body) = &begin
            && body != "dirty"
        {
            return Err(format!("{begin:?}").into());
        }
        expect("/count", "1")?;
        expect("/keep/x", "nothing nothing")?;
        expect("/big/300", &"x".repeat(300 << 10))?;
    }
    service.end(libc::SIGTERM)?;
    Ok(())
}

fn in_turn(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "1"])?;
    let mut first = service::connect()?;
    first.write_all(b"GET /co")?;
    // It waits for its turn.
    let second = thread::spawn(|| request("/count"));
    thread::sleep(Duration::from_millis(300));
    if second.is_finished() {
        return Err("a second connection was served at the same time".into());
    }
    first.write_all(b"unt HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    first.read_to_string(&mut answer)?;
    drop(first);
    let second = second.join().map_err(|_| "a panic")??;
    if !answer.ends_with("\r\n\r\n1") || second != "1" {
        return Err(format!("{answer:?}, {second:?}").into());
    }
    service.end(libc::SIGTERM)?;
    Ok(())
}

fn many(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "2"])?;
    let network = fs::File::open("/proc/thread-self/ns/net")?;
    let client = |number: usize| -> Result<()> {
        for turn in 0..25 {
            let size = 1 + (number * 7 + turn * 13) % 90;
            match turn % 3 {
                0 => expect("/count", "1")?,
                1 => expect(&format!("/keep/{number}"), "nothing nothing")?,
                _ => expect(&format!("/big/{size}"), &"x".repeat(size << 10))?,
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let network = &network;
        let clients = (0..8).map(|number| {
            let run = move || {
                inside(Some(network), || client(number)).map_err(|error| format!("{error:?}"))
            };
            scope.spawn(run)
        });
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .try_for_each(|client| -> Result<()> { Ok(client.join().map_err(|_| "a panic")??) })
    })?;
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [200, 0, 0])
}

fn clients(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "1", "--limit", "1"])?;
    for _ in 0..3 {
        // It sends nothing and goes.
        drop(service::connect()?);
        // It resets the connection in the middle of an answer.
        let mut client = service::connect()?;
        client.write_all(b"GET /big/20000 HTTP/1.0\r\n\r\n")?;
        client.read_exact(&mut [0; 1000])?;
        drop(client);
        // It sends nothing and stays.
        let mut silent = service::connect()?;
        expect("/count", "1")?;
        match silent.read(&mut [0; 10]) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => return Err(format!("{other:?}").into()),
        }
    }
    service.end(libc::SIGTERM)?;
    Ok(())
}

fn warm(place: &Place) -> Result<()> {
    let warm_up = place.path("request");
    fs::write(&warm_up, "GET /keep/warm HTTP/1.0\r\n\r\n")?;
    let warm_up = warm_up.display().to_string();
    let service = place.serve(&["--ephemeral", "--workers", "2", "--warm-up", &warm_up])?;
    for turn in 0..6 {
        expect(&format!("/keep/{turn}"), "warm warm")?;
        expect("/count", "2")?;
    }
    let statistics = statistics(&service.end(libc::SIGTERM)?)?;
    check_counters(&statistics, [12, 0, 0])
}

fn signals(place: &Place) -> Result<()> {
    // A connection goes on to its end, and no other one is accepted.
    let service = place.serve(&["--ephemeral", "--workers", "2"])?;
    let mut client = service::connect()?;
    client.write_all(b"GET /count")?;
    thread::sleep(Duration::from_millis(300));
    process::signal(service.id(), libc::SIGTERM);
    thread::sleep(Duration::from_millis(300));
    client.write_all(b" HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    drop(client);
    let outcome = service.wait()?;
    if !answer.ends_with("\r\n\r\n1") || outcome.code != 0 {
        return Err(format!("{answer:?} {outcome:?}").into());
    }
    check_counters(&statistics(&outcome)?, [1, 0, 0])?;
    // Nobody waits for this one.
    for (signals, code) in [
        (&[libc::SIGINT][..], 130),
        (&[libc::SIGTERM, libc::SIGTERM], 143),
        (&[libc::SIGHUP], 129),
    ] {
        let service = place.serve(&["--ephemeral"])?;
        let _client = service::connect()?;
        thread::sleep(Duration::from_millis(300));
        for &signal in signals {
            process::signal(service.id(), signal);
            thread::sleep(Duration::from_millis(300));
        }
        let outcome = service.wait()?;
        if outcome.code != code {
            return Err(format!("{signals:?}: {outcome:?}").into());
        }
    }
    Ok(())
}

fn output(place: &Place) -> Result<()> {
    let service = place.serve(&["--ephemeral", "--workers", "1"])?;
    for word in ["one", "two", "three"] {
        expect(&format!("/out/{word}"), "printed")?;
    }
    let outcome = service.end(libc::SIGTERM)?;
    if outcome.stdout_text() != "one\ntwo\nthree\n" {
        return Err(format!("{outcome:?}").into());
    }
    let statistics = statistics(&outcome)?;
    match statistics["reset_us"]["p50"].as_f64() {
        Some(1.0..) if statistics["resets"] == 3 => Ok(()),
        _ => Err(format!("{statistics}").into()),
    }
}

fn mistakes(place: &Place) -> Result<()> {
    let snapshot = place.snapshot().display().to_string();
    let port = format!("{PORT}:{GUEST}");
    let silent = place.path("silent");
    fs::write(&silent, "")?;
    let silent = silent.display().to_string();
    let long = place.path("long");
    fs::write(&long, vec![b'x'; (64 << 10) + 1])?;
    let long = long.display().to_string();
    let alone = place.path("alone").display().to_string();
    let run = Run::new(
        &compile::alone("snapshot", "riscv64-linux-gnu-gcc")?,
        ["everything"],
    );
    let options = [
        "--snapshot",
        &alone,
        "--snapshot-at",
        "stdin",
        "--snapshot-end",
    ];
    process::run(&mut run.hartline_command(&options)?, b"")?;
    let missing = place.path("missing").display().to_string();
    let rows: [(&[&str], i32, &str); 9] = [
        (&["--from", &snapshot], 2, "--publish"),
        (&["-p", &port], 2, "--from"),
        (&["--from", &snapshot, "-p", "80:80/udp"], 2, "UDP"),
        (
            &["--from", &snapshot, "-p", &port, "--workers", "0"],
            2,
            "--workers",
        ),
        (
            &["--from", &snapshot, "-p", &port, "--limit", "x"],
            2,
            "--limit",
        ),
        (&["--from", &missing, "-p", &port], 125, "missing"),
        (&["--from", &alone, "-p", &port], 125, "network"),
        (
            &["--from", &snapshot, "-p", &port, "--warm-up", &missing],
            125,
            "missing",
        ),
        (
            &["--from", &snapshot, "-p", &port, "--warm-up", &long],
            125,
            "65536",
        ),
    ];
    for (arguments, code, message) in rows {
        refused(arguments, code, message)?;
    }
    // Nothing is sent, so the server ends the connection without an answer.
    let arguments = ["--from", &snapshot, "-p", &port, "--warm-up", &silent];
    refused(&arguments, 125, "not answered")?;
    let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    refused(&["--from", &snapshot, "-p", &port], 125, &PORT.to_string())
}

/// Fails unless the command refuses with one line that contains `message`.
fn refused(arguments: &[&str], code: i32, message: &str) -> Result<()> {
    let outcome = process::run(hartline::command("serve")?.args(arguments), b"")?;
    let text = outcome.stderr_text();
    let is_line = text.lines().count() == 1 && text.starts_with("hartline: ");
    match outcome.code == code && is_line && text.contains(message) {
        true => Ok(()),
        false => Err(format!("{arguments:?}, expected {message:?}: {outcome:?}").into()),
    }
}

fn no_servers(place: &Place) -> Result<()> {
    let port = format!("{PORT}:{GUEST}");
    for (script, cpus, message) in [
        ("read line; exit 3", "1", "it has ended with code 3"),
        ("read line; sleep 100", "1", "within 1 s (--ready-within)"),
        ("read line; exit 4", "2", "written with 2 vCPUs"),
    ] {
        let snapshot = place.path(&script.replace(' ', "-"));
        let path = snapshot.display().to_string();
        let options = [
            "--net",
            "user",
            "--snapshot",
            &path,
            "--snapshot-at",
            "stdin",
            "--snapshot-end",
            "--cpus",
            cpus,
        ];
        let run = Run::new(&paths::busybox(), ["sh", "-c", script]);
        let outcome = process::run(&mut run.hartline_command(&options)?, b"")?;
        if outcome.code != 0 {
            return Err(format!("{outcome:?}").into());
        }
        let arguments = ["--from", &path, "-p", &port, "--ready-within", "1"];
        refused(&arguments, 125, message)?;
    }
    Ok(())
}

fn python(place: &Place) -> Result<()> {
    const SERVER: &str = "import http.server, sys\n\
        kept = []\n\
        class Handler(http.server.BaseHTTPRequestHandler):\n\
        \x20   def do_GET(self):\n\
        \x20       kept.append(self.path)\n\
        \x20       body = repr(kept).encode()\n\
        \x20       self.send_response(200)\n\
        \x20       self.send_header('Content-Length', str(len(body)))\n\
        \x20       self.end_headers()\n\
        \x20       self.wfile.write(body)\n\
        \x20   def log_message(self, *arguments):\n\
        \x20       pass\n\
        http.server.HTTPServer(('', 8080), Handler).serve_forever()\n";
    let root = Root::new("serve-python", ["python3.13"].into_iter())?;
    root.add_python()?;
    let snapshot = place.path("python");
    let run = root.run("python3.13", &["-c", SERVER]);
    write(&run, &snapshot, &format!("{PORT}:{GUEST}"))?;
    // The snapshot has the root file system.
    drop(root);
    let warm_up = place.path("request");
    fs::write(&warm_up, "GET /warm HTTP/1.0\r\n\r\n")?;
    let warm_up = warm_up.display().to_string();
    for (options, before) in [(&[][..], ""), (&["--warm-up", &warm_up], "'/warm', ")] {
        let options = [&["--ephemeral", "--workers", "2"], options].concat();
        let service = Service::start(&snapshot, &options)?;
        for turn in 0..5 {
            expect(&format!("/{turn}"), &format!("[{before}'/{turn}']"))?;
        }
        check_counters(&statistics(&service.end(libc::SIGTERM)?)?, [5, 0, 0])?;
    }
    Ok(())
}
