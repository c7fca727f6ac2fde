//! A machine from its turn to its end.

use super::files::{NoResult, inodes, max_outputs};
use super::restart::Kept;
use super::suspend::has_entered;
use super::{Held, KILLED, MachineError, Machines, Task};
use crate::execute::{Order, VMM_PATIENCE, why_it_died};
use crate::jailed::protocol::RunResult;
use crate::patience::within;
use crate::process::{Jailed, Released, Watched};
use crate::secrets::SecretError;
use crate::snapshots;
use crate::store::{Machine, MachineState, NetworkKind, Storage, StoreError, now_ms};
use crate::violations::reported_by;
use hartline_jail::Violation;
use hartline_jail::spawner::protocol::Signal;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

impl Machines {
    /// Runs a machine whose turn has come, to its end.
    pub(super) async fn run(
        &self,
        mut machine: Machine,
        mut held: Held,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        let program = self.store.program(&machine.tenant, &machine.spec.program)?;
        let Some(program) = program else {
            return self.fail(machine, "its program was deleted".to_owned(), kept);
        };
        let order = Order::new(&machine.spec, &program, &self.library, true);
        let mut order = match order.await {
            Ok(order) => order,
            Err(error) => return self.fail(machine, error.to_string(), kept),
        };
        let suspended = machine.suspended.as_ref();
        if let Some(snapshot) = suspended.or(machine.spec.snapshot.as_ref()) {
            match self.snapshots.files(snapshot, order.files()) {
                Ok(files) => order.continue_from(files),
                Err(error) => return self.fail(machine, error.to_string(), kept),
            }
        }
        match self
            .secrets
            .of(&self.store, &machine.tenant, &machine.spec.secrets)
        {
            Ok(secrets) => order.give(&secrets)?,
            Err(SecretError::Store(error)) => return Err(error.into()),
            Err(error) => return self.fail(machine, error.to_string(), kept),
        }
        if let Some(limit) = machine.spec.timeout_ms {
            let ran = u64::try_from(machine.ran_ms).unwrap_or(0);
            order.set_time_limit(limit.saturating_sub(ran).max(1));
        }
        order.take_requests(snapshots::check(&machine.spec).is_ok());
        order.pin(&held.processors);
        let log = self.log_job();
        order.keep_log(log);
        let most = Storage {
            bytes: max_outputs(log, &machine.spec).saturating_add(self.cores(&machine.id)),
            inodes: inodes(log, &machine.spec),
        };
        let counted = tokio::task::block_in_place(|| self.store.reserve_outputs(&machine, most));
        match counted {
            Err(error @ StoreError::Quota { .. }) => {
                let needed = most.bytes.div_ceil(1 << 20);
                let message = format!("its outputs may take {needed} MiB: {error}");
                return self.fail(machine, message, kept);
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
                    Err(error) => return self.fail(machine, error.to_string(), kept),
                }
            }
        };
        machine.address = lease.as_ref().map(|lease| lease.address());
        let mounts = &machine.spec.volumes;
        let supply = order
            .supply(
                &machine.tenant,
                mounts,
                (&self.pool, &self.launcher, &self.volumes),
            )
            .await?;
        let weight = self.quota(&machine.tenant)?.weight;
        let prepare = |vmm: &mut Jailed| {
            let (tenant, memory) = (&machine.tenant, machine.spec.memory);
            tokio::task::block_in_place(|| vmm.limit(tenant, weight, memory))?;
            if let Some(lease) = &lease {
                vmm.keep(Arc::clone(lease));
            }
            machine.process = Some(vmm.identity()?);
            machine.state = MachineState::Starting;
            machine.entered_ms = Some(now_ms());
            if machine.suspended.is_none() {
                machine.started_ms = machine.entered_ms;
            }
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
            return self.fail(machine, "the VMM was not there".to_owned(), kept);
        };
        let process = Arc::new(process);
        self.note_process(&machine.id, &process);
        // Not running before the VMM reports it: until then the VMM may end with this daemon. The
        // next daemon restarts a machine that it finds starting.
        let taken = within(VMM_PATIENCE, order.taken(&line)).await;
        if let Err(error) = taken.map_err(io::Error::from).flatten() {
            return self
                .end_unstarted(&machine.id, (&process, &error), kept)
                .await;
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
        let watch = self.watch(machine, process, held, kept);
        tokio::select! {
            done = watch => done,
            never = serve_images => never,
        }
    }

    /// Notes the process of a machine, which can get signals from now on.
    pub(super) fn note_process(&self, id: &str, process: &Arc<Watched>) {
        let task = Task {
            process: Some(Arc::clone(process)),
            ..Task::default()
        };
        self.lock().insert(id.to_owned(), task);
    }

    /// Ends a VMM that did not take its order, and notes why the machine does not run.
    async fn end_unstarted(
        &self,
        id: &str,
        (process, error): (&Watched, &io::Error),
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        process.process().signal(Signal::Kill)?;
        process.ended().await;
        let violation = self.violation(id, process.process(), reported_by(error));
        let has_died = error.kind() == io::ErrorKind::UnexpectedEof;
        match self.store.machine(id)? {
            Some(now) if now.killed => self.end_killed(now, kept),
            Some(now) if has_died || violation.is_some() => {
                let out_of_memory = process.process().is_out_of_memory();
                self.fail(now, why_it_died(out_of_memory, violation), kept)
            }
            Some(now) => self.fail(now, format!("the VMM did not start: {error}"), kept),
            None => Ok(()),
        }
    }

