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

mod files;
mod recover;

pub use self::files::inodes;
use self::files::{NoResult, max_outputs};
use super::events::Events;
use super::execute::{Order, VMM_PATIENCE, why_it_died};
use super::library::Library;
use super::network::{Lease, Networks};
use super::pool::{Pool, Supply};
use super::ports::{self, PortError, Ports};
use super::process::{Jailed, Launcher, Released, Watched};
use super::processors::{Claim, NotEnough, Processors};
use super::reload::Current;
use super::scheduler::{Permit, Refused, Scheduler, need};
use super::store::{
    Machine, MachineState, NetworkKind, Quota, Spec, Storage, Store, StoreError, now_ms,
};
use super::violations::reported_by;
use super::volumes::{VolumeError, Volumes};
use crate::jailed::protocol::RunResult;
use hartline_jail::Violation;
use hartline_jail::spawner::protocol::Signal;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
    /// The machine has no network interface.
    #[error("the machine has no network interface")]
    NoNetwork,
    /// No dedicated processors are left for the machine.
    #[error(transparent)]
    Processors(#[from] NotEnough),
    /// The machine's ports cannot be published.
    #[error(transparent)]
    Ports(#[from] PortError),
    /// Another machine may change one of its volumes.
    #[error("volume {0}: another active machine may write to it: attach it read-only")]
    VolumeInUse(String),
    /// An operation on the machine's volumes failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
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
    networks: Arc<Networks>,
    processors: Arc<Processors>,
    ports: Ports,
    events: Events,
    config: Current,
    directory: PathBuf,
    /// Handles to the tasks of machines that are queued or running.
    tasks: Mutex<HashMap<String, Task>>,
}

/// The resources that a machine holds to its end.
#[derive(Debug)]
struct Held {
    _permit: Permit,
    processors: Claim,
    ports: ports::Claim,
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
}

impl Machines {
    /// Machines with their files in `directory`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(
        store: Arc<Store>,
        library: Arc<Library>,
        scheduler: Scheduler,
        (pool, launcher): (Arc<Pool>, Arc<Launcher>),
        (volumes, networks, processors): (Arc<Volumes>, Arc<Networks>, Arc<Processors>),
        ports: Ports,
        directory: PathBuf,
        (events, config): (Events, Current),
    ) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self {
            store,
            library,
            scheduler,
            pool,
            launcher,
            volumes,
            networks,
            processors,
            ports,
            events,
            config,
            directory,
            tasks: Mutex::default(),
        })
    }

    /// Starts a machine that is not active. The machine is queued when this returns.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn start(self: &Arc<Self>, machine: &Machine) -> Result<Machine, MachineError> {
        let Some(machine) = self.store.queue_machine(&machine.id)? else {
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
        let admitted = self.check_volumes(machine).and_then(|()| {
            let ports = self.ports.claim(&machine.tenant, &machine.spec)?;
            self.queue(machine.clone(), ports)
        });
        if let Err(error) = &admitted {
            self.fail(machine.clone(), error.to_string())?;
        }
        admitted
    }

    /// Checks that the operator allows the ports of a spec.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn check_ports(&self, spec: &Spec) -> Result<(), PortError> {
        self.ports.check(spec)
    }

    /// Checks that only this machine may change its volumes: its VMM counts their contents.
    fn check_volumes(&self, machine: &Machine) -> Result<(), MachineError> {
        match self.store.volume_in_use(machine)? {
            Some(volume) => Err(MachineError::VolumeInUse(volume)),
            None => Ok(()),
        }
    }

    /// Queues a machine in the state `Queued`, and runs it when its turn comes.
    fn queue(
        self: &Arc<Self>,
        mut machine: Machine,
        ports: ports::Claim,
    ) -> Result<(), MachineError> {
        // It may have been starting when an earlier daemon ended.
        machine.state = MachineState::Queued;
        let quota = self.quota(&machine.tenant)?;
        let claim = self.processors.claim_for(&machine.spec)?;
        machine.processors = claim.processors().to_vec();
        let turn = self
            .scheduler
            .queue(&machine.tenant, quota, need(&machine.spec))?;
        let (cancel, cancelled) = oneshot::channel();
        let task = Task {
            process: None,
            cancel: Some(cancel),
        };
        self.lock().insert(machine.id.clone(), task);
        let machines = Arc::clone(self);
        tokio::spawn(async move {
            let id = machine.id.clone();
            let permit = tokio::select! {
                permit = turn => permit.ok(),
                _ = cancelled => None,
            };
            let done = match permit {
                Some(permit) => {
                    let held = Held {
                        _permit: permit,
                        processors: claim,
                        ports,
                        lease: None,
                    };
                    machines.run(machine, held).await
                }
                None => machines.end_killed(machine),
            };
            machines.lock().remove(&id);
            if let Err(error) = done {
                machines.give_up(&id, &error);
            }
        });
        Ok(())
    }

    /// Notes that a machine could not be run, for example because the disk is full.
    fn give_up(&self, id: &str, error: &MachineError) {
        tracing::error!(machine = %id, "{error}");
        let noted = match self.store.machine(id) {
            Ok(Some(machine)) => self.fail(machine, error.to_string()),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = noted {
            tracing::error!(machine = %id, "{error}");
        }
    }

    /// Runs a machine whose turn has come, to its end.
    async fn run(&self, mut machine: Machine, mut held: Held) -> Result<(), MachineError> {
        let program = self.store.program(&machine.tenant, &machine.spec.program)?;
        let Some(program) = program else {
            return self.fail(machine, "its program was deleted".to_owned());
        };
        let order = Order::new(&machine.spec, &program, &self.library, true);
        let mut order = match order.await {
            Ok(order) => order,
            Err(error) => return self.fail(machine, error.to_string()),
        };
        order.pin(&held.processors);
        let log = self.log_job();
        order.keep_log(log);
        let most = Storage {
            bytes: max_outputs(log),
            inodes: inodes(log),
        };
        let counted = tokio::task::block_in_place(|| self.store.reserve_outputs(&machine, most));
        match counted {
            Err(error @ StoreError::Quota { .. }) => {
                let needed = most.bytes.div_ceil(1 << 20);
                let message = format!("its outputs may take {needed} MiB: {error}");
                return self.fail(machine, message);
            }
            counted => counted?,
        }
        let mut outputs = self.make_files(&machine, log)?;
        let lease = match machine.spec.network {
            NetworkKind::None => None,
            NetworkKind::Tenant => {
                let attach = || self.networks.attach(&machine.tenant, machine.address);
                match tokio::task::block_in_place(attach) {
                    Ok(interface) => Some(order.connect(interface, &mut outputs)),
                    Err(error) => return self.fail(machine, error.to_string()),
                }
            }
        };
        machine.address = lease.as_ref().map(|lease| lease.address());
        let supply = self.supply(&machine, &mut order).await?;
        let weight = self.quota(&machine.tenant)?.weight;
        let prepare = |vmm: &mut Jailed| {
            let (tenant, memory) = (&machine.tenant, machine.spec.memory);
            tokio::task::block_in_place(|| vmm.limit(tenant, weight, memory))?;
            if let Some(lease) = &lease {
                vmm.keep(Arc::clone(lease));
            }
            machine.process = Some(vmm.identity()?);
            machine.state = MachineState::Starting;
            machine.started_ms = Some(now_ms());
            self.change(&machine)
        };
        let vmm = order.send_to_any(&supply, &outputs, prepare).await?;
        // The VMM has duplicates now.
        drop((outputs, lease));
        let Some(Released {
            process,
            line,
            lease,
        }) = vmm.release()
        else {
            return self.fail(machine, "the VMM was not there".to_owned());
        };
        let process = Arc::new(process);
        self.note_process(&machine.id, &process);
        // Not running before the VMM reports it: until then the VMM may end with this daemon. The
        // next daemon restarts a machine that it finds starting.
        let taken = tokio::time::timeout(VMM_PATIENCE, order.taken(&line)).await;
        if let Err(error) = taken.map_err(io::Error::from).flatten() {
            return self.end_unstarted(&machine.id, &process, &error).await;
        }
        machine.state = MachineState::Running;
        if let Err(error) = self.change(&machine) {
            // The next daemon would start the machine a second time.
            process.process().signal(Signal::Kill)?;
            process.ended().await;
            return Err(error);
        }
        let serve_images = async {
            // The result file has the outcome once the process has ended.
            let _ = order.result(&line).await;
            std::future::pending().await
        };
        held.lease = lease;
        let watch = self.watch(machine, process, held);
        tokio::select! {
            done = watch => done,
            never = serve_images => never,
        }
    }

    /// The source of a machine's VMM: one that may use volumes if the machine has any.
    async fn supply(
        &self,
        machine: &Machine,
        order: &mut Order,
    ) -> Result<Supply<'_>, MachineError> {
        if machine.spec.volumes.is_empty() {
            return Ok(Supply::Pool(&self.pool));
        }
        let attached = self.volumes.attach(machine).await?;
        let (shared, volumes) = attached.into_iter().unzip();
        order.attach(volumes);
        Ok(Supply::Started(&self.launcher, shared))
    }

    /// Notes the process of a machine, which can get signals from now on.
    fn note_process(&self, id: &str, process: &Arc<Watched>) {
        let task = Task {
            process: Some(Arc::clone(process)),
            cancel: None,
        };
        self.lock().insert(id.to_owned(), task);
    }

    /// Ends a VMM that did not take its order, and notes why the machine does not run.
    async fn end_unstarted(
        &self,
        id: &str,
        process: &Watched,
        error: &io::Error,
    ) -> Result<(), MachineError> {
        process.process().signal(Signal::Kill)?;
        process.ended().await;
        let violation = self.violation(id, process.process(), reported_by(error));
        match self.store.machine(id)? {
            Some(now) if now.killed => self.end_killed(now),
            Some(now) if violation.is_some() => self.fail(now, why_it_died(false, violation)),
            Some(now) => self.fail(now, format!("the VMM did not start: {error}")),
            None => Ok(()),
        }
    }

    /// Waits for the end of a machine's process.
    async fn watch(
        &self,
        machine: Machine,
        process: Arc<Watched>,
        mut held: Held,
    ) -> Result<(), MachineError> {
        if let Some(lease) = &held.lease {
            held.ports.serve(lease.address());
        }
        // A client may have requested the end before there was a process.
        if self
            .store
            .machine(&machine.id)?
            .is_none_or(|now| now.killed)
        {
            process.process().signal(Signal::Kill)?;
        }
        let hung = tokio::select! {
            () = process.ended() => false,
            hung = self.hang(&machine) => hung?,
        };
        if hung {
            process.process().signal(Signal::Kill)?;
            process.ended().await;
        }
        let out_of_memory = process.process().is_out_of_memory();
        let violation = self.violation(&machine.id, process.process(), None);
        drop(held);
        match self.store.machine(&machine.id)? {
            Some(now) if hung && !now.killed && self.read_result(&now.id).is_err() => {
                self.fail(now, "the VMM did not answer and was ended".to_owned())
            }
            Some(now) => self.finish(now, out_of_memory, violation),
            None => Ok(()),
        }
    }

    /// Returns when a machine with a time limit should have ended long ago. A paused machine cannot
    /// end.
    async fn hang(&self, machine: &Machine) -> Result<bool, MachineError> {
        let (Some(limit), Some(started)) = (machine.spec.timeout_ms, machine.started_ms) else {
            return std::future::pending().await;
        };
        let since = Duration::from_millis(u64::try_from(now_ms() - started).unwrap_or(0));
        let limit = Duration::from_millis(limit) + VMM_PATIENCE;
        tokio::time::sleep(limit.saturating_sub(since)).await;
        loop {
            let now = self.store.machine(&machine.id)?;
            if now.is_none_or(|now| now.state != MachineState::Paused) {
                return Ok(true);
            }
            tokio::time::sleep(VMM_PATIENCE).await;
        }
    }

    /// Notes the end of a machine whose process is gone: with the result, or without one because of
    /// the memory limit, a violation or something else.
    fn finish(
        &self,
        mut machine: Machine,
        out_of_memory: bool,
        violation: Option<Violation>,
    ) -> Result<(), MachineError> {
        match self.read_result(&machine.id) {
            Ok(result) => {
                machine.state = MachineState::Exited;
                machine.message.clone_from(&result.message);
                machine.result = Some(result);
            }
            Err(_) if machine.killed => return self.end_killed(machine),
            // The daemon ended during the start: as far as is known, nothing was run.
            Err(_) if machine.state == MachineState::Starting => {
                machine.state = MachineState::Queued;
                machine.process = None;
                return self.change(&machine);
            }
            Err(NoResult::Missing) => {
                return self.fail(machine, why_it_died(out_of_memory, violation));
            }
            // The report of a violation is in the file too.
            Err(_) if out_of_memory || violation.is_some() => {
                return self.fail(machine, why_it_died(out_of_memory, violation));
            }
            Err(invalid) => {
                tracing::warn!(machine = %machine.id, "its VMM ended with {invalid}");
                return self.fail(machine, format!("the VMM ended with {invalid}"));
            }
        }
        machine.ended_ms = Some(now_ms());
        self.change(&machine)
    }

    fn end_killed(&self, mut machine: Machine) -> Result<(), MachineError> {
        machine.state = MachineState::Exited;
        machine.killed = true;
        machine.message = "ended by force".to_owned();
        machine.ended_ms = Some(now_ms());
        machine.result = Some(RunResult::not_run(KILLED, machine.message.clone()));
        self.change(&machine)
    }

    fn fail(&self, mut machine: Machine, message: String) -> Result<(), MachineError> {
        machine.state = MachineState::Failed;
        machine.message = message;
        machine.ended_ms = Some(now_ms());
        self.change(&machine)
    }

    /// Sends the program `SIGTERM`. If the program has not ended two seconds later, it is killed. A
    /// queued machine is taken out of the queue.
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
        let mut tasks = self.lock();
        let task = tasks.get_mut(&machine.id);
        let Some(task) = task.filter(|_| machine.state.is_active()) else {
            return Err(MachineError::State(machine.state));
        };
        match (&task.process, task.cancel.take()) {
            (Some(process), _) => {
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
