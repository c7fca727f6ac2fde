//! Published ports: connections from the host to machines, and ports that a tenant does not get.

use super::commands::client;
use super::networks::{self, OWN, PORT, host};
use super::{await_state, check};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::network::{inside, ip};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const CONFIGURATION: &str = "pool = 2\nnetwork_range = '10.216.0.0/16'\n\
    publish_ports = '30000-30009'\npublish_addresses = ['127.0.0.1', '198.51.100.7']\n\
    publish_per_tenant = 4";

/// Makes a machine of a tenant that serves, with these published ports, and starts it.
fn publish(daemon: &Daemon, tenant: &str, program: &str, ports: &Value) -> Result<Answer> {
    let body = json!({ "program": program, "args": ["serve", PORT.to_string(), "a machine"],
        "network": "tenant", "ports": ports, "start": true });
    let json = ("Content-Type", "application/json");
    let headers = [json, ("Hartline-Tenant", tenant)];
    daemon.request_with(
        "POST",
        "/v1/machines",
        &headers,
        body.to_string().as_bytes(),
    )
}

/// What the listener at an address of the host's network says, or an empty text.
fn ask(network: &File, address: (&str, u16)) -> Result<String> {
    inside(Some(network), || {
        let mut told = String::new();
        if let Ok(mut stream) = TcpStream::connect(address) {
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            // The connection may be reset.
            let _ = stream.read_to_string(&mut told);
        }
        Ok(told)
    })
}

/// Waits for a machine's answer: its program may not listen yet.
fn await_answer(daemon: &Daemon, network: &File, address: (&str, u16)) -> Result<()> {
    until(|| ask(network, address).is_ok_and(|told| told == "a machine"))
        .map_err(|_| format!("no answer at {address:?}: {}", daemon.log()).into())
}