    /// Waits for the end of a machine's process.
    pub(super) async fn watch(
        &self,
        machine: Machine,
        process: Arc<Watched>,
        held: Held,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        let lease = held.lease.as_deref();
        if machine.suspended.is_none() {
            self.serve_ports(&machine.id, kept, lease);
        }
        // A client may have requested the end before there was a process.
        if self
            .store
            .machine(&machine.id)?
            .is_none_or(|now| now.killed)
        {
            process.process().signal(Signal::Kill)?;
        }
        let counters = OnceLock::new();
        let hung = tokio::select! {
            () = process.ended() => false,
            hung = self.hang(&machine) => hung?,
            never = self.forget_when_resumed(&machine, &process, &counters, (kept, lease)) => never,
            never = self.suspend_when_idle(&machine, &process) => never,
        };
        if hung {
            process.process().signal(Signal::Kill)?;
            process.ended().await;
        }
        let out_of_memory = process.process().is_out_of_memory();
        let violation = self.violation(&machine.id, process.process(), None);
        drop(held);
        let has_entered = counters.get().is_none_or(has_entered);
        match self.store.machine(&machine.id)? {
            Some(now) if hung && !now.killed && self.read_result(&now.id).is_err() => {
                self.fail(now, "the VMM did not answer and was ended".to_owned(), kept)
            }
            Some(now) => self.finish(now, (out_of_memory, violation), has_entered, kept),
            None => Ok(()),
        }
    }

    /// Returns when a machine with a time limit should have ended long ago. A paused machine cannot
    /// end.
    async fn hang(&self, machine: &Machine) -> Result<bool, MachineError> {
        let entered = machine.entered_ms.or(machine.started_ms);
        let (Some(limit), Some(entered)) = (machine.spec.timeout_ms, entered) else {
            return std::future::pending().await;
        };
        let ran = machine.ran_ms + now_ms() - entered;
        let since = Duration::from_millis(u64::try_from(ran).unwrap_or(0));
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
    /// the memory limit, a violation or something else. `has_entered` says whether its guest has run: a
    /// suspended machine stays suspended if not.
    pub(super) fn finish(
        &self,
        mut machine: Machine,
        (out_of_memory, violation): (bool, Option<Violation>),
        has_entered: bool,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        let is_suspended = machine.suspended.is_some();
        match self.read_result(&machine.id) {
            Ok(result) if is_suspended && !result.has_run() && !machine.stopped => {
                return self.stay_suspended(machine, result.message, kept);
            }
            Ok(result) => {
                machine.message.clone_from(&result.message);
                machine.result = Some(result);
                // The end of the machine is noted in any case.
                if let Err(error) = self.keep_core(&machine.id) {
                    tracing::error!(machine = %machine.id, "its core dump is lost: {error}");
                }
            }
            Err(_) if machine.killed => return self.end_killed(machine, kept),
            // The daemon ended during the start: as far as is known, nothing was run.
            Err(_) if machine.state == MachineState::Starting => {
                machine.state = MachineState::Queued;
                machine.process = None;
                return self.change(&machine);
            }
            Err(NoResult::Suspended) if is_suspended => {
                return self.finish_suspension(machine, kept);
            }
            Err(_) if is_suspended && !has_entered && !machine.stopped => {
                let message = why_it_died(out_of_memory, violation);
                return self.stay_suspended(machine, message, kept);
            }
            Err(NoResult::Missing | NoResult::Suspended) => {
                return self.fail(machine, why_it_died(out_of_memory, violation), kept);
            }
            // The report of a violation is in the file too.
            Err(_) if out_of_memory || violation.is_some() => {
                return self.fail(machine, why_it_died(out_of_memory, violation), kept);
            }
            Err(invalid) => {
                tracing::warn!(machine = %machine.id, "its VMM ended with {invalid}");
                return self.fail(machine, format!("the VMM ended with {invalid}"), kept);
            }
        }
        self.conclude(machine, MachineState::Exited, kept)
    }

    pub(super) fn end_killed(
        &self,
        mut machine: Machine,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        machine.killed = true;
        machine.message = "ended by force".to_owned();
        machine.result = Some(RunResult::not_run(KILLED, machine.message.clone()));
        self.conclude(machine, MachineState::Exited, kept)
    }

    /// Notes that a machine could not be run, or not to its end. A machine that has not begun is left
    /// for the next daemon if this one is being stopped, because that may be the reason.
    pub(super) fn fail(
        &self,
        machine: Machine,
        message: String,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        if self.scheduler.is_draining() && !machine.state.has_started() {
            tracing::info!(machine = %machine.id, "left to the next daemon: {message}");
            return Ok(());
        }
        self.note_failure(machine, message, kept)
    }

    pub(super) fn note_failure(
        &self,
        mut machine: Machine,
        message: String,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        machine.message = message;
        self.conclude(machine, MachineState::Failed, kept)
    }
}
