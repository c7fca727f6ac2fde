//! Snapshots of machines with a network and published ports, and suspended machines that clients resume.

use super::networks::{OWN, host};
use super::snapshots::{files, made, post, refused, script};
use super::suspended::{act, suspend};
use super::{await_state, check, state};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::inside;
use hartline_tests::{Result, compile};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const CONFIGURATION: &str = "pool = 2\nnetwork_range = '10.217.0.0/16'\n\
    publish_ports = '30000-30009'\npublish_connections = 256";
/// The port of the program.
const GUEST: u16 = 7000;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon in a network of its own, with the program that counts texts.
fn begin() -> Result<(Daemon, Arc<File>)> {
    let (host, _) = host()?;
    let daemon = Daemon::start_in_network(CONFIGURATION, &host)?;
    let program = compile::alone("moved", "riscv64-linux-gnu-gcc")?;
    daemon.give_image(&program)?;
    let pushed = daemon.push("name=moved", &fs::read(program)?)?;
    check("pushed", pushed["state"] == "ready", &pushed)?;
    super::snapshots::push(&daemon)?;
    Ok((daemon, host))
}

fn ports(port: u16) -> Value {
    json!([{ "host": port, "guest": GUEST }])
}

/// The specification of a machine that counts texts, with a port.
fn counting(port: u16) -> Value {
    json!({ "program": "moved", "args": ["count"], "memory": 64 << 20, "network": "tenant",
        "ports": ports(port), "name": format!("at-{port}"), "start": true })
}

/// Makes a machine that counts texts, and sends the first one.
fn machine(daemon: &Daemon, host: &File, spec: &Value) -> Result<String> {
    let path = super::snapshots::machine(daemon, spec)?;
    let port = spec["ports"][0]["host"].as_u64().unwrap_or_default();
    let port = u16::try_from(port)?;
    until(|| ask(host, port, "first").is_ok_and(|told| told.ends_with(" first")))
        .map_err(|_| format!("no answer: {}", daemon.log()))?;
    Ok(path)
}

fn connect(host: &File, port: u16) -> Result<TcpStream> {
    inside(Some(host), || {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    })
}

/// Sends a text, and returns the answer.
fn say(mut client: &TcpStream, text: &str) -> Result<String> {
    client.write_all(text.as_bytes())?;
    let mut told = [0; 96];
    let length = client.read(&mut told)?;
    match length {
        0 => Err("the connection was closed".into()),
        _ => Ok(String::from_utf8_lossy(&told[..length]).into_owned()),
    }
}

/// What a machine answers to a new client.
fn ask(host: &File, port: u16, text: &str) -> Result<String> {
    say(&connect(host, port)?, text)
}

/// The number in an answer.
fn number(told: &str, text: &str) -> Result<u64> {
    let number = told.strip_suffix(text).map(str::trim_end);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{told:?}, not a number and {text:?}").into())
}

fn is_closed(mut client: &TcpStream) -> Result<()> {
    let end = client.read(&mut [0]);
    let is_open = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let is_closed = match &end {
        Ok(count) => *count == 0,
        Err(error) => !is_open(error),
    };
    check("closed", is_closed, &end)
}

