//! `--net` and `-p`: the backend of the VM's network interface, and its addresses.

use anyhow::{Context, bail, ensure};
use hartline_abi::boot::NetSettings;
use hartline_abi::virtio::MAX_QUEUE_PAIRS;
use hartline_devices::limiter::OwnLimits;
use hartline_devices::net::user::{
    Forward, GATEWAY, GUEST, GUEST_MAC, NAME_SERVER, PREFIX, Protocol, User,
};
use hartline_devices::net::{Backend, Tap};
use hartline_vmm::devices::Network;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Default time for which host and guest busy-poll the rings before they sleep.
pub(super) const POLLING: Duration = Duration::from_micros(200);
/// Longest time for busy-polling.
const MAX_POLLING: Duration = Duration::from_millis(100);

/// Value of `--net`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Net {
    /// The VM has only its loopback interface.
    None,
    /// An interface backed by a TAP interface of the host.
    Tap(TapNet),
    /// A user-mode network in this process.
    User(Pace),
}

/// Polling time and limits of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Longest time for which host and guest busy-poll the rings.
    polling: Duration,
    /// Most bytes, and packets, a second in each direction; 0: no limit.
    limits: [u64; 2],
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            polling: POLLING,
            limits: [0; 2],
        }
    }
}

impl Pace {
    /// Sets the field of a key. Result: whether the key is one of these.
    fn set(&mut self, key: &str, value: &str) -> anyhow::Result<bool> {
        match key {
            "poll" => self.polling = parse_polling(value)?,
            "rate" => self.limits[0] = parse_limit(value)?,
            "ops" => self.limits[1] = parse_limit(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A user-mode network: the interface and the guest's settings for it.
    fn user(&self, user: Box<User>) -> (Network, NetSettings) {
        let settings = NetSettings {
            present: 1,
            ipv4: GUEST.octets(),
            gateway4: GATEWAY.octets(),
            prefixes: [PREFIX.into(), 0],
            polling_ns: nanoseconds(self.polling),
            ..NetSettings::default()
        };
        (self.network(vec![user], GUEST_MAC), settings)
    }

    /// The interface with these settings.
    fn network(&self, backends: Vec<Box<dyn Backend>>, mac: [u8; 6]) -> Network {
        let [bytes, packets] = self.limits;
        Network {
            backends,
            mac,
            polling: self.polling,
            limits: Arc::new(OwnLimits::new(bytes, packets)),
        }
    }
}

/// An address and the length of its prefix, bits.
type Prefixed<A> = (A, u32);

/// An interface backed by a TAP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapNet {
    name: String,
    /// Addresses with the lengths of their prefixes; without any, DHCP is used.
    addresses: (Option<Prefixed<Ipv4Addr>>, Option<Prefixed<Ipv6Addr>>),
    gateways: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    mac: Option<[u8; 6]>,
    /// Pairs of queues.
    queues: u16,
    pace: Pace,
}

/// Parses the value of `--net`.
///
/// # Errors
/// The fault of the value.
pub fn parse(text: &str) -> anyhow::Result<Net> {
    let mut parts = text.split(',');
    let first = parts.next().unwrap_or_default();
    let name = match first.split_once(':') {
        None if text == "none" => return Ok(Net::None),
        None if first == "user" => return parse_user(parts),
        Some(("tap", name)) if !name.is_empty() => name,
        _ => bail!(
            "must be none, user or tap:NAME[,ip=ADDRESS/PREFIX][,gw=ADDRESS][,mac=ADDRESS][,queues=N]"
        ),
    };
    let mut net = TapNet {
        name: name.into(),
        addresses: (None, None),
        gateways: (None, None),
        mac: None,
        queues: 1,
        pace: Pace::default(),
    };
    for part in parts {
        let (key, value) = part.split_once('=').context("needs the form KEY=VALUE")?;
        match key {
            "ip" => match parse_address(value)? {
                (IpAddr::V4(ip), length) => net.addresses.0 = Some((ip, length)),
                (IpAddr::V6(ip), length) => net.addresses.1 = Some((ip, length)),
            },
            "gw" => match value
                .parse()
                .with_context(|| format!("{value:?}: not an address"))?
            {
                IpAddr::V4(ip) => net.gateways.0 = Some(ip),
                IpAddr::V6(ip) => net.gateways.1 = Some(ip),
            },
            "mac" => net.mac = Some(parse_mac(value)?),
            "queues" => net.queues = parse_queues(value)?,
            _ if net.pace.set(key, value)? => {}
            _ => bail!("unknown key {key:?}: must be ip, gw, mac, queues, rate, ops or poll"),
        }
    }
    Ok(Net::Tap(net))
}

/// Parses the options after `user`.
fn parse_user<'a>(parts: impl Iterator<Item = &'a str>) -> anyhow::Result<Net> {
    let mut pace = Pace::default();
    for part in parts {
        let (key, value) = part.split_once('=').context("needs the form KEY=VALUE")?;
        ensure!(
            pace.set(key, value)?,
            "unknown key {key:?}: must be rate, ops or poll"
        );
    }
    Ok(Net::User(pace))
}

/// Parses the value of `-p`: `[ADDRESS:]HOST:GUEST[/tcp|/udp]`.
///
/// # Errors
/// The fault of the value.
pub fn parse_forward(text: &str) -> anyhow::Result<Forward> {
    let (ends, protocol) = match text.split_once('/') {
        None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
        Some((ends, "udp")) => (ends, Protocol::Udp),
        Some((_, other)) => bail!("{other:?} is neither tcp nor udp"),
    };
    let form = || format!("{text:?} needs the form [ADDRESS:]HOST:GUEST[/tcp|/udp]");
    let (host, guest) = ends.rsplit_once(':').with_context(form)?;
    let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port != 0);
    let host = match host.contains(':') {
        true => host.parse::<SocketAddr>().ok(),
        // Loopback only, unless an address is given.
        false => port(host).map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
    };
    Ok(Forward {
        protocol,
        host: host.filter(|host| host.port() != 0).with_context(form)?,
        guest: port(guest).with_context(form)?,
    })
}

