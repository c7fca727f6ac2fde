//! The live counters of a VM, and the limits of its network interface, in memory that another
//! process may read and write: the daemon, which takes a duplicate of the file from the VMM.
//!
//! Little-endian words of 64 bits, in lines of `LINE` bytes. The first line has `VERSION`, the
//! requests of the volumes, and most bytes and packets per second in each direction of the network
//! interface. The limits are 0 if there are none, and the VMM only reads them. Then comes a line
//! for each vCPU: its exits, and the number of the descriptor by which the VMM has KVM's counters
//! open, 0 if it has none.

use crate::exits::{ExitReason, UserExits};
use crate::platform::{self, Mapping, memory_file};
use hartline_devices::limiter::Limits;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Version of the layout: a VMM may be older than the daemon that reads it.
const VERSION: u64 = 2;
/// The previous version, without limits.
const WITHOUT_LIMITS: u64 = 1;
/// Length of a line, bytes: a cache line, so that vCPUs do not wait for each other.
const LINE: usize = 64;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Offset of the volumes' requests.
const VOLUME_REQUESTS: usize = WORD;
/// Offset of the limits.
const NETWORK_LIMITS: usize = VOLUME_REQUESTS + WORD;
/// Offset of the descriptor's number in a vCPU's line.
const DESCRIPTOR: usize = ExitReason::COUNT * WORD;

const _: () = assert!(DESCRIPTOR + WORD <= LINE);

/// The counters in the VMM, which writes them.
#[derive(Debug)]
pub struct LiveCounters(Mapping);

impl LiveCounters {
    /// Makes the counters of `cpus` vCPUs. Result: also the file of the memory.
    ///
    /// # Errors
    /// If the host has no memory or descriptors left.
    pub fn new(cpus: u32) -> Result<(Self, File), platform::Error> {
        let mut contents = vec![0; LINE * (cpus as usize + 1)];
        contents[..WORD].copy_from_slice(&VERSION.to_le_bytes());
        let file = memory_file(c"hartline-counters", &contents);
        let file = file.map_err(|source| platform::Error::Request {
            request: "memfd_create",
            source,
        })?;
        let mapping = Mapping::shared_file("counters", &file, contents.len() as u64)?;
        Ok((Self(mapping), file))
    }

    /// Sets the number of exits of a vCPU.
    pub fn set_exits(&self, cpu: usize, exits: &UserExits) {
        for (number, count) in exits.0.into_iter().enumerate() {
            self.set(line(cpu) + number * WORD, count);
        }
    }

    /// Sets the descriptor that KVM's counters of a vCPU are open at.
    pub fn set_descriptor(&self, cpu: usize, descriptor: RawFd) {
        self.set(
            line(cpu) + DESCRIPTOR,
            u64::try_from(descriptor).unwrap_or(0),
        );
    }

    /// Sets the number of requests to the volumes.
    pub fn set_volume_requests(&self, count: u64) {
        self.set(VOLUME_REQUESTS, count);
    }

    /// Sets the limits of the network interface.
    pub fn set_network_limits(&self, limits: [u64; 2]) {
        for (number, limit) in limits.into_iter().enumerate() {
            self.set(NETWORK_LIMITS + number * WORD, limit);
        }
    }

    /// The exits of a vCPU.
    #[must_use]
    pub fn exits(&self, cpu: usize) -> UserExits {
        let mut exits = UserExits::default();
        for (number, count) in exits.0.iter_mut().enumerate() {
            let at = (line(cpu) + number * WORD) as u64;
            let word: Result<&AtomicU64, _> = self.0.atomic_u64(at);
            *count = word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)));
        }
        exits
    }

    fn set(&self, at: usize, value: u64) {
        // A vCPU without a line is not counted.
        let word: Result<&AtomicU64, _> = self.0.atomic_u64(at as u64);
        if let Ok(word) = word {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }
}

impl Limits for LiveCounters {
    fn get(&self) -> [u64; 2] {
        [0, WORD].map(|word| {
            let at = (NETWORK_LIMITS + word) as u64;
            // The first line always exists.
            let word: Result<&AtomicU64, _> = self.0.atomic_u64(at);
            word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
        })
    }
}