/// Machines and runs continue a snapshot in the network, with ports of their own.
pub fn continued() -> Result<()> {
    let (daemon, host) = begin()?;
    let first = machine(&daemon, &host, &counting(30_000))?;
    let open = connect(&host, 30_000)?;
    let count = number(&say(&open, "open")?, "open")?;
    let id = made(&daemon, &first, "warm")?;
    // The machine goes on with its connections.
    check(
        "open",
        number(&say(&open, "open")?, "open")? == count + 1,
        &(),
    )?;
    let mut addresses = BTreeSet::new();
    for port in [30_001, 30_002] {
        let spec = json!({ "snapshot": id, "ports": ports(port), "start": true });
        let path = super::snapshots::machine(&daemon, &spec)?;
        let told = ask(&host, port, "again")?;
        check("its own count", number(&told, "again")? == count + 1, &told)?;
        let shown = daemon.request("GET", &path, b"")?.json();
        check("its port", shown["spec"]["ports"] == ports(port), &shown)?;
        addresses.insert(shown["address"].to_string());
    }
    check("addresses", addresses.len() == 2, &addresses)?;
    // Without ports, and with one that is taken.
    let spec = json!({ "snapshot": id, "start": true });
    let path = super::snapshots::machine(&daemon, &spec)?;
    let shown = daemon.request("GET", &path, b"")?.json();
    check(
        "no ports",
        shown["spec"]["ports"].as_array().is_none_or(Vec::is_empty),
        &shown,
    )?;
    let spec = json!({ "snapshot": id, "ports": ports(30_001), "start": true });
    let taken = post(&daemon, "/v1/machines", &spec)?;
    refused("taken", &taken, 409, "port-in-use", "30001")?;
    let spec = json!({ "snapshot": id, "ports": ports(80) });
    let wrong = post(&daemon, "/v1/machines", &spec)?;
    check("not allowed", wrong.status == 422, &wrong)?;
    let spec = json!({ "snapshot": id, "network": "tenant" });
    refused(
        "network",
        &post(&daemon, "/v1/machines", &spec)?,
        409,
        "not-with-snapshot",
        "network",
    )?;

    // A snapshot without a network.
    let plain = super::snapshots::machine(&daemon, &script("plain", super::snapshots::COUNT))?;
    let plain = made(&daemon, &plain, "plain")?;
    for path in ["/v1/machines", "/v1/runs"] {
        let spec = json!({ "snapshot": plain, "ports": ports(30_003) });
        refused(
            path,
            &post(&daemon, path, &spec)?,
            409,
            "no-network",
            "network",
        )?;
    }
    // A run, which ends with its time limit.
    let spec = json!({ "snapshot": id, "ports": ports(30_003), "timeout_ms": 20_000 });
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let answer = post(&daemon, "/v1/runs", &spec).map_err(|error| format!("{error:?}"))?;
            Ok::<_, String>(answer.json())
        });
        let mut told = String::new();
        let served = until(|| {
            let asked = ask(&host, 30_003, "run").unwrap_or_default();
            told = asked;
            told.ends_with(" run")
        });
        let run = running.join().map_err(|_| "a panic")??;
        served.map_err(|_| format!("no answer of a run: {run}"))?;
        check("a run", run["exit_code"] == 124, &run)
    })
}

/// The addresses of the network interface that a machine finds: the hardware's and IPv4's.
fn interface(daemon: &Daemon, machine: &str) -> Result<[String; 2]> {
    let command = json!({ "command": ["/bin/busybox", "ifconfig", "eth0"] });
    let ran = post(daemon, &format!("{machine}/exec"), &command)?.expect(200)?;
    let text = ran.json()["stdout"]["text"].to_string();
    let after = |name: &str| {
        let value = text.split(name).nth(1)?.split_whitespace().next()?;
        Some(value.to_owned())
    };
    let addresses = after("HWaddr ").zip(after("inet addr:"));
    let (hardware, address) = addresses.ok_or_else(|| format!("no addresses: {ran:?}"))?;
    Ok([hardware, address])
}

