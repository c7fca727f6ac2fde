//! Networks of tenants: which addresses machines can reach, and what is left when machines are
//! gone. Each test has one network namespace as the host's, and one for the world around the host.

use super::{await_state, check, statistics};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::{inside, ip, namespace};
use hartline_tests::{Result, compile, process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// The port on which the tests' servers listen.
pub const PORT: u16 = 7000;
/// A public address of the host, and the address of cloud metadata services.
pub const OWN: &str = "198.51.100.7";
const METADATA: &str = "169.254.169.254";
/// The world's addresses: a public one and a private one.
const PUBLIC: &str = "203.0.113.2";
const PRIVATE: &str = "192.168.5.2";
/// IPv6 addresses of the host and of the world.
const OWN6: &str = "2600:1::7";
const PUBLIC6: &str = "2600:9::2";
const PRIVATE6: &str = "fd99::2";
/// How long a run waits for an expected answer, and for an answer that must not come, milliseconds.
const PATIENCE_MS: [u32; 2] = [60_000, 3000];

/// Listens in this thread's namespace, and sends `name` to each client that connects.
fn listen(name: &'static str) -> Result<()> {
    // The socket accepts IPv4 too.
    let listener = TcpListener::bind(("::", PORT))?;
    thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            // The client may have disconnected.
            let _ = peer.write_all(name.as_bytes());
        }
    });
    Ok(())
}

/// Makes a namespace for the host, with addresses, which forwards packets; and one for the world.
pub fn host() -> Result<(Arc<File>, File)> {
    let (host, world) = (namespace()?, namespace()?);
    let id = std::process::id();
    inside(Some(&host), || {
        for address in [OWN, METADATA] {
            ip(&format!("address add {address}/32 dev lo"))?;
        }
        ip(&format!("address add {OWN6}/128 dev lo"))?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
        listen("the host")
    })?;
    // The veth peer is made in the namespace of this process, and moved from there.
    let world_fd = format!("/proc/{id}/fd/{}", world.as_raw_fd());
    inside(Some(&host), || {
        ip(&format!(
            "link add dev out type veth peer name in netns {world_fd}"
        ))?;
        ip("address add 203.0.113.1/24 dev out")?;
        ip("address add 2600:9::1/64 dev out nodad")?;
        ip("link set dev out up")?;
        ip(&format!(
            "route add {PRIVATE}/32 dev out via {PUBLIC} onlink"
        ))?;
        ip(&format!("route add {PRIVATE6}/128 dev out via {PUBLIC6}"))?;
        Ok(())
    })?;
    inside(Some(&world), || {
        ip(&format!("address add {PUBLIC}/24 dev in"))?;
        ip("link set dev in up")?;
        ip(&format!("address add {PRIVATE}/32 dev lo"))?;
        ip(&format!("address add {PUBLIC6}/64 dev in nodad"))?;
        ip(&format!("address add {PRIVATE6}/128 dev lo"))?;
        listen("the world")
    })?;
    Ok((Arc::new(host), world))
}

/// Sends a request as a tenant.
fn post(daemon: &Daemon, tenant: &str, path: &str, body: &Value) -> Result<Value> {
    let json = ("Content-Type", "application/json");
    let headers = [json, ("Hartline-Tenant", tenant)];
    let answer = daemon.request_with("POST", path, &headers, body.to_string().as_bytes())?;
    match answer.status {
        200 | 201 => Ok(answer.json()),
        _ => Err(format!("{answer:?}").into()),
    }
}

/// Pushes the service program for two tenants.
pub fn push(daemon: &Daemon) -> Result<String> {
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let program = super::push(daemon)?;
    let service = fs::read(compile::service()?)?;
    let other = [("Hartline-Tenant", "other")];
    daemon
        .request_with("POST", "/v1/programs?name=service", &other, &service)?
        .expect(201)?;
    let path = format!("/v1/programs/{program}");
    until(|| {
        let found = daemon.request_with("GET", &path, &other, b"");
        found.is_ok_and(|found| found.text("state") == "ready")
    })?;
    Ok(program)
}

/// Runs a program of a tenant that asks the server at an address. Result: the server's answer, or
/// an empty text if there was none in `patience_ms`.
fn ask(
    daemon: &Daemon,
    program: &str,
    (tenant, address): (&str, &str),
    patience_ms: u32,
) -> Result<String> {
    let args = json!(["ask", address, PORT.to_string()]);
    let run = json!({ "program": program, "args": args, "network": "tenant",
        "timeout_ms": patience_ms });
    let outcome = post(daemon, tenant, "/v1/runs", &run)?;
    let text = outcome["stdout"]["text"].as_str().unwrap_or_default();
    match (outcome["exit_code"].as_u64(), text) {
        (Some(0), told) => Ok(told.to_owned()),
        // The run timed out.
        (Some(124), "") => Ok(String::new()),
        _ => Err(format!("{address}: {outcome}").into()),
    }
}

