//! `hartlined` receives programs of many tenants over a REST API and runs each in its own VM. Each
//! VMM is in its own [jail](hartline_jail).
//!
//! ```text
//! server, api   connections, requests             auth       keys
//! connections   limits of connections             ledger     resources that tenants use
//! library       uploads, trees, translations      store      the database
//! machines      VMs that outlive the daemon       scheduler  the order of starts
//! volumes       directories that outlive machines
//! network       networks of tenants               log      outputs of machines in files
//! collect       deletion of old entries        backup     copies of everything, and their return
//! pool          VMMs that wait for a program      process    jailed processes
//! processors    dedicated CPUs of machines        reload     changes of the configuration
//! spawner       the connection to the spawner     jailed     the work of jailed processes
//! ports         published ports of machines        metrics    figures for Prometheus
//! history       figures of the last hour       webhooks  messages about ends of machines
//! ```
//! This is the service, a process without privileges. The [spawner](hartline_jail::spawner) does
//! the privileged work. Jailed processes map guest memory and read uploads; the service does not.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod api;
pub mod auth;
pub mod backup;
mod collect;
pub mod config;
pub mod connections;
pub mod events;
pub mod exec;
pub mod execute;
pub mod history;
mod integer;
pub mod jailed;
pub mod ledger;
pub mod library;
pub mod log;
pub mod machines;
pub mod metrics;
pub mod network;
pub mod patience;
pub mod pool;
pub mod ports;
pub mod printable;
pub mod problem;
pub mod process;
pub mod processors;
pub mod reload;
pub mod repeats;
pub mod scheduler;
pub mod secrets;
pub mod server;
pub mod snapshots;
pub mod spawner;
pub mod store;
mod tcp;
mod tls;
pub mod usage;
pub mod violations;
pub mod volumes;
pub mod warm;
pub mod webhooks;

use auth::{AuthError, Keys};
use collect::Collector;
use config::Config;
use connections::Connections;
use events::Events;
use hartline_jail::spawner::{Hello, Unavailable, Unenforced};
use hartline_vmm::platform::{self, Kvm, NoCoreScheduling};
use hartline_vmm::probe;
use history::sampler::Sampler;
use ledger::Ledger;
use library::Library;
use machines::{MachineError, Machines};
use metrics::Metrics;
use network::Networks;
use pool::Pool;
use ports::Ports;
use process::Launcher;
use processors::Processors;
use reload::{Changes, Current, ReloadError};
use repeats::Repeats;
use scheduler::{Resources, Scheduler};
use secrets::{SecretError, Secrets};
use snapshots::{SnapshotError, Snapshots};
use spawner::Spawner;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreError};
use volumes::{VolumeError, Volumes};
use warm::WarmVmms;