/// Machines that continue one snapshot have hardware and network addresses of their own: the machine of the snapshot, two
/// others at the same time, and one of them when it continues its own snapshot.
pub fn addresses() -> Result<()> {
    let (daemon, _host) = begin()?;
    let mut spec = script("first", super::snapshots::COUNT);
    spec["network"] = "tenant".into();
    let first = super::snapshots::machine(&daemon, &spec)?;
    let kept = interface(&daemon, &first)?;
    let id = made(&daemon, &first, "warm")?;
    let again = json!({ "snapshot": id, "start": true });
    let second = super::snapshots::machine(&daemon, &again)?;
    let third = super::snapshots::machine(&daemon, &again)?;
    made(&daemon, &third, "next")?;
    let next = json!({ "snapshot": "next", "start": true });
    let last = super::snapshots::machine(&daemon, &next)?;
    let mut all = Vec::new();
    for machine in [&first, &second, &third, &last] {
        let found = interface(&daemon, machine)?;
        let shown = daemon.request("GET", machine, b"")?.json();
        check(
            "the address",
            shown["address"] == found[1],
            &(&found, &shown),
        )?;
        all.push(found);
    }
    check(
        "the first one keeps its own",
        all[0] == kept,
        &(&kept, &all),
    )?;
    for part in 0..2 {
        let different: BTreeSet<_> = all.iter().map(|found| &found[part]).collect();
        check("different", different.len() == all.len(), &all)?;
    }
    Ok(())
}

/// A client resumes a suspended machine, and many at once do it once. The port is kept.
pub fn clients() -> Result<()> {
    let (daemon, host) = begin()?;
    let path = machine(&daemon, &host, &counting(30_000))?;
    let open = connect(&host, 30_000)?;
    let count = number(&say(&open, "open")?, "open")?;
    suspend(&daemon, &path)?;
    is_closed(&open)?;
    let other = post(&daemon, "/v1/machines", &counting(30_000))?;
    check("the name", other.status == 409, &other)?;
    let mut spec = counting(30_000);
    spec["name"] = "other".into();
    refused(
        "kept",
        &post(&daemon, "/v1/machines", &spec)?,
        409,
        "port-in-use",
        "30000",
    )?;

    let told = ask(&host, 30_000, "one")?;
    check(
        "it goes on",
        number(&told, "one")? == count + 1,
        &(told, daemon.log()),
    )?;
    check(
        "running",
        state(&daemon, &path)? == "running",
        &daemon.log(),
    )?;

    suspend(&daemon, &path)?;
    let mut events = super::snapshot_events::Events::follow(&daemon, "default")?;
    let clients = (0..20).map(|_| connect(&host, 30_000));
    let clients: Vec<_> = clients.collect::<Result<_>>()?;
    let told = thread::scope(|scope| {
        let asking = clients.iter().map(|client| {
            scope.spawn(move || say(client, "many").map_err(|error| format!("{error:?}")))
        });
        let asking: Vec<_> = asking.collect();
        let told = asking
            .into_iter()
            .map(|asking| Ok(asking.join().map_err(|_| "a panic")??));
        told.collect::<Result<Vec<String>>>()
    })?;
    let numbers = told.iter().map(|told| number(told, "many"));
    let numbers: BTreeSet<u64> = numbers.collect::<Result<_>>()?;
    let expected: BTreeSet<u64> = (count + 2..count + 22).collect();
    check("all are served", numbers == expected, &numbers)?;
    act(&daemon, &path, "kill")?.expect(200)?;
    await_state(&daemon, &path, "exited")?;
    for expected in ["queued", "starting", "running", "exited"] {
        let (name, event) = events.next()?;
        let right = name == "machine" && event["state"] == expected;
        check(expected, right, &event)?;
    }
    // The port is free.
    machine(&daemon, &host, &spec)?;
    // One that is started by a request, or ends, has its port too, or does not have it any more.
    let path = "/v1/machines/other";
    suspend(&daemon, path)?;
    act(&daemon, path, "start")?.expect(200)?;
    ask(&host, 30_000, "x")?;
    suspend(&daemon, path)?;
    daemon.request("DELETE", path, b"")?.expect(204)?;
    check("closed", connect(&host, 30_000).is_err(), &())?;
    check(
        "nothing is left",
        files(&daemon)?.is_empty(),
        &files(&daemon)?,
    )
}

