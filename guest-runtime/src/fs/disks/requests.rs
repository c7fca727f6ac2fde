//! The requests of one disk: their owners, states and results.

use super::{Disk, SECTOR};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_linux::errno::Errno;

/// A request to a disk. Positions and counts are in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Read contents.
    Read {
        /// First sector.
        sector: u64,
        /// Number of sectors.
        count: usize,
    },
    /// Write contents.
    Write {
        /// First sector.
        sector: u64,
        /// Number of sectors.
        count: usize,
    },
    /// Make earlier writes durable.
    Flush,
    /// Discard contents.
    Discard {
        /// First sector.
        sector: u64,
        /// Number of sectors.
        count: usize,
    },
}

impl Request {
    /// The sectors that the request changes.
    fn changes(self) -> Range<u64> {
        match self {
            Self::Write { sector, count } | Self::Discard { sector, count } => {
                sector..sector + count as u64
            }
            Self::Read { .. } | Self::Flush => 0..0,
        }
    }
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In flight.
    Runs,
    /// A sector is being read, of which these bytes are replaced: the first, and the count. The new
    /// bytes are one sector further on in the buffer.
    Fills(usize, usize),
    /// Completed.
    Done(Result<(), Errno>),
}

#[derive(Debug)]
struct Job {
    /// The task that waits for the request; none if it no longer does.
    owner: Option<u32>,
    request: Request,
    /// The slot of its data, while there is one.
    slot: Option<u16>,
    state: State,
}

impl Job {
    fn is(&self, owner: u32, request: Request) -> bool {
        self.owner == Some(owner) && self.request == request
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }
}

/// The requests of a disk.
#[derive(Debug)]
pub(super) struct Requests {
    disk: Box<dyn Disk>,
    jobs: Vec<Job>,
    /// Slots without a request.
    free: Vec<u16>,
    /// Number of requests in flight.
    running: usize,
    /// Tasks that could not submit a request.
    waiting: Vec<u32>,
    /// Tasks whose requests have made progress.
    woken: Vec<u32>,
}

impl Requests {
    pub fn new(disk: Box<dyn Disk>) -> Self {
        Self {
            free: (0..disk.slots()).collect(),
            disk,
            jobs: Vec::new(),
            running: 0,
            waiting: Vec::new(),
            woken: Vec::new(),
        }
    }

    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Submits a request for `owner`, unless the same one exists. `fill` puts data into the buffer,
    /// and returns the first state and the first request to the device. Returns false if the task
    /// must wait: all slots are in use, or another request changes the same sectors.
    pub fn begin(
        &mut self,
        owner: u32,
        request: Request,
        fill: impl FnOnce(&mut [u8]) -> (State, Request),
    ) -> bool {
        if self.jobs.iter().any(|job| job.is(owner, request)) {
            return true;
        }
        let new = request.changes();
        let overlaps = |old: Range<u64>| new.start < old.end && old.start < new.end;
        let is_late =
            (self.jobs.iter()).any(|job| !job.is_done() && overlaps(job.request.changes()));
        let slot = if is_late { None } else { self.take_slot(owner) };
        let Some(slot) = slot else {
            if !self.waiting.contains(&owner) {
                self.waiting.push(owner);
            }
            return false;
        };
        let (state, first) = fill(self.disk.buffer(slot));
        self.disk.submit(slot, first);
        self.running += 1;
        self.jobs.push(Job {
            owner: Some(owner),
            request,
            slot: Some(slot),
            state,
        });
        true
    }

    fn take_slot(&mut self, owner: u32) -> Option<u16> {
        if self.free.is_empty() && self.running == 0 {
            // All slots hold completions for tasks that do not fetch them, perhaps because they are
            // stopped. Drop one: its task will submit the request again.
            let is_kept = |job: &Job| job.slot.is_some() && job.owner != Some(owner);
            let job = self.jobs.iter().position(is_kept)?;
            return self.jobs.swap_remove(job).slot;
        }
        self.free.pop()
    }

    fn release(&mut self, slot: Option<u16>) {
        self.free.extend(slot);
        self.woken.append(&mut self.waiting);
    }

    /// Makes submitted requests visible to the device.
    pub fn publish(&mut self) {
        self.disk.publish();
    }

    /// Whether a request of `owner` is complete.
    pub fn is_done(&self, owner: u32, request: Request) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.any(|job| job.is(owner, request) && job.is_done())
    }

    /// Ends a completed request of `owner`; `copy` receives the data that was read.
    ///
    /// # Errors
    /// `EAGAIN` if the request is not complete; the error of the device.
    pub fn finish(
        &mut self,
        owner: u32,
        request: Request,
        copy: impl FnOnce(&[u8]),
    ) -> Result<(), Errno> {
        let is_it = |job: &Job| job.is(owner, request) && job.is_done();
        let at = self.jobs.iter().position(is_it).ok_or(Errno::EAGAIN)?;
        let job = self.jobs.swap_remove(at);
        if let Some(slot) = job.slot {
            copy(self.disk.buffer(slot));
            self.release(Some(slot));
        }
        match job.state {
            State::Done(result) => result,
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Whether requests are in flight.
    pub fn is_busy(&self) -> bool {
        self.running > 0
    }

    /// Whether there are completions that were not processed.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.running > 0 && self.disk.has_done()
    }

    /// Processes completions.
    pub fn poll(&mut self) {
        self.disk.begin();
        let mut more = false;
        while self.running > 0
            && let Some((slot, result)) = self.disk.take()
        {
            let is_it = |job: &Job| job.slot == Some(slot) && !job.is_done();
            let Some(at) = self.jobs.iter().position(is_it) else {
                continue;
            };
            let job = &mut self.jobs[at];
            if let (State::Fills(from, length), Ok(())) = (job.state, result) {
                let patch = SECTOR + from;
                let buffer = self.disk.buffer(slot);
                buffer.copy_within(patch..patch + length, from);
                job.state = State::Runs;
                self.disk.submit(slot, job.request);
                more = true;
                continue;
            }
            self.running -= 1;
            job.state = State::Done(result);
            let has_data = matches!(job.request, Request::Read { .. }) && result.is_ok();
            let owner = job.owner;
            if owner.is_none() || !has_data {
                let slot = job.slot.take();
                self.release(slot);
            }
            match owner {
                Some(owner) => self.woken.push(owner),
                None => drop(self.jobs.swap_remove(at)),
            }
        }
        if more {
            self.disk.publish();
        }
        if self.running == 0 {
            self.woken.append(&mut self.waiting);
        }
    }

    /// Asks for an interrupt at the next completion. Returns whether there is one already.
    pub fn want_interrupt(&mut self) -> bool {
        self.disk.want_interrupt()
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

    /// Drops the requests of `owner`. The device still completes those in flight.
    #[inline]
    pub fn forget(&mut self, owner: u32) {
        if !self.jobs.is_empty() || !self.waiting.is_empty() {
            self.forget_all(owner);
        }
    }

    fn forget_all(&mut self, owner: u32) {
        self.waiting.retain(|&other| other != owner);
        let mut at = 0;
        while let Some(job) = self.jobs.get_mut(at) {
            if job.owner != Some(owner) {
                at += 1;
            } else if job.is_done() {
                let slot = self.jobs.swap_remove(at).slot;
                self.release(slot);
            } else {
                job.owner = None;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
impl Requests {
    /// Slots without a request.
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }
}
