//! The privileged part of tenants' networks.
//!
//! ```text
//!            network namespace of a tenant              │ the host's
//!  VMM ── TAP interface ─┐                              │
//!  VMM ── TAP interface ─┴─ bridge ── veth interface ───┼── veth interface, .1 of the
//!                                                       │   tenant's /24: gateway
//! ```
//! Machines of a tenant reach each other over its bridge. The host routes or drops all other
//! packets (`rules`). No cleanup is needed: a TAP interface ends with its last descriptor, the
//! VMM's. A namespace ends with its last TAP interface and the spawner's descriptor. A spawner that
//! was started later finds a namespace by the interface of a running VMM. This needs no mount,
//! which would be lost with the mount namespace that a service manager gives the daemon.

mod namespace;
mod public;
mod rules;
mod subnet;

pub use public::is_public;
pub use rules::Limits as TenantLimits;
pub use subnet::{PREFIX, PREFIX6, Subnet};

use super::processes::Answer;
use super::protocol::{Done, Refused, refused};
use hartline_devices::net::Tap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use namespace::{Namespace, run};
use rules::INTERFACE;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// The bridge in a tenant's namespace.
const BRIDGE: &str = "machines";
const TUN: &str = "/dev/net/tun";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARDING6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
/// Exists if the host has IPv6 (proc_pid_net(5)).
const ADDRESSES6: &str = "/proc/self/net/if_inet6";
/// Counters of the interfaces of the calling thread's network namespace (proc_pid_net(5)).
const COUNTERS: &str = "/proc/thread-self/net/dev";
/// Number of `CAP_NET_ADMIN` (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;

/// The reason why there are no networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unavailable {
    /// The configuration has no addresses for networks.
    #[error("network_range is not set in the configuration")]
    Unset,
    /// A program is missing.
    #[error("the program {0} cannot be run: {1}")]
    Program(String, String),
    /// The device of TAP interfaces cannot be used.
    #[error("/dev/net/tun: {0}")]
    Device(String),
    /// The daemon lacks the capability.
    #[error("the daemon has no CAP_NET_ADMIN")]
    Capability,
    /// The host does not forward packets.
    #[error("{0} is 0, and network_outbound or network_allow is set: set it to 1 (sysctl.d(5))")]
    Forwarding(String),
    /// The host has no IPv6.
    #[error("network_range6 is set, and the host's kernel has no IPv6")]
    NoIpv6,
    /// The rules are refused.
    #[error("the rules of the networks cannot be loaded: {0}")]
    Rules(String),
}

