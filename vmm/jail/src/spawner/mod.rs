//! The privileged part of `hartlined`: a small process that starts jailed processes for the
//! service, the other process, which has no privileges.
//!
//! ```text
//! server      answers requests, waits for ends       protocol    requests, and their errors
//! processes   jailed processes, their users          service     starts the service
//! volumes     directories of volumes                 confine     rights that the service drops
//! network     networks of tenants                    reach       paths that the service may walk
//! cgroup      limits of processes                    listen      sockets for requests
//! data        owners in the data directory    defaults    of the configuration
//! ```
//! The spawner is the process that `hartlined` was started as. If a service manager starts the two
//! processes as two services, the other process connects to the spawner. The spawner has no async
//! runtime, no database and no HTTP, and reads nothing that a tenant made. It does not trust the service: a request
//! names a process by a number that the spawner chose, a volume by its id and a network by its
//! index. Everything else is taken from the operator's configuration.

mod cgroup;
pub mod confine;
mod data;
pub mod defaults;
mod listen;
mod network;
mod processes;
pub mod protocol;
mod reach;
mod server;
mod service;
mod volumes;

pub use cgroup::{Unenforced, check_host};
pub use network::{
    NetworkSettings, PREFIX, PREFIX6, Subnet, TenantLimits, Unavailable, is_public, lacking,
};
pub use server::{Reload, run};
pub use service::{ARGUMENT, Hello};

use hartline_vmm::platform::{CoreSchedulingMode, NoCoreScheduling};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

/// The operator's configuration of the spawner.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The unix socket.
    pub socket: PathBuf,
    /// The TCP address.
    pub listen: Option<SocketAddr>,
    /// Files of the certificates and the private key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// First of the users for jailed processes and the service.
    pub first_uid: u32,
    /// Number of users.
    pub uids: u32,
    /// Dedicated processors: only machines that request them use them.
    pub dedicated_cpus: Vec<u32>,
    /// Most bytes per second of a VM from and to the disk.
    pub disk_bandwidth: Option<u64>,
    /// Whether to refuse to start without limits.
    pub require_limits: bool,
    /// Whether processes of different tenants are kept off the same core.
    pub core_scheduling: CoreSchedulingMode,
    /// Networks of tenants, if there are any.
    pub networks: Option<NetworkSettings>,
}

impl Settings {
    /// The user that owns the files in volumes. No process has this user.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.first_uid
    }

    /// The users of jailed processes: all users except the first and the last.
    #[must_use]
    pub fn jailed(&self) -> Range<u32> {
        self.first_uid + 1..self.service()
    }

    /// The user of the service: the last one. The configuration check guarantees that it exists.
    #[must_use]
    pub fn service(&self) -> u32 {
        self.first_uid + self.uids - 1
    }
}

/// The reason why the spawner cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum SpawnerError {
    /// Separate namespaces and users need root.
    #[error("hartlined must be started by root: it gives each VMM a separate user")]
    NotRoot,
    /// Another daemon has locked the data directory.
    #[error("{0}: another hartlined uses this data directory: stop it, or give another one")]
    Locked(String),
    /// Something in the data directory was not made by the daemon.
    #[error("{path}: {why}")]
    Data {
        /// The file.
        path: String,
        /// The fault, and the remedy.
        why: &'static str,
    },
    /// An operation of the host failed.
    #[error("{what}: {source}")]
    Host {
        /// The operation, or its subject.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// The configuration requires limits, which cannot be enforced.
    #[error(
        "require_limits: {0}. Mount the controllers on the cgroup v2 hierarchy and start \
         hartlined in a group that has them (systemd: Delegate=yes)"
    )]
    Limits(Unenforced),
    /// The configuration requires core scheduling.
    #[error(
        "core_scheduling = \"require\": {0}. Use a kernel and a host that have it, or say \"auto\""
    )]
    Cores(NoCoreScheduling),
    /// The configuration dedicates a processor that does not exist.
    #[error("dedicated_cpus: this host has no CPU {0}, or the daemon may not use it")]
    Processor(u32),
    /// The service was ended by a signal.
    #[error("the service was ended by signal {0}")]
    Killed(i32),
    /// A process of another user has connected as the service.
    #[error(
        "user {peer} connected to the spawner's socket: first_uid and uids make {uid} the \
         service's user. Give both units that user (systemd: User=, SocketUser=)"
    )]
    Stranger {
        /// The user that has connected.
        peer: u32,
        /// The service's user.
        uid: u32,
    },
}

/// Adds the name of the failed operation to an error.
fn host(what: impl ToString) -> impl FnOnce(io::Error) -> SpawnerError {
    let what = what.to_string();
    move |source| SpawnerError::Host { what, source }
}
