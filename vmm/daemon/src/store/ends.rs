//! Ends of machines on a full disk. A part of the disk is reserved for them. Ends that need more stay
//! in memory, are shown from there, and are written as soon as there is room.

use super::deliveries::{self, Added, MAX_DELIVERIES};
use super::state::is_active;
use super::{Kind, Machine, MachineState, Store, StoreError, machines, suspended};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, PoisonError};

/// Bytes of the disk that are reserved.
pub const RESERVE: u64 = 512 << 10;

/// The reserved part of the disk: a file.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_kept: AtomicBool,
}

impl Reserve {
    /// A reserve in a file, which is made if the disk has room for it.
    pub fn new(path: PathBuf) -> Self {
        let reserve = Self {
            path,
            is_kept: AtomicBool::new(false),
        };
        reserve.keep();
        reserve
    }

    /// Reserves the room, if the disk has it.
    fn keep(&self) {
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let kept = options.open(&self.path).and_then(|file| {
            match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
                // This file system reserves nothing.
                Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
                Err(error) => {
                    file.set_len(0)?;
                    Err(io::Error::from(error))
                }
            }
        });
        self.is_kept.store(kept.is_ok(), Ordering::Relaxed);
    }

    /// Gives the room up. Result: whether there was some.
    fn release(&self) -> bool {
        let emptied = || File::options().write(true).open(&self.path)?.set_len(0);
        self.is_kept.swap(false, Ordering::Relaxed) && emptied().is_ok()
    }
}

/// Changes that the disk had no room for.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    /// Machines that have ended, and the bytes of their outputs.
    ends: BTreeMap<String, (Machine, u64)>,
    /// Machines that clients have stopped or killed.
    stopped: BTreeSet<String>,
    /// Machines that clients have killed.
    killed: BTreeSet<String>,
}

impl Store {
    /// Notes the end of a machine, or that it is suspended, and that its outputs have `outputs` bytes.
    /// On a full disk the end is
    /// kept in memory, for [`write_ends`](Self::write_ends).
    ///
    /// # Errors
    /// [`StoreError`], except for a full disk.
    pub fn end_machine(&self, machine: &Machine, outputs: u64) -> Result<(), StoreError> {
        let mut unwritten = self.unwritten();
        unwritten.stopped.remove(&machine.id);
        unwritten.killed.remove(&machine.id);
        let mut written = self.write_end(machine, outputs);
        if written.as_ref().is_err_and(StoreError::is_full) && self.reserve.release() {
            written = self.write_end(machine, outputs);
        }
        match written {
            Err(error) if error.is_full() => {
                tracing::warn!(machine = %machine.id, "its end waits for room on the disk");
                let end = (machine.clone(), outputs);
                unwritten.ends.insert(machine.id.clone(), end);
                Ok(())
            }
            written => {
                unwritten.ends.remove(&machine.id);
                written
            }
        }
    }

    /// Notes that a client has killed an active machine. On a full disk this daemon keeps it in mind.
    ///
    /// # Errors
    /// [`StoreError`], except for a full disk.
    pub fn set_killed(&self, id: &str) -> Result<(), StoreError> {
        self.set_stopped_by(id, true)
    }

    /// Notes that a client has stopped an active machine. On a full disk this daemon keeps it in mind.
    ///
    /// # Errors
    /// [`StoreError`], except for a full disk.
    pub fn set_stopped(&self, id: &str) -> Result<(), StoreError> {
        self.set_stopped_by(id, false)
    }

    fn set_stopped_by(&self, id: &str, force: bool) -> Result<(), StoreError> {
        let mut unwritten = self.unwritten();
        match self.write_stopped(id, force) {
            Err(error) if error.is_full() => {
                unwritten.stopped.insert(id.to_owned());
                if force {
                    unwritten.killed.insert(id.to_owned());
                }
                Ok(())
            }
            written => written,
        }
    }

