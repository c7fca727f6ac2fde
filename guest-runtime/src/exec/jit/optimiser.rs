//! LLVM's translations of code that programs made: which code is hot, and the requests for it.
//!
//! The VMM's ticks sample the baseline translator's code. When several samples are in one part of it, the
//! runtime sends the bytes of the function there to the VMM, which translates them beside the program.
//! If the memory still has these bytes when the translation comes, its entries are used in place of the
//! baseline translator's.

use super::{Jit, LONGEST, Placed, Room, cost, function_at, is_unchanged, jit_arguments};
use crate::arch::host::Host;
use crate::convert::{low_u32, to_usize};
use crate::exec::images::Image;
use crate::mm::AddressSpace;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::call::{Operation, jit_request};
use hartline_abi::image::variant;
use hartline_linux::errno::Errno;

/// Samples in a part, 10 ms each, before LLVM translates the function there, besides those for its length.
const FEWEST: u32 = 2;
/// Bytes that LLVM translates between two samples. A translation is requested when the program has spent
/// as much time in the part as the translation takes: it is not kept for the next run, and the program may
/// use all processors.
const BYTES_PER_SAMPLE: u64 = 256;
/// Each request for a part needs this many times the samples of the one before it: its code changes, or
/// LLVM's translation does not serve where execution is.
const PATIENCE: u32 = 4;
/// The longest code that LLVM translates at once, bytes.
const LONGEST_OPTIMISED: u64 = 8 << 10;
/// Number of parts that are counted at once.
const COUNTERS: usize = 512;

/// The samples of a part.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// Where the part starts.
    start: u64,
    samples: u32,
    /// The samples at which its length is looked at.
    wanted: u32,
    /// The factor of the samples that it needs.
    factor: u32,
}

impl Counter {
    const EMPTY: Self = Self {
        start: 0,
        samples: 0,
        wanted: FEWEST,
        factor: 1,
    };

    /// Whether the samples are enough for a function of `length` bytes. If they are, the next ones need
    /// more.
    fn is_hot(&mut self, length: u64) -> bool {
        let needed = FEWEST.saturating_add(low_u32(length / BYTES_PER_SAMPLE));
        let needed = needed.saturating_mul(self.factor);
        let is_hot = self.samples >= needed;
        if is_hot {
            self.factor = self.factor.saturating_mul(PATIENCE);
            self.samples = 0;
        }
        self.wanted = match is_hot {
            true => FEWEST.saturating_mul(self.factor),
            false => needed,
        };
        is_hot
    }
}

/// A requested translation.
#[derive(Debug)]
struct Pending {
    /// The VMM's number for it.
    ticket: u64,
    /// Guest addresses of the code.
    range: Range<u64>,
    code: Box<[u8]>,
    variant: u32,
}

/// The result of a sample.
#[derive(Debug)]
pub(crate) enum Sampled {
    /// It was counted, and LLVM's translation requested if the code is hot.
    Counted,
    /// Translations must be taken before others can be requested.
    Busy,
    /// There is LLVM's translation of the code, which the process does not use yet.
    Known(Image),
}

/// The samples, and the requests.
#[derive(Debug)]
pub(super) struct Optimiser {
    counters: Box<[Counter; COUNTERS]>,
    /// Oldest first.
    pending: Vec<Pending>,
    /// The VMM does this.
    is_on: bool,
}

impl Default for Optimiser {
    fn default() -> Self {
        Self {
            counters: Box::new([Counter::EMPTY; COUNTERS]),
            pending: Vec::new(),
            is_on: true,
        }
    }
}

impl Optimiser {
    /// Counts a sample in the part that starts at `start`. Returns whether it is time to look at its length.
    fn count(&mut self, start: u64) -> bool {
        let counter = &mut self.counters[to_usize(start >> 1) % COUNTERS];
        if counter.start != start {
            *counter = Counter {
                start,
                ..Counter::EMPTY
            };
        }
        counter.samples += 1;
        counter.samples >= counter.wanted
    }

    /// Whether the samples in the part that starts at `start` are enough for a function of `length` bytes.
    fn is_hot(&mut self, start: u64, length: usize) -> bool {
        let counter = &mut self.counters[to_usize(start >> 1) % COUNTERS];
        counter.is_hot(length as u64)
    }

    /// Forgets the requests: their code is placed nowhere any more.
    pub fn forget(&mut self) {
        self.pending.clear();
    }
}

impl Jit {
    /// Counts a sample at `pc` in the baseline translator's code of a process that uses `variant`, in
    /// executable memory `mapped`, and requests LLVM's translation if the code is hot.
    pub fn sample(
        &mut self,
        host: Host,
        memory: &mut AddressSpace,
        (pc, variant): (u64, u32),
        mapped: &Range<u64>,
    ) -> Sampled {
        if !self.optimiser.is_on {
            return Sampled::Counted;
        }
        let start = self.start_of_part(pc, variant, mapped);
        let Some(start) = start.filter(|&start| self.optimiser.count(start)) else {
            return Sampled::Counted;
        };
        // Another process with the same code may have requested it.
        let known = self.known(memory, (pc, variant), mapped);
        if let Some(image) = known.filter(|image| !image.is_baseline()) {
            return Sampled::Known(image);
        }
        let Ok((from, code)) = function_around(memory, start, pc, mapped.end) else {
            return Sampled::Counted;
        };
        if !self.optimiser.is_hot(start, code.len()) {
            return Sampled::Counted;
        }
        match self.request(host, (from, code), pc, variant) {
            Err(Errno::EAGAIN) => Sampled::Busy,
            // After another error the program goes on with the code that it has.
            Ok(()) | Err(_) => Sampled::Counted,
        }
    }

