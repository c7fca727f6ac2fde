//! All processes of the VM, with the state that `/proc` shows of their files.

use super::process::Process;
use super::types::Ino;
use crate::credentials::Credentials;
use crate::ids::INTERFACES;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// A process.
#[derive(Debug)]
struct Entry {
    /// Shares its descriptors with the running process.
    process: Process,
    /// Numbers of the process's tasks.
    threads: BTreeSet<u32>,
}

/// All processes, zombies included, and the numbers of processors and network interfaces. Clones
/// share one registry.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Rc<RefCell<BTreeMap<u32, Entry>>>,
    processors: Rc<Cell<u32>>,
    interfaces: Rc<Cell<usize>>,
}

impl Registry {
    /// Adds a process with its first task.
    pub fn add(&self, process: &Process) {
        let entry = Entry {
            process: process.view(),
            threads: BTreeSet::from([process.pid]),
        };
        self.entries.borrow_mut().insert(process.pid, entry);
    }

    /// Updates the entry of a process.
    pub fn update(&self, process: &Process) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&process.pid) {
            entry.process = process.view();
        }
    }

    /// Removes a process.
    pub fn remove(&self, pid: u32) {
        self.entries.borrow_mut().remove(&pid);
    }

    /// Adds a task to a process.
    pub fn add_thread(&self, pid: u32, tid: u32) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&pid) {
            entry.threads.insert(tid);
        }
    }

    /// Removes a task of a process.
    pub fn remove_thread(&self, pid: u32, tid: u32) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&pid) {
            entry.threads.remove(&tid);
        }
    }

    /// Removes all tasks of a process except the first.
    pub fn end_threads(&self, pid: u32) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&pid) {
            entry.threads = BTreeSet::from([pid]);
        }
    }

    /// Sets the number of processors.
    pub fn set_processors(&self, number: u32) {
        self.processors.set(number);
    }

    /// Number of processors.
    #[must_use]
    pub fn processors(&self) -> u32 {
        self.processors.get()
    }

    /// Sets the number of network interfaces.
    pub fn set_interfaces(&self, number: usize) {
        self.interfaces.set(number);
    }

    /// The names of the network interfaces.
    pub fn interfaces(&self) -> &'static [&'static str] {
        &INTERFACES[..self.interfaces.get().min(INTERFACES.len())]
    }

    /// The file state of a process.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<Process> {
        let entries = self.entries.borrow();
        entries.get(&pid).map(|entry| entry.process.view())
    }

    /// The first process with at least this number.
    #[must_use]
    pub fn next(&self, from: u32) -> Option<u32> {
        let entries = self.entries.borrow();
        entries.range(from..).next().map(|(&pid, _)| pid)
    }

    /// The first task of a process with at least this number.
    #[must_use]
    pub fn next_thread(&self, pid: u32, from: u32) -> Option<u32> {
        let entries = self.entries.borrow();
        let threads = &entries.get(&pid)?.threads;
        threads.range(from..).next().copied()
    }

    /// The numbers of all processes, or of all their tasks.
    #[must_use]
    pub fn numbers(&self, tasks: bool) -> Vec<u32> {
        let entries = self.entries.borrow();
        match tasks {
            true => entries
                .values()
                .flat_map(|entry| entry.threads.iter().copied())
                .collect(),
            false => entries.keys().copied().collect(),
        }
    }

    /// The process that a task belongs to.
    #[must_use]
    pub fn process_of(&self, tid: u32) -> Option<u32> {
        let entries = self.entries.borrow();
        if entries.contains_key(&tid) {
            return Some(tid);
        }
        let mut entries = entries.iter();
        let found = entries.find(|(_, entry)| entry.threads.contains(&tid));
        found.map(|(&pid, _)| pid)
    }
}

impl Process {
    /// The same process: descriptors are shared, not copied.
    fn view(&self) -> Process {
        Process {
            fds: self.fds.share(),
            cred: Rc::clone(&self.cred),
            fs_sharers: Rc::clone(&self.fs_sharers),
            oom_score: Rc::clone(&self.oom_score),
            registry: self.registry.clone(),
            ..*self
        }
    }

    /// Sets users, groups and capabilities.
    pub fn set_credentials(&mut self, cred: Rc<Credentials>) {
        self.cred = cred;
        self.registry.update(self);
    }

    /// Sets whether other processes of its users may read the process (`PR_SET_DUMPABLE`).
    pub fn set_dumpable(&mut self, dumpable: u64) {
        self.dumpable = dumpable;
        self.registry.update(self);
    }

    /// Sets the inode of the working directory.
    pub fn set_cwd(&mut self, ino: Ino) -> Ino {
        let old = core::mem::replace(&mut self.cwd, ino);
        self.registry.update(self);
        old
    }

    /// Sets the inode of the root directory.
    pub fn set_root(&mut self, ino: Ino) -> Ino {
        let old = core::mem::replace(&mut self.root, ino);
        self.registry.update(self);
        old
    }

    /// Sets the inode of the executable.
    pub fn set_executable(&mut self, ino: Ino) -> Option<Ino> {
        let old = self.executable.replace(ino);
        self.registry.update(self);
        old
    }
}