/// Makes runs that ask at the same time. Rows: tenant, address, expected answer.
fn ask_all(daemon: &Daemon, program: &str, rows: &[(&str, &str, &str)]) -> Result<()> {
    thread::scope(|scope| {
        let asking: Vec<_> = rows
            .iter()
            .map(|&(tenant, address, expected)| {
                let patience = PATIENCE_MS[usize::from(expected.is_empty())];
                scope.spawn(move || ask(daemon, program, (tenant, address), patience))
            })
            .collect();
        for ((tenant, address, expected), asked) in rows.iter().zip(asking) {
            let told = asked.join().map_err(|_| "a thread ended early")??;
            check(
                &format!("{tenant} asks {address}"),
                told == *expected,
                &told,
            )?;
        }
        Ok(())
    })
}

/// Starts a machine that listens. Result: its path in the API, and its address.
fn server(daemon: &Daemon, program: &str) -> Result<(String, String)> {
    let path = listener(daemon, program, "serve")?;
    let address = daemon.request("GET", &path, b"")?.text("address");
    Ok((path, address))
}

/// Starts a machine that listens by IPv4 or IPv6. Result: its path in the API.
fn listener(daemon: &Daemon, program: &str, how: &str) -> Result<String> {
    let args = json!([how, PORT.to_string(), "a machine"]);
    let body = json!({ "program": program, "args": args, "network": "tenant", "start": true });
    let made = post(daemon, "default", "/v1/machines", &body)?;
    let path = format!("/v1/machines/{}", made["id"].as_str().unwrap_or_default());
    await_state(daemon, &path, "running")?;
    until(|| {
        let log = daemon.request("GET", &format!("{path}/logs"), b"");
        log.is_ok_and(|log| log.body == b"ready\n")
    })?;
    Ok(path)
}

/// Checks the answer of the machine at an address to a client in the host's network.
fn reach_from(host: &File, address: &str) -> Result<()> {
    inside(Some(host), || {
        let mut told = String::new();
        TcpStream::connect((address, PORT))?.read_to_string(&mut told)?;
        check("told to the host", told == "a machine", &told)
    })
}

pub fn networks() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = "pool = 2\ncollect_every_s = 1\nnetwork_range = '10.213.0.0/16'\n\
        network_outbound = true\nnetwork_bandwidth = 100000000";
    let mut daemon = Daemon::start_in_network(configuration, &host)?;
    let program = push(&daemon)?;
    let ready = daemon.request("GET", "/readyz", b"")?;
    check(
        "available",
        ready.json()["networks_available"] == true,
        &ready,
    )?;

    let (machine, address) = server(&daemon, &program)?;
    check("its address", address == "10.213.0.2", &address)?;
    reach_from(&host, &address)?;
    let rows = [
        ("default", address.as_str(), "a machine"),
        ("default", PUBLIC, "the world"),
        ("default", PRIVATE, ""),
        ("default", OWN, ""),
        ("default", METADATA, ""),
        ("default", "10.213.0.1", ""),
        ("other", address.as_str(), ""),
        ("other", "10.213.0.1", ""),
        ("other", PUBLIC, "the world"),
    ];
    ask_all(&daemon, &program, &rows)?;

    // A kill of the daemon loses no network, and no address is assigned twice.
    daemon.kill()?;
    reach_from(&host, &address)?;
    daemon.restart()?;
    let found = daemon.request("GET", &machine, b"")?.text("address");
    check("the same address", found == address, &found)?;
    ask_all(&daemon, &program, &rows[..2])?;
    let (second, other_address) = server(&daemon, &program)?;
    check("another address", other_address != address, &other_address)?;

    // The interface's counters are reported, also for a running machine.
    let stats = daemon.request("GET", &format!("{machine}/stats"), b"")?;
    let network = &stats.json()["network"];
    let sent = network["sent_packets"].as_u64();
    let live = sent.is_some_and(|n| n > 2) && network["dropped"].is_null();
    check("traffic so far", live, &stats)?;
    // The new daemon finds the statistics again.
    statistics::per_operation(&stats.json())?;
    let run = json!({ "program": program, "network": "tenant",
        "args": ["ask", address, PORT.to_string()] });
    let outcome = post(&daemon, "default", "/v1/runs", &run)?;
    let received = outcome["network"]["received_packets"].as_u64();
    check("traffic", received.is_some_and(|n| n > 2), &outcome)?;

    // No resource is left when the machines are gone.
    let processes = [daemon.pid(), daemon.service()?];
    let descriptors = || {
        let of = |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        processes.map(of).iter().sum::<usize>()
    };
    let before = descriptors();
    for _ in 0..10 {
        post(&daemon, "default", "/v1/runs", &run)?;
    }
    for path in [&machine, &second] {
        daemon
            .request("POST", &format!("{path}/kill"), b"")?
            .expect(200)?;
        await_state(&daemon, path, "exited")?;
        daemon.request("DELETE", path, b"")?.expect(204)?;
    }
    let links = || inside(Some(&host), || ip("-brief link show"));
    until(|| descriptors() <= before && links().is_ok_and(|links| !links.contains("hlt")))
        .map_err(|_| {
            format!(
                "{before} descriptors, then {}; {:?}",
                descriptors(),
                links()
            )
        })?;
    // The networks are made again when needed.
    ask_all(&daemon, &program, &rows[1..2])
}

