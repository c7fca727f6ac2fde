//! Limits of simultaneous connections.
//!
//! A connection is *anonymous* until a request on it presents a valid API key; then it belongs to
//! the key's tenant and is an entry in the [ledger](super::ledger). Connections of root over the
//! unix socket need no key. Each peer has a limit of anonymous connections, and each tenant has its
//! own limit. Some slots are for root only.
//!
//! Anonymous connections never block a new connection: if there is no slot, the oldest anonymous
//! connection of the peer with most of them is closed. If there are none, the oldest idle
//! connection of the tenant with most idle ones is closed. A connection with a request in progress
//! is never closed for another one, unless it is anonymous.

use super::config::Config;
use super::ledger::{Claim, Exceeded, Ledger, Reservation, Resource};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// One in this many connections is for root only.
const RESERVED: usize = 16;
/// Most connections that are for root only.
const MAX_RESERVED: usize = 32;
/// Share of a peer, or a tenant: at most one in this many of all connections.
const SHARE: usize = 4;
/// Bits of an IPv6 address that all addresses of one subscriber share.
const PREFIX6: u32 = 64;

/// The origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A process of root, or of the daemon's user, over the unix socket.
    Root,
    /// A process of another user over the unix socket.
    User(u32),
    /// An IPv4 address, or the first address of an IPv6 /64.
    Address(IpAddr),
}

impl Source {
    /// The source of a TCP connection from an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let prefix = address.to_bits() & (u128::MAX << (u128::BITS - PREFIX6));
                Ipv6Addr::from_bits(prefix).into()
            }
            address => address,
        })
    }
}

/// Maximum numbers of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    /// All connections.
    all: usize,
    /// All connections except root's without a key.
    others: usize,
    /// Anonymous connections of one peer.
    peer: usize,
    /// Connections of one tenant.
    tenant: usize,
}

impl Limits {
    fn new(config: &Config) -> Self {
        let all = config.max_connections;
        let share = (all / SHARE).max(1);
        let reserved = (all / RESERVED).clamp(1, MAX_RESERVED);
        Self {
            all,
            others: all.saturating_sub(reserved).max(1),
            peer: config.max_connections_per_peer.min(share),
            tenant: config.max_connections_per_tenant.min(share),
        }
    }
}

/// The reason why a connection has no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSlot {
    /// All slots have connections with requests in progress.
    #[error("the daemon has no free slot for a connection")]
    Full,
    /// The tenant has reached its limit.
    #[error(transparent)]
    Tenant(#[from] Exceeded),
}

/// The connections. Clones are the same.
#[derive(Debug, Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ledger: Ledger,
    state: Mutex<State>,
    /// Number of connections.
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    /// The connections, in the order of their arrival.
    entries: BTreeMap<u64, Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    /// The tenant whose key the connection presented.
    tenant: Option<Reservation>,
    /// Number of requests in progress.
    busy: usize,
    /// The task that serves the connection.
    task: Option<AbortHandle>,
}

impl Entry {
    fn is_anonymous(&self) -> bool {
        self.tenant.is_none() && self.source != Source::Root
    }

    /// Whether the connection has one of the slots that are not for root only.
    fn is_other(&self) -> bool {
        self.tenant.is_some() || self.source != Source::Root
    }
}

impl State {
    /// Anonymous connections of a peer; the oldest first.
    fn anonymous(&self, source: Source) -> impl Iterator<Item = u64> {
        let entries = self.entries.iter();
        let of = move |entry: &Entry| entry.is_anonymous() && entry.source == source;
        entries
            .filter(move |(_, entry)| of(entry))
            .map(|(id, _)| *id)
    }

    fn others(&self) -> usize {
        self.entries.values().filter(|e| e.is_other()).count()
    }

    /// The oldest anonymous connection of the peer with most anonymous ones.
    fn oldest_anonymous(&self) -> Option<u64> {
        let anonymous = self.entries.iter().filter(|(_, e)| e.is_anonymous());
        oldest_of_most(anonymous.map(|(id, entry)| (*id, entry.source)))
    }

    /// The oldest idle connection of the tenant with most idle ones.
    fn oldest_idle(&self) -> Option<u64> {
        let idle = self.entries.iter().filter(|(_, entry)| entry.busy == 0);
        let owned = idle.filter_map(|(id, entry)| Some((*id, entry.tenant.as_ref()?.tenant())));
        oldest_of_most(owned)
    }

    /// The oldest idle connection of a tenant.
    fn oldest_idle_of(&self, tenant: &str) -> Option<u64> {
        let is_of = |entry: &Entry| entry.tenant.as_ref().is_some_and(|t| t.tenant() == tenant);
        let mut entries = self.entries.iter();
        let found = entries.find(|(_, entry)| entry.busy == 0 && is_of(entry));
        found.map(|(id, _)| *id)
    }

    /// The oldest idle connection of root without a key.
    fn oldest_idle_of_root(&self) -> Option<u64> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(_, entry)| entry.busy == 0 && !entry.is_other());
        found.map(|(id, _)| *id)
    }

    /// Closes a connection.
    fn close(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id)
            && let Some(task) = entry.task
        {
            task.abort();
        }
    }
}

