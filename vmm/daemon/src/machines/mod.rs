//! The life cycle of machines.
//!
//! A machine's process continues when the daemon ends. The database knows the process before the
//! process gets its program, so a restarted daemon finds it again, or finds that it is gone. The
//! process's files are:
//!
//! ```text
//! DATA/machines/ID/stdin             input of an asynchronous run
//! DATA/machines/ID/stdout, stderr    output of the program: logs, with more files stdout.1 …
//! DATA/machines/ID/result            the outcome, written by the VMM
//! ```
//! An asynchronous run is a machine that is shown as a run.

mod asleep;
mod files;
mod processes;
mod recover;
mod remove;
mod restart;
mod run;
mod suspend;

use self::asleep::Asleep;
pub use self::files::inodes;
pub use self::processes::usage;
pub use self::remove::KEEP_ENDED;
use self::restart::Kept;
use super::events::Events;
use super::library::Library;
use super::metrics::Metrics;
use super::network::{Lease, Networks};
use super::pool::Pool;
use super::ports::{self, Gate, PortError, Ports};
use super::process::{Launcher, Watched};
use super::processors::{Claim, NotEnough, Processors};
use super::reload::Current;
use super::scheduler::{Permit, Refused, Scheduler, need};
use super::secrets::{SecretError, Secrets};
use super::snapshots::{SnapshotError, Snapshots};
use super::store::{Machine, MachineState, Quota, Store, StoreError};
use super::volumes::{VolumeError, Volumes};
use hartline_jail::spawner::protocol::Signal;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// Exit code of a machine that was ended by force: 128 + SIGKILL.
const KILLED: u8 = 137;