/// A missing requirement of this host for networks, regardless of the configuration.
#[must_use]
pub fn lacking() -> Option<Unavailable> {
    let tun = File::options().read(true).write(true).open(TUN);
    if let Err(error) = tun {
        return Some(Unavailable::Device(error.to_string()));
    }
    for (program, version) in [("ip", "-Version"), ("nft", "--version")] {
        if let Err(error) = run(program, &[version], "") {
            return Some(Unavailable::Program(program.to_owned(), error.to_string()));
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let may = set.is_some_and(|set| set & 1 << CAP_NET_ADMIN != 0);
    (!may).then_some(Unavailable::Capability)
}

/// The configuration of networks.
#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// IPv4 addresses for all networks.
    pub range: Ipv4Net,
    /// IPv6 addresses for all networks.
    pub range6: Option<Ipv6Net>,
    /// Whether machines reach public addresses.
    pub outbound: bool,
    /// Other addresses that machines reach.
    pub allowed: Vec<IpNet>,
    /// Limits of all machines of a tenant together.
    pub limits: TenantLimits,
}

/// The existing networks.
#[derive(Debug)]
pub(super) struct Networks {
    settings: NetworkSettings,
    rules: String,
    namespaces: HashMap<u32, Namespace>,
}

impl Networks {
    /// Loads the rules, if the configuration has addresses for networks.
    ///
    /// # Errors
    /// [`Unavailable`]: the reason why there are no networks.
    pub(super) fn open(settings: Option<&NetworkSettings>) -> Result<Self, Unavailable> {
        let settings = settings.ok_or(Unavailable::Unset)?.clone();
        if let Some(unavailable) = lacking() {
            return Err(unavailable);
        }
        let (range, range6) = (settings.range, settings.range6);
        if range6.is_some() && !Path::new(ADDRESSES6).exists() {
            return Err(Unavailable::NoIpv6);
        }
        let forwards = |file| fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        let (outbound, allowed) = (settings.outbound, &settings.allowed);
        if outbound || !allowed.is_empty() {
            let lacking = |name: &str| Err(Unavailable::Forwarding(name.to_owned()));
            if !forwards(FORWARDING) {
                return lacking("net.ipv4.ip_forward");
            }
            if range6.is_some() && !forwards(FORWARDING6) {
                return lacking("net.ipv6.conf.all.forwarding");
            }
        }
        let limits = rules::limits(settings.limits);
        let networks = Self {
            rules: rules::table(range, range6, allowed, outbound) + &limits,
            settings,
            namespaces: HashMap::new(),
        };
        let refused = |error: io::Error| Unavailable::Rules(error.to_string());
        networks.load_rules().map_err(refused)?;
        Ok(networks)
    }

    /// Reloads the rules: an administrator may have flushed them.
    pub(super) fn load_rules(&self) -> io::Result<()> {
        self.load_rules_with(None)
    }

    /// Loads the rules for the existing networks and another one.
    fn load_rules_with(&self, new: Option<u32>) -> io::Result<()> {
        let (range, range6) = (self.settings.range, self.settings.range6);
        let indices = self.namespaces.keys().copied().chain(new);
        let network = |index| Some((index, Subnet::of(range, range6, index)?.v4));
        let networks: Vec<_> = indices.filter_map(network).collect();
        let rules = self.rules.clone() + &rules::senders(&networks);
        run("nft", &["-f", "-"], &rules)
    }

    /// Makes the network `index`, if it does not exist.
    pub(super) fn make(&mut self, index: u32) -> Answer {
        if !self.namespaces.contains_key(&index) {
            let namespace = self.make_namespace(index)?;
            self.namespaces.insert(index, namespace);
        }
        Ok((Done::Nothing, Vec::new()))
    }

    fn make_namespace(&self, index: u32) -> Result<Namespace, Refused> {
        let (range, range6) = (self.settings.range, self.settings.range6);
        let addresses = Subnet::of(range, range6, index);
        let addresses = addresses.ok_or_else(|| refused("network", index, "is out of range"))?;
        self.load_rules_with(Some(index))?;
        let host = format!("{INTERFACE}{index}");
        if exists(&host)? {
            delete(&host)?;
        }
        let namespace = Namespace::make()?;
        let own = format!("/proc/{}/ns/net", std::process::id());
        namespace.enter(|| {
            let inside = format!(
                "link add dev {BRIDGE} type bridge forward_delay 0 mcast_snooping 0\n\
                 link add dev host type veth peer name {host} netns {own}\n\
                 link set dev host master {BRIDGE} up\n\
                 link set dev {BRIDGE} up\n"
            );
            run("ip", &["-batch", "-"], &inside)
        })?;
        let gateway = addresses.gateway();
        let mut outside = format!("address add {gateway}/{PREFIX} dev {host}\n");
        if let Some(gateway) = addresses.second(gateway) {
            // The address is unique, so duplicate address detection is not needed.
            outside += &format!("address add {gateway}/{PREFIX6} dev {host} nodad\n");
        }
        outside += &format!("link set dev {host} up\n");
        run("ip", &["-batch", "-"], &outside)?;
        Ok(namespace)
    }

    /// Makes a TAP interface.
    pub(super) fn interface(&self, index: u32) -> Answer {
        let make = || Tap::make(BRIDGE).map_err(io::Error::other);
        let tap = self.namespace(index)?.enter(make)?;
        let name = Tap::name(&tap).map_err(io::Error::other)?;
        Ok((Done::Interface { name }, vec![tap.into()]))
    }

    /// Takes over the network of a TAP interface, unless the network `index` is known.
    pub(super) fn adopt(&mut self, index: u32, tap: File) -> Answer {
        if let Entry::Vacant(free) = self.namespaces.entry(index) {
            free.insert(Namespace::of_tap(&tap)?);
            // Its senders may have been flushed.
            self.load_rules()?;
        }
        let name = Tap::name(&tap).map_err(io::Error::other)?;
        Ok((Done::Interface { name }, vec![tap.into()]))
    }

    /// Opens the counters of a network's interfaces. A read reports the namespace that they were
    /// opened in.
    pub(super) fn traffic(&self, index: u32) -> Answer {
        let counters = self.namespace(index)?.enter(|| File::open(COUNTERS))?;
        Ok((Done::Traffic, vec![counters.into()]))
    }

    /// Forgets a network.
    pub(super) fn forget(&mut self, index: u32) -> Answer {
        self.namespaces.remove(&index);
        Ok((Done::Nothing, Vec::new()))
    }

    fn namespace(&self, index: u32) -> Result<&Namespace, Refused> {
        let namespace = self.namespaces.get(&index);
        namespace.ok_or_else(|| refused("network", index, "is not there"))
    }
}

/// Whether there is a network interface of this name.
fn exists(name: &str) -> io::Result<bool> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    match name_to_index(&socket, name) {
        Ok(_) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Deletes an interface of a namespace that the kernel is about to delete. The kernel may be first.
fn delete(name: &str) -> io::Result<()> {
    match run("ip", &["-batch", "-"], &format!("link del dev {name}\n")) {
        Err(_) if !exists(name)? => Ok(()),
        deleted => deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_the_kernel_has_deleted_are_no_error() {
        assert!(!exists("hlt-deleted").unwrap());
        delete("hlt-deleted").unwrap();
        // It cannot be deleted, and stays.
        assert!(exists("lo").unwrap());
        delete("lo").unwrap_err();
    }
}
