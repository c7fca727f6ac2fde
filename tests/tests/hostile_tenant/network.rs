//! A tenant that exhausts the host's connection tracking.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::{inside, ip, namespace, nft};
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[("connections without end", connections)];

/// The address of the world around the host, and the host's address there.
const WORLD: &str = "203.0.113.2";
const HOST: &str = "203.0.113.1";
/// Ports of the world's server that answers, and of the server that keeps connections open.
const ANSWER: u16 = 7000;
const KEEP: u16 = 7001;
/// The limit of connections of a tenant.
const LIMIT: usize = 20;

type Kept = Arc<Mutex<Vec<TcpStream>>>;

/// Makes a namespace for the host, and one for the world, whose servers answer and keep
/// connections.
fn world() -> Result<(Arc<File>, Kept)> {
    let (host, world) = (namespace()?, namespace()?);
    let world_fd = format!("/proc/{}/fd/{}", std::process::id(), world.as_raw_fd());
    inside(Some(&host), || {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let link = format!("link add dev out type veth peer name in netns {world_fd}");
        ip(&link)?;
        ip(&format!("address add {HOST}/24 dev out"))?;
        ip("link set dev out up").map(drop)
    })?;
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    inside(Some(&world), move || {
        ip(&format!("address add {WORLD}/24 dev in"))?;
        ip("link set dev in up")?;
        let answering = TcpListener::bind((WORLD, ANSWER))?;
        thread::spawn(move || {
            for mut peer in answering.incoming().flatten() {
                // The client may have disconnected.
                let _ = peer.write_all(b"the world");
            }
        });
        let keeping = TcpListener::bind((WORLD, KEEP))?;
        thread::spawn(move || {
            for peer in keeping.incoming().flatten() {
                lock(&keep).push(peer);
            }
        });
        Ok(())
    })?;
    Ok((Arc::new(host), kept))
}

fn lock(kept: &Kept) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connections() -> Result<()> {
    let (host, kept) = world()?;
    // The rules are loaded again each second, which must not reset the counted connections.
    let configuration = format!(
        "pool = 2\ncollect_every_s = 1\nnetwork_range = '10.213.0.0/16'\n\
         network_outbound = true\nnetwork_tenant_connections = {LIMIT}"
    );
    let scene = Scene::with(Daemon::start_in_network(&configuration, &host)?)?;
    let program = scene.attack_push("name=service", &fs::read(compile::service()?)?)?;
    // Two machines, so that the limit must be the tenant's and not a machine's.
    let hold = json!({ "program": program, "network": "tenant", "start": true,
        "memory": 128 << 20, "args": ["hold", WORLD, KEEP.to_string(), "40"] });
    let mut machines = Vec::new();
    for _ in 0..2 {
        let made = scene.attack("POST", "/v1/machines", hold.to_string().as_bytes())?;
        machines.push(format!("/v1/machines/{}", made.expect(201)?.text("id")));
    }
    let count = || lock(&kept).len();
    until(|| {
        let is_holding = |machine: &String| {
            let log = scene.attack("GET", &format!("{machine}/logs"), b"");
            log.is_ok_and(|log| log.body == b"holding\n")
        };
        machines.iter().all(is_holding) && count() >= LIMIT
    })
    .map_err(|_| format!("{} connections, {}", count(), scene.daemon.log()))?;

    // The neighbour reaches the world meanwhile, as often as it likes.
    let ask = json!({ "program": scene.program(), "network": "tenant", "timeout_ms": 60_000,
        "args": ["ask", WORLD, ANSWER.to_string()] });
    for _ in 0..5 {
        let outcome = scene.as_neighbour("POST", "/v1/runs", ask.to_string().as_bytes())?;
        let outcome = outcome.expect(200)?.json();
        let told = outcome["stdout"]["text"] == "the world";
        check("the neighbour", told, &outcome)?;
    }
    scene.neighbour_is_well("while the attacker connects")?;
    // Wait for retransmissions of the guest and for reloads of the rules.
    thread::sleep(Duration::from_secs(3));
    check("connections of the attacker", count() == LIMIT, &count())?;
    let rules = inside(Some(&host), || nft("list table inet hartline_limits"))?;
    let counted = format!("\" ct count over {LIMIT}");
    check("counted by the host", rules.contains(&counted), &rules)?;
    for machine in machines {
        let killed = scene.attack("POST", &format!("{machine}/kill"), b"")?;
        killed.expect(200)?;
    }
    scene.end()
}
