//! `hartlined`: takes programs of many tenants over a REST API and runs them, each in a VM
//! of its own, whose VMM is in a [jail](crate::jail) of its own.
//!
//! ```text
//! server, api   connections, requests             auth       keys
//! connections   which ones there may be           ledger     what tenants use
//! library       uploads, trees, translations      store      the database
//! machines      VMs that outlive the daemon       scheduler  who is next
//! volumes       directories that outlast machines
//! network       networks of tenants
//! collect       what is deleted after a time
//! pool          VMMs that wait for a program      process    jailed processes
//! cgroup        what VMs may use
//! processors    those that are one machine's alone
//! ```
//! The daemon maps no guest memory and reads no upload: jailed processes do.

pub mod api;
pub mod auth;
pub mod cgroup;
mod collect;
pub mod config;
pub mod connections;
pub mod events;
pub mod execute;
mod integer;
pub mod ledger;
pub mod library;
pub mod machines;
pub mod metrics;
pub mod network;
pub mod pool;
pub mod problem;
pub mod process;
pub mod processors;
pub mod scheduler;
pub mod server;
pub mod store;
mod tls;
pub mod usage;
pub mod violations;
pub mod volumes;

use crate::affinity;
use crate::platform::{self, CoreScheduling, Kvm, Unavailable};
use crate::probe;
use auth::{AuthError, Keys};
use cgroup::{Cgroups, Unenforced};
use collect::Collector;
use config::{Config, CoreSchedulingMode};
use connections::Connections;
use events::Events;
use ledger::Ledger;
use library::Library;
use machines::{MachineError, Machines};
use metrics::Metrics;
use network::Networks;
use pool::Pool;
use process::Launcher;
use processors::Processors;
use scheduler::{Resources, Scheduler};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{Store, StoreError};
use volumes::{VolumeError, Volumes};

/// How long the daemon before this one may take to give its data directory up, and the time between
/// two attempts to take it.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PERIOD: Duration = Duration::from_millis(20);

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// Namespaces and users of their own need root.
    #[error("hartlined must be started by root: it gives each VMM a user of its own")]
    NotRoot,
    /// Another daemon has the data directory.
    #[error("{0}: another hartlined uses this data directory: stop it, or give another one")]
    Locked(String),
    /// The host.
    #[error("{what}: {source}")]
    Host {
        /// What failed.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The configuration insists on limits.
    #[error(
        "require_limits: {0}. Mount the controllers on the cgroup v2 hierarchy and start \
         hartlined in a group that has them (systemd: Delegate=yes)"
    )]
    Limits(Unenforced),
    /// The configuration requires core scheduling.
    #[error(
        "core_scheduling = \"require\": {0}. Use a kernel and a host that have it, or say \"auto\""
    )]
    Cores(Unavailable),
    /// The configuration dedicates a processor that is not there.
    #[error("dedicated_cpus: this host has no processor {0}, or the daemon may not use it")]
    Processor(u32),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Keys.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// KVM.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The processor's features.
    #[error(transparent)]
    Probe(#[from] probe::ProbeError),
    /// The volumes.
    #[error("volumes: {0}")]
    Volumes(#[from] VolumeError),
    /// The machines that there were.
    #[error("the machines that there were: {0}")]
    Machines(#[from] MachineError),
}

/// Everything that requests work with.
#[derive(Debug)]
pub struct Daemon {
    /// The configuration.
    pub config: Config,
    /// The database.
    pub store: Arc<Store>,
    /// API keys.
    pub keys: Keys,
    /// Programs.
    pub library: Arc<Library>,
    /// What each tenant uses.
    pub ledger: Ledger,
    /// Connections to it.
    pub connections: Connections,
    /// Who is next.
    pub scheduler: Scheduler,
    /// VMMs that wait.
    pub pool: Arc<Pool>,
    /// Machines.
    pub machines: Arc<Machines>,
    /// Their volumes.
    pub volumes: Arc<Volumes>,
    /// Their networks.
    pub networks: Arc<Networks>,
    /// Processors that may be one's alone.
    pub processors: Arc<Processors>,
    /// What happens to machines.
    pub events: Events,
    /// For Prometheus.
    pub metrics: Metrics,
    /// Why cgroups limit nothing; `None` if they do.
    pub unenforced: Option<Unenforced>,
    /// Why tenants may share cores; `None` if they do not.
    pub no_cores: Option<Unavailable>,
    /// Keeps other daemons away from the data directory.
    _lock: File,
}

impl Daemon {
    /// Opens everything and takes care of the machines that there were. Inside a runtime
    /// with several threads only.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start(config: Config) -> Result<Arc<Self>, DaemonError> {
        config.check()?;
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err(DaemonError::NotRoot);
        }
        let data = config.data_dir.as_path();
        let lock = prepare(data)?;
        let store = Arc::new(Store::open(&data.join("hartline.db"))?);
        let keys = Keys::open(&data.join("secret"), config.requests_per_second)?;
        let host = |what: &Path| {
            let what = what.display().to_string();
            move |source| DaemonError::Host { what, source }
        };
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        let features = probe::cached(&kvm, data)?.llvm_string();
        drop(kvm);
        // The first of them owns what is in volumes. No process has it.
        let users = config.first_uid + 1..config.first_uid + config.uids;
        let (cgroups, unenforced) = match Cgroups::open(data, config.disk_bandwidth) {
            Ok(cgroups) => (Some(cgroups), None),
            Err(unenforced) if config.require_limits => {
                return Err(DaemonError::Limits(unenforced));
            }
            Err(unenforced) => {
                tracing::warn!("limits are not enforced: {unenforced}");
                (None, Some(unenforced))
            }
        };
        let shared = shared_processors(&config)?;
        let cores = core_scheduling(&config)?;
        let no_cores = cores.as_ref().err().cloned();
        let limits = (cgroups, cores.ok());
        let launcher = Launcher::new(&data.join("empty"), users, limits, shared);
        let launcher = Arc::new(launcher.map_err(host(data))?);
        let metrics = Metrics::new(launcher.violations());
        let ledger = Ledger::default();
        let library = Library::new(
            Arc::clone(&store),
            Arc::clone(&launcher),
            data,
            library::Settings {
                features,
                translation_time: Duration::from_secs(config.translation_timeout_s),
                translation_budget: match config.translation_budget_s {
                    0 => None,
                    seconds => Some(Duration::from_secs(seconds)),
                },
                share_files: config.share_files,
                ledger: ledger.clone(),
            },
        );
        let library = library.map_err(|error| host(data)(io::Error::other(error)));
        let library = Arc::new(library?);
        let connections = Connections::new(&config, ledger.clone());
        let scheduler = Scheduler::new(capacity(&config), ledger.clone());
        let events = Events::default();
        let pool = Arc::new(Pool::new(config.pool));
        let owner = config.first_uid;
        let volumes = Volumes::new(
            Arc::clone(&store),
            Arc::clone(&launcher),
            data.join("volumes"),
            owner,
        );
        let volumes = Arc::new(volumes?);
        let processors = Arc::new(Processors::new(&config.dedicated_cpus));
        let networks = Arc::new(Networks::open(Arc::clone(&store), &config));
        let machines = Machines::new(
            Arc::clone(&store),
            Arc::clone(&library),
            scheduler.clone(),
            (Arc::clone(&pool), Arc::clone(&launcher)),
            (
                Arc::clone(&volumes),
                Arc::clone(&networks),
                Arc::clone(&processors),
            ),
            data.join("machines"),
            events.clone(),
        );
        let machines = Arc::new(machines.map_err(host(data))?);
        machines.recover()?;
        // After the machines that run have taken their users.
        pool.fill(&launcher);
        volumes.resume();
        library.resume()?;
        let parts = (&machines, &networks, &volumes);
        tokio::spawn(Collector::new(&config, &store, &library, parts).run());
        Ok(Arc::new(Self {
            config,
            store,
            keys,
            library,
            ledger,
            connections,
            scheduler,
            pool,
            machines,
            volumes,
            networks,
            processors,
            events,
            metrics,
            unenforced,
            no_cores,
            _lock: lock,
        }))
    }
}

