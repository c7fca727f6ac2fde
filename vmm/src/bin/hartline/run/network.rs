//! `--net`: which interface of the host the VM gets, and its addresses.

use anyhow::{Context, bail, ensure};
use hartline_abi::boot::NetSettings;
use hartline_devices::net::Tap;
use hartline_vmm::devices::Network;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long host and guest watch the rings before they sleep, if nothing else is asked for.
const POLLING: Duration = Duration::from_micros(200);
/// Longest time that may be asked for.
const MAX_POLLING: Duration = Duration::from_millis(100);

/// Value of `--net`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Net {
    /// The VM has only its loopback interface.
    None,
    /// An interface over a TAP interface of the host.
    Tap(TapNet),
}

/// An address and the length of its prefix, bits.
type Prefixed<A> = (A, u32);

/// An interface over a TAP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapNet {
    name: String,
    /// Addresses with the lengths of their prefixes; without one DHCP is asked.
    addresses: (Option<Prefixed<Ipv4Addr>>, Option<Prefixed<Ipv6Addr>>),
    gateways: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    mac: Option<[u8; 6]>,
    polling: Duration,
}

/// Parses the value of `--net`.
///
/// # Errors
/// Says what is wrong.
pub fn parse(text: &str) -> anyhow::Result<Net> {
    let mut parts = text.split(',');
    let first = parts.next().unwrap_or_default();
    let name = match first.split_once(':') {
        None if text == "none" => return Ok(Net::None),
        Some(("tap", name)) if !name.is_empty() => name,
        _ => bail!("must be none or tap:NAME[,ip=ADDRESS/PREFIX][,gw=ADDRESS][,mac=ADDRESS]"),
    };
    let mut net = TapNet {
        name: name.into(),
        addresses: (None, None),
        gateways: (None, None),
        mac: None,
        polling: POLLING,
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
                .with_context(|| format!("{value:?} is no address"))?
            {
                IpAddr::V4(ip) => net.gateways.0 = Some(ip),
                IpAddr::V6(ip) => net.gateways.1 = Some(ip),
            },
            "mac" => net.mac = Some(parse_mac(value)?),
            "poll" => net.polling = parse_polling(value)?,
            _ => bail!("unknown key {key:?}: there are ip, gw, mac and poll"),
        }
    }
    Ok(Net::Tap(net))
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
    let form = || format!("{text:?} is no hardware address such as 02:00:00:00:00:01");
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok().with_context(form)?;
    let mac: [u8; 6] = bytes.try_into().ok().with_context(form)?;
    ensure!(
        mac[0] & 1 == 0 && mac != [0; 6],
        "{text:?} is the address of a group"
    );
    Ok(mac)
}

/// Microseconds.
fn parse_polling(text: &str) -> anyhow::Result<Duration> {
    let time = text.parse().ok().map(Duration::from_micros);
    time.filter(|&time| time <= MAX_POLLING)
        .with_context(|| format!("{text:?} is no number of microseconds up to 100000"))
}

/// A random address that is nobody's.
fn random_mac() -> anyhow::Result<[u8; 6]> {
    let mut mac = [0; 6];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut mac))
        .context("/dev/urandom")?;
    // Locally administered, not of a group.
    mac[0] = mac[0] & !1 | 2;
    Ok(mac)
}

impl Net {
    /// Opens the interface of the host. The results are that and what the guest is told.
    ///
    /// # Errors
    /// The interface is missing, in use, or of another kind.
    pub fn open(&self) -> anyhow::Result<Option<(Network, NetSettings)>> {
        let Net::Tap(net) = self else {
            return Ok(None);
        };
        let tap = Tap::open(&net.name).context("--net")?;
        let mac = match net.mac {
            Some(mac) => mac,
            None => random_mac()?,
        };
        let (ipv4, ipv6) = net.addresses;
        let (ipv4_address, ipv4_length) = ipv4.unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let (ipv6_address, ipv6_length) = ipv6.unwrap_or((Ipv6Addr::UNSPECIFIED, 0));
        let gateway4 = net.gateways.0.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let gateway6 = net.gateways.1.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let settings = NetSettings {
            present: 1,
            dhcp: (ipv4.is_none() && ipv6.is_none()).into(),
            ipv4: ipv4_address.octets(),
            gateway4: gateway4.octets(),
            prefixes: [ipv4_length, ipv6_length],
            ipv6: ipv6_address.octets(),
            gateway6: gateway6.octets(),
            polling_ns: u64::try_from(net.polling.as_nanos()).unwrap_or(u64::MAX),
        };
        let network = Network {
            tap,
            mac,
            polling: net.polling,
        };
        Ok(Some((network, settings)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        assert_eq!(parse("none").unwrap(), Net::None);
        let Net::Tap(net) =
            parse("tap:t0,ip=10.0.0.2/24,gw=10.0.0.1,ip=fd00::2/64,poll=0").unwrap()
        else {
            panic!("no TAP")
        };
        assert_eq!(net.name, "t0");
        assert_eq!(net.addresses.0, Some((Ipv4Addr::new(10, 0, 0, 2), 24)));
        assert_eq!(net.addresses.1.map(|(_, length)| length), Some(64));
        assert_eq!(net.gateways.0, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(net.polling, Duration::ZERO);
        for bad in [
            "",
            "tap",
            "tap:",
            "bridge:b",
            "tap:t0,ip=10.0.0.2",
            "tap:t0,ip=10.0.0.2/33",
            "tap:t0,ip=224.0.0.1/8",
            "tap:t0,ip=127.0.0.1/8",
            "tap:t0,gw=x",
            "tap:t0,mac=01:00:00:00:00:01",
            "tap:t0,mac=02:00",
            "tap:t0,poll=100001",
            "tap:t0,color=blue",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