/// `ADDRESS/PREFIX`
fn parse_address(text: &str) -> anyhow::Result<(IpAddr, u32)> {
    let form = || format!("{text:?} needs the form ADDRESS/PREFIX");
    let (address, length) = text.split_once('/').with_context(form)?;
    let address: IpAddr = address.parse().ok().with_context(form)?;
    let length: u32 = length.parse().ok().with_context(form)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    ensure!(length <= most, "{text:?}: the prefix is longer than {most}");
    let is_unicast = match address {
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
    };
    ensure!(
        is_unicast && !address.is_loopback(),
        "{text:?}: an interface cannot have this address"
    );
    Ok((address, length))
}

fn parse_mac(text: &str) -> anyhow::Result<[u8; 6]> {
    let form = || format!("{text:?}: not a hardware address such as 02:00:00:00:00:01");
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok().with_context(form)?;
    let mac: [u8; 6] = bytes.try_into().ok().with_context(form)?;
    ensure!(
        mac[0] & 1 == 0 && mac != [0; 6],
        "{text:?} is a multicast address"
    );
    Ok(mac)
}

/// Pairs of queues.
fn parse_queues(text: &str) -> anyhow::Result<u16> {
    let queues = text.parse().ok();
    queues
        .filter(|queues| (1..=MAX_QUEUE_PAIRS).contains(queues))
        .with_context(|| format!("{text:?}: not a number of queues, 1 to {MAX_QUEUE_PAIRS}"))
}

/// Microseconds.
pub(super) fn parse_polling(text: &str) -> anyhow::Result<Duration> {
    let time = text.parse().ok().map(Duration::from_micros);
    time.filter(|&time| time <= MAX_POLLING)
        .with_context(|| format!("{text:?}: not a number of microseconds up to 100000"))
}

/// A number per second, with suffixes for powers of 1000.
pub(super) fn parse_limit(text: &str) -> anyhow::Result<u64> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    number
        .filter(|&number| number > 0)
        .with_context(|| format!("{text:?}: not a number per second (suffixes: K, M, G)"))
}

/// A random, locally administered address.
fn random_mac() -> anyhow::Result<[u8; 6]> {
    let mut mac = [0; 6];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut mac))
        .context("/dev/urandom")?;
    // Locally administered, unicast.
    mac[0] = mac[0] & !1 | 2;
    Ok(mac)
}

impl Net {
    /// The network with these ports forwarded.
    ///
    /// # Errors
    /// The VM has an interface that does not support forwarding.
    pub fn with_forwards(&self, forwards: &[Forward]) -> anyhow::Result<Net> {
        match self {
            Self::None if !forwards.is_empty() => Ok(Self::User(Pace::default())),
            Self::Tap(_) if !forwards.is_empty() => {
                bail!("-p: not with a TAP interface: connect to the address of the VM")
            }
            net => Ok(net.clone()),
        }
    }

    /// The network of a VM that continues a snapshot, whose VM has a user-mode network or none, with these
    /// ports forwarded.
    ///
    /// # Errors
    /// It has none, and there are ports.
    pub fn of_snapshot(has_network: bool, forwards: &[Forward]) -> anyhow::Result<Net> {
        ensure!(
            has_network || forwards.is_empty(),
            "-p: the snapshot has no network: write it with --net user"
        );
        Ok(match has_network {
            true => Self::User(Pace::default()),
            false => Self::None,
        })
    }

    /// Refuses more queues than the VM has vCPUs: no vCPU would fill them.
    ///
    /// # Errors
    /// There are more queues.
    pub fn check_queues(&self, cpus: u32) -> anyhow::Result<()> {
        match self {
            Self::Tap(net) => ensure!(
                u32::from(net.queues) <= cpus,
                "--net …,queues={}: more than the {cpus} vCPUs of the VM (--cpus)",
                net.queues
            ),
            Self::None | Self::User(_) => {}
        }
        Ok(())
    }