pub fn published() -> Result<()> {
    let (host, world) = host()?;
    let mut daemon = Daemon::start_in_network(CONFIGURATION, &host)?;
    let program = networks::push(&daemon)?;
    let both = json!([{ "host": 30000, "guest": PORT },
        { "address": OWN, "host": 30000, "guest": PORT }]);
    let made = publish(&daemon, "default", &program, &both)?.expect(201)?;
    check("its ports", made.json()["spec"]["ports"] == both, &made)?;
    let machine = format!("/v1/machines/{}", made.text("id"));
    await_answer(&daemon, &host, ("127.0.0.1", 30000))?;
    await_answer(&daemon, &host, (OWN, 30000))?;
    // From outside, by the host's address; other ports of the machine are not there.
    inside(Some(&world), || {
        ip(&format!("route add {OWN}/32 via 203.0.113.1"))
    })?;
    await_answer(&daemon, &world, (OWN, 30000))?;
    check("nothing else", ask(&world, (OWN, 30001))?.is_empty(), &())?;

    // Another tenant cannot take the port, and does not disturb the machine by trying.
    for ports in [
        json!([{ "host": 30000, "guest": PORT }]),
        json!([{ "host": 30001, "guest": PORT }, { "host": 30000, "guest": PORT }]),
    ] {
        let refused = publish(&daemon, "other", &program, &ports)?.expect(409)?;
        check("taken", refused.text("code") == "port-in-use", &refused)?;
    }
    let others =
        daemon.request_with("GET", "/v1/machines", &[("Hartline-Tenant", "other")], b"")?;
    check("nothing is left", others.body == b"[]", &others)?;
    await_answer(&daemon, &host, ("127.0.0.1", 30000))?;

    // A daemon that is killed loses no port.
    daemon.kill()?;
    check("closed", ask(&host, (OWN, 30000))?.is_empty(), &())?;
    daemon.restart()?;
    await_answer(&daemon, &host, (OWN, 30000))?;

    // The port is free at the end of the machine, and not before.
    daemon
        .request("POST", &format!("{machine}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &machine, "exited")?;
    check("closed", ask(&host, (OWN, 30000))?.is_empty(), &())?;
    let ports = json!([{ "host": 30000, "guest": PORT }]);
    let made = publish(&daemon, "other", &program, &ports)?.expect(201)?;
    await_answer(&daemon, &host, ("127.0.0.1", 30000))?;
    let again = daemon.request("POST", &format!("{machine}/start"), b"")?;
    check("taken now", again.text("code") == "port-in-use", &again)?;
    let failed = daemon.request("GET", &machine, b"")?;
    let told = failed.text("message").contains("port 30000");
    check("why", told && failed.text("state") == "failed", &failed)?;
    let kill = format!("/v1/machines/{}/kill", made.text("id"));
    daemon
        .request_with("POST", &kill, &[("Hartline-Tenant", "other")], b"")?
        .expect(200)?;
    until(|| {
        let started = daemon.request("POST", &format!("{machine}/start"), b"");
        started.is_ok_and(|started| started.status == 200)
    })?;
    await_answer(&daemon, &host, ("127.0.0.1", 30000))
}

/// Ports that nobody, or this tenant, may publish.
pub fn refused() -> Result<()> {
    let (host, _world) = host()?;
    let daemon = Daemon::start_in_network(CONFIGURATION, &host)?;
    let program = networks::push(&daemon)?;
    let taken = inside(Some(&host), || Ok(TcpListener::bind("127.0.0.1:30005")?))?;
    let many: Vec<_> = (0..17)
        .map(|_| json!({ "host": 30000, "guest": 1 }))
        .collect();
    let five: Vec<_> = (0..5)
        .map(|n| json!({ "host": 30000 + n, "guest": 1 }))
        .collect();
    for (ports, code) in [
        (json!([{ "host": 80, "guest": 80 }]), "invalid-field"),
        (json!([{ "host": 1023, "guest": 80 }]), "invalid-field"),
        (json!([{ "host": 30010, "guest": 80 }]), "port-not-allowed"),
        (json!([{ "host": 30000, "guest": 0 }]), "invalid-field"),
        (
            json!([{ "host": 30000, "guest": 80, "address": "0.0.0.0" }]),
            "port-not-allowed",
        ),
        (
            json!([{ "host": 30000, "guest": 80, "address": "10.216.0.1" }]),
            "port-not-allowed",
        ),
        (
            json!([{ "host": 30000, "guest": 80, "address": "host" }]),
            "invalid-field",
        ),
        (json!(many), "invalid-field"),
        (json!(five), "too-many-ports"),
        (json!([{ "host": 30005, "guest": 80 }]), "port-in-use"),
    ] {
        let refused = publish(&daemon, "default", &program, &ports)?;
        check(&ports.to_string(), refused.text("code") == code, &refused)?;
    }
    drop(taken);
    let ports = json!([{ "host": 30000, "guest": 1 }]);
    for (path, code) in [("/v1/machines", "no-network"), ("/v1/runs", "no-network")] {
        let body = json!({ "program": program, "ports": ports }).to_string();
        let refused = daemon.request("POST", path, body.as_bytes())?;
        check(path, refused.text("code") == code, &refused)?;
    }
    let all = daemon.request("GET", "/v1/machines", b"")?;
    check("no machine", all.body == b"[]", &all)?;
    let usage = daemon
        .request("GET", "/v1/tenants/default/usage", b"")?
        .json();
    let ports = usage.as_array().into_iter().flatten();
    let ports = ports.into_iter().find(|usage| usage["resource"] == "ports");
    let expected = json!({ "resource": "ports", "unit": "", "used": 0, "limit": 4 });
    check("usage", ports == Some(&expected), &usage)?;
    // The operator's rules change while the daemon runs; machines that run keep their ports.
    let output = client(
        &daemon,
        &[
            "create",
            "--start",
            "-p",
            "30004:7000",
            &program,
            "serve",
            "7000",
            "a machine",
        ],
        "",
    )?;
    check("created", output.status.success(), &output)?;
    await_answer(&daemon, &host, ("127.0.0.1", 30004))?;
    daemon.configure(&CONFIGURATION.replace("30000-30009", "31000-31009"))?;
    daemon.hang_up();
    let wrong = json!([{ "host": 30005, "guest": 1 }]);
    until(|| daemon.log().contains("publish_ports has changed"))?;
    let refused = publish(&daemon, "default", &program, &wrong)?;
    check(
        "not any more",
        refused.text("code") == "port-not-allowed",
        &refused,
    )?;
    await_answer(&daemon, &host, ("127.0.0.1", 30004))
}

/// A client that holds its connections open uses up the limit of the tenant, but not that of others.
pub fn limited() -> Result<()> {
    let (host, _world) = host()?;
    let configuration = format!("{CONFIGURATION}\npublish_connections = 8");
    let daemon = Daemon::start_in_network(&configuration, &host)?;
    let program = networks::push(&daemon)?;
    let port = |port: u16| json!([{ "host": port, "guest": PORT }]);
    publish(&daemon, "default", &program, &port(30000))?.expect(201)?;
    publish(&daemon, "other", &program, &port(30001))?.expect(201)?;
    await_answer(&daemon, &host, ("127.0.0.1", 30000))?;
    // Connections to a paused machine wait.
    let waiting = json!({ "program": program, "args": ["idle"], "network": "tenant",
        "ports": port(30002), "start": true });
    let made = daemon.request("POST", "/v1/machines", waiting.to_string().as_bytes())?;
    let machine = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    await_state(&daemon, &machine, "running")?;
    daemon
        .request("POST", &format!("{machine}/pause"), b"")?
        .expect(200)?;
    let hold = || {
        inside(Some(&host), || {
            let connect = |_| Ok(TcpStream::connect(("127.0.0.1", 30002))?);
            (0..2).map(connect).collect::<Result<Vec<_>>>()
        })
    };
    // The daemon gives up connections to the machine after some seconds.
    until(|| {
        let held = hold();
        let told = ask(&host, ("127.0.0.1", 30000));
        let other = ask(&host, ("127.0.0.1", 30001));
        let is_full = told.is_ok_and(|told| told.is_empty());
        held.is_ok() && is_full && other.is_ok_and(|told| told == "a machine")
    })?;
    await_answer(&daemon, &host, ("127.0.0.1", 30000))
}
