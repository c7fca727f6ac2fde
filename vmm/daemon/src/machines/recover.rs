//! Recovery of the machines of an earlier daemon.

use super::restart::Kept;
use super::{Held, MachineError, Machines};
use crate::network::Lease;
use crate::process::Watched;
use crate::scheduler::need;
use crate::spawner::Process;
use crate::store::{Machine, MachineState};
use hartline_jail::spawner::protocol::Signal;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// A process that was found again, and its address.
type Found = (Arc<Watched>, Option<Arc<Lease>>);

impl Machines {
    /// Recovers the machines that existed when the daemon ended.
    ///
    /// # Errors
    /// The database failed, or a process cannot be examined.
    pub fn recover(self: &Arc<Self>) -> Result<(), MachineError> {
        let suspended = self.store.suspended_with_ports()?;
        let mut active = self.store.active_machines()?;
        // Running machines first: no other machine may get their resources.
        active.sort_by_key(|machine| machine.process.is_none());
        for machine in active {
            let quota = self.quota(&machine.tenant)?;
            let process = match machine.process {
                Some(identity) => self.find(identity, &machine)?,
                None => None,
            };
            tracing::info!(
                machine = %machine.id,
                "was {}, its process {}",
                machine.state.name(),
                if process.is_some() { "runs" } else { "is gone" }
            );
            let mut kept = Kept::new(self.ports.adopt(&machine.tenant, &machine.spec));
            match process {
                Some((watched, lease)) => {
                    let need = need(&machine.spec);
                    let held = Held {
                        _permit: self.scheduler.adopt(&machine.tenant, quota, need),
                        processors: self.processors.adopt(&machine.processors),
                        lease,
                    };
                    self.adopt(machine, watched, held, kept)?;
                }
                None if machine.state == MachineState::Restarting => {
                    self.settle(&machine.id, kept);
                }
                None if machine.state == MachineState::Queued
                    || machine.state == MachineState::Starting
                        && self.read_result(&machine.id).is_err() =>
                {
                    self.queue_again(machine, kept);
                }
                // Its cgroup is gone, and with it the out-of-memory flag.
                None => {
                    let (id, violation) = (machine.id.clone(), self.reported(&machine.id));
                    self.finish(machine, (false, violation), true, &mut kept)?;
                    self.settle(&id, kept);
                }
            }
        }
        for machine in suspended {
            let ports = self.ports.adopt(&machine.tenant, &machine.spec);
            self.asleep.put(&machine.id, ports);
            self.await_clients(&machine.id, false);
        }
        // The requests of these runs were not answered.
        for id in self.store.unstarted_runs()? {
            self.unmake(&id)?;
        }
        self.remove_orphans()?;
        Ok(())
    }

    /// The process of a machine, if its number still belongs to the same process.
    fn find(&self, identity: (i32, u64), machine: &Machine) -> io::Result<Option<Found>> {
        let tenant = &machine.tenant;
        let found = match self.launcher.find(identity, tenant) {
            // The number belongs to another process, or its user is of another configuration.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                tracing::warn!(machine = %machine.id, "its process was not found again: {error}");
                None
            }
            found => found?,
        };
        let Some(process) = found else {
            return Ok(None);
        };
        let address = machine.address;
        let lease = address.and_then(|address| self.networks.adopt(tenant, address, &process));
        if lease.is_none() && address.is_some() {
            tracing::warn!(machine = %machine.id, "its network was not found again");
        }
        Ok(Some((Arc::new(Watched::new(process)?), lease)))
    }

    /// Deletes the files of machines that are not in the database.
    fn remove_orphans(&self) -> Result<(), MachineError> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if self.store.machine(&id)?.is_none() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Takes over a machine whose process was found.
    fn adopt(
        self: &Arc<Self>,
        mut machine: Machine,
        process: Arc<Watched>,
        held: Held,
        mut kept: Kept,
    ) -> Result<(), MachineError> {
        let is_starting = machine.state == MachineState::Starting;
        if is_starting && self.has_taken(process.process(), &machine.id) {
            machine.state = MachineState::Running;
            self.change(&machine)?;
        }
        let machines = Arc::clone(self);
        self.note_process(&machine.id, &process);
        tokio::spawn(async move {
            let id = machine.id.clone();
            let watched = Arc::clone(&process);
            let done = match machines.await_taken(&mut machine, &process).await {
                Ok(()) => machines.watch(machine, process, held, &mut kept).await,
                Err(error) => Err(error),
            };
            match done.and_then(|()| Ok(machines.store.machine(&id)?)) {
                // Its process ended before it got its program. If its end was noted instead, a client
                // has started it again, and another task has it.
                Ok(Some(machine))
                    if machine.state == MachineState::Queued && machines.has(&id, &watched) =>
                {
                    machines.queue_again(machine, kept);
                }
                Ok(_) => machines.settle(&id, kept),
                Err(error) => machines.give_up(&id, &error, kept),
            }
        });
        Ok(())
    }

    /// Waits until a VMM that was starting has taken its order. One that has not ends soon, because the
    /// daemon that sent the order has ended.
    async fn await_taken(
        &self,
        machine: &mut Machine,
        process: &Watched,
    ) -> Result<(), MachineError> {
        /// Period of the checks.
        const LOOK: Duration = Duration::from_millis(20);
        if machine.state != MachineState::Starting {
            return Ok(());
        }
        let has_taken = || self.has_taken(process.process(), &machine.id);
        let taken = async {
            while !tokio::task::block_in_place(has_taken) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let is_taken = tokio::select! {
            () = process.ended() => false,
            () = taken => true,
        };
        if !is_taken {
            return Ok(());
        }
        machine.state = MachineState::Running;
        let noted = self.change(machine);
        if noted.is_err() {
            // The next daemon would start the machine a second time.
            process.process().signal(Signal::Kill)?;
            process.ended().await;
        }
        noted
    }

    /// Whether a process is that of a machine's present task.
    fn has(&self, id: &str, process: &Arc<Watched>) -> bool {
        let tasks = self.lock();
        let present = tasks.get(id).and_then(|task| task.process.as_ref());
        present.is_some_and(|present| Arc::ptr_eq(present, process))
    }

    /// Whether a VMM has taken its order: it then writes to the machine's output.
    fn has_taken(&self, process: &Process, id: &str) -> bool {
        let output = process.output().and_then(|output| output.metadata());
        match (output, fs::metadata(self.file(id, "stdout"))) {
            (Ok(own), Ok(file)) => (own.dev(), own.ino()) == (file.dev(), file.ino()),
            _ => false,
        }
    }
}
