//! seccomp filters: the system calls that each kind of thread may make, by the policy
//! (`policy.json`), which the build script compiles. [`super::violation`] handles all other calls.

use hartline_vmm::confine::{Confine, Thread};
use libc::sock_filter;
use std::io;

/// The filter of the calls that end the process at once.
const KILLED: &str = "killed";
/// Between the name of a kind of thread and a number, in the name of a filter that refuses calls.
const REFUSES: &str = " refuses ";
/// The compiled filters, by name.
const PROGRAMS: &[(&str, &[sock_filter])] = include!(concat!(env!("OUT_DIR"), "/filters.rs"));

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Kinds of jailed processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs one VM.
    Vmm,
    /// Runs one VM that has volumes: may make some more system calls on files.
    VmmWithVolumes,
    /// Packs a file system, or translates one file.
    Worker,
    /// Measures or empties one volume.
    VolumeWorker,
}

impl Role {
    const ALL: [Self; 4] = [
        Self::Vmm,
        Self::VmmWithVolumes,
        Self::Worker,
        Self::VolumeWorker,
    ];

    /// The role's name on the command line and in the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vmm => "vmm",
            Self::VmmWithVolumes => "vmm_with_volumes",
            Self::Worker => "worker",
            Self::VolumeWorker => "volume_worker",
        }
    }

    /// The role of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The reason why threads cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A filter has more instructions than the kernel accepts.
    #[error("a filter of the policy is too long")]
    Length,
    /// The kernel refuses a filter.
    #[error("seccomp: {0}")]
    Kernel(io::Error),
}

/// The subject of a filter: a kind of process, or a kind of thread in a VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All threads of a process without a separate filter.
    Role(Role),
    /// A thread of a VMM.
    Thread(Thread),
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Role(Role::Vmm),
        Self::Role(Role::VmmWithVolumes),
        Self::Role(Role::Worker),
        Self::Role(Role::VolumeWorker),
        Self::Thread(Thread::Vcpu),
        Self::Thread(Thread::Console),
        Self::Thread(Thread::Volumes),
        Self::Thread(Thread::Network),
        Self::Thread(Thread::Spawn),
        Self::Thread(Thread::ResetVcpu),
    ];

    /// The kind's name in the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Role(role) => role.name(),
            Self::Thread(Thread::Vcpu) => "vcpu",
            Self::Thread(Thread::Console) => "console",
            Self::Thread(Thread::Volumes) => "volumes",
            Self::Thread(Thread::Network) => "network",
            Self::Thread(Thread::Spawn) => "spawn",
            Self::Thread(Thread::ResetVcpu) => "reset_vcpu",
        }
    }

    /// The kind with this number in the kernel's `SIGSYS` information (`SECCOMP_RET_DATA`).
    pub(super) fn from_data(data: i32) -> Option<Self> {
        let index = usize::try_from(data).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
    }
}

/// The compiled policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filters;

impl Filters {
    /// Confines the calling thread, and all threads that it starts from now on, to the system calls
    /// of this role.
    ///
    /// # Errors
    /// The kernel has no seccomp.
    pub fn confine_process(self, role: Role) -> Result<(), FilterError> {
        apply(KILLED, libc::SECCOMP_FILTER_FLAG_LOG)?;
        confine_to(Kind::Role(role))
    }
}

fn confine_to(kind: Kind) -> Result<(), FilterError> {
    let refusals = PROGRAMS.iter().filter(|(name, _)| {
        let rest = name.strip_prefix(kind.name());
        rest.is_some_and(|rest| rest.starts_with(REFUSES))
    });
    for (name, _) in refusals {
        apply(name, 0)?;
    }
    apply(kind.name(), libc::SECCOMP_FILTER_FLAG_LOG)
}

/// Adds a filter to the filters of the calling thread, which needs `no_new_privs`.
fn apply(name: &str, flags: libc::c_ulong) -> Result<(), FilterError> {
    let found = PROGRAMS.iter().find(|(candidate, _)| *candidate == name);
    // There is one of each kind, as a test shows. The kernel would refuse an empty one.
    let filter = found.map_or(&[][..], |(_, instructions)| instructions);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| FilterError::Length)?,
        filter: filter.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` points at the instructions of `filter`, of the length that it says. Both
    // outlive the call; the kernel copies the instructions and never writes them.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        _ => Err(FilterError::Kernel(io::Error::last_os_error())),
    }
}

impl Confine for Filters {
    fn confine(&self, thread: Thread) {
        if confine_to(Kind::Thread(thread)).is_err() {
            // The process's filter may allow calls that this thread must not make.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{KINDS, Policy};

    #[test]
    fn each_kind_has_its_filter_and_its_number() {
        assert_eq!(Kind::ALL.map(Kind::name), KINDS);
        for name in KINDS.into_iter().chain([KILLED]) {
            let mut found = PROGRAMS.iter().filter(|(candidate, _)| *candidate == name);
            assert!(
                found.next().is_some_and(|(_, program)| program.len() > 4),
                "{name}"
            );
            assert!(found.next().is_none(), "{name}");
        }
        let all = Policy::read().unwrap().filters();
        let mut names: Vec<_> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        let mut expected: Vec<_> = all.as_object().unwrap().keys().collect();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        for (number, kind) in (1_i32..).zip(Kind::ALL) {
            assert_eq!(Kind::from_data(number), Some(kind));
            let (_, program) = PROGRAMS
                .iter()
                .find(|(name, _)| *name == kind.name())
                .unwrap();
            let trap = libc::SECCOMP_RET_TRAP | number.unsigned_abs();
            let is_trap = |line: &&sock_filter| {
                u32::from(line.code) == (libc::BPF_RET | libc::BPF_K) && line.k == trap
            };
            assert!(program.iter().any(|line| is_trap(&line)), "{}", kind.name());
        }
    }

    #[test]
    fn roles_have_names() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
    }

    #[test]
    fn other_numbers_are_no_kind() {
        let after = i32::try_from(Kind::ALL.len()).unwrap() + 1;
        for number in [-1, 0, after] {
            assert_eq!(Kind::from_data(number), None);
        }
    }
}
