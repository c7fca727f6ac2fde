//! Snapshots of VMs with a user-mode network.

use super::{Place, Running, expect, expect_refusal, from, until, writing};
use hartline_tests::compare::Run;
use hartline_tests::network::{inside, ip, namespace};
use hartline_tests::{Result, compile, hartline, process};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// An address of the host that the guest reaches.
const OUTSIDE: &str = "10.78.0.1";
/// Ports of the program.
const TCP: u16 = 7000;
const UDP: u16 = 7001;
/// How long a read waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in a network namespace with an address that the guest reaches.
fn in_network(cpus: u32, test: fn(&Place) -> Result<()>) -> Result<()> {
    // It may have to be built, which needs this network.
    hartline::binary()?;
    let network = namespace()?;
    inside(Some(&network), move || {
        ip("link set dev lo up")?;
        ip(&format!("address add {OUTSIDE}/32 dev lo"))?;
        let place = Place {
            program: compile::alone("moved", "riscv64-linux-gnu-gcc")?,
            ..Place::on(cpus)?
        };
        test(&place)
    })
}

/// Forwarded ports of the host, TCP and UDP.
#[derive(Clone, Copy)]
struct Ports(u16);

impl Ports {
    /// Options that forward them.
    fn options(self) -> [String; 4] {
        let Self(port) = self;
        let publish = || "-p".to_owned();
        let udp = format!("{port}:{UDP}/udp");
        [publish(), format!("{port}:{TCP}"), publish(), udp]
    }

    fn connect(self) -> Result<TcpStream> {
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, self.0))?;
        client.set_read_timeout(Some(PATIENCE))?;
        Ok(client)
    }

    /// What the program answers to a text.
    fn ask(self, text: &str) -> Result<String> {
        answer(self.connect()?, text)
    }

    /// What the program answers to a datagram.
    fn ask_udp(self) -> Result<String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(b"x", (Ipv4Addr::LOCALHOST, self.0))?;
        let mut told = [0; 64];
        let length = socket.recv(&mut told)?;
        Ok(String::from_utf8_lossy(&told[..length]).into_owned())
    }
}

/// What the program answers to a client's text.
fn answer(mut client: TcpStream, text: &str) -> Result<String> {
    client.write_all(text.as_bytes())?;
    let mut told = String::new();
    client.read_to_string(&mut told)?;
    Ok(told)
}

/// The outside, to which the program connects.
struct Outside(TcpListener);

impl Outside {
    fn new() -> Result<Self> {
        Ok(Self(TcpListener::bind((OUTSIDE, 0))?))
    }

    /// Takes the connection of a program that begins.
    fn accept(&self) -> Result<TcpStream> {
        let mut peer = self.0.accept()?.0;
        peer.set_read_timeout(Some(PATIENCE))?;
        let mut told = [0; 6];
        peer.read_exact(&mut told)?;
        match &told {
            b"before" => Ok(peer),
            _ => Err(format!("{told:?}").into()),
        }
    }
}