    /// Whether a client has stopped a machine, and the disk had no room for that.
    pub(super) fn is_stopped(&self, id: &str) -> bool {
        self.unwritten().stopped.contains(id)
    }

    /// Writes the ends that are in memory, and reserves room on the disk again.
    ///
    /// # Errors
    /// [`StoreError`], except for a full disk.
    pub fn write_ends(&self) -> Result<(), StoreError> {
        let mut unwritten = self.unwritten();
        while let Some(end) = unwritten.ends.first_entry() {
            let (machine, outputs) = end.get();
            match self.write_end(machine, *outputs) {
                Err(error) if error.is_full() => return Ok(()),
                written => written?,
            }
            tracing::info!(machine = %machine.id, "its end is on the disk");
            end.remove();
        }
        if !self.has_reserve() {
            self.reserve.keep();
        }
        Ok(())
    }

    /// Number of ends that wait for room on the disk.
    #[must_use]
    pub fn waiting_ends(&self) -> usize {
        self.unwritten().ends.len()
    }

    /// Whether room is reserved on the disk.
    #[must_use]
    pub fn has_reserve(&self) -> bool {
        self.reserve.is_kept.load(Ordering::Relaxed)
    }

    /// Writes the end of one machine, if it is in memory: a change of the machine must not overtake
    /// it.
    ///
    /// # Errors
    /// [`StoreError`], also for a full disk.
    pub(super) fn settle(&self, id: &str) -> Result<(), StoreError> {
        let mut unwritten = self.unwritten();
        if let Some((machine, outputs)) = unwritten.ends.get(id) {
            self.write_end(machine, *outputs)?;
            unwritten.ends.remove(id);
        }
        Ok(())
    }

    /// A machine as it is, from the database's row.
    pub(super) fn as_it_is(&self, mut machine: Machine) -> Machine {
        let unwritten = self.unwritten();
        match unwritten.ends.get(&machine.id) {
            Some((end, _)) => end.clone(),
            None => {
                machine.stopped |= unwritten.stopped.contains(&machine.id);
                machine.killed |= unwritten.killed.contains(&machine.id);
                machine
            }
        }
    }

    /// Machines, or runs, of a tenant, while ends are in memory: the database has old states.
    pub(super) fn machines_as_they_are(
        &self,
        (tenant, kind): (&str, Kind),
        after: &str,
        state: Option<MachineState>,
        limit: u32,
    ) -> Result<Vec<Machine>, StoreError> {
        let is_wanted = |machine: &Machine| state.is_none_or(|state| machine.state == state);
        let (mut found, mut after) = (Vec::new(), after.to_owned());
        while found.len() < limit as usize {
            let page = self.rows((tenant, kind), &after, None, limit)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.id);
            let page = page.into_iter().map(|machine| self.as_it_is(machine));
            found.extend(page.filter(is_wanted));
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    fn write_end(&self, machine: &Machine, outputs: u64) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        let change = "UPDATE machine SET outputs = ? WHERE id = ?";
        transaction.execute(change, rusqlite::params![outputs, machine.id])?;
        let added = match machine.state.has_ended() {
            true => {
                suspended::forget(&transaction, &machine.id)?;
                deliveries::add(&transaction, machine)?
            }
            false => Added::None,
        };
        machines::update(&transaction, machine)?;
        transaction.commit()?;
        match added {
            Added::New => self.new_delivery.notify_one(),
            Added::Dropped => {
                let Machine { id, tenant, .. } = machine;
                tracing::warn!(machine = %id, %tenant, "{MAX_DELIVERIES} webhooks wait: dropped");
            }
            Added::None => {}
        }
        Ok(())
    }

    fn write_stopped(&self, id: &str, force: bool) -> Result<(), StoreError> {
        self.connection().execute(
            concat!(
                "UPDATE machine SET stopped = 1, killed = killed OR ? WHERE id = ? AND ",
                is_active!("state")
            ),
            rusqlite::params![force, id],
        )?;
        Ok(())
    }

    /// Locked before the connection, if both are.
    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
