//! Each tenant's use of shared resources: one account per tenant.
//!
//! The scheduler reserves memory, vCPUs and runs, the server reserves connections, and machines
//! reserve published ports. Dropping a [`Reservation`] returns its amounts. The ledger does not count
//! storage: the database knows what is stored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A kind of resource that a tenant holds for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Memory of machines and runs, bytes.
    Memory,
    /// vCPUs of machines and runs on shared processors.
    Cpus,
    /// Running machines and runs.
    Runs,
    /// Connections to the daemon.
    Connections,
    /// Published ports of machines.
    Ports,
    /// Connections to published ports.
    PortConnections,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 6] = [
        Self::Memory,
        Self::Cpus,
        Self::Runs,
        Self::Connections,
        Self::Ports,
        Self::PortConnections,
    ];

    /// The resource's name in the API and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Runs => "runs",
            Self::Connections => "connections",
            Self::Ports => "ports",
            Self::PortConnections => "port_connections",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An amount of a resource that a tenant requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The resource.
    pub resource: Resource,
    /// The amount, in the unit of the resource.
    pub amount: u64,
    /// The most that the tenant may hold at once. `None`: no limit of the tenant's own.
    pub limit: Option<u64>,
}

/// The reason why a tenant does not get a requested amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: the tenant uses {used} of {limit}, and this needs {wanted} more")]
pub struct Exceeded {
    /// The exhausted resource.
    pub resource: Resource,
    /// The amount that the tenant holds now.
    pub used: u64,
    /// The additional amount that it requested.
    pub wanted: u64,
    /// The most that the tenant may hold.
    pub limit: u64,
}

/// The amounts that a tenant holds, by resource, and its consumption.
#[derive(Debug, Default)]
struct Account {
    held: BTreeMap<Resource, u64>,
    translation: Duration,
}

impl Account {
    fn used(&self, resource: Resource) -> u64 {
        self.held.get(&resource).copied().unwrap_or(0)
    }

