//! Networks of tenants.
//!
//! ```text
//!            network namespace of a tenant              │ the host's
//!  VMM ── TAP interface ─┐                              │
//!  VMM ── TAP interface ─┴─ bridge ── veth interface ───┼── veth interface, .1 of the
//!                                                       │   tenant's /24: gateway
//! ```
//! Machines of a tenant reach each other over its bridge; what leaves it the host routes or
//! drops (`rules`). Nothing here has to be cleaned up: a TAP interface goes with the last
//! descriptor of it, the VMM's, and a namespace with its last TAP interface and the daemon's
//! descriptor. A daemon that was started later finds a namespace by the interface of a VMM
//! that runs: no mount is needed, which would be lost with the mount namespace that a service
//! manager gives the daemon.

mod namespace;
mod rules;
mod subnet;
mod traffic;

pub use subnet::{PREFIX, PREFIX6};

use super::config::Config;
use super::store::{Store, StoreError};
use crate::jail::Child;
use crate::jailed::protocol::{Address6, NETWORK_FD, NetworkJob, Traffic};
use hartline_devices::net::Tap;
use ipnet::{Ipv4Net, Ipv6Net};
use namespace::{Namespace, run};
use rules::INTERFACE;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use subnet::Subnet;

/// The bridge in a tenant's namespace.
const BRIDGE: &str = "machines";
const TUN: &str = "/dev/net/tun";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARDING6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
/// Is there if the host has IPv6 (proc_pid_net(5)).
const ADDRESSES6: &str = "/proc/self/net/if_inet6";
/// Number of `CAP_NET_ADMIN` (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;

