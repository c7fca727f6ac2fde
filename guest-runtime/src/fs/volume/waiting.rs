//! Asynchronous requests about files of volumes. As for [disks](super::super::disks), nothing here
//! blocks: a call whose request is not complete returns [`Errno::EAGAIN`]. Its task waits, and
//! repeats the call, which then finds the answer.

use super::Transport;
use crate::mm::UserSliceMut;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::volume::{Answer, Operation, VOLUME_DATA};
use hartline_linux::errno::Errno;

/// A request that is in flight or complete.
#[derive(Debug)]
struct Job {
    /// The task that waits for the request; none if it no longer does.
    owner: Option<u32>,
    operation: Operation,
    args: [u64; 6],
    slot: usize,
    /// The task was woken for the answer.
    is_notified: bool,
}

/// The requests of all volumes.
#[derive(Debug)]
pub struct Waiting {
    transport: Rc<dyn Transport>,
    jobs: Vec<Job>,
    /// Free slots.
    free: Vec<usize>,
    /// Tasks that could not submit a request.
    late: Vec<u32>,
    /// Tasks whose requests have made progress.
    woken: Vec<u32>,
}

impl Waiting {
    /// Returns an empty set of requests, which go to the host by `transport`.
    pub fn new(transport: Rc<dyn Transport>) -> Self {
        Self {
            free: (0..transport.slots()).collect(),
            transport,
            jobs: Vec::new(),
            late: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Reads a file for `task`, at most [`VOLUME_DATA`] bytes. Returns fewer bytes than `to`
    /// has room for only at the end of the file.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; an error of the host.
    pub fn read<'a>(
        &mut self,
        task: u32,
        node: u64,
        at: u64,
        to: impl Into<UserSliceMut<'a>>,
    ) -> Result<usize, Errno> {
        let mut to = to.into();
        let length = to.len().min(VOLUME_DATA);
        let args = [node, at, length as u64, 0, 0, 0];
        let answer = self.ask(task, Operation::Read, args, to.part(0, length))?;
        Ok(usize::try_from(answer.result).map_or(0, |count| count.min(length)))
    }

    /// Flushes a file or directory, or only its data, for `task`.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; an error of the host.
    pub fn sync(&mut self, task: u32, node: u64, only_data: bool) -> Result<(), Errno> {
        let args = [node, only_data.into(), 0, 0, 0, 0];
        self.ask(task, Operation::Sync, args, UserSliceMut::default())
            .map(drop)
    }

    fn ask(
        &mut self,
        task: u32,
        operation: Operation,
        args: [u64; 6],
        into: UserSliceMut<'_>,
    ) -> Result<Answer, Errno> {
        let is_it =
            |job: &Job| job.owner == Some(task) && job.operation == operation && job.args == args;
        let at = match self.jobs.iter().position(is_it) {
            Some(at) => at,
            None => self.submit(task, operation, args)?,
        };
        let slot = self.jobs[at].slot;
        if !self.transport.has_answer(slot) {
            return Err(Errno::EAGAIN);
        }
        self.jobs.swap_remove(at);
        let answer = self.transport.take(slot, into);
        self.release(slot);
        answer
    }

    /// Submits a request. Returns its index.
    fn submit(&mut self, task: u32, operation: Operation, args: [u64; 6]) -> Result<usize, Errno> {
        let is_others = |job: &Job| job.owner != Some(task);
        if self.free.is_empty()
            && !self.is_busy()
            && let Some(at) = self.jobs.iter().position(is_others)
        {
            // All slots hold answers for tasks that do not fetch them, perhaps because they are
            // stopped. Drop one: its task will submit the request again.
            self.drop_job(at);
        }
        let Some(slot) = self.free.pop() else {
            if !self.late.contains(&task) {
                self.late.push(task);
            }
            return Err(Errno::EAGAIN);
        };
        self.transport.start(slot, operation, args);
        self.jobs.push(Job {
            owner: Some(task),
            operation,
            args,
            slot,
            is_notified: false,
        });
        Ok(self.jobs.len() - 1)
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
        self.woken.append(&mut self.late);
    }

    /// Whether requests are in flight.
    pub fn is_busy(&self) -> bool {
        self.jobs.iter().any(|job| !job.is_notified)
    }

    /// Whether there are answers that were not processed.
    pub fn is_pending(&self) -> bool {
        let is_new = |job: &Job| !job.is_notified && self.transport.has_answer(job.slot);
        self.jobs.iter().any(is_new)
    }

    /// Processes answers.
    pub fn poll(&mut self) {
        self.transport.begin();
        let mut at = 0;
        while let Some(job) = self.jobs.get_mut(at) {
            let is_new = !job.is_notified && self.transport.has_answer(job.slot);
            match job.owner {
                None if is_new => {
                    self.drop_job(at);
                    continue;
                }
                Some(owner) if is_new => {
                    job.is_notified = true;
                    self.woken.push(owner);
                }
                _ => {}
            }
            at += 1;
        }
        if !self.is_busy() {
            self.woken.append(&mut self.late);
        }
    }

    /// Asks for an interrupt at the next answer. Returns whether there is one already.
    pub fn want_interrupt(&self) -> bool {
        self.transport.want_interrupt();
        self.is_pending()
    }

    /// Whether requests of any task have made progress since the last
    /// [`take_woken`](Self::take_woken).
    #[inline]
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Moves the tasks whose requests have made progress since the last call to `to`.
    pub fn take_woken(&mut self, to: &mut Vec<u32>) {
        to.append(&mut self.woken);
    }

    /// Drops the requests of `owner`. The host still completes those in flight.
    #[inline]
    pub fn forget(&mut self, owner: u32) {
        if self.jobs.is_empty() && self.late.is_empty() {
            return;
        }
        self.late.retain(|&other| other != owner);
        let mut at = 0;
        while let Some(job) = self.jobs.get_mut(at) {
            if job.owner == Some(owner) {
                job.owner = None;
                if self.transport.has_answer(job.slot) {
                    self.drop_job(at);
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Drops a complete request.
    fn drop_job(&mut self, at: usize) {
        let slot = self.jobs.swap_remove(at).slot;
        // No task is left to report an error to.
        let _ = self.transport.take(slot, UserSliceMut::default());
        self.release(slot);
    }
}

#[cfg(test)]
mod tests;