/// The first entry of the owner with most entries.
fn oldest_of_most<K: std::hash::Hash + Eq>(entries: impl Iterator<Item = (u64, K)>) -> Option<u64> {
    let mut owners: HashMap<K, (usize, u64)> = HashMap::new();
    for (id, owner) in entries {
        owners.entry(owner).or_insert((0, id)).0 += 1;
    }
    let most = owners
        .into_values()
        .max_by_key(|(count, id)| (*count, std::cmp::Reverse(*id)));
    most.map(|(_, oldest)| oldest)
}

impl Connections {
    /// Connections with the limits of the configuration. Those of tenants are entered in the
    /// ledger.
    #[must_use]
    pub fn new(config: &Config, ledger: Ledger) -> Self {
        Self {
            shared: Arc::new(Shared {
                ledger,
                state: Mutex::new(State {
                    limits: Limits::new(config),
                    entries: BTreeMap::new(),
                    next: 0,
                }),
                count: watch::Sender::new(0),
            }),
        }
    }

    /// The most connections that a tenant may have at once.
    #[must_use]
    pub fn tenant_limit(&self) -> u64 {
        self.shared.lock().limits.tenant as u64
    }

    /// Changes the limits. Connections above them stay open.
    pub fn set_limits(&self, config: &Config) {
        self.shared.lock().limits = Limits::new(config);
    }

    /// Gives a new connection a slot. Other connections may be closed for it.
    ///
    /// # Errors
    /// [`NoSlot::Full`].
    pub fn admit(&self, source: Source) -> Result<Slot, NoSlot> {
        let mut state = self.shared.lock();
        let limits = state.limits;
        if source != Source::Root {
            let (mut count, mut oldest) = (0, None);
            for id in state.anonymous(source) {
                count += 1;
                oldest = oldest.or(Some(id));
            }
            if count >= limits.peer
                && let Some(oldest) = oldest
            {
                state.close(oldest);
            }
        }
        let is_full = match source {
            Source::Root => state.entries.len() >= limits.all,
            _ => state.others() >= limits.others || state.entries.len() >= limits.all,
        };
        if is_full {
            let victim = state.oldest_anonymous().or_else(|| state.oldest_idle());
            let victim = match source {
                Source::Root => victim.or_else(|| state.oldest_idle_of_root()),
                _ => victim,
            };
            state.close(victim.ok_or(NoSlot::Full)?);
        }
        let id = state.next;
        state.next += 1;
        let entry = Entry {
            source,
            tenant: None,
            busy: 0,
            task: None,
        };
        state.entries.insert(id, entry);
        self.shared.count.send_replace(state.entries.len());
        drop(state);
        Ok(Slot {
            shared: Arc::clone(&self.shared),
            id,
        })
    }

    /// Waits until there are no connections.
    pub async fn ended(&self) {
        let mut count = self.shared.count.subscribe();
        // The sender is in `self`.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one connection; dropping this frees the slot.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    id: u64,
}

impl Slot {
    /// Sets the task that serves the connection. The task is aborted if the connection is closed.
    pub fn serve_by(&self, task: AbortHandle) {
        match self.shared.lock().entries.get_mut(&self.id) {
            Some(entry) => entry.task = Some(task),
            None => task.abort(),
        }
    }

    /// Begins a request on the connection. It ends when the last clone of the result is dropped.
    #[must_use]
    pub fn request(self: &Arc<Self>) -> Room {
        if let Some(entry) = self.shared.lock().entries.get_mut(&self.id) {
            entry.busy += 1;
        }
        Room {
            busy: Arc::new(Busy(Arc::clone(self))),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let entry = state.entries.remove(&self.id);
        self.shared.count.send_replace(state.entries.len());
        drop(state);
        drop(entry);
    }
}

/// A request in progress. Work that continues after the answer holds a clone too.
#[derive(Debug, Clone)]
pub struct Room {
    busy: Arc<Busy>,
}

/// Counts one request of a connection.
#[derive(Debug)]
struct Busy(Arc<Slot>);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(entry) = self.0.shared.lock().entries.get_mut(&self.0.id) {
            entry.busy = entry.busy.saturating_sub(1);
        }
    }
}

