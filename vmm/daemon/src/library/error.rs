//! Errors of preparing or using a program.

use crate::problem::{STORAGE_FULL, STORAGE_QUOTA, TRANSLATION_BUDGET, WORKER_KILLED};
use crate::store::StoreError;
use std::io;
use std::time::Duration;

/// The reason why a program cannot be prepared or used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The upload is invalid.
    #[error("{0}")]
    Upload(String),
    /// A job took too long.
    #[error("{what} took longer than {} s", time.as_secs())]
    Time {
        /// The job.
        what: &'static str,
        /// The time limit.
        time: Duration,
    },
    /// The disk has no room for a result.
    #[error("{what}: the disk has no room for {bytes} bytes")]
    Full {
        /// The result.
        what: &'static str,
        /// Length of the result, bytes.
        bytes: u64,
    },
    /// The tenant's quota has no room for a result.
    #[error("{what}: the tenant has {left} bytes of storage left")]
    Quota {
        /// The result.
        what: &'static str,
        /// Length of the result, or a lower bound of it, bytes.
        bytes: u64,
        /// Bytes that the tenant has left.
        left: u64,
    },
    /// The tenant has used up its processor time for translations.
    #[error("the tenant has used its CPU time for translations (translation_budget_s)")]
    Budget,
    /// A worker was killed for no reason of its own.
    #[error("{what}: the worker was killed (did the host run out of memory?)")]
    Killed {
        /// The job.
        what: &'static str,
    },
    /// The program was deleted during the work.
    #[error("the program was deleted")]
    Gone,
    /// An operation of the host failed.
    #[error("{what}: {source}")]
    Host {
        /// The operation.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LibraryError {
    /// A stable code for the error.
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
            Self::Killed { .. } => WORKER_KILLED,
            Self::Gone | Self::Host { .. } | Self::Store(_) => "internal",
        }
    }

    /// A copy of the error, if the same work would always end with it.
    pub(super) fn lasting(&self) -> Option<Self> {
        match self {
            Self::Upload(message) => Some(Self::Upload(message.clone())),
            Self::Time { what, time } => Some(Self::Time { what, time: *time }),
            _ => None,
        }
    }

    /// The error of counting `bytes` in the tenant's storage.
    pub(super) fn counting(what: &'static str, bytes: u64, error: StoreError) -> Self {
        match error {
            StoreError::Quota {
                what: "bytes",
                left,
            } => Self::Quota { what, bytes, left },
            error => error.into(),
        }
    }

    /// The error of writing `bytes`.
    pub(super) fn keeping(what: &'static str, bytes: u64, source: io::Error) -> Self {
        match is_full(&source) {
            true => Self::Full { what, bytes },
            false => Self::Host { what, source },
        }
    }
}

/// Whether the disk was full.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// The error of a failed operation of the host.
pub(super) fn host(what: &'static str) -> impl Fn(io::Error) -> LibraryError {
    move |source| LibraryError::Host { what, source }
}
