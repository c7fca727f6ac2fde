//! API keys: making, checking, and how often each may be used.
//!
//! A key is `hl_ID_SECRET`: 8 and 32 random bytes, hexadecimal. The database has an HMAC-SHA256 of
//! the secret under a key of this daemon, which is stored in a separate file.

use super::store::{ApiKey, NewKey, Scope, Store, StoreError};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PREFIX: &str = "hl_";
/// Maximum burst of a key: the requests of this time may come at once.
const BURST: Duration = Duration::from_secs(10);
/// Most keys with counted use; beyond it, idle keys are forgotten.
const MAX_COUNTED: usize = 100_000;

/// The reason why keys cannot be made or checked.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The file of the daemon's own key cannot be read or made.
    #[error("{path}: {source}")]
    Secret {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The host gives no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns `N` random bytes, hexadecimal.
///
/// # Errors
/// The host returns no random bytes.
pub fn random_hex<const N: usize>() -> Result<String, getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Formats bytes, hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Checks keys.
#[derive(Debug)]
pub struct Keys {
    secret: [u8; 64],
    /// Requests per second of each key.
    per_second: AtomicU32,
    used: Mutex<HashMap<String, Bucket>>,
}

/// The remaining requests of a key.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Keys {
    /// Opens the keys with the daemon's secret in a file, which is made if it does not exist.
    ///
    /// # Errors
    /// [`AuthError::Secret`] or [`AuthError::Random`].
    pub fn open(path: &Path, per_second: u32) -> Result<Self, AuthError> {
        Ok(Self {
            secret: secret_file(path)?,
            per_second: AtomicU32::new(per_second),
            used: Mutex::default(),
        })
    }

    /// Changes the number of requests per second that each key may make.
    pub fn set_rate(&self, per_second: u32) {
        self.per_second.store(per_second, Ordering::Relaxed);
    }

    /// Makes a key for a tenant. Result: the entry for the database, and the key, which cannot be
    /// shown again.
    ///
    /// # Errors
    /// [`AuthError`].
    pub fn make(
        &self,
        store: &Store,
        tenant: &str,
        scope: Scope,
        label: &str,
    ) -> Result<(ApiKey, String), AuthError> {
        let (id, secret) = (random_hex::<8>()?, random_hex::<32>()?);
        let hash = self.mac(&secret).finalize().into_bytes();
        let key = store.add_key(NewKey {
            id: &id,
            tenant,
            scope,
            label,
            hash: &hash,
        })?;
        Ok((key, format!("{PREFIX}{id}_{secret}")))
    }

    /// Checks a presented key; `None` if it is not valid.
    ///
    /// # Errors
    /// The database failed.
    pub fn check(&self, store: &Store, shown: &str) -> Result<Option<ApiKey>, StoreError> {
        let parts = shown.strip_prefix(PREFIX).and_then(|k| k.split_once('_'));
        let Some((id, secret)) = parts else {
            return Ok(None);
        };
        let Some((key, hash)) = store.key(id)? else {
            return Ok(None);
        };
        // Compares in constant time.
        let right = self.mac(secret).verify_slice(&hash).is_ok();
        Ok(right.then_some(key))
    }

    fn mac(&self, secret: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.secret.into());
        mac.update(secret.as_bytes());
        mac
    }

    /// Counts one use of a key.
    ///
    /// # Errors
    /// The time to wait until the key may be used again.
    pub fn count(&self, id: &str, now: Instant) -> Result<(), Duration> {
        let per_second = f64::from(self.per_second.load(Ordering::Relaxed));
        let most = per_second * BURST.as_secs_f64();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= MAX_COUNTED {
            used.retain(|_, bucket| now - bucket.at < BURST);
        }
        let full = Bucket {
            left: most,
            at: now,
        };
        let bucket = used.entry(id.to_owned()).or_insert(full);
        let gained = (now - bucket.at).as_secs_f64() * per_second;
        bucket.left = (bucket.left + gained).min(most);
        bucket.at = now;
        if bucket.left < 1.0 {
            let missing = (1.0 - bucket.left) / per_second;
            return Err(Duration::from_secs_f64(missing));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// The random bytes in a file, which is made if it does not exist.
///
/// # Errors
/// [`AuthError::Secret`] or [`AuthError::Random`].
pub fn secret_file<const N: usize>(path: &Path) -> Result<[u8; N], AuthError> {
    let failed = |source| AuthError::Secret {
        path: path.display().to_string(),
        source,
    };
    match fs::read(path) {
        Ok(bytes) => <[u8; N]>::try_from(bytes)
            .map_err(|_| failed(io::Error::other("is damaged: restore it from a copy"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; N];
            getrandom::fill(&mut secret)?;
            make_secret(path, &secret).map_err(failed)?;
            Ok(secret)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Writes the secret to a new file and renames it, so that the file is never incomplete.
fn make_secret(path: &Path, secret: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(secret)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::DEFAULT_TENANT;

    #[test]
    fn keys_open_what_they_should() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("db")).unwrap();
        let path = directory.path().join("secret");
        let keys = Keys::open(&path, 10).unwrap();
        let (key, shown) = keys
            .make(&store, DEFAULT_TENANT, Scope::Write, "test")
            .unwrap();
        assert_eq!(keys.check(&store, &shown).unwrap(), Some(key.clone()));
        let mut wrong = shown.clone();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        for bad in [wrong.as_str(), "", "hl_", "hl__", &shown[3..], "hl_0_0"] {
            assert_eq!(keys.check(&store, bad).unwrap(), None, "{bad}");
        }
        let reopened = Keys::open(&path, 10).unwrap();
        assert!(reopened.check(&store, &shown).unwrap().is_some());
        fs::remove_file(&path).unwrap();
        let other = Keys::open(&path, 10).unwrap();
        assert!(other.check(&store, &shown).unwrap().is_none());
        assert!(store.delete_key(DEFAULT_TENANT, &key.id).unwrap());
        assert!(reopened.check(&store, &shown).unwrap().is_none());
    }

    #[test]
    fn a_damaged_secret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, b"short").unwrap();
        assert!(matches!(
            Keys::open(&path, 1),
            Err(AuthError::Secret { .. })
        ));
    }

    #[test]
    fn use_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::open(&directory.path().join("secret"), 2).unwrap();
        let now = Instant::now();
        for _ in 0..20 {
            keys.count("a", now).unwrap();
        }
        let wait = keys.count("a", now).unwrap_err();
        assert_eq!(wait, Duration::from_millis(500));
        keys.count("b", now).unwrap();
        keys.count("a", now + wait).unwrap();
        assert!(keys.count("a", now + wait).is_err());
    }
}