impl Room {
    /// Assigns the connection to the tenant whose key it has presented. It counts as the tenant's
    /// from now on. If the tenant has too many connections, its oldest idle one is closed.
    ///
    /// # Errors
    /// [`NoSlot`]: the connection is unchanged.
    pub fn identify(&self, tenant: &str) -> Result<(), NoSlot> {
        let slot = &*self.busy.0;
        let shared = &slot.shared;
        let mut state = shared.lock();
        let Some(entry) = state.entries.get(&slot.id) else {
            // The connection is being closed.
            return Err(NoSlot::Full);
        };
        if entry.tenant.as_ref().is_some_and(|t| t.tenant() == tenant) {
            return Ok(());
        }
        let is_other = entry.is_other();
        let limits = state.limits;
        let claim = Claim {
            resource: Resource::Connections,
            amount: 1,
            limit: Some(limits.tenant as u64),
        };
        let reserve = || shared.ledger.reserve(tenant, &[claim]);
        let reservation = match (reserve(), state.oldest_idle_of(tenant)) {
            (Err(_), Some(idle)) => {
                state.close(idle);
                reserve()
            }
            (outcome, _) => outcome,
        }?;
        // The connection leaves root's slots.
        if !is_other && state.others() >= limits.others {
            let victim = state.oldest_anonymous().or_else(|| state.oldest_idle());
            state.close(victim.ok_or(NoSlot::Full)?);
        }
        if let Some(entry) = state.entries.get_mut(&slot.id) {
            entry.tenant = Some(reservation);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(all: usize) -> Connections {
        let config = Config {
            max_connections: all,
            ..Config::default()
        };
        Connections::new(&config, Ledger::default())
    }

    fn user(number: u32) -> Source {
        Source::User(number)
    }

    fn is_open(slot: &Slot) -> bool {
        slot.shared.lock().entries.contains_key(&slot.id)
    }

    fn admit(connections: &Connections, source: Source) -> Arc<Slot> {
        Arc::new(connections.admit(source).unwrap())
    }

    #[test]
    fn a_peer_closes_its_own_connections() {
        let connections = connections(64);
        let neighbour = admit(&connections, user(2));
        let silent: Vec<_> = (0..66).map(|_| admit(&connections, user(1))).collect();
        let open = silent.iter().filter(|slot| is_open(slot)).count();
        assert_eq!(open, 16, "its share");
        assert!(silent.iter().rev().take(16).all(|slot| is_open(slot)));
        assert!(is_open(&neighbour));
    }

    #[test]
    fn many_peers_keep_nobody_out() {
        let connections = connections(64);
        let silent: Vec<_> = (0..66)
            .map(|n| admit(&connections, user(100 + n)))
            .collect();
        let open = silent.iter().filter(|slot| is_open(slot)).count();
        assert_eq!(open, 60, "four slots are root's");
        let roots: Vec<_> = (0..4).map(|_| admit(&connections, Source::Root)).collect();
        assert_eq!(open, silent.iter().filter(|slot| is_open(slot)).count());
        let second = admit(&connections, Source::Root);
        let left = silent.iter().filter(|slot| is_open(slot)).count();
        assert_eq!(left, 59, "root replaces an anonymous one");
        assert!(is_open(&second) && roots.iter().all(|slot| is_open(slot)));
        // The peer with the most connections loses one.
        let more = [admit(&connections, user(7)), admit(&connections, user(7))];
        let newest = admit(&connections, user(8));
        assert!(!is_open(&more[0]) && is_open(&more[1]) && is_open(&newest));
    }

    #[test]
    fn tenants_keep_to_their_share() {
        let connections = connections(64);
        let used = |tenant| {
            let ledger = &connections.shared.ledger;
            ledger.used(tenant, Resource::Connections)
        };
        let busy: Vec<_> = (0..16)
            .map(|n| {
                let room = admit(&connections, user(n)).request();
                room.identify("a").unwrap();
                room
            })
            .collect();
        busy[0].identify("a").unwrap();
        assert_eq!(used("a"), 16);
        let room = admit(&connections, Source::Root).request();
        assert!(matches!(room.identify("a"), Err(NoSlot::Tenant(_))));
        room.identify("b").unwrap();
        assert_eq!((used("a"), used("b")), (16, 1));
        // A request that has been answered leaves an idle connection.
        let mut busy = busy.into_iter();
        let first = busy.next().map(|room| Arc::clone(&room.busy.0)).unwrap();
        assert!(is_open(&first));
        room.identify("a").unwrap();
        assert!(!is_open(&first), "closed for the new one");
        drop(first);
        assert_eq!((used("a"), used("b")), (16, 0));
        drop((busy, room));
        assert_eq!((used("a"), used("b")), (0, 0));
    }

    #[test]
    fn what_is_being_answered_goes_on() {
        let connections = connections(32);
        let mut rooms = Vec::new();
        for tenant in 0..4 {
            for _ in 0..8 {
                let Ok(slot) = connections.admit(user(tenant)) else {
                    break;
                };
                let room = Arc::new(slot).request();
                room.identify(&tenant.to_string()).unwrap();
                rooms.push(room);
            }
        }
        assert_eq!(rooms.len(), 30);
        let refused = connections.admit(user(9));
        assert!(matches!(refused, Err(NoSlot::Full)));
        let roots = [Source::Root; 2].map(|root| admit(&connections, root));
        let third = admit(&connections, Source::Root);
        assert!(!is_open(&roots[0]) && is_open(&roots[1]) && is_open(&third));
        assert!(rooms.iter().all(|room| is_open(&room.busy.0)));
    }

    #[test]
    fn sources_are_subscribers() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }

    #[tokio::test]
    async fn the_task_of_a_closed_connection_ends() {
        let connections = connections(4);
        let first = admit(&connections, user(1));
        let held = Arc::clone(&first);
        let task = tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        first.serve_by(task.abort_handle());
        drop(first);
        let second = admit(&connections, user(1));
        assert!(task.await.unwrap_err().is_cancelled());
        drop(second);
        connections.ended().await;
    }
}
