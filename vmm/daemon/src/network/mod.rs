//! Networks of tenants: the assignment of addresses. The [spawner](hartline_jail::spawner) makes the networks
//! and their rules.

mod traffic;

use super::config::Config;
use super::store::{Store, StoreError};
use crate::jailed::protocol::{Address6, NetworkJob, Traffic};
use crate::spawner::{Process, Spawner};
use hartline_jail::spawner::{PREFIX, PREFIX6, Subnet, Unavailable};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reason why a machine cannot be in its tenant's network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Networks are not available.
    #[error("there are no networks: {0}")]
    Unavailable(#[from] Unavailable),
    /// All networks of the range have a tenant.
    #[error("network_range has no network left for another tenant")]
    NoNetwork,
    /// All addresses are taken.
    #[error("the network of the tenant has no address left for another machine")]
    NoAddress,
    /// An operation of the host failed.
    #[error("network: {0}")]
    Host(#[from] io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The networks of all tenants.
#[derive(Debug)]
pub struct Networks {
    store: Arc<Store>,
    spawner: Arc<Spawner>,
    settings: Result<Settings, Unavailable>,
    /// Most bytes, and packets, per second of a new machine in each direction; 0: no limit.
    limits: Mutex<[u64; 2]>,
    tenants: Arc<Tenants>,
}

/// The network settings of the configuration.
#[derive(Debug)]
struct Settings {
    range: Ipv4Net,
    range6: Option<Ipv6Net>,
}

type Tenants = Mutex<HashMap<String, Network>>;

/// The network of a tenant.
#[derive(Debug)]
struct Network {
    /// The network's number.
    index: u32,
    addresses: Subnet,
    /// Addresses in use, with the names of their interfaces once they exist.
    taken: BTreeMap<Ipv4Addr, String>,
    /// The last assigned address. Other addresses are assigned before it is reused, because peers
    /// may still know connections of its last owner.
    last: Ipv4Addr,
}

impl Network {
    /// A network without machines.
    fn new(index: u32, addresses: Subnet) -> Self {
        Self {
            index,
            addresses,
            taken: BTreeMap::new(),
            last: addresses.gateway(),
        }
    }

    /// Takes a free address, `wanted` if possible.
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

/// An assigned address of a tenant's network; dropping this frees it.
#[derive(Debug)]
pub struct Lease {
    tenants: Arc<Tenants>,
    tenant: String,
    address: Ipv4Addr,
}

impl Lease {
    /// Notes that the TAP interface of this name has the address.
    fn note_interface(&self, name: String) {
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

/// A network interface for a machine.
#[derive(Debug)]
pub struct Interface {
    /// The other end of the interface, for the VMM.
    pub tap: File,
    /// The VMM's settings for the interface.
    pub job: NetworkJob,
    /// The address of the interface.
    pub lease: Arc<Lease>,
}

impl Networks {
    /// Opens the networks of a configuration, if the spawner can make them.
    #[must_use]
    pub fn open(
        store: Arc<Store>,
        spawner: Arc<Spawner>,
        config: &Config,
        available: Result<(), Unavailable>,
    ) -> Self {
        let settings = available.and_then(|()| Settings::new(config));
        if let Err(unavailable) = &settings {
            tracing::info!("machines have no networks: {unavailable}");
        }
        Self {
            store,
            spawner,
            settings,
            limits: Mutex::new(limits(config)),
            tenants: Arc::default(),
        }
    }

    /// Changes the limits of interfaces that are made from now on.
    pub fn set_limits(&self, config: &Config) {
        let mut current = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        *current = limits(config);
    }

    /// Whether there are networks.
    ///
    /// # Errors
    /// The reason why there are none.
    pub fn check(&self) -> Result<(), Unavailable> {
        self.settings.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Makes an interface in the network of a tenant, with the address `wanted` if that is free. A
    /// missing network is made first.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn attach(
        &self,
        tenant: &str,
        wanted: Option<Ipv4Addr>,
    ) -> Result<Interface, NetworkError> {
        let settings = self.settings.as_ref().map_err(Clone::clone)?;
        let (lease, addresses, index) = self.lease(settings, tenant, wanted)?;
        let (name, tap) = self.spawner.interface(index)?;
        lease.note_interface(name);
        let limits = self.limits.lock();
        let [bandwidth, packets] = *limits.unwrap_or_else(PoisonError::into_inner);
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
    ) -> Result<(Lease, Subnet, u32), NetworkError> {
        let mut tenants = lock(&self.tenants);
        if !tenants.contains_key(tenant) {
            let (index, addresses) = self.addresses(settings, tenant)?;
            // A machine of a deleted tenant, which had this number, may still be there.
            if tenants.values().any(|network| network.index == index) {
                return Err(NetworkError::NoNetwork);
            }
            self.spawner.make_network(index)?;
            let network = Network::new(index, addresses);
            tenants.insert(tenant.to_owned(), network);
        }
        let network = tenants.get_mut(tenant).ok_or(NetworkError::NoNetwork)?;
        let address = network.take(wanted).ok_or(NetworkError::NoAddress)?;
        let lease = Lease {
            tenants: Arc::clone(&self.tenants),
            tenant: tenant.to_owned(),
            address,
        };
        Ok((lease, network.addresses, network.index))
    }

    /// Number and addresses of a tenant's network.
    fn addresses(&self, settings: &Settings, tenant: &str) -> Result<(u32, Subnet), NetworkError> {
        let index = self.store.network(tenant)?;
        let addresses = Subnet::of(settings.range, settings.range6, index);
        Ok((index, addresses.ok_or(NetworkError::NoNetwork)?))
    }

    /// Takes over the address and the network of a machine that was found again. `None`: the
    /// machine has no address in the tenant's network.
    #[must_use]
    pub fn adopt(&self, tenant: &str, address: Ipv4Addr, process: &Process) -> Option<Arc<Lease>> {
        let settings = self.settings.as_ref().ok()?;
        let (index, addresses) = self.addresses(settings, tenant).ok()?;
        if !addresses.v4.contains(&address) {
            return None;
        }
        let mut tenants = lock(&self.tenants);
        let name = self.spawner.adopt_network(index, process).ok()?;
        if !tenants.contains_key(tenant) {
            tenants.insert(tenant.to_owned(), Network::new(index, addresses));
        }
        let taken = tenants.get_mut(tenant)?.take(Some(address));
        // Another machine has the address.
        let free = taken.filter(|taken| *taken == address).is_some();
        let lease = taken.map(|address| Lease {
            tenants: Arc::clone(&self.tenants),
            tenant: tenant.to_owned(),
            address,
        });
        drop(tenants);
        let lease = lease.filter(|_| free)?;
        lease.note_interface(name);
        Some(Arc::new(lease))
    }

    /// The IPv6 address of the machine with an IPv4 address.
    #[must_use]
    pub fn second(&self, tenant: &str, address: Ipv4Addr) -> Option<Ipv6Addr> {
        lock(&self.tenants).get(tenant)?.addresses.second(address)
    }

    /// Traffic of a tenant's machine with an address. `None`: no running machine has it.
    #[must_use]
    pub fn traffic(&self, tenant: &str, address: Ipv4Addr) -> Option<Traffic> {
        let (index, interface) = {
            let tenants = lock(&self.tenants);
            let network = tenants.get(tenant)?;
            let interface = network.taken.get(&address)?.clone();
            (network.index, interface)
        };
        let counters = self.spawner.traffic(index).ok()?;
        traffic::of(counters, &interface).ok()
    }

    /// Forgets the network of a deleted tenant, if it has no machines any more: another tenant may get
    /// its number.
    pub fn forget(&self, tenant: &str) {
        let mut tenants = lock(&self.tenants);
        let is_unused = |network: &Network| network.taken.is_empty();
        if tenants.get(tenant).is_some_and(is_unused)
            && let Some(network) = tenants.remove(tenant)
            && let Err(error) = self.spawner.forget_network(network.index)
        {
            tracing::warn!(tenant, "its network is not deleted: {error}");
        }
    }

    /// Forgets networks without machines, which the kernel then deletes. If there are machines, it
    /// reloads the rules, because an administrator may have flushed them.
    ///
    /// # Errors
    /// The rules are refused.
    pub fn collect(&self) -> io::Result<()> {
        let mut tenants = lock(&self.tenants);
        let unused: Vec<_> = tenants
            .extract_if(|_, network| network.taken.is_empty())
            .collect();
        for (_, network) in unused {
            self.spawner.forget_network(network.index)?;
        }
        match tenants.is_empty() {
            true => Ok(()),
            false => self.spawner.load_rules(),
        }
    }
}

impl Settings {
    fn new(config: &Config) -> Result<Self, Unavailable> {
        Ok(Self {
            range: config.network_range.ok_or(Unavailable::Unset)?,
            range6: config.network_range6,
        })
    }
}

/// Bytes and packets per second of an interface; 0: no limit.
fn limits(config: &Config) -> [u64; 2] {
    [config.network_bandwidth, config.network_packets].map(Option::unwrap_or_default)
}

fn lock(tenants: &Tenants) -> MutexGuard<'_, HashMap<String, Network>> {
    tenants.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_in_turn() {
        let addresses = Subnet::of("10.1.2.0/24".parse().unwrap(), None, 0).unwrap();
        let mut network = Network::new(0, addresses);
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