    /// The resolv.conf(5) that replaces the guest's own, if one is needed.
    pub fn resolver(&self) -> Option<String> {
        matches!(self, Self::User(_)).then(|| format!("nameserver {NAME_SERVER}\n"))
    }

    /// Opens the network. Result: the interface and the guest's settings for it.
    ///
    /// # Errors
    /// The interface of the host is missing, in use, or of another kind; or a port cannot be bound.
    pub fn open(&self, forwards: &[Forward]) -> anyhow::Result<Option<(Network, NetSettings)>> {
        match self {
            Self::None => Ok(None),
            Self::Tap(net) => net.open().map(Some),
            Self::User(pace) => {
                let user = User::new(forwards).context("-p")?;
                Ok(Some(pace.user(Box::new(user))))
            }
        }
    }

    /// A user-mode network of this backend: the interface and the guest's settings for it.
    pub fn of_backend(user: Box<User>) -> (Network, NetSettings) {
        Pace::default().user(user)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl TapNet {
    fn open(&self) -> anyhow::Result<(Network, NetSettings)> {
        let taps = Tap::open(&self.name, self.queues).context("--net")?;
        let backends = taps
            .into_iter()
            .map(|tap| Box::new(tap) as Box<dyn Backend>);
        let mac = match self.mac {
            Some(mac) => mac,
            None => random_mac()?,
        };
        let (ipv4, ipv6) = self.addresses;
        let (ipv4_address, ipv4_length) = ipv4.unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let (ipv6_address, ipv6_length) = ipv6.unwrap_or((Ipv6Addr::UNSPECIFIED, 0));
        let gateway4 = self.gateways.0.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let gateway6 = self.gateways.1.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let settings = NetSettings {
            present: 1,
            dhcp: (ipv4.is_none() && ipv6.is_none()).into(),
            ipv4: ipv4_address.octets(),
            gateway4: gateway4.octets(),
            prefixes: [ipv4_length, ipv6_length],
            ipv6: ipv6_address.octets(),
            gateway6: gateway6.octets(),
            polling_ns: nanoseconds(self.pace.polling),
        };
        Ok((self.pace.network(backends.collect(), mac), settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        assert_eq!(parse("none").unwrap(), Net::None);
        let Net::Tap(net) =
            parse("tap:t0,ip=10.0.0.2/24,gw=10.0.0.1,ip=fd00::2/64,poll=0,rate=2M,queues=2")
                .unwrap()
        else {
            panic!("no TAP")
        };
        assert_eq!(net.name, "t0");
        assert_eq!(net.addresses.0, Some((Ipv4Addr::new(10, 0, 0, 2), 24)));
        assert_eq!(net.addresses.1.map(|(_, length)| length), Some(64));
        assert_eq!(net.gateways.0, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(net.pace.polling, Duration::ZERO);
        assert_eq!(net.pace.limits, [2_000_000, 0]);
        assert_eq!(net.queues, 2);
        let two = parse("tap:t0,queues=2").unwrap();
        assert!(two.check_queues(2).is_ok() && two.check_queues(1).is_err());
        for bad in [
            "",
            "tap",
            "tap:",
            "bridge:b",
            "user:x",
            "user,ip=10.0.0.1/8",
            "user,rate=0",
            "user,ops=much",
            "tap:t0,ip=10.0.0.2",
            "tap:t0,ip=10.0.0.2/33",
            "tap:t0,ip=224.0.0.1/8",
            "tap:t0,ip=127.0.0.1/8",
            "tap:t0,gw=x",
            "tap:t0,mac=01:00:00:00:00:01",
            "tap:t0,mac=02:00",
            "tap:t0,poll=100001",
            "tap:t0,queues=0",
            "tap:t0,queues=65",
            "user,queues=2",
            "tap:t0,color=blue",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn forwards() {
        let forward = parse_forward("8080:80").unwrap();
        assert_eq!(forward.host, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((forward.guest, forward.protocol), (80, Protocol::Tcp));
        let forward = parse_forward("[::]:53:5353/udp").unwrap();
        assert_eq!(forward.host, "[::]:53".parse().unwrap());
        assert_eq!((forward.guest, forward.protocol), (5353, Protocol::Udp));
        for bad in [
            "",
            "80",
            "80:",
            ":80",
            "0:80",
            "80:0",
            "80:65536",
            "80:80/sctp",
            "x:80:80",
            "::1:80:80",
            "80:80/tcp/tcp/x",
        ] {
            assert!(parse_forward(bad).is_err(), "{bad}");
        }
        let forward = [parse_forward("1:1").unwrap()];
        let user = Net::None.with_forwards(&forward).unwrap();
        assert!(matches!(user, Net::User(_)));
        assert_eq!(Net::None.with_forwards(&[]).unwrap(), Net::None);
        assert!(parse("tap:t").unwrap().with_forwards(&forward).is_err());
        let continued = |has_network| Net::of_snapshot(has_network, &forward);
        assert_eq!(continued(true).unwrap(), Net::User(Pace::default()));
        assert!(continued(false).is_err());
        assert_eq!(Net::of_snapshot(false, &[]).unwrap(), Net::None);
    }
}