/// The next daemon listens for a suspended machine.
pub fn killed_daemon() -> Result<()> {
    let (mut daemon, host) = begin()?;
    let path = machine(&daemon, &host, &counting(30_000))?;
    let count = number(&ask(&host, 30_000, "x")?, "x")?;
    suspend(&daemon, &path)?;
    for round in 1..4 {
        daemon.kill()?;
        daemon.restart()?;
        check("suspended", state(&daemon, &path)? == "suspended", &round)?;
        until(|| connect(&host, 30_000).is_ok())?;
        let told = ask(&host, 30_000, "x");
        let told = told.map_err(|error| format!("{error:?}: {}", daemon.log()))?;
        check("it goes on", number(&told, "x")? == count + round, &told)?;
        await_state(&daemon, &path, "running")?;
        suspend(&daemon, &path)?;
    }
    // The address of a machine that is found running again.
    act(&daemon, &path, "start")?.expect(200)?;
    ask(&host, 30_000, "x")?;
    daemon.kill()?;
    daemon.restart()?;
    until(|| connect(&host, 30_000).is_ok())?;
    ask(&host, 30_000, "x")?;
    suspend(&daemon, &path)?;
    ask(&host, 30_000, "x")?;
    check("another address", ask(&host, 30_001, "x").is_err(), &OWN)
}

/// If a machine cannot go on, its clients are told by the end of their connections, and the message has the
/// reason. It goes on when the reason is gone.
pub fn failed_starts() -> Result<()> {
    let (daemon, host) = begin()?;
    let path = machine(&daemon, &host, &counting(30_000))?;
    let count = number(&ask(&host, 30_000, "x")?, "x")?;
    suspend(&daemon, &path)?;
    let snapshot = daemon.data().join("snapshots").join(&files(&daemon)?[0]);
    let (memory, kept) = (snapshot.join("memory"), snapshot.join("kept"));
    for round in 0..2 {
        fs::rename(&memory, &kept)?;
        let client = connect(&host, 30_000)?;
        is_closed(&client)?;
        await_state(&daemon, &path, "suspended")?;
        let shown = daemon.request("GET", &path, b"")?;
        let told = shown.text("message");
        check("why", !told.is_empty(), &(round, shown))?;
        fs::rename(&kept, &memory)?;
    }
    // No room for it: the request of a client is refused at once.
    let quota = json!({ "max_memory": 1 << 20 }).to_string();
    daemon
        .request("PUT", "/v1/tenants/default", quota.as_bytes())?
        .expect(200)?;
    is_closed(&connect(&host, 30_000)?)?;
    await_state(&daemon, &path, "suspended")?;
    let shown = daemon.request("GET", &path, b"")?;
    check("why", !shown.text("message").is_empty(), &shown)?;
    daemon
        .request("PUT", "/v1/tenants/default", b"{}")?
        .expect(200)?;
    let told = ask(&host, 30_000, "x");
    let told = told.map_err(|error| format!("{error:?}: {}", daemon.log()))?;
    check(
        "it goes on",
        number(&told, "x")? == count + 1,
        &(told, daemon.log()),
    )
}

/// An idle machine with ports is suspended, also if a client is connected that sends nothing.
pub fn idle() -> Result<()> {
    let (daemon, host) = begin()?;
    let mut spec = counting(30_000);
    spec["idle_timeout_s"] = 2.into();
    let path = machine(&daemon, &host, &spec)?;
    let mut count = number(&ask(&host, 30_000, "x")?, "x")?;
    for _ in 0..2 {
        await_state(&daemon, &path, "suspended")
            .map_err(|error| format!("{error:?}, {}", daemon.log()))?;
        let client = connect(&host, 30_000)?;
        // A client that works keeps it awake.
        for _ in 0..8 {
            count += 1;
            let told = say(&client, "x")?;
            check("it goes on", number(&told, "x")? == count, &told)?;
            thread::sleep(Duration::from_millis(500));
        }
        await_state(&daemon, &path, "suspended")?;
        is_closed(&client)?;
    }
    Ok(())
}