/// The reason why an operation on a machine failed.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The machine's state does not allow it.
    #[error("the machine is {}", .0.name())]
    State(MachineState),
    /// The scheduler refuses the machine.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The machine's standard input is not kept open.
    #[error("the machine is not interactive: its standard input is empty")]
    NoInput,
    /// The machine's program has no terminal.
    #[error("the machine has no terminal")]
    NoTerminal,
    /// The machine has no network interface.
    #[error("the machine has no network interface")]
    NoNetwork,
    /// No dedicated processors are left for the machine.
    #[error(transparent)]
    Processors(#[from] NotEnough),
    /// The machine's ports cannot be published.
    #[error(transparent)]
    Ports(#[from] PortError),
    /// Its volumes cannot be used, or an operation them failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Its secrets cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// There is no snapshot of the machine.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// An operation of the host failed.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All machines.
#[derive(Debug)]
pub struct Machines {
    store: Arc<Store>,
    library: Arc<Library>,
    scheduler: Scheduler,
    pool: Arc<Pool>,
    launcher: Arc<Launcher>,
    volumes: Arc<Volumes>,
    snapshots: Arc<Snapshots>,
    secrets: Arc<Secrets>,
    networks: Arc<Networks>,
    processors: Arc<Processors>,
    ports: Ports,
    events: Events,
    config: Current,
    metrics: Arc<Metrics>,
    directory: PathBuf,
    /// Handles to the tasks of machines that are queued or running.
    tasks: Mutex<HashMap<String, Task>>,
    /// Suspended machines with published ports.
    asleep: Asleep,
}

/// The resources that a machine holds until its program has ended.
#[derive(Debug)]
struct Held {
    _permit: Permit,
    processors: Claim,
    /// The machine's address, once it has one.
    lease: Option<Arc<Lease>>,
}

/// The daemon's task of a machine.
#[derive(Debug, Default)]
struct Task {
    /// The machine's process, once it exists.
    process: Option<Arc<Watched>>,
    /// Sender that takes the machine out of the queue.
    cancel: Option<oneshot::Sender<()>>,
    /// The gate of its published ports, while they are served.
    gate: Option<Gate>,
    /// Its clients wait, because the machine is being suspended.
    held: Option<ports::Held>,
    /// Both ends of standard input while the machine is being suspended, the program's own first.
    unread: Option<[UnixStream; 2]>,
}

impl Machines {
    /// Machines with their files in `directory`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(
        store: Arc<Store>,
        (library, volumes, snapshots, secrets): (
            Arc<Library>,
            Arc<Volumes>,
            Arc<Snapshots>,
            Arc<Secrets>,
        ),
        (scheduler, processors): (Scheduler, Arc<Processors>),
        (pool, launcher): (Arc<Pool>, Arc<Launcher>),
        (networks, ports): (Arc<Networks>, Ports),
        directory: PathBuf,
        (events, config, metrics): (Events, Current, Arc<Metrics>),
    ) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self {
            store,
            library,
            scheduler,
            pool,
            launcher,
            volumes,
            snapshots,
            secrets,
            networks,
            processors,
            ports,
            events,
            config,
            metrics,
            directory,
            tasks: Mutex::default(),
            asleep: Asleep::default(),
        })
    }

    /// Starts a machine that is not active. A suspended one goes on where it stopped; if it is refused, it
    /// stays suspended. The machine is queued when this returns.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn start(self: &Arc<Self>, machine: &Machine) -> Result<Machine, MachineError> {
        let queued = match machine.state {
            MachineState::Suspended => self.store.queue_suspended(&machine.id)?,
            _ => self.store.queue_machine(&machine.id)?,
        };
        let Some(machine) = queued else {
            return Err(MachineError::State(machine.state));
        };
        self.events.publish(&machine);
        self.admit(&machine)?;
        Ok(machine)
    }

    /// Queues a machine that the database has just noted as queued. If it is refused, its state is
    /// failed.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn admit(self: &Arc<Self>, machine: &Machine) -> Result<(), MachineError> {
        // A suspended machine has its ports.
        let mut kept = self
            .asleep
            .wake(&machine.id)
            .map_or_else(Kept::default, Kept::new);
        let volumes = self.volumes.check(machine).map_err(MachineError::from);
        let admitted = volumes.and_then(|()| {
            if kept.ports.is_none() {
                kept = Kept::new(self.ports.claim(&machine.tenant, &machine.spec)?);
            }
            self.queue(machine.clone(), &mut kept)
        });
        if let Err(error) = &admitted {
            let mut refused = machine.clone();
            // The answer tells the client.
            refused.spec.webhook = None;
            self.note_failure(refused, error.to_string(), &mut kept)?;
            self.await_clients(&machine.id, true);
        }
        admitted
    }

    /// The published ports of machines and runs.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Queues a machine in the state `Queued`, and runs it when its turn comes. After an error it has not
    /// taken `kept`.
    fn queue(self: &Arc<Self>, mut machine: Machine, kept: &mut Kept) -> Result<(), MachineError> {
        // It may have been starting when an earlier daemon ended.
        machine.state = MachineState::Queued;
        let quota = self.quota(&machine.tenant)?;
        let claim = self.processors.claim_for(&machine.spec)?;
        machine.processors = claim.processors().to_vec();
        let turn = self
            .scheduler
            .queue(&machine.tenant, quota, need(&machine.spec))?;
        // A client that has started the machine must not read what it printed before. The output of a
        // suspended machine goes on.
        if machine.suspended.is_none() {
            self.remove_outputs(&machine.id)?;
        }
        let (cancel, cancelled) = oneshot::channel();
        let task = Task {
            cancel: Some(cancel),
            ..Task::default()
        };
        self.lock().insert(machine.id.clone(), task);
        let machines = Arc::clone(self);
        let mut kept = std::mem::take(kept);
        let asked = Instant::now();
        tokio::spawn(async move {
            let id = machine.id.clone();
            let permit = tokio::select! {
                permit = turn => permit.ok(),
                _ = cancelled => None,
            };
            let done = match permit {
                Some(permit) => {
                    machines.metrics.note_queued(machine.kind, asked.elapsed());
                    let held = Held {
                        _permit: permit,
                        processors: claim,
                        lease: None,
                    };
                    machines.run(machine, held, &mut kept).await
                }
                None => machines.end_killed(machine, &mut kept),
            };
            match done {
                Ok(()) => machines.settle(&id, kept),
                Err(error) => machines.give_up(&id, &error, kept),
            }
        });
        Ok(())
    }

    /// Notes that a machine could not be run, for example because the disk is full. Its policy may
    /// restart it.
    fn give_up(self: &Arc<Self>, id: &str, error: &MachineError, mut kept: Kept) {
        tracing::error!(machine = %id, "{error}");
        let noted = match self.store.machine(id) {
            Ok(Some(machine)) => self.fail(machine, error.to_string(), &mut kept),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = noted {
            tracing::error!(machine = %id, "{error}");
            self.lock().remove(id);
        }
        self.settle(id, kept);
    }

    /// Sends the program `SIGTERM`. If the program has not ended two seconds later, it is killed. A
    /// queued machine is taken out of the queue, and a suspended one ends. The machine is not restarted.
    ///
    /// # Errors
    /// [`MachineError`]: the machine is not active.
    pub fn stop(&self, machine: &Machine) -> Result<(), MachineError> {
        self.end(machine, Signal::Terminate)
    }

    /// Ends a machine by force.
    ///
    /// # Errors
    /// [`MachineError`]: the machine is not active.
    pub fn kill(&self, machine: &Machine) -> Result<(), MachineError> {
        self.store.set_killed(&machine.id)?;
        self.end(machine, Signal::Kill)
    }

    fn end(&self, machine: &Machine, signal: Signal) -> Result<(), MachineError> {
        if machine.state == MachineState::Suspended {
            return self.end_suspended(machine);
        }
        let mut tasks = self.lock();
        let task = tasks.get_mut(&machine.id);
        let Some(task) = task.filter(|_| machine.state.is_active()) else {
            return Err(MachineError::State(machine.state));
        };
        match (&task.process, task.cancel.take()) {
            (Some(process), _) => {
                self.store.set_stopped(&machine.id)?;
                process.process().signal(signal)?;
                // A paused process would not handle the signal.
                process.process().signal(Signal::Continue)?;
            }
            (None, cancel) => {
                let cancelled = cancel.is_some_and(|cancel| cancel.send(()).is_ok());
                // The machine is being started. The start checks later whether it was killed.
                if !cancelled && signal != Signal::Kill {
                    return Err(MachineError::State(MachineState::Starting));
                }
            }
        }
        Ok(())
    }

    /// Stops a running machine from getting processor time, or lets it continue.
    ///
    /// # Errors
    /// [`MachineError`]: the machine is not running, or not paused.
    pub fn set_paused(&self, mut machine: Machine, paused: bool) -> Result<(), MachineError> {
        use MachineState::{Paused, Running};
        let (from, to, signal) = match paused {
            true => (Running, Paused, Signal::Stop),
            false => (Paused, Running, Signal::Continue),
        };
        let tasks = self.lock();
        let task = tasks.get(&machine.id);
        let process = task.and_then(|task| task.process.as_ref());
        let Some(process) = process.filter(|_| machine.state == from) else {
            return Err(MachineError::State(machine.state));
        };
        process.process().signal(signal)?;
        if !self.store.change_state(&machine.id, from, to)? {
            return Err(MachineError::State(MachineState::Exited));
        }
        machine.state = to;
        self.events.publish(&machine);
        Ok(())
    }

    /// Removes a new machine or run whose request is refused. The same idempotency key may be used
    /// again.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn unmake(&self, id: &str) -> Result<(), MachineError> {
        self.store.unmake_machine(id)?;
        self.remove_files(id)
    }

    /// Deletes a machine that is not active, with its output.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn delete(&self, machine: &Machine) -> Result<(), MachineError> {
        if !self.store.delete_machine(&machine.id)? {
            return Err(MachineError::State(machine.state));
        }
        drop(self.asleep.wake(&machine.id));
        self.discard_suspension(machine);
        self.remove_files(&machine.id)
    }

    /// Writes a change to the database, then notifies the subscribers. The end of a machine is noted
    /// on a full disk too.
    fn change(&self, machine: &Machine) -> Result<(), MachineError> {
        // The transaction waits for the disk.
        tokio::task::block_in_place(|| match machine.state.is_active() {
            true => self.store.update_machine(machine),
            false => self.store.end_machine(machine, self.outputs(&machine.id)),
        })?;
        self.events.publish(machine);
        Ok(())
    }

    fn quota(&self, tenant: &str) -> Result<Quota, StoreError> {
        let tenant = self.store.tenant(tenant)?;
        Ok(tenant.map(|tenant| tenant.quota).unwrap_or_default())
    }

    /// The process number of a running machine.
    #[must_use]
    pub fn pid(&self, id: &str) -> Option<i32> {
        let tasks = self.lock();
        let process = tasks.get(id)?.process.as_ref()?;
        Some(process.process().pid())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