/// Why there are no networks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The configuration has no addresses for them.
    #[error("network_range is not set in the configuration")]
    Unset,
    /// A program is missing.
    #[error("the program {0} cannot be run: {1}")]
    Program(&'static str, String),
    /// The device of TAP interfaces.
    #[error("/dev/net/tun: {0}")]
    Device(String),
    /// The daemon may not.
    #[error("the daemon has no CAP_NET_ADMIN")]
    Capability,
    /// The host does not forward packets.
    #[error("{0} is 0, and network_outbound or network_allow is set: set it to 1 (sysctl.d(5))")]
    Forwarding(&'static str),
    /// The host has no IPv6.
    #[error("network_range6 is set, and the host's kernel has no IPv6")]
    NoIpv6,
    /// The rules are refused.
    #[error("the rules of the networks cannot be loaded: {0}")]
    Rules(String),
}

/// Why a machine cannot be in its tenant's network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There are none.
    #[error("there are no networks: {0}")]
    Unavailable(#[from] Unavailable),
    /// All networks of the range have a tenant.
    #[error("network_range has no network left for another tenant")]
    NoNetwork,
    /// All addresses are taken.
    #[error("the network of the tenant has no address left for another machine")]
    NoAddress,
    /// The host.
    #[error("network: {0}")]
    Host(#[from] io::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What this host lacks for networks, whatever the configuration says.
#[must_use]
pub fn lacking() -> Option<Unavailable> {
    let tun = File::options().read(true).write(true).open(TUN);
    if let Err(error) = tun {
        return Some(Unavailable::Device(error.to_string()));
    }
    for (program, version) in [("ip", "-Version"), ("nft", "--version")] {
        if let Err(error) = run(program, &[version], "") {
            return Some(Unavailable::Program(program, error.to_string()));
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let may = set.is_some_and(|set| set & 1 << CAP_NET_ADMIN != 0);
    (!may).then_some(Unavailable::Capability)
}

/// The networks of all tenants.
#[derive(Debug)]
pub struct Networks {
    store: Arc<Store>,
    settings: Result<Settings, Unavailable>,
    tenants: Arc<Tenants>,
}

/// What the configuration says.
#[derive(Debug)]
struct Settings {
    range: Ipv4Net,
    range6: Option<Ipv6Net>,
    rules: String,
    /// Most bytes, and packets, per second of a machine in each direction; 0: no limit.
    limits: [u64; 2],
}

type Tenants = Mutex<HashMap<String, Network>>;

/// The network of a tenant.
#[derive(Debug)]
struct Network {
    namespace: Arc<Namespace>,
    addresses: Subnet,
    /// Addresses that somebody has, and the names of their interfaces once those are made.
    taken: BTreeMap<Ipv4Addr, String>,
    /// The address that was given last: others come first, since peers of who had one may
    /// still know its connections.
    last: Ipv4Addr,
}

impl Network {
    /// One without machines.
    fn new(namespace: Namespace, addresses: Subnet) -> Self {
        Self {
            namespace: Arc::new(namespace),
            addresses,
            taken: BTreeMap::new(),
            last: addresses.gateway(),
        }
    }

    /// Takes an address that nobody has, `wanted` if possible.
    fn take(&mut self, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let (gateway, last) = (self.addresses.gateway(), self.last);
        let all = self.addresses.v4;
        let (after, before): (Vec<_>, Vec<_>) = all.hosts().partition(|address| *address > last);
        let wanted = wanted.filter(|address| all.contains(address));
        let mut addresses = wanted.into_iter().chain(after).chain(before);
        let address =
            addresses.find(|address| *address != gateway && !self.taken.contains_key(address))?;
        self.taken.insert(address, String::new());
        self.last = address;
        Some(address)
    }
}

/// An address of a tenant's network, which nobody else gets; free again when dropped.
#[derive(Debug)]
pub struct Lease {
    tenants: Arc<Tenants>,
    tenant: String,
    address: Ipv4Addr,
}

impl Lease {
    /// From now on this TAP interface has the address.
    fn note_interface(&self, tap: &File) {
        let Ok(name) = Tap::name(tap) else { return };
        if let Some(network) = lock(&self.tenants).get_mut(&self.tenant) {
            network.taken.insert(self.address, name);
        }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(network) = lock(&self.tenants).get_mut(&self.tenant) {
            network.taken.remove(&self.address);
        }
    }
}

/// An interface for a machine.
#[derive(Debug)]
pub struct Interface {
    /// Its other end, for the VMM.
    pub tap: File,
    /// What the VMM needs to know.
    pub job: NetworkJob,
    /// Its address.
    pub lease: Arc<Lease>,
}

impl Networks {
    /// Loads the rules, if the configuration has addresses for networks.
    #[must_use]
    pub fn open(store: Arc<Store>, config: &Config) -> Self {
        let settings = Settings::new(config);
        if let Err(unavailable) = &settings {
            tracing::info!("machines have no networks: {unavailable}");
        }
        Self {
            store,
            settings,
            tenants: Arc::default(),
        }
    }

    /// Whether there are networks.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Unavailable> {
        self.settings.as_ref().map(drop).map_err(Clone::clone)
    }

    /// An interface in the network of a tenant, which is made if there is none, with the
    /// address `wanted` if that is free.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn attach(
        &self,
        tenant: &str,
        wanted: Option<Ipv4Addr>,
    ) -> Result<Interface, NetworkError> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        let (lease, addresses, namespace) = self.lease(settings, tenant, wanted)?;
        let make = || Tap::make(BRIDGE).map_err(io::Error::other);
        let tap = namespace.enter(make)?;
        lease.note_interface(&tap);
        let [bandwidth, packets] = settings.limits;
        let second = addresses.second(lease.address);
        let gateway6 = addresses.second(addresses.gateway());
        let job = NetworkJob {
            address: lease.address,
            prefix: PREFIX,
            gateway: addresses.gateway(),
            ipv6: second.zip(gateway6).map(|(address, gateway)| Address6 {
                address,
                prefix: PREFIX6,
                gateway,
            }),
            bandwidth,
            packets,
        };
        Ok(Interface {
            tap,
            job,
            lease: Arc::new(lease),
        })
    }

    fn lease(
        &self,
        settings: &Settings,
        tenant: &str,
        wanted: Option<Ipv4Addr>,
    ) -> Result<(Lease, Subnet, Arc<Namespace>), NetworkError> {
        let mut tenants = lock(&self.tenants);
        if !tenants.contains_key(tenant) {
            let network = self.make(settings, tenant)?;
            tenants.insert(tenant.to_owned(), network);
        }
        let network = tenants.get_mut(tenant).ok_or(NetworkError::NoNetwork)?;
        let address = network.take(wanted).ok_or(NetworkError::NoAddress)?;
        let lease = Lease {
            tenants: Arc::clone(&self.tenants),
            tenant: tenant.to_owned(),
            address,
        };
        Ok((lease, network.addresses, Arc::clone(&network.namespace)))
    }

    /// Makes the network of a tenant.
    fn make(&self, settings: &Settings, tenant: &str) -> Result<Network, NetworkError> {
        let (index, addresses) = self.addresses(settings, tenant)?;
        // Somebody may have flushed them.
        run("nft", &["-f", "-"], &settings.rules)?;
        let host = format!("{INTERFACE}{index}");
        // Of a namespace that the kernel is about to delete.
        if exists(&host)? {
            run("ip", &["-batch", "-"], &format!("link del dev {host}\n"))?;
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
            // Nobody else can have it, so there is nothing to wait for.
            outside += &format!("address add {gateway}/{PREFIX6} dev {host} nodad\n");
        }
        outside += &format!("link set dev {host} up\n");
        run("ip", &["-batch", "-"], &outside)?;
        Ok(Network::new(namespace, addresses))
    }

    /// Number and addresses of a tenant's network.
    fn addresses(&self, settings: &Settings, tenant: &str) -> Result<(u32, Subnet), NetworkError> {
        let index = self.store.network(tenant)?;
        let addresses = Subnet::of(settings.range, settings.range6, index);
        Ok((index, addresses.ok_or(NetworkError::NoNetwork)?))
    }

    /// Takes the address of a machine that was found again, and the network that it is in.
    /// `None`: it has none there.
    #[must_use]
    pub fn adopt(&self, tenant: &str, address: Ipv4Addr, process: &Child) -> Option<Arc<Lease>> {
        let settings = self.settings.as_ref().ok()?;
        let (_, addresses) = self.addresses(settings, tenant).ok()?;
        let tap = process.take_tap(NETWORK_FD).ok()?;
        if !addresses.v4.contains(&address) {
            return None;
        }
        let mut tenants = lock(&self.tenants);
        if !tenants.contains_key(tenant) {
            let network = Network::new(Namespace::of_tap(&tap).ok()?, addresses);
            tenants.insert(tenant.to_owned(), network);
        }
        let taken = tenants.get_mut(tenant)?.take(Some(address));
        // Somebody else has it.
        let free = taken.filter(|taken| *taken == address).is_some();
        let lease = taken.map(|address| Lease {
            tenants: Arc::clone(&self.tenants),
            tenant: tenant.to_owned(),
            address,
        });
        drop(tenants);
        let lease = lease.filter(|_| free)?;
        lease.note_interface(&tap);
        Some(Arc::new(lease))
    }

    /// The IPv6 address of the machine of a tenant that has an address.
    #[must_use]
    pub fn second(&self, tenant: &str, address: Ipv4Addr) -> Option<Ipv6Addr> {
        lock(&self.tenants).get(tenant)?.addresses.second(address)
    }

    /// What the machine of a tenant that has an address has sent and received. `None`: no
    /// machine that runs has it.
    #[must_use]
    pub fn traffic(&self, tenant: &str, address: Ipv4Addr) -> Option<Traffic> {
        let (namespace, interface) = {
            let tenants = lock(&self.tenants);
            let network = tenants.get(tenant)?;
            let interface = network.taken.get(&address)?.clone();
            (Arc::clone(&network.namespace), interface)
        };
        namespace.enter(|| traffic::of(&interface)).ok()
    }

    /// Forgets networks without machines: the kernel deletes them. Loads the rules again if
    /// there are machines, since somebody may have flushed them.
    ///
    /// # Errors
    /// The rules are refused.
    pub fn collect(&self) -> io::Result<()> {
        let mut tenants = lock(&self.tenants);
        tenants.retain(|_, network| !network.taken.is_empty());
        match &self.settings {
            Ok(settings) if !tenants.is_empty() => run("nft", &["-f", "-"], &settings.rules),
            _ => Ok(()),
        }
    }
}

impl Settings {
    fn new(config: &Config) -> Result<Self, Unavailable> {
        let range = config.network_range.ok_or(Unavailable::Unset)?;
        let (allowed, outbound) = (&config.network_allow, config.network_outbound);
        if let Some(unavailable) = lacking() {
            return Err(unavailable);
        }
        let range6 = config.network_range6;
        if range6.is_some() && !Path::new(ADDRESSES6).exists() {
            return Err(Unavailable::NoIpv6);
        }
        let forwards = |file| fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        if outbound || !allowed.is_empty() {
            if !forwards(FORWARDING) {
                return Err(Unavailable::Forwarding("net.ipv4.ip_forward"));
            }
            if range6.is_some() && !forwards(FORWARDING6) {
                return Err(Unavailable::Forwarding("net.ipv6.conf.all.forwarding"));
            }
        }
        let limits = rules::limits(rules::Limits {
            connections: config.network_tenant_connections,
            new_connections: config.network_tenant_new_connections,
            bandwidth: config.network_tenant_bandwidth,
            packets: config.network_tenant_packets,
        });
        let rules = rules::table(range, range6, allowed, outbound) + &limits;
        let refused = |error: io::Error| Unavailable::Rules(error.to_string());
        run("nft", &["-f", "-"], &rules).map_err(refused)?;
        Ok(Self {
            range,
            range6,
            rules,
            limits: [config.network_bandwidth, config.network_packets]
                .map(Option::unwrap_or_default),
        })
    }
}

/// Whether there is a network interface of this name.
fn exists(name: &str) -> io::Result<bool> {
    let name = CString::new(name)?;
    // SAFETY: a NUL-terminated string.
    Ok(unsafe { libc::if_nametoindex(name.as_ptr()) } != 0)
}

fn lock(tenants: &Tenants) -> MutexGuard<'_, HashMap<String, Network>> {
    tenants.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_in_turn() {
        let file = File::open("/dev/null").unwrap();
        let addresses = Subnet::of("10.1.2.0/24".parse().unwrap(), None, 0).unwrap();
        let mut network = Network::new(Namespace::from(file), addresses);
        let address = |last| Some(Ipv4Addr::new(10, 1, 2, last));
        assert_eq!(network.take(None), address(2));
        assert_eq!(network.take(None), address(3));
        network.taken.clear();
        assert_eq!(network.take(None), address(4), "not one that was just free");
        assert_eq!(network.take(address(9)), address(9));
        assert_eq!(network.take(address(9)), address(10), "somebody has it");
        assert_eq!(network.take(address(1)), address(11), "the gateway's");
        assert_eq!(network.take(Some(Ipv4Addr::LOCALHOST)), address(12));
        for _ in 0..248 {
            assert!(network.take(None).is_some());
        }
        assert_eq!(network.take(None), None);
    }
}