/// Changes the limits of the network interface of the VM whose counters are in `file`.
///
/// # Errors
/// The file has no limits, because it is of another version; or any I/O error of the host.
pub fn write_network_limits(file: &File, limits: [u64; 2]) -> io::Result<()> {
    let mut version = [0; WORD];
    file.read_exact_at(&mut version, 0)?;
    if u64::from_le_bytes(version) != VERSION {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let bytes = limits.map(u64::to_le_bytes).concat();
    file.write_all_at(&bytes, NETWORK_LIMITS as u64)
}

fn line(cpu: usize) -> usize {
    LINE * (cpu + 1)
}

/// The counters at one time. A compromised VMM may have written any values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Exits of all vCPUs to the VMM.
    pub exits: UserExits,
    /// Descriptors of the VMM that KVM's counters of its vCPUs are open at. If the VMM could not
    /// open some, they are missing.
    pub descriptors: Vec<RawFd>,
    /// Requests of the guest to its volumes.
    pub volume_requests: u64,
}

impl Live {
    /// Reads the counters of a VM with `cpus` vCPUs.
    ///
    /// # Errors
    /// The file is too short, or of another version.
    pub fn read(file: &File, cpus: u32) -> io::Result<Self> {
        let mut bytes = vec![0; LINE * (cpus as usize + 1)];
        file.read_exact_at(&mut bytes, 0)?;
        let word = |at: usize| {
            let mut word = [0; WORD];
            word.copy_from_slice(&bytes[at..at + WORD]);
            u64::from_le_bytes(word)
        };
        if ![VERSION, WITHOUT_LIMITS].contains(&word(0)) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut live = Self {
            volume_requests: word(VOLUME_REQUESTS),
            ..Self::default()
        };
        for cpu in 0..cpus as usize {
            let count = |number| word(line(cpu) + number * WORD);
            let exits = UserExits(std::array::from_fn(count));
            live.exits = live.exits.plus(exits);
            let descriptor = RawFd::try_from(word(line(cpu) + DESCRIPTOR));
            live.descriptors.extend(descriptor.ok().filter(|&n| n > 0));
        }
        Ok(live)
    }
}

/// Exits for each operation (packet, request), without the exits for the host's own interrupts;
/// `None` if there was no operation.
#[must_use]
pub fn exits_per_operation(exits: u64, host_interrupts: u64, operations: u64) -> Option<f64> {
    let exits = exits.saturating_sub(host_interrupts);
    (operations > 0).then(|| exits as f64 / operations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (counters, file) = LiveCounters::new(2).unwrap();
        let [first, second] = [[1, 2, 3, 4, 5, 6, 7], [10, 20, 30, 40, 50, 60, u64::MAX]];
        counters.set_exits(0, &UserExits(first));
        counters.set_exits(1, &UserExits(second));
        counters.set_exits(64, &UserExits(second));
        counters.set_descriptor(1, 17);
        counters.set_volume_requests(9);
        let live = Live::read(&file, 2).unwrap();
        let sum = [11, 22, 33, 44, 55, 66, u64::MAX];
        assert_eq!(live.exits.0, sum);
        assert_eq!((live.descriptors, live.volume_requests), (vec![17], 9));
        assert!(Live::read(&file, 64).is_err(), "too short");
    }

    #[test]
    fn limits_are_changed_from_outside() {
        let (counters, file) = LiveCounters::new(1).unwrap();
        assert_eq!(counters.get(), [0; 2]);
        counters.set_network_limits([5, 6]);
        counters.set_volume_requests(9);
        assert_eq!(counters.get(), [5, 6]);
        write_network_limits(&file, [u64::MAX, 0]).unwrap();
        assert_eq!(counters.get(), [u64::MAX, 0]);
        assert_eq!(Live::read(&file, 1).unwrap().volume_requests, 9);
    }

    #[test]
    fn other_versions_are_refused() {
        let file = memory_file(c"counters", &[7; LINE * 2]).unwrap();
        assert!(Live::read(&file, 1).is_err());
        assert!(write_network_limits(&file, [1, 1]).is_err());
        let mut before = [0; LINE * 2];
        before[0] = 1;
        let file = memory_file(c"counters", &before).unwrap();
        assert!(Live::read(&file, 1).is_ok());
        assert!(write_network_limits(&file, [1, 1]).is_err());
    }

    #[test]
    fn exits_are_divided_by_operations() {
        assert_eq!(exits_per_operation(30, 10, 80), Some(0.25));
        assert_eq!(exits_per_operation(3, 10, 80), Some(0.0));
        assert_eq!(exits_per_operation(30, 10, 0), None);
    }
}
