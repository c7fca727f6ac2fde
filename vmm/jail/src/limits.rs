//! Resource limits of jailed processes, by their role.

use super::Role;

/// Most bytes that a VMM's files may have: its program's output.
pub const MAX_OUTPUT: u64 = 16 << 20;
/// Most bytes of a tree or image that a worker makes.
pub const MAX_WORKER_FILE: u64 = 4 << 30;

/// Resource limits of a process (setrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors.
    pub descriptors: u64,
    /// Processes and threads of its user.
    pub threads: u64,
    /// Address space, bytes.
    pub address_space: u64,
    /// Processor time, seconds.
    pub processor_time: u64,
    /// Length of files that it writes, bytes.
    pub file_length: u64,
}

impl Limits {
    /// The limits of processes with a role.
    #[must_use]
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Vmm => VMM,
            Role::VmmWithVolumes => VMM_WITH_VOLUMES,
            Role::Worker => WORKER,
            Role::VolumeWorker => VOLUME_WORKER,
        }
    }
}

/// Limits of a VMM. Its address space contains the guest's memory, up to 252 GiB, the images, and
/// its own memory; only touched memory is allocated, and most of it is the guest's.
const VMM: Limits = Limits {
    descriptors: 1024,
    threads: 512,
    address_space: 512 << 30,
    processor_time: libc::RLIM_INFINITY,
    file_length: MAX_OUTPUT,
};

/// Limits of a VMM that has volumes, or leaves a core dump. What those may hold is looked after where
/// they are served or written, and the program's output where that is written.
const VMM_WITH_VOLUMES: Limits = Limits {
    descriptors: 16 << 10,
    file_length: libc::RLIM_INFINITY,
    ..VMM
};

/// Limits of a worker: translation takes some kilobytes of memory for each instruction.
const WORKER: Limits = Limits {
    descriptors: 64,
    threads: 64,
    address_space: 8 << 30,
    processor_time: 3600,
    file_length: MAX_WORKER_FILE,
};

/// Limits of a worker with a volume. It writes no files.
const VOLUME_WORKER: Limits = Limits {
    descriptors: 64,
    threads: 4,
    address_space: 1 << 30,
    processor_time: 3600,
    file_length: 0,
};
