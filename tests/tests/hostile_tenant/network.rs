//! A tenant that exhausts the host's connection tracking.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::{inside, ip, namespace, nft};
use hartline_tests::{Result, compile};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[("connections without end", connections)];

/// The address of the world around the host, and the host's address there.
pub const WORLD: &str = "203.0.113.2";
pub const HOST: &str = "203.0.113.1";
pub const WORLD6: &str = "2600:9::2";
const HOST6: &str = "2600:9::1";
/// Ports of the world's server that answers, and of the server that keeps connections open.
pub const ANSWER: u16 = 7000;
const KEEP: u16 = 7001;
/// The limit of connections of a tenant.
const LIMIT: usize = 20;

type Kept = Arc<Mutex<Vec<TcpStream>>>;

/// A network namespace of the host, and one for the world, whose servers answer and keep
/// connections.
pub struct World {
    pub host: Arc<File>,
    world: File,
    kept: Kept,
}

/// UDP packets that arrived in the world.
pub struct Received {
    /// The port that they are sent to.
    pub port: u16,
    labels: Arc<Mutex<Vec<String>>>,
}

impl Received {
    /// The different contents of the packets.
    pub fn labels(&self) -> BTreeSet<String> {
        lock(&self.labels).iter().cloned().collect()
    }

    /// The number of packets.
    pub fn count(&self) -> usize {
        lock(&self.labels).len()
    }
}

impl World {
    /// Makes the namespaces.
    ///
    /// # Errors
    /// The host refuses.
    pub fn new() -> Result<Self> {
        let (host, world) = (namespace()?, namespace()?);
        let world_fd = format!("/proc/{}/fd/{}", std::process::id(), world.as_raw_fd());
        inside(Some(&host), || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
            let link = format!("link add dev out type veth peer name in netns {world_fd}");
            ip(&link)?;
            ip(&format!("address add {HOST}/24 dev out"))?;
            ip(&format!("address add {HOST6}/64 dev out nodad"))?;
            ip("link set dev out up").map(drop)
        })?;
        let kept = Kept::default();
        let keep = Arc::clone(&kept);
        inside(Some(&world), move || {
            ip(&format!("address add {WORLD}/24 dev in"))?;
            ip(&format!("address add {WORLD6}/64 dev in nodad"))?;
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
        let host = Arc::new(host);
        Ok(Self { host, world, kept })
    }

    /// Receives UDP packets in the world from now on. A packet that says `send COUNT LENGTH` is
    /// answered by as many packets of this length.
    ///
    /// # Errors
    /// The host has no port left.
    pub fn receive(&self) -> Result<Received> {
        let socket = inside(Some(&self.world), || {
            let socket = UdpSocket::bind(("::", 0))?;
            // Packets must not be lost here.
            let size: libc::c_int = 64 << 20;
            // SAFETY: the option reads an `int`.
            let set = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_RCVBUFFORCE,
                    (&raw const size).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            check("SO_RCVBUFFORCE", set == 0, &set)?;
            Ok(socket)
        })?;
        let port = socket.local_addr()?.port();
        let labels = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&labels);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let label = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let mut words = label.split(' ').skip(1).map_while(|word| word.parse().ok());
                if let (true, Some(count), Some(length)) =
                    (label.starts_with("send "), words.next(), words.next())
                {
                    let answer = vec![0; length];
                    for _ in 0..count {
                        // The queue may be full.
                        let _ = socket.send_to(&answer, peer);
                    }
                }
                lock(&all).push(label);
            }
        });
        Ok(Received { port, labels })
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connections() -> Result<()> {
    let World { host, kept, .. } = World::new()?;
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
