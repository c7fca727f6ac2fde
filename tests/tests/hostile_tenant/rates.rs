//! A tenant that sends, and requests, more packets, bytes and connections per second than it may.
//! The host limits it, and not the neighbour. The VMMs write without their own limits.

use super::frames::{self, Mac, Tap, mac_of};
use super::neighbour::Scene;
use super::network::{WORLD, World};
use super::spoofing::{Machine, gateway_mac};
use super::{Test, check};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::inside;
use hartline_tests::{Result, compile};
use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[("rates of a network", rates)];

/// Limits of a tenant, per second. As much is allowed at once; of bytes, `LEAST_BURST` more.
const CONNECTIONS: u64 = 20;
const PACKETS: u64 = 200;
const BYTES: u64 = 100_000;
const LEAST_BURST: u64 = 1 << 20;
/// Bytes of the payload of a large packet, and of the whole packet.
const PAYLOAD: usize = 1400;
const PACKET: u64 = 28 + PAYLOAD as u64;
/// Time for the answer that makes a connection established.
const ANSWER: Duration = Duration::from_millis(100);
/// Time for the packets of a burst to arrive.
const ARRIVAL: Duration = Duration::from_millis(500);

/// A machine whose packets the test sends.
struct Sender<'a> {
    world: &'a World,
    tap: Tap,
    links: (Mac, Mac),
    own: IpAddr,
    /// The name of the host's end of the network.
    interface: String,
}

impl<'a> Sender<'a> {
    fn new(world: &'a World, machine: &Machine, number: u32) -> Result<Self> {
        Ok(Self {
            world,
            tap: Tap::of(machine.vmm)?,
            links: (gateway_mac(world, number)?, mac_of(machine.v4)),
            own: machine.v4.into(),
            interface: format!("hlt{number}:"),
        })
    }

    fn send(&self, ports: (u16, u16), payload: &[u8]) -> Result<()> {
        let addresses = (self.own, WORLD.parse()?);
        let frame = frames::udp(self.links, addresses, ports, payload);
        self.tap.send(&frame)
    }

    /// Sends packets of `length` bytes at once, each over a separate connection if `new`, otherwise
    /// over one connection that has had an answer. Result: the number that arrived in the world, and the
    /// time.
    fn burst(&self, count: u16, length: usize, new: bool) -> Result<(u64, Duration)> {
        let received = self.world.receive()?;
        if !new {
            self.send((4000, received.port), b"send 1 1")?;
            until(|| received.count() == 1)?;
            thread::sleep(ANSWER);
        }
        let before = received.count();
        let begin = Instant::now();
        for number in 0..count {
            let own = 4000 + if new { number } else { 0 };
            self.send((own, received.port), &vec![b'x'; length])?;
        }
        thread::sleep(ARRIVAL);
        Ok(((received.count() - before) as u64, begin.elapsed()))
    }

    /// Has the world send packets of `length` bytes at once. Result: the number that the host sent
    /// into the network, and the time.
    fn request(&self, count: usize, length: usize) -> Result<(u64, Duration)> {
        let received = self.world.receive()?;
        let before = self.delivered()?;
        let begin = Instant::now();
        let order = format!("send {count} {length}");
        self.send((3999, received.port), order.as_bytes())?;
        until(|| received.count() == 1)?;
        thread::sleep(ARRIVAL);
        Ok((self.delivered()? - before, begin.elapsed()))
    }

    /// Packets that the host has sent into the network so far.
    fn delivered(&self) -> Result<u64> {
        let counters = inside(Some(&self.world.host), || {
            Ok(fs::read_to_string("/proc/thread-self/net/dev")?)
        })?;
        let mut lines = counters.lines().map(str::trim);
        let line = lines.find_map(|line| line.strip_prefix(self.interface.as_str()));
        // Eight counters of received packets come first; then the bytes that were sent.
        let packets = line.and_then(|line| line.split_whitespace().nth(9));
        Ok(packets.ok_or("no counters")?.parse()?)
    }
}

/// Checks a number of packets that passed a limit of `rate` packets per second.
fn is_limited(what: &str, (count, time): (u64, Duration), rate: u64, burst: u64) -> Result<()> {
    println!("{what}: {count} packets in {time:?}");
    // Some other packets of the host are counted too, as ARP's.
    let most = burst + (rate as f64 * time.as_secs_f64()) as u64 + 20;
    check(what, (burst / 2..=most).contains(&count), &(count, most))
}

/// Checks that all packets of a burst arrived.
fn is_free(what: &str, (count, _): (u64, Duration), sent: u64) -> Result<()> {
    check(what, count >= sent, &(count, sent))
}

fn rates() -> Result<()> {
    let world = World::new()?;
    let common = "pool = 2\nnetwork_range = '10.213.0.0/16'\nnetwork_outbound = true\n";
    let few = format!(
        "{common}network_tenant_new_connections = {CONNECTIONS}\n\
         network_tenant_packets = {PACKETS}"
    );
    let mut scene = Scene::with(Daemon::start_in_network(&few, &world.host)?)?;
    let program = scene.attack_push("name=service", &fs::read(compile::service()?)?)?;
    let own = Machine::start(&scene, scene.attacker(), &program)?;
    let other = Machine::start(&scene, scene.neighbour(), scene.program())?;
    let (attacker, neighbour) = (
        Sender::new(&world, &own, 0)?,
        Sender::new(&world, &other, 1)?,
    );
    // The first packets resolve addresses.
    attacker.burst(1, 1, false)?;
    neighbour.burst(1, 1, false)?;
    thread::sleep(Duration::from_secs(2));

    let made = attacker.burst(150, 1, true)?;
    is_limited("new connections", made, CONNECTIONS, CONNECTIONS)?;
    is_free(
        "connections of the neighbour",
        neighbour.burst(15, 1, true)?,
        15,
    )?;
    thread::sleep(Duration::from_secs(2));
    is_limited("packets", attacker.burst(3000, 1, false)?, PACKETS, PACKETS)?;
    is_free(
        "packets of the neighbour",
        neighbour.burst(150, 1, false)?,
        150,
    )?;
    thread::sleep(Duration::from_secs(2));
    is_limited(
        "requested packets",
        attacker.request(3000, 1)?,
        PACKETS,
        PACKETS,
    )?;
    is_free("requests of the neighbour", neighbour.request(150, 1)?, 150)?;

    // Other limits apply to machines that run.
    let narrow = format!("{common}network_tenant_bandwidth = {BYTES}");
    scene.daemon.terminate()?;
    scene.daemon.configure(&narrow)?;
    scene.daemon.restart()?;
    is_free(
        "without the limit of packets",
        attacker.burst(600, 1, false)?,
        600,
    )?;
    thread::sleep(Duration::from_secs(1));
    let (rate, burst) = (BYTES / PACKET, (LEAST_BURST + BYTES) / PACKET);
    is_limited("bytes", attacker.burst(4000, PAYLOAD, false)?, rate, burst)?;
    is_free(
        "bytes of the neighbour",
        neighbour.burst(300, PAYLOAD, false)?,
        300,
    )?;
    is_limited(
        "requested bytes",
        attacker.request(4000, PAYLOAD)?,
        rate,
        burst,
    )?;
    is_free(
        "requested bytes of the neighbour",
        neighbour.request(300, PAYLOAD)?,
        300,
    )?;
    drop((attacker, neighbour));
    scene.end()
}