/// Limits of a running machine can be changed, and outlast the daemon.
pub fn limits() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = "pool = 2\nnetwork_range = '10.215.0.0/16'";
    let mut daemon = Daemon::start_in_network(configuration, &host)?;
    let program = push(&daemon)?;
    let (machine, address) = server(&daemon, &program)?;
    let own = |daemon: &Daemon, patience_ms| {
        let asked = ask(daemon, &program, ("default", &address), patience_ms);
        asked.map(|told| told == "a machine")
    };
    let limit = |daemon: &Daemon, machine: &str, body: Value| {
        let path = format!("{machine}/network-limits");
        daemon.request("PUT", &path, body.to_string().as_bytes())
    };
    check("without limits", own(&daemon, PATIENCE_MS[0])?, &"")?;
    let set = limit(&daemon, &machine, json!({ "packets": 1 }))?.expect(200)?;
    let expected = json!({ "bandwidth": 0, "packets": 1 });
    check("what is set", set.json() == expected, &set)?;
    // An answer takes at least two seconds at one packet per second.
    check("limited", !own(&daemon, 1500)?, &"")?;
    daemon.kill()?;
    daemon.restart()?;
    check("still limited", !own(&daemon, 1500)?, &"")?;
    limit(&daemon, &machine, json!({}))?.expect(200)?;
    check("without limits again", own(&daemon, PATIENCE_MS[0])?, &"")?;
    limit(&daemon, &machine, json!({ "packets": -1 }))?.expect(422)?;
    daemon
        .request("POST", &format!("{machine}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &machine, "exited")?;
    let refused = limit(&daemon, &machine, json!({ "packets": 1 }))?;
    check(
        "one that ended",
        refused.text("code") == "wrong-state",
        &refused,
    )?;
    let other = super::machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &other, "running")?;
    let refused = limit(&daemon, &other, json!({ "packets": 1 }))?;
    check(
        "no interface",
        refused.text("code") == "no-network",
        &refused,
    )
}

pub fn exceptions() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = format!(
        "pool = 2\nnetwork_range = '10.214.0.0/22'\n\
         network_allow = ['{OWN}/32', '10.214.0.0/24', '{PRIVATE}/32']"
    );
    let daemon = Daemon::start_in_network(&configuration, &host)?;
    let program = push(&daemon)?;
    let (_, address) = server(&daemon, &program)?;
    let rows = [
        ("other", address.as_str(), "a machine"),
        ("default", OWN, "the host"),
        ("default", PRIVATE, "the world"),
        ("default", PUBLIC, ""),
        ("default", METADATA, ""),
        // This network is in the allowed list.
        ("default", "10.214.0.1", ""),
    ];
    ask_all(&daemon, &program, &rows)?;
    // Another program flushes the rules: the next network brings them back.
    inside(Some(&host), || {
        let mut nft = Command::new("nft");
        let flushed = process::run(nft.args(["flush", "ruleset"]), b"")?;
        check("flushed", flushed.code == 0, &flushed.stderr_text())
    })?;
    daemon
        .request("PUT", "/v1/tenants/third", b"{}")?
        .expect(200)?;
    let third = [("Hartline-Tenant", "third")];
    let service = fs::read(compile::service()?)?;
    daemon
        .request_with("POST", "/v1/programs?name=service", &third, &service)?
        .expect(201)?;
    let path = format!("/v1/programs/{program}");
    until(|| {
        let found = daemon.request_with("GET", &path, &third, b"");
        found.is_ok_and(|found| found.text("state") == "ready")
    })?;
    ask_all(
        &daemon,
        &program,
        &[("third", METADATA, ""), ("third", OWN, "the host")],
    )
}

pub fn ipv6() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = "pool = 2\nnetwork_range = '10.215.0.0/16'\n\
        network_range6 = 'fd12:3456:789a::/48'\nnetwork_outbound = true\n\
        network_allow = ['fd12:3456:789a:1::/64']";
    let mut daemon = Daemon::start_in_network(configuration, &host)?;
    let program = push(&daemon)?;
    let machine = listener(&daemon, &program, "serve6")?;
    let address = daemon.request("GET", &machine, b"")?.text("address6");
    check("its address", address == "fd12:3456:789a::2", &address)?;
    reach_from(&host, &address)?;
    let rows = [
        ("default", address.as_str(), "a machine"),
        ("default", PUBLIC6, "the world"),
        ("default", PUBLIC, "the world"),
        ("default", PRIVATE6, ""),
        ("default", OWN6, ""),
        ("default", "fd12:3456:789a::1", ""),
        // This network is in the allowed list.
        ("default", "fd12:3456:789a:1::1", ""),
        ("other", address.as_str(), ""),
        ("other", "fd12:3456:789a:1::1", ""),
        ("other", PUBLIC6, "the world"),
    ];
    ask_all(&daemon, &program, &rows)?;
    daemon.kill()?;
    daemon.restart()?;
    let found = daemon.request("GET", &machine, b"")?.text("address6");
    check("the same address", found == address, &found)?;
    ask_all(&daemon, &program, &rows[..1])
}