/// The command that writes the snapshot `name` at the first read of a program that connects to the outside.
fn writes(place: &Place, name: &str, outside: &Outside, options: &[String]) -> Result<Command> {
    let port = outside.0.local_addr()?.port().to_string();
    let run = Run::new(&place.program, [OUTSIDE, &port]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    place.writing_of(&run, name, "stdin", &options)
}

/// Writes a snapshot with a connection to the outside and a client that was not accepted, and ends the VM.
fn write(place: &Place, name: &str) -> Result<()> {
    let (outside, ports) = (Outside::new()?, Ports(20_000));
    let mut options = Vec::from(ports.options());
    options.push("--snapshot-end".to_owned());
    let mut running = Running::start(&mut writes(place, name, &outside, &options)?)?;
    let mut peer = outside.accept()?;
    let mut client = ports.connect()?;
    running.expect_line("before")?;
    let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
    if status.code() != Some(0) {
        return Err(format!("{status}").into());
    }
    // They see the end of the VM.
    for stream in [&mut peer, &mut client] {
        let end = stream.read(&mut [0]);
        if !matches!(end, Ok(0) | Err(_)) {
            return Err(format!("{end:?}").into());
        }
    }
    Ok(())
}

/// A VM that continues a snapshot, with these ports.
fn continued(snapshot: &Path, ports: Ports, line: &str, more: &[&str]) -> Result<Running> {
    let options = ports.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut running = Running::start(&mut from(snapshot, &[&options, more].concat())?)?;
    let mut input = running.child.stdin.take().ok_or("no input")?;
    writeln!(input, "{line}")?;
    Ok(running)
}

/// Checks that a program serves with a word, and ends it.
fn serves(mut running: Running, ports: Ports, word: &str) -> Result<()> {
    running.expect_line(&format!("after {word}"))?;
    let answers = [ports.ask("x")?, ports.ask_udp()?, ports.ask("quit")?];
    let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
    match answers.iter().all(|told| told == word) && status.code() == Some(7) {
        true => Ok(()),
        false => Err(format!("{answers:?} {status}").into()),
    }
}

/// Connections to the outside are reset, listeners, datagram sockets and connections inside stay, in two
/// VMs at once. The second one writes another snapshot.
pub fn goes_on(cpus: u32) -> Result<()> {
    in_network(cpus, |place| {
        write(place, "one")?;
        let vms = [(20_001, "first"), (20_002, "second")].map(|(port, word)| {
            let line = format!("new {word}");
            let running = continued(&place.path("one"), Ports(port), &line, &[]);
            (running, Ports(port), word)
        });
        for (running, ports, word) in vms {
            serves(running?, ports, word)?;
        }
        for interrupts in ["safepoint", "auto"] {
            let line = "new again";
            let more = ["--interrupts", interrupts];
            let running = continued(&place.path("one"), Ports(20_003), line, &more)?;
            serves(running, Ports(20_003), "again")?;
        }
        Ok(())
    })
}

/// The program itself goes on with its connections.
pub fn original(cpus: u32) -> Result<()> {
    in_network(cpus, |place| {
        let (outside, ports) = (Outside::new()?, Ports(20_000));
        let mut command = writes(place, "one", &outside, &ports.options())?;
        let mut running = Running::start(&mut command)?;
        let mut peer = outside.accept()?;
        let mut client = ports.connect()?;
        running.expect_line("before")?;
        until("a snapshot", || place.path("one").exists())?;
        client.write_all(b"x")?;
        let mut input = running.child.stdin.take().ok_or("no input")?;
        writeln!(input, "kept on")?;
        let mut told = [0; 5];
        peer.read_exact(&mut told)?;
        peer.write_all(b"ok")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        if &told != b"after" || answer != "on" {
            return Err(format!("{told:?} {answer}").into());
        }
        serves(running, ports, "on")
    })
}

/// Snapshots of programs from snapshots: the buffers of the devices before take no room.
pub fn again() -> Result<()> {
    in_network(1, |place| {
        let run = Run::new(&place.program, [""; 0]);
        let options = ["--net", "user", "--mem", "128M", "--snapshot-end"];
        let mut command = writing(&run, &place.path("0"), "stdin", &options)?;
        expect(&process::run(&mut command, b"")?, 0, "before\n")?;
        for number in 0..10 {
            let next = place.path(&(number + 1).to_string()).display().to_string();
            let options = [
                "--snapshot",
                &next,
                "--snapshot-at",
                "stdin",
                "--snapshot-end",
            ];
            expect(&place.from(&number.to_string(), "", &options)?, 0, "")?;
        }
        let running = continued(&place.path("10"), Ports(20_000), "new last", &[])?;
        serves(running, Ports(20_000), "last")
    })
}

/// Ports without a network, interfaces of the host, and descriptions that were changed.
pub fn refused() -> Result<()> {
    in_network(1, |place| {
        let run = Run::new(&place.program, [""; 0]);
        for (name, options) in [
            ("none", &["--snapshot-end"][..]),
            ("user", &["--net", "user", "--snapshot-end"]),
        ] {
            let mut command = writing(&run, &place.path(name), "stdin", options)?;
            expect(&process::run(&mut command, b"")?, 0, "before\n")?;
        }
        let outcome = place.from("none", "new x", &["-p", "20000:7000"])?;
        expect_refusal(&outcome, "-p: the snapshot has no network")?;
        let mut command = writing(&run, &place.path("tap"), "stdin", &["--net", "tap:none"])?;
        let outcome = process::run(&mut command, b"")?;
        expect_refusal(&outcome, "a snapshot cannot contain a TAP interface")?;
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = format!("{}:7000", taken.local_addr()?.port());
        let outcome = place.from("user", "new x", &["-p", &port])?;
        expect_refusal(&outcome, "cannot listen at")?;
        let outcome = place.from("user", "new x", &["--net", "user"])?;
        if outcome.code != 2 {
            return Err(format!("{outcome:?}").into());
        }
        set(&place.path("user"), json!(false))?;
        expect_refusal(&place.from("user", "new x\n", &[])?, "network")?;
        set(&place.path("user"), json!("user"))?;
        let outcome = place.from("user", "new x\n", &[])?;
        expect_refusal(&outcome, "not the description of a snapshot")?;
        // A device that the guest does not use.
        set(&place.path("none"), json!(true))?;
        let mut running = continued(&place.path("none"), Ports(20_000), "new x", &[])?;
        running.expect_line("after x")
    })
}

/// Changes the description of a snapshot.
fn set(snapshot: &Path, network: Value) -> Result<()> {
    let path = snapshot.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
    config["machine"]["network"] = network;
    Ok(fs::write(&path, config.to_string())?)
}

/// Many clients connect to a VM that starts: none is refused once its ports are bound.
pub fn clients_at_once() -> Result<()> {
    in_network(1, |place| {
        // Clients may come before the program goes on, so it has no checks of its listener.
        let run = Run::new(&place.program, [""; 0]);
        let options = ["--net", "user", "--snapshot-end"];
        let mut command = writing(&run, &place.path("one"), "stdin", &options)?;
        expect(&process::run(&mut command, b"")?, 0, "before\n")?;
        let ports = Ports(20_001);
        let running = continued(&place.path("one"), ports, "new all", &[])?;
        until("its port", || ports.connect().is_ok())?;
        let asking = (0..20).map(|_| {
            let client = ports.connect()?;
            Ok(thread::spawn(move || answer(client, "x")))
        });
        let asking: Vec<_> = asking.collect::<Result<_>>()?;
        for client in asking {
            let told = client.join().map_err(|_| "panic")??;
            if told != "all" {
                return Err(told.into());
            }
        }
        serves(running, ports, "all")
    })
}