    /// The first address of the code around `pc` that the baseline translator has translated at once.
    fn start_of_part(&self, pc: u64, variant: u32, mapped: &Range<u64>) -> Option<u64> {
        let variant = variant::baseline_of(variant);
        let first = pc.saturating_sub(LONGEST).max(mapped.start);
        let mut parts = self.entries.range(first..=pc).flat_map(|(_, parts)| parts);
        let part =
            parts.find(|part| part.range.contains(&pc) && part.image.variant() == variant)?;
        Some(part.range.start.max(first))
    }

    /// Requests LLVM's translation of the function that starts at `start`, in executable memory up to `end`.
    ///
    /// # Errors
    /// As [`request`](Self::request). `EFAULT`: the code is not readable.
    pub fn optimise(
        &mut self,
        host: Host,
        memory: &mut AddressSpace,
        (start, variant): (u64, u32),
        end: u64,
    ) -> Result<(), Errno> {
        let code = function_around(memory, start, start, end)?;
        self.request(host, code, start, variant)
    }

    /// Requests LLVM's translation of code that is at an address, in which execution was at `pc`.
    ///
    /// # Errors
    /// `ENOMEM`: no room for the record. `EAGAIN`: translations must be taken first. `ENOENT`: LLVM does
    /// not translate such code here.
    fn request(
        &mut self,
        host: Host,
        (start, code): (u64, Vec<u8>),
        pc: u64,
        variant: u32,
    ) -> Result<(), Errno> {
        if code.is_empty() || self.left < cost(&code) {
            return Err(Errno::ENOMEM);
        }
        let mut entries = Vec::from([0, pc - start]);
        entries.dedup();
        let flags = jit_request::OPTIMISE;
        let mut args = jit_arguments(host, (start, &code), &entries, (variant, flags));
        let ticket = host.call(Operation::Jit, &mut args);
        self.optimiser.is_on = ticket != Err(Errno::ENOENT);
        self.optimiser.pending.push(Pending {
            ticket: ticket?,
            range: start..start + code.len() as u64,
            code: code.into(),
            variant,
        });
        Ok(())
    }

    /// Takes LLVM's next translation of code that `memory` has unchanged, if there is one.
    pub fn take(&mut self, host: Host, memory: &mut AddressSpace) -> Option<Image> {
        loop {
            let flags = self.flags()? | jit_request::TAKE;
            let (placed, ticket) = match Placed::by_call(host, &mut [0, 0, 0, 0, flags, 0]) {
                Ok(placed) => placed,
                Err(error) => {
                    if error == Errno::ENOSPC {
                        self.fill();
                    }
                    return None;
                }
            };
            (self.room, self.is_fresh) = (Room::Some, false);
            self.map(memory, &placed).ok()?;
            let requests = &mut self.optimiser.pending;
            let Some(index) = requests.iter().position(|known| known.ticket == ticket) else {
                continue;
            };
            // LLVM has failed for the ones before it.
            let Some(pending) = requests.drain(..=index).next_back() else {
                continue;
            };
            let Pending {
                range,
                code,
                variant,
                ..
            } = pending;
            let Some(image) = placed.image(range.clone(), variant, self.lease.clone()) else {
                continue;
            };
            let is_usable = is_unchanged(memory, range.start, &code);
            self.keep(range, code, image.clone());
            if is_usable {
                return Some(image);
            }
        }
    }
}

/// The bytes of the function that starts at `start`, in executable memory up to `end`, if `pc` is in it,
/// otherwise of the function that starts at `pc`; and where they start.
fn function_around(
    memory: &mut AddressSpace,
    start: u64,
    pc: u64,
    end: u64,
) -> Result<(u64, Vec<u8>), Errno> {
    let code = function_at(memory, start, end, LONGEST_OPTIMISED)?;
    if pc - start < code.len() as u64 {
        return Ok((start, code));
    }
    Ok((pc, function_at(memory, pc, end, LONGEST_OPTIMISED)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples until a function of `length` bytes is hot.
    fn until_hot(optimiser: &mut Optimiser, start: u64, length: usize) -> u32 {
        let is_hot = |_: &u32| optimiser.count(start) && optimiser.is_hot(start, length);
        (1..).find(is_hot).unwrap_or(0)
    }

    #[test]
    fn long_functions_and_repeated_requests_need_more_samples() {
        let mut optimiser = Optimiser::default();
        let mut until_hot = |start, length| until_hot(&mut optimiser, start, length);
        assert_eq!(until_hot(0x1000, 8), FEWEST);
        assert_eq!(until_hot(0x1000, 8), FEWEST * PATIENCE);
        assert_eq!(until_hot(0x2002, 2560), FEWEST + 10);
        assert_eq!(until_hot(0x2002, 2560), (FEWEST + 10) * PATIENCE);
        assert_eq!(until_hot(0x1000, 8), FEWEST * PATIENCE * PATIENCE);
        // Another part with the same counter begins anew.
        let other = 0x1000 + 2 * COUNTERS as u64;
        assert_eq!(until_hot(other, 8), FEWEST);
        assert_eq!(until_hot(0x1000, 8), FEWEST);
    }
}
