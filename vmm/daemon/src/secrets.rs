//! Secrets: values that machines and runs get as files or environment variables.
//!
//! The database has them encrypted (AES-256-GCM) under a key in a file of its own, with the tenant and
//! the name as associated data: an entry that is moved to another tenant or name cannot be decrypted. A
//! VMM gets them decrypted in a file in memory, apart from its job.

use super::auth::secret_file;
use super::store::{SecretUse, Store, StoreError};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hartline_vmm::boot::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;

/// Longest contents of a secret, bytes.
pub const MAX_SECRET: usize = 64 << 10;
/// Most bytes of all secrets of a machine.
const MAX_TOTAL: usize = 256 << 10;

/// The reason why a secret cannot be stored or used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file of the key cannot be read or made.
    #[error(transparent)]
    Key(#[from] super::auth::AuthError),
    /// There is no such secret.
    #[error("there is no secret {0}")]
    Missing(String),
    /// The key of the file is another one than that of the secret.
    #[error(
        "secret {0} cannot be decrypted: restore the secrets.key it was stored with, or set it again"
    )]
    Undecipherable(String),
    /// The secret cannot be an environment variable.
    #[error("secret {0} is not text without NUL: it can be a file, but no environment variable")]
    NoText(String),
    /// The secrets of a machine are too long.
    #[error("the secrets of one machine have more than {MAX_TOTAL} bytes together")]
    TooLong,
    /// The host returns no random bytes.
    #[error("random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The library refuses.
    #[error("a secret cannot be encrypted")]
    Cipher,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Encrypts and decrypts secrets.
pub struct Secrets(LessSafeKey);

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secrets")
    }
}

impl Secrets {
    /// Opens the secrets with the key in a file, which is made if it does not exist.
    ///
    /// # Errors
    /// [`SecretError::Key`] or [`SecretError::Cipher`].
    pub fn open(path: &Path) -> Result<Self, SecretError> {
        let key: [u8; 32] = secret_file(path)?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| SecretError::Cipher)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts the contents of a secret: a nonce and the sealed bytes.
    ///
    /// # Errors
    /// [`SecretError::Random`] or [`SecretError::Cipher`].
    pub fn seal(
        &self,
        (tenant, name): (&str, &str),
        contents: &[u8],
    ) -> Result<Vec<u8>, SecretError> {
        let mut nonce = [0; NONCE_LEN];
        // Random nonces repeat with a probability of 2^-32 after 2^32 changes of secrets.
        getrandom::fill(&mut nonce)?;
        let mut sealed = contents.to_vec();
        let data = Aad::from(associated(tenant, name));
        let nonce_once = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce_once, data, &mut sealed)
            .map_err(|_| SecretError::Cipher)?;
        Ok([&nonce, &sealed[..], tag.as_ref()].concat())
    }

    /// Decrypts what [`seal`](Self::seal) has made for the same tenant and name; `None` if it was not.
    fn open_sealed(&self, (tenant, name): (&str, &str), sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut contents = sealed.to_vec();
        let data = Aad::from(associated(tenant, name));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, data, &mut contents).ok()?.len();
        contents.truncate(length);
        Some(contents)
    }

    /// The contents of a tenant's secret.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn read(
        &self,
        store: &Store,
        (tenant, name): (&str, &str),
    ) -> Result<Vec<u8>, SecretError> {
        let sealed = store.sealed_secret(tenant, name)?;
        let sealed = sealed.ok_or_else(|| SecretError::Missing(name.to_owned()))?;
        let contents = self.open_sealed((tenant, name), &sealed);
        contents.ok_or_else(|| SecretError::Undecipherable(name.to_owned()))
    }

    /// The secrets that a machine or run of a tenant uses.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn of(
        &self,
        store: &Store,
        tenant: &str,
        uses: &[SecretUse],
    ) -> Result<Opened, SecretError> {
        let mut opened = Opened::default();
        let mut total = 0;
        for used in uses {
            let name = &used.secret;
            let contents = self.read(store, (tenant, name))?;
            total += contents.len();
            if total > MAX_TOTAL {
                return Err(SecretError::TooLong);
            }
            if let Some(file) = used.file_name() {
                opened
                    .files
                    .push((file.to_owned(), BASE64_STANDARD.encode(&contents)));
            }
            if let Some(variable) = &used.env {
                let text = String::from_utf8(contents).ok();
                let text = text.filter(|text| !text.contains('\0'));
                let text = text.ok_or_else(|| SecretError::NoText(name.clone()))?;
                opened.environment.push((variable.clone(), text));
            }
        }
        Ok(opened)
    }
}

/// Text that only this entry has. Neither part contains a NUL.
fn associated(tenant: &str, name: &str) -> Vec<u8> {
    [tenant, "\0", name].concat().into_bytes()
}

/// The secrets of a machine, decrypted. They are not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Environment variables.
    environment: Vec<(String, String)>,
    /// Names of files, and their contents in Base64.
    files: Vec<(String, String)>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Opened")
    }
}

impl Opened {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.files.is_empty()
    }

    /// Adds the environment variables to an environment, in which they replace others.
    pub fn extend(&self, environment: &mut Vec<String>) {
        for (name, value) in &self.environment {
            environment.retain(|pair| pair.split('=').next() != Some(name));
            environment.push(format!("{name}={value}"));
        }
    }

    /// The environment variables.
    #[must_use]
    pub fn into_variables(self) -> Vec<(String, String)> {
        self.environment
    }

    /// The files.
    ///
    /// # Errors
    /// `InvalidData`: the contents are not Base64.
    pub fn into_files(self) -> io::Result<Vec<Secret>> {
        let files = self.files.into_iter().map(|(name, contents)| {
            let contents = BASE64_STANDARD.decode(contents);
            Ok(Secret {
                name: name.into_bytes(),
                contents: contents
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            })
        });
        files.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_bytes_belong_to_one_key_and_one_name() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| Secrets::open(&directory.path().join(name)).unwrap();
        let secrets = open("key");
        let contents = b"\0value\xff";
        let sealed = secrets.seal(("a", "name"), contents).unwrap();
        assert!(!sealed.windows(5).any(|bytes| bytes == b"value"));
        assert_ne!(sealed, secrets.seal(("a", "name"), contents).unwrap());
        assert_eq!(
            open("key").open_sealed(("a", "name"), &sealed).as_deref(),
            Some(&contents[..])
        );
        for other in [("b", "name"), ("a", "nam"), ("a", "names"), ("an", "ame")] {
            assert_eq!(secrets.open_sealed(other, &sealed), None, "{other:?}");
        }
        assert_eq!(open("other").open_sealed(("a", "name"), &sealed), None);
        for index in [0, 11, 12, sealed.len() - 1] {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert_eq!(secrets.open_sealed(("a", "name"), &damaged), None);
        }
        for end in 0..28 {
            assert_eq!(secrets.open_sealed(("a", "name"), &sealed[..end]), None);
        }
    }

    #[test]
    fn variables_replace_others_and_nothing_is_shown() {
        let opened = Opened {
            environment: vec![("A".to_owned(), "x=y".to_owned())],
            files: vec![("f".to_owned(), "AP8=".to_owned())],
        };
        let mut environment = vec!["A=1".to_owned(), "AB=2".to_owned()];
        opened.extend(&mut environment);
        assert_eq!(environment, ["AB=2", "A=x=y"]);
        assert!(!format!("{opened:?}").contains('x'));
        let files = opened.into_files().unwrap();
        assert_eq!(files[0].contents, b"\0\xff");
        assert_eq!(format!("{files:?}"), "[Secret(f)]");
    }
}