/// Makes the data directory, which nobody else may look into, and locks it.
fn prepare(data: &Path) -> Result<File, DaemonError> {
    let made = fs::create_dir_all(data)
        .and_then(|()| fs::set_permissions(data, Permissions::from_mode(0o700)))
        .and_then(|()| File::create(data.join("lock")));
    let name = || data.display().to_string();
    let lock = made.map_err(|source| DaemonError::Host {
        what: name(),
        source,
    })?;
    // A jailed process that a daemon was just starting when it ended holds the lock until it
    // executes its program or ends.
    let patience = Instant::now() + LOCK_PATIENCE;
    while lock.try_lock().is_err() {
        if Instant::now() >= patience {
            return Err(DaemonError::Locked(name()));
        }
        thread::sleep(LOCK_PERIOD);
    }
    Ok(lock)
}

/// Core scheduling, if it is wanted and possible. The log says whether it is in force.
fn core_scheduling(config: &Config) -> Result<Result<CoreScheduling, Unavailable>, DaemonError> {
    let found = match config.core_scheduling {
        CoreSchedulingMode::Off => Err(Unavailable::Off),
        CoreSchedulingMode::Auto | CoreSchedulingMode::Require => CoreScheduling::detect(),
    };
    match (&found, config.core_scheduling) {
        (Ok(_), _) => tracing::info!("core scheduling: tenants do not share cores"),
        (Err(why), CoreSchedulingMode::Require) => return Err(DaemonError::Cores(why.clone())),
        (Err(why), _) => tracing::info!("no core scheduling: {why}"),
    }
    Ok(found)
}

/// Processors for all that has none for itself; all of them if none are left.
fn shared_processors(config: &Config) -> Result<Vec<u32>, DaemonError> {
    let host = |source| DaemonError::Host {
        what: "processors".to_owned(),
        source,
    };
    let all = affinity::of_this_thread().map_err(host)?;
    let dedicated = &config.dedicated_cpus;
    if let Some(missing) = dedicated.iter().find(|number| !all.contains(number)) {
        return Err(DaemonError::Processor(*missing));
    }
    let (_, shared): (Vec<_>, Vec<_>) = all.iter().partition(|number| dedicated.contains(number));
    Ok(if shared.is_empty() { all } else { shared })
}

/// What this host has for machines.
fn capacity(config: &Config) -> Resources {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpus = cpus.saturating_sub(config.dedicated_cpus.len());
    let memory = config.memory.unwrap_or_else(|| total_memory() / 4 * 3);
    Resources {
        cpus: cpus as u64 * u64::from(config.cpu_overcommit),
        memory,
    }
}

/// Memory of the host, bytes.
fn total_memory() -> u64 {
    // SAFETY: no memory is involved.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}