/// The reason why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// An operation of the host failed.
    #[error("{what}: {source}")]
    Host {
        /// The operation, or its subject.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Keys cannot be made or checked.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// KVM failed.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The processor's features cannot be probed.
    #[error(transparent)]
    Probe(#[from] probe::ProbeError),
    /// The volumes cannot be opened.
    #[error("volumes: {0}")]
    Volumes(#[from] VolumeError),
    /// The key of the secrets cannot be used.
    #[error("secrets: {0}")]
    Secrets(#[from] SecretError),
    /// The snapshots cannot be opened.
    #[error("snapshots: {0}")]
    Snapshots(#[from] SnapshotError),
    /// The existing machines cannot be recovered.
    #[error("cannot recover the machines: {0}")]
    Machines(#[from] MachineError),
}

/// The state that requests work with.
#[derive(Debug)]
pub struct Daemon {
    /// The configuration in force.
    current: Current,
    /// The database.
    pub store: Arc<Store>,
    /// API keys.
    pub keys: Keys,
    /// Programs.
    pub library: Arc<Library>,
    /// The tenants' use of resources.
    pub ledger: Ledger,
    /// Connections to the daemon.
    pub connections: Connections,
    /// The queue of starts.
    pub scheduler: Scheduler,
    /// VMMs that wait for a program.
    pub pool: Arc<Pool>,
    /// VMMs that wait for another run from a snapshot.
    pub warm: Arc<WarmVmms>,
    /// Starts VMMs that may use volumes.
    pub launcher: Arc<Launcher>,
    /// Machines.
    pub machines: Arc<Machines>,
    /// The volumes of machines.
    pub volumes: Arc<Volumes>,
    /// The snapshots of machines.
    pub snapshots: Arc<Snapshots>,
    /// The secrets of tenants.
    pub secrets: Arc<Secrets>,
    /// The networks of tenants.
    pub networks: Arc<Networks>,
    /// Dedicated processors.
    pub processors: Arc<Processors>,
    /// Requests with idempotency keys in progress.
    pub repeats: Repeats,
    /// State changes of machines.
    pub events: Events,
    /// Metrics for Prometheus.
    pub metrics: Arc<Metrics>,
    /// The reason why cgroups enforce no limits; `None` if they do.
    pub unenforced: Option<Unenforced>,
    /// The reason why tenants may share cores; `None` if they do not.
    pub no_cores: Option<NoCoreScheduling>,
    /// Keeps other daemons away from the data directory, together with the spawner's.
    _lock: File,
}

/// The descriptors and states that the spawner passes to the service.
#[derive(Debug)]
pub struct Given {
    /// `/dev/kvm`, to probe the processor's features.
    kvm: OwnedFd,
    lock: File,
    unenforced: Option<Unenforced>,
    networks: Result<(), Unavailable>,
    no_cores: Option<NoCoreScheduling>,
}

impl Given {
    /// Takes the contents of the spawner's first message. Result: also the files for TLS, if there
    /// are any.
    ///
    /// # Errors
    /// Descriptors are missing.
    pub fn new(hello: Hello, descriptors: Vec<OwnedFd>) -> io::Result<(Self, Option<[File; 2]>)> {
        let missing = || io::Error::other("a descriptor of the spawner is missing");
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(missing);
        let given = Self {
            kvm: next()?,
            lock: next()?.into(),
            unenforced: hello.unenforced,
            networks: hello.networks,
            no_cores: hello.no_cores,
        };
        let tls = match hello.has_tls {
            true => Some([next()?.into(), next()?.into()]),
            false => None,
        };
        Ok((given, tls))
    }
}

impl Daemon {
    /// Opens everything and recovers the existing machines. Must run in a multi-thread runtime.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub fn start(
        config: Config,
        spawner: Arc<Spawner>,
        host: Given,
    ) -> Result<Arc<Self>, DaemonError> {
        config.check()?;
        let data = config.data_dir.as_path();
        let store = Arc::new(Store::open(&data.join("hartline.db"))?);
        let keys = Keys::open(&data.join("secret"), config.requests_per_second)?;
        let failed = |what: &Path| {
            let what = what.display().to_string();
            move |source| DaemonError::Host { what, source }
        };
        let kvm = Kvm::from_descriptor(host.kvm)?;
        let features = probe::cached(&kvm, data)?.llvm_string();
        drop(kvm);
        if let Some(unenforced) = &host.unenforced {
            tracing::warn!("limits are not enforced: {unenforced}");
        }
        match &host.no_cores {
            None => tracing::info!("core scheduling: tenants do not share cores"),
            Some(why) => tracing::info!("no core scheduling: {why}"),
        }
        let launcher = Arc::new(Launcher::new(Arc::clone(&spawner)));
        let metrics = Arc::new(Metrics::new(launcher.violations()));
        let ledger = Ledger::default();
        let library = Library::new(
            Arc::clone(&store),
            Arc::clone(&launcher),
            data,
            library::Settings {
                features,
                translation_time: Duration::from_secs(config.translation_timeout_s),
                translation_budget: budget(&config),
                share_files: config.share_files,
                baseline: config.baseline,
                ledger: ledger.clone(),
            },
        );
        let library = library.map_err(|error| failed(data)(io::Error::other(error)));
        let library = Arc::new(library?);
        let current = Current::new(config.clone());
        let connections = Connections::new(&config, ledger.clone());
        let scheduler = Scheduler::new(capacity(&config), ledger.clone());
        let patience = Duration::from_secs(config.warm_idle_s);
        let warm = WarmVmms::new(&scheduler, config.warm, patience);
        let events = Events::default();
        let pool = Arc::new(Pool::new(config.pool));
        let directory = data.join("volumes");
        let volumes = Volumes::new(Arc::clone(&store), Arc::clone(&launcher), directory);
        let volumes = Arc::new(volumes);
        let processors = Arc::new(Processors::new(&config.dedicated_cpus));
        let networks = Networks::open(Arc::clone(&store), spawner, &config, host.networks);
        let networks = Arc::new(networks);
        let snapshots = data.join("snapshots");
        let parts = (Arc::clone(&store), Arc::clone(&library));
        let snapshots = Snapshots::open(parts.0, parts.1, snapshots, events.clone());
        let snapshots = Arc::new(snapshots?);
        let secrets = Arc::new(Secrets::open(&data.join("secrets.key"))?);
        let machines = Machines::new(
            Arc::clone(&store),
            (
                Arc::clone(&library),
                Arc::clone(&volumes),
                Arc::clone(&snapshots),
                Arc::clone(&secrets),
            ),
            (scheduler.clone(), Arc::clone(&processors)),
            (Arc::clone(&pool), Arc::clone(&launcher)),
            (
                Arc::clone(&networks),
                Ports::new(current.clone(), ledger.clone()),
            ),
            data.join("machines"),
            (events.clone(), current.clone(), Arc::clone(&metrics)),
        );
        let machines = Arc::new(machines.map_err(failed(data))?);
        machines.recover()?;
        // After the running machines have got their users back.
        pool.fill(&launcher);
        volumes.resume();
        library.resume()?;
        let parts = (&machines, &networks, &volumes, &snapshots);
        tokio::spawn(collect::write_ends(Arc::clone(&store)));
        let sampler = Sampler::new(&store, &ledger, (&machines, &networks), &metrics);
        tokio::spawn(sampler.run());
        let sender = webhooks::Sender::new(&store, &secrets, current.clone(), &metrics);
        tokio::spawn(sender.run());
        tokio::spawn(Collector::new(current.clone(), &store, &library, parts).run());
        Ok(Arc::new(Self {
            current,
            store,
            keys,
            library,
            ledger,
            connections,
            scheduler,
            pool,
            warm,
            launcher,
            machines,
            volumes,
            snapshots,
            secrets,
            networks,
            processors,
            repeats: Repeats::default(),
            events,
            metrics,
            unenforced: host.unenforced,
            no_cores: host.no_cores,
            _lock: host.lock,
        }))
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.current.get()
    }

    /// Puts the settings of a configuration in force that can change while the daemon runs. The
    /// others are named in the log.
    ///
    /// # Errors
    /// [`ReloadError`]: nothing has changed.
    pub fn reload(&self, mut config: Config) -> Result<(), ReloadError> {
        let before = self.config();
        // The service was given the spawner's path of it.
        config.data_dir.clone_from(&before.data_dir);
        let Changes {
            config,
            changed,
            postponed,
        } = Changes::new(&before, &config)?;
        self.keys.set_rate(config.requests_per_second);
        self.connections.set_limits(&config);
        self.scheduler.set_capacity(capacity(&config));
        self.library.set_limits(
            Duration::from_secs(config.translation_timeout_s),
            budget(&config),
        );
        self.networks.set_limits(&config);
        self.current.set(config);
        for name in &changed {
            tracing::info!("{name} has changed");
        }
        for name in &postponed {
            tracing::warn!("{name} takes effect when hartlined is started again");
        }
        Ok(())
    }
}

/// The processor time that a tenant's translations may use in an hour.
fn budget(config: &Config) -> Option<Duration> {
    match config.translation_budget_s {
        0 => None,
        seconds => Some(Duration::from_secs(seconds)),
    }
}

/// The host's resources for machines.
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
    let memory = rustix::system::sysinfo();
    memory.totalram * u64::from(memory.mem_unit)
}
