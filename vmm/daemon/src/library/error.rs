//! Why a program cannot be prepared or used.

use crate::problem::{STORAGE_FULL, STORAGE_QUOTA, TRANSLATION_BUDGET};
use crate::store::StoreError;
use std::io;
use std::time::Duration;

/// Why a program cannot be prepared or used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The upload is at fault.
    #[error("{0}")]
    Upload(String),
    /// It took too long.
    #[error("{what} took longer than {} s", time.as_secs())]
    Time {
        /// What.
        what: &'static str,
        /// How long it may take.
        time: Duration,
    },
    /// The disk has no room for what was made.
    #[error("{what}: the disk has no room for {bytes} bytes")]
    Full {
        /// What was to be kept.
        what: &'static str,
        /// Its length.
        bytes: u64,
    },
    /// The tenant's quota has no room for what was made.
    #[error("{what}: the tenant has {left} bytes left for what it stores")]
    Quota {
        /// What was to be kept.
        what: &'static str,
        /// Its length, or a length that it has at least.
        bytes: u64,
        /// Bytes that the tenant has left.
        left: u64,
    },
    /// The tenant has used its processor time for translations.
    #[error("the tenant has used its processor time for translations of an hour")]
    Budget,
    /// The program was deleted meanwhile.
    #[error("the program was deleted")]
    Gone,
    /// The host.
    #[error("{what}: {source}")]
    Host {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LibraryError {
    /// A stable code for it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Upload(_) => "bad-upload",
            Self::Time { .. } => "too-slow",
            Self::Full { .. } => STORAGE_FULL,
            Self::Host { source, .. } if is_full(source) => STORAGE_FULL,
            Self::Store(error) if error.is_full() => STORAGE_FULL,
            Self::Quota { .. } | Self::Store(StoreError::Quota { .. }) => STORAGE_QUOTA,
            Self::Budget => TRANSLATION_BUDGET,
            Self::Gone | Self::Host { .. } | Self::Store(_) => "internal",
        }
    }

    /// The same error once more, if the same work would always end with it.
    pub(super) fn lasting(&self) -> Option<Self> {
        match self {
            Self::Upload(message) => Some(Self::Upload(message.clone())),
            Self::Time { what, time } => Some(Self::Time { what, time: *time }),
            _ => None,
        }
    }

    /// Of counting something of so many bytes in what the tenant stores.
    pub(super) fn counting(what: &'static str, bytes: u64, error: StoreError) -> Self {
        match error {
            StoreError::Quota {
                what: "bytes",
                left,
            } => Self::Quota { what, bytes, left },
            error => error.into(),
        }
    }

    /// Of keeping something of so many bytes.
    pub(super) fn keeping(what: &'static str, bytes: u64, source: io::Error) -> Self {
        match is_full(&source) {
            true => Self::Full { what, bytes },
            false => Self::Host { what, source },
        }
    }
}

/// Whether there was no room on the disk.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// The host failed at something.
pub(super) fn host(what: &'static str) -> impl Fn(io::Error) -> LibraryError {
    move |source| LibraryError::Host { what, source }
}
