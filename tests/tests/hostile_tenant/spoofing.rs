//! Frames with addresses of others: of another tenant's machine, of the host, and of the world.

use super::frames::{self, Mac, Tap, mac_of};
use super::neighbour::Scene;
use super::network::{ANSWER, HOST, WORLD, WORLD6, World};
use super::{Test, check, vmm};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::network::{inside, ip};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

pub const TESTS: &[(&str, Test)] = &[("addresses of others", addresses)];

/// The label of packets with the attacker's own addresses.
const HONEST: &str = "honest";

/// A machine with its addresses and its VMM.
pub struct Machine {
    pub vmm: u32,
    pub v4: Ipv4Addr,
    pub v6: Option<Ipv6Addr>,
}

impl Machine {
    /// Starts an idle machine of a tenant, which has a network.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn start(scene: &Scene, key: &str, program: &str) -> Result<Self> {
        let body = json!({ "program": program, "network": "tenant", "args": ["idle"],
            "start": true, "memory": 128 << 20 });
        let (machine, vmm) = vmm::start(scene, key, &body)?;
        let path = format!("/v1/machines/{machine}");
        let found = scene.request(key, "GET", &path, b"")?.expect(200)?;
        Ok(Self {
            vmm,
            v4: found.text("address").parse()?,
            v6: found.text("address6").parse().ok(),
        })
    }
}

/// The host's end of a tenant's network: the first tenant has number 0.
pub fn gateway_mac(world: &World, number: u32) -> Result<Mac> {
    let text = inside(Some(&world.host), || {
        ip(&format!("-brief link show dev hlt{number}"))
    })?;
    let mac = text
        .split_whitespace()
        .nth(2)
        .ok_or("no Ethernet address")?;
    let bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes = bytes.collect::<std::result::Result<Vec<_>, _>>()?;
    bytes.try_into().map_err(|_| "no Ethernet address".into())
}

/// The neighbours that the host knows on its end of a tenant's network.
fn known(world: &World, number: u32) -> Result<String> {
    inside(Some(&world.host), || {
        ip(&format!("neigh show dev hlt{number}"))
    })
}

/// Whether an address is in a list of neighbours.
fn is_in(known: &str, address: impl std::fmt::Display) -> bool {
    let start = format!("{address} ");
    known.lines().any(|line| line.starts_with(&start))
}

fn addresses() -> Result<()> {
    let world = World::new()?;
    let configuration = "pool = 2\nnetwork_range = '10.213.0.0/16'\n\
        network_range6 = 'fd12:3456:789a::/48'\nnetwork_outbound = true";
    let scene = Scene::with(Daemon::start_in_network(configuration, &world.host)?)?;
    let program = scene.attack_push(
        "name=service",
        &std::fs::read(hartline_tests::compile::service()?)?,
    )?;
    let own = Machine::start(&scene, scene.attacker(), &program)?;
    let other = Machine::start(&scene, scene.neighbour(), scene.program())?;
    let (own6, other6) = (own.v6.ok_or("no IPv6")?, other.v6.ok_or("no IPv6")?);
    check("the attacker's network", own.v4.octets()[2] == 0, &own.v4)?;
    check("the neighbour's", other.v4.octets()[2] == 1, &other.v4)?;
    let tap = Tap::of(own.vmm)?;
    let links = (gateway_mac(&world, 0)?, mac_of(own.v4));

    sources(
        &world,
        &tap,
        links,
        [own.v4.into(), own6.into()],
        [other.v4.into(), other6.into()],
    )?;
    claims(&world, &tap, links, &own, &other)?;
    // The Ethernet addresses of the neighbour and of both gateways.
    for stolen in [mac_of(other.v4), links.0, gateway_mac(&world, 1)?] {
        for (from, to) in [
            (own.v4.into(), WORLD.parse()?),
            (own6.into(), WORLD6.parse()?),
        ] {
            tap.send(&frames::udp((links.0, stolen), (from, to), (1, 9), b"x"))?;
        }
    }
    for _ in 0..3 {
        let ask = json!({ "program": scene.program(), "network": "tenant", "timeout_ms": 60_000,
            "args": ["ask", WORLD, ANSWER.to_string()] });
        let outcome = scene.as_neighbour("POST", "/v1/runs", ask.to_string().as_bytes())?;
        let outcome: Value = outcome.expect(200)?.json();
        check(
            "the neighbour",
            outcome["stdout"]["text"] == "the world",
            &outcome,
        )?;
    }
    scene.end()
}

