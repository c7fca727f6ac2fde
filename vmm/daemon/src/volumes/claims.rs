//! Claims of runs to volumes.
//!
//! The database knows the volumes of machines and of runs that it keeps. Other runs claim theirs here
//! until their VMMs have ended.

use crate::store::Mount;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tenant and name of a volume.
type Key = (String, String);

/// The volumes that runs have claimed. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeMap<Key, Users>>>);

/// The runs that use a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Users {
    readers: u32,
    writers: u32,
}

impl Users {
    fn of(&mut self, mount: &Mount) -> &mut u32 {
        match mount.read_only {
            true => &mut self.readers,
            false => &mut self.writers,
        }
    }
}

impl Claims {
    /// Keeps other claims waiting. What is checked before [`Locked::add`] stays true until then.
    pub fn lock(&self) -> Locked<'_> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { claims: self, all }
    }
}

/// All claims, which do not change.
pub(super) struct Locked<'a> {
    claims: &'a Claims,
    all: MutexGuard<'a, BTreeMap<Key, Users>>,
}

impl Locked<'_> {
    /// Whether a run uses the volume.
    pub fn is_used(&self, tenant: &str, volume: &str) -> bool {
        self.all.contains_key(&key(tenant, volume))
    }

    /// The first of the volumes that is to be changed and that a run may change.
    pub fn in_use(&self, tenant: &str, mounts: &[Mount]) -> Option<String> {
        let is_written = |mount: &&Mount| {
            let users = self.all.get(&key(tenant, &mount.volume));
            !mount.read_only && users.is_some_and(|users| users.writers > 0)
        };
        mounts.iter().find(is_written).map(|m| m.volume.clone())
    }

    /// Claims volumes.
    pub fn add(mut self, tenant: &str, mounts: &[Mount]) -> Claim {
        for mount in mounts {
            let users = self.all.entry(key(tenant, &mount.volume)).or_default();
            *users.of(mount) += 1;
        }
        Claim {
            claims: self.claims.clone(),
            tenant: tenant.to_owned(),
            mounts: mounts.to_vec(),
        }
    }
}

/// The volumes of a run. They are free when this is dropped.
#[derive(Debug)]
pub struct Claim {
    claims: Claims,
    tenant: String,
    mounts: Vec<Mount>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.claims.lock().all;
        for mount in &self.mounts {
            let key = key(&self.tenant, &mount.volume);
            if let Some(users) = all.get_mut(&key) {
                *users.of(mount) -= 1;
                if *users == Users::default() {
                    all.remove(&key);
                }
            }
        }
    }
}

fn key(tenant: &str, volume: &str) -> Key {
    (tenant.to_owned(), volume.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(volume: &str, read_only: bool) -> Mount {
        Mount {
            volume: volume.to_owned(),
            path: "/x".to_owned(),
            read_only,
        }
    }

    #[test]
    fn a_volume_is_free_after_its_last_user() {
        let claims = Claims::default();
        let (reader, writer) = ([mount("a", true)], [mount("a", false)]);
        let first = claims.lock().add("one", &reader);
        assert_eq!(claims.lock().in_use("one", &writer), None, "it is read");
        let second = claims.lock().add("one", &writer);
        assert_eq!(claims.lock().in_use("one", &writer).as_deref(), Some("a"));
        assert_eq!(claims.lock().in_use("one", &reader), None);
        assert_eq!(claims.lock().in_use("two", &writer), None);
        assert!(!claims.lock().is_used("two", "a") && !claims.lock().is_used("one", "b"));
        drop(second);
        assert_eq!(claims.lock().in_use("one", &writer), None);
        assert!(claims.lock().is_used("one", "a"));
        drop(first);
        assert!(!claims.lock().is_used("one", "a"));
    }
}