    fn check(&self, claims: &[Claim]) -> Result<(), Exceeded> {
        for claim in claims {
            let used = self.used(claim.resource);
            if let Some(limit) = claim.limit
                && used.saturating_add(claim.amount) > limit
            {
                return Err(Exceeded {
                    resource: claim.resource,
                    used,
                    wanted: claim.amount,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Whether the account can be forgotten without loss.
    fn is_empty(&self) -> bool {
        self.translation.is_zero() && self.held.values().all(|held| *held == 0)
    }
}

/// The accounts. Clones are the same ledger.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accounts: Arc<Mutex<BTreeMap<String, Account>>>,
}

impl Ledger {
    /// Reserves all of the claims, or none of them.
    ///
    /// # Errors
    /// [`Exceeded`]: the first claim that is above its limit.
    pub fn reserve(&self, tenant: &str, claims: &[Claim]) -> Result<Reservation, Exceeded> {
        self.enter(tenant, claims, |account| account.check(claims))
    }

    /// Reserves all of the claims without checking their limits: the tenant holds them already.
    #[must_use]
    pub fn adopt(&self, tenant: &str, claims: &[Claim]) -> Reservation {
        match self.enter::<std::convert::Infallible>(tenant, claims, |_| Ok(())) {
            Ok(reservation) => reservation,
            Err(never) => match never {},
        }
    }

    /// Whether [`reserve`](Self::reserve) would succeed now.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn check(&self, tenant: &str, claims: &[Claim]) -> Result<(), Exceeded> {
        match self.lock().get(tenant) {
            Some(account) => account.check(claims),
            None => Account::default().check(claims),
        }
    }

    /// The amount of a resource that a tenant holds.
    #[must_use]
    pub fn used(&self, tenant: &str, resource: Resource) -> u64 {
        let accounts = self.lock();
        accounts.get(tenant).map_or(0, |a| a.used(resource))
    }

    /// The amount of a resource that all tenants together hold.
    #[must_use]
    pub fn total(&self, resource: Resource) -> u64 {
        let accounts = self.lock();
        let used = accounts.values().map(|account| account.used(resource));
        used.fold(0, u64::saturating_add)
    }

    /// The amounts that each tenant holds, in the order of [`Resource::ALL`].
    #[must_use]
    pub fn holdings(&self) -> Vec<(String, [u64; Resource::ALL.len()])> {
        let accounts = self.lock();
        let of = |account: &Account| Resource::ALL.map(|resource| account.used(resource));
        let each = accounts.iter().map(|(name, a)| (name.clone(), of(a)));
        each.collect()
    }

    /// Adds processor time that the translation of a tenant's program took. This time is not
    /// returned.
    pub fn charge_translation(&self, tenant: &str, time: Duration) {
        let mut accounts = self.lock();
        let account = accounts.entry(tenant.to_owned()).or_default();
        account.translation = account.translation.saturating_add(time);
    }

    /// Processor time of translations for a tenant since the start of the daemon.
    #[must_use]
    pub fn translation(&self, tenant: &str) -> Duration {
        let accounts = self.lock();
        accounts
            .get(tenant)
            .map_or(Duration::ZERO, |account| account.translation)
    }

    fn enter<E>(
        &self,
        tenant: &str,
        claims: &[Claim],
        check: impl FnOnce(&Account) -> Result<(), E>,
    ) -> Result<Reservation, E> {
        let mut accounts = self.lock();
        let none = Account::default();
        check(accounts.get(tenant).unwrap_or(&none))?;
        let account = accounts.entry(tenant.to_owned()).or_default();
        for claim in claims {
            let held = account.held.entry(claim.resource).or_default();
            *held = held.saturating_add(claim.amount);
        }
        Ok(Reservation {
            ledger: self.clone(),
            tenant: tenant.to_owned(),
            held: claims.iter().map(|c| (c.resource, c.amount)).collect(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The amounts that a tenant holds; dropping this returns them.
#[derive(Debug)]
pub struct Reservation {
    ledger: Ledger,
    tenant: String,
    held: Vec<(Resource, u64)>,
}

impl Reservation {
    /// The tenant that holds the reservation.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut accounts = self.ledger.lock();
        let Some(account) = accounts.get_mut(&self.tenant) else {
            return;
        };
        for (resource, amount) in &self.held {
            let held = account.held.entry(*resource).or_default();
            *held = held.saturating_sub(*amount);
        }
        if account.is_empty() {
            accounts.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(resource: Resource, amount: u64, limit: u64) -> Claim {
        let limit = Some(limit);
        Claim {
            resource,
            amount,
            limit,
        }
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let ledger = Ledger::default();
        let claims = [
            claim(Resource::Memory, 60, 100),
            claim(Resource::Runs, 1, 5),
        ];
        let first = ledger.reserve("a", &claims).unwrap();
        assert_eq!(first.tenant(), "a");
        let refused = ledger.reserve("a", &claims).unwrap_err();
        let expected = Exceeded {
            resource: Resource::Memory,
            used: 60,
            wanted: 60,
            limit: 100,
        };
        assert_eq!(refused, expected);
        let text = "memory: the tenant uses 60 of 100, and this needs 60 more";
        assert_eq!(refused.to_string(), text);
        assert_eq!(ledger.check("a", &claims), Err(expected));
        assert_eq!(ledger.used("a", Resource::Runs), 1, "none of the claims");
        let other = ledger.reserve("b", &claims).unwrap();
        assert_eq!(ledger.total(Resource::Memory), 120);
        let holdings = ledger.holdings();
        assert_eq!(holdings[1], ("b".to_owned(), [60, 0, 1, 0, 0, 0]));
        drop(first);
        assert_eq!(ledger.used("a", Resource::Memory), 0);
        assert_eq!(ledger.check("a", &claims), Ok(()));
        drop(other);
        assert!(ledger.holdings().is_empty(), "nothing is kept of them");
    }

    #[test]
    fn what_is_found_again_counts_beyond_limits() {
        let ledger = Ledger::default();
        let claims = [claim(Resource::Memory, u64::MAX, 1)];
        let adopted = [ledger.adopt("a", &claims), ledger.adopt("b", &claims)];
        assert_eq!(ledger.total(Resource::Memory), u64::MAX);
        assert!(ledger.reserve("a", &claims).is_err());
        drop(adopted);
        assert_eq!(ledger.total(Resource::Memory), 0);
    }

    #[test]
    fn translation_adds_up() {
        let ledger = Ledger::default();
        assert_eq!(ledger.translation("a"), Duration::ZERO);
        let held = ledger.adopt("a", &[claim(Resource::Runs, 1, 1)]);
        ledger.charge_translation("a", Duration::from_millis(30));
        ledger.charge_translation("a", Duration::from_millis(12));
        drop(held);
        assert_eq!(ledger.translation("a"), Duration::from_millis(42));
    }
}