/// Packets whose source is not of the attacker's network do not leave the host.
fn sources(
    world: &World,
    tap: &Tap,
    links: (Mac, Mac),
    own: [IpAddr; 2],
    neighbour: [IpAddr; 2],
) -> Result<()> {
    let received = world.receive()?;
    let mut forged: Vec<IpAddr> = neighbour.to_vec();
    for text in [
        "10.213.0.1",
        "10.213.1.1",
        HOST,
        WORLD,
        "127.0.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "8.8.8.8",
        "10.213.77.2",
        "fd12:3456:789a::1",
        "fd12:3456:789a:1::1",
        "2600:9::1",
        WORLD6,
        "::1",
        "::",
        "ff02::1",
        "2600:77::1",
        "fd12:3456:789a:77::2",
        "::ffff:10.213.1.2",
    ] {
        forged.push(text.parse()?);
    }
    let send = |from: IpAddr, label: &str| {
        let to = if from.is_ipv4() {
            WORLD.parse()?
        } else {
            WORLD6.parse()?
        };
        let ports = (4000, received.port);
        tap.send(&frames::udp(links, (from, to), ports, label.as_bytes()))
    };
    for from in &forged {
        send(*from, &from.to_string())?;
    }
    for from in own {
        send(from, &format!("{HONEST} {}", from.is_ipv4()))?;
    }
    let expected = [true, false].map(|is_v4| format!("{HONEST} {is_v4}"));
    let expected = BTreeSet::from(expected);
    // Neighbour discovery of IPv6 may lose the first packets.
    until(|| {
        let again = own
            .iter()
            .all(|from| send(*from, &format!("{HONEST} {}", from.is_ipv4())).is_ok());
        thread::sleep(Duration::from_millis(100));
        again && expected.is_subset(&received.labels())
    })
    .map_err(|_| format!("{:?}", received.labels()))?;
    for from in &forged {
        send(*from, &from.to_string())?;
    }
    thread::sleep(Duration::from_secs(1));
    check(
        "forged sources",
        received.labels() == expected,
        &received.labels(),
    )
}

/// The host does not believe that the attacker has addresses of others.
fn claims(
    world: &World,
    tap: &Tap,
    links: (Mac, Mac),
    own: &Machine,
    neighbour: &Machine,
) -> Result<()> {
    let (gateway, everyone) = (Ipv4Addr::new(10, 213, 0, 1), ([0xff; 6], links.1));
    let [gateway6, all6]: [Ipv6Addr; 2] = ["fd12:3456:789a::1".parse()?, "ff02::1".parse()?];
    let (own6, other6) = (own.v6.ok_or("no IPv6")?, neighbour.v6.ok_or("no IPv6")?);
    let claimed: Vec<Ipv4Addr> = [neighbour.v4.to_string()]
        .iter()
        .map(String::as_str)
        .chain([
            "10.213.1.1",
            HOST,
            WORLD,
            "10.213.77.2",
            "8.8.8.8",
            "10.213.0.1",
        ])
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    for claimed in &claimed {
        for (links, operation, target) in [
            (links, 1, gateway),
            (links, 2, gateway),
            (everyone, 1, *claimed),
            (everyone, 2, *claimed),
        ] {
            tap.send(&frames::arp(links, operation, *claimed, target))?;
        }
    }
    let claimed6 = [
        other6,
        "fd12:3456:789a:1::1".parse()?,
        WORLD6.parse()?,
        gateway6,
    ];
    for claimed in claimed6 {
        for (from, to) in [
            (own6, gateway6),
            (own6, all6),
            (claimed, gateway6),
            (claimed, all6),
        ] {
            tap.send(&frames::advertisement(links, (from, to), claimed))?;
        }
        tap.send(&frames::solicitation(links, claimed, gateway6))?;
    }
    // An honest machine becomes known: frames were not lost on the way.
    until(|| {
        let asked = tap.send(&frames::arp(links, 1, own.v4, gateway));
        let asked6 = tap.send(&frames::solicitation(links, own6, gateway6));
        thread::sleep(Duration::from_millis(100));
        let known = known(world, 0).unwrap_or_default();
        let both = is_in(&known, own.v4) && is_in(&known, own6);
        asked.is_ok() && asked6.is_ok() && both
    })
    .map_err(|_| format!("the attacker is not known: {:?}", known(world, 0)))?;
    let known = known(world, 0)?;
    let claimed = claimed.into_iter().map(IpAddr::from);
    let all = claimed.chain(claimed6.map(IpAddr::from));
    let others: Vec<_> = all.filter(|address| is_in(&known, *address)).collect();
    check("believed", others.is_empty(), &(others, &known))
}
