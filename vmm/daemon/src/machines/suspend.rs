//! Suspended machines: their memory is in a snapshot, and they have no process.
//!
//! A machine stays suspended until its guest runs in another VMM. The snapshot is deleted then.

use super::restart::Kept;
use super::{KILLED, MachineError, Machines};
use crate::execute::VMM_PATIENCE;
use crate::jailed::protocol::RunResult;
use crate::machines::files::NoResult;
use crate::network::Lease;
use crate::process::Watched;
use crate::snapshots;
use crate::store::{Machine, MachineState, now_ms};
use hartline_vmm::ExitReason;
use hartline_vmm::live::Live;
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Period of the checks whether the guest of a machine runs again, or has been suspended.
const LOOK: Duration = Duration::from_millis(20);
/// Processor time between two looks that is no work of the guest.
const NO_WORK: Duration = Duration::from_millis(20);
/// Looks at a machine within its idle time.
const IDLE_LOOKS: u32 = 4;

impl Machines {
    /// Suspends a running machine. After an error it goes on.
    ///
    /// # Errors
    /// [`MachineError`]: the machine does not run, or there is no snapshot.
    pub async fn suspend(&self, machine: &Machine) -> Result<(), MachineError> {
        self.end_with_snapshot(machine).await?;
        let asked = Instant::now();
        loop {
            let now = self.store.machine(&machine.id)?;
            // The task of the machine notes it.
            match now.map_or(MachineState::Exited, |now| now.state) {
                MachineState::Suspended => return Ok(()),
                state if !state.has_started() || asked.elapsed() >= VMM_PATIENCE => {
                    return Err(MachineError::State(state));
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Makes the snapshot of a machine, and ends its process.
    async fn end_with_snapshot(&self, machine: &Machine) -> Result<(), MachineError> {
        let process = match self.lock().get(&machine.id) {
            Some(task) if machine.state == MachineState::Running => task.process.clone(),
            _ => None,
        };
        let process = process.ok_or(MachineError::State(machine.state))?;
        snapshots::check(&machine.spec)?;
        let held = self.hold_clients(&machine.id).await;
        if machine.spec.interactive {
            let vmm = process.process();
            // The spawner is asked for descriptors.
            let ends = tokio::task::block_in_place(|| -> io::Result<_> {
                Ok([vmm.own_input()?, vmm.input()?])
            })?;
            if let Some(task) = self.lock().get_mut(&machine.id) {
                task.unread = Some(ends);
            }
        }
        let begun = Instant::now();
        let made = self.snapshots.suspend(machine, &process).await;
        self.metrics.count_snapshot(&made, begun.elapsed());
        if let Some(task) = self.lock().get_mut(&machine.id) {
            match &made {
                Ok(()) => task.held = held,
                Err(_) => task.unread = None,
            }
        }
        Ok(made?)
    }

    /// Notes that a machine is suspended, whose process has ended with its snapshot.
    pub(super) fn finish_suspension(
        &self,
        mut machine: Machine,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        let unread = (self.lock().get_mut(&machine.id)).and_then(|task| task.unread.take());
        if machine.stopped {
            return self.end_suspended_now(machine, kept);
        }
        let kept_files = unread
            .map_or(Ok(()), |ends| self.keep_unread(&machine.id, ends))
            .and_then(|()| self.keep_core(&machine.id));
        // The machine is suspended in any case.
        if let Err(error) = kept_files {
            tracing::error!(machine = %machine.id, "its unread input or core dump is lost: {error}");
        }
        let now = now_ms();
        machine.ran_ms += machine.entered_ms.map_or(0, |entered| now - entered);
        self.stay_suspended(machine, String::new(), kept)
    }

    /// Notes that a machine is suspended, or is still, with the reason if it could not be started.
    pub(super) fn stay_suspended(
        &self,
        mut machine: Machine,
        message: String,
        kept: &mut Kept,
    ) -> Result<(), MachineError> {
        if !message.is_empty() {
            tracing::warn!(machine = %machine.id, "it stays suspended: {message}");
        }
        machine.state = MachineState::Suspended;
        machine.message = message;
        machine.process = None;
        machine.processors = Vec::new();
        let ports = kept.ports.take().filter(|ports| !ports.is_empty());
        if let Some(mut ports) = ports {
            ports.pause();
            if !machine.message.is_empty() {
                ports.close_clients();
            }
            self.asleep.put(&machine.id, ports);
        }
        let noted = self.end_task(&machine);
        if noted.is_err() {
            kept.ports = self.asleep.wake(&machine.id);
        }
        noted
    }

    /// Ends a suspended machine.
    ///
    /// # Errors
    /// [`MachineError`]: it is not suspended any more.
    pub(super) fn end_suspended(&self, machine: &Machine) -> Result<(), MachineError> {
        use MachineState::{Queued, Suspended};
        // Nobody else starts or ends it from now on.
        if !self.store.change_state(&machine.id, Suspended, Queued)? {
            return Err(MachineError::State(machine.state));
        }
        let ended = self.end_suspended_now(machine.clone(), &mut Kept::default());
        if ended.is_err() {
            self.store.change_state(&machine.id, Queued, Suspended)?;
        }
        ended
    }

    fn end_suspended_now(&self, mut machine: Machine, kept: &mut Kept) -> Result<(), MachineError> {
        machine.killed = true;
        machine.message = "ended while it was suspended".to_owned();
        machine.result = Some(RunResult::not_run(KILLED, machine.message.clone()));
        self.conclude(machine, MachineState::Exited, kept)
    }

    /// Forgets the snapshot of a machine that was suspended, and what else it needed to go on.
    pub(super) fn forget_suspension(&self, machine: &Machine) -> Result<(), MachineError> {
        let Some(id) = &machine.suspended else {
            return Ok(());
        };
        tokio::task::block_in_place(|| self.store.forget_suspension(&machine.id, id))?;
        self.discard_suspension(machine);
        Ok(())
    }

    /// Deletes the files of a suspended machine that the database has forgotten.
    pub(super) fn discard_suspension(&self, machine: &Machine) {
        let Some(id) = &machine.suspended else {
            return;
        };
        self.snapshots.discard(id);
        if let Err(error) = self.remove_unread(&machine.id) {
            tracing::error!(machine = %machine.id, "its input: {error}");
        }
    }

    /// Deletes the snapshot of a suspended machine as soon as its guest runs, and serves its ports then: a
    /// large memory takes a while to load. Does not return. `counters` gets the VMM's counters, as soon
    /// as it has some.
    pub(super) async fn forget_when_resumed(
        &self,
        machine: &Machine,
        process: &Watched,
        counters: &OnceLock<File>,
        (kept, lease): (&mut Kept, Option<&Lease>),
    ) -> ! {
        if machine.suspended.is_some() {
            // A VMM that an earlier daemon was suspending may hold the guest.
            let is_held = || matches!(self.read_result(&machine.id), Err(NoResult::Suspended));
            while !counters.get().is_some_and(has_entered) || is_held() {
                if counters.get().is_none()
                    && let Ok(file) = tokio::task::block_in_place(|| process.process().counters())
                {
                    let _ = counters.set(file);
                    continue;
                }
                tokio::time::sleep(LOOK).await;
            }
            self.serve_ports(&machine.id, kept, lease);
            if let Err(error) = self.forget_suspension(machine) {
                // The end of the machine forgets it.
                tracing::error!(machine = %machine.id, "its snapshot is not deleted: {error}");
            }
        }
        std::future::pending().await
    }

    /// Suspends a machine that is idle for the time that its specification says. Does not return.
    pub(super) async fn suspend_when_idle(&self, machine: &Machine, process: &Arc<Watched>) -> ! {
        if let Some(seconds) = machine.spec.idle_timeout_s {
            let limit = Duration::from_secs(seconds);
            loop {
                let seen = self.await_idleness(process, limit).await;
                // A client that has connected meanwhile is work; later ones wait.
                let held = self.hold_clients(&machine.id).await;
                let is_idle = || same_work(seen, work(process));
                if !tokio::task::block_in_place(is_idle) {
                    continue;
                }
                match self.store.machine(&machine.id) {
                    Ok(Some(now)) if now.state == MachineState::Running && !now.stopped => {
                        match self.end_with_snapshot(&now).await {
                            Ok(()) => break,
                            Err(error) => tracing::warn!(
                                machine = %machine.id, "it is idle, but not suspended: {error}"
                            ),
                        }
                    }
                    Ok(_) => {}
                    Err(error) => tracing::error!(machine = %machine.id, "{error}"),
                }
                drop(held);
            }
        }
        std::future::pending().await
    }

    /// Returns when a VM has done nothing for a time: its vCPU has not left the guest, and the VMM has
    /// used no processor time. Result: what it has done until then.
    async fn await_idleness(&self, process: &Watched, limit: Duration) -> Option<Work> {
        let mut last = None;
        let mut since = Instant::now();
        while last.is_none() || since.elapsed() < limit {
            let now = tokio::task::block_in_place(|| work(process));
            if !same_work(last, now) {
                (last, since) = (now, Instant::now());
            }
            tokio::time::sleep(limit / IDLE_LOOKS).await;
        }
        last
    }
}

/// What a VM has done until now: exits of its vCPU, and processor time of the VMM.
type Work = (u64, Duration);

/// Whether a VM has done nothing from a look at it to a later one. What cannot be seen may be work.
fn same_work(before: Option<Work>, now: Option<Work>) -> bool {
    match (before, now) {
        (Some((exits, time)), Some((exits_now, time_now))) => {
            exits == exits_now && time_now.saturating_sub(time) < NO_WORK
        }
        _ => false,
    }
}

/// What a VM has done.
fn work(process: &Watched) -> Option<Work> {
    let vmm = process.process();
    let live = Live::read(&vmm.counters().ok()?, 1).ok()?;
    Some((live.exits.total(), vmm.processor_time().ok()?))
}

/// Whether the guest of a VMM with these counters has run.
pub(super) fn has_entered(counters: &File) -> bool {
    Live::read(counters, 1).is_ok_and(|live| live.exits.by(ExitReason::Call) > 0)
}
