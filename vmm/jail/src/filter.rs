//! seccomp filters: the system calls that each kind of thread may make, by the
//! [policy](super::policy). [`super::violation`] handles all other calls.

use super::policy::{Policy, Rule};
use hartline_vmm::confine::{Confine, Thread};
use seccompiler::{BpfMap, BpfProgram, TargetArch};
use serde_json::{Value, json};
use std::io;

/// The filter of the calls that end the process at once.
const KILLED: &str = "killed";

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
    /// The policy could not be compiled.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The policy is not valid JSON.
    #[error("the policy: {0}")]
    Json(#[from] serde_json::Error),
    /// The policy has no filter of this name.
    #[error("the policy has no filter {0}")]
    Missing(&'static str),
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
    pub const ALL: [Self; 8] = [
        Self::Role(Role::Vmm),
        Self::Role(Role::VmmWithVolumes),
        Self::Role(Role::Worker),
        Self::Role(Role::VolumeWorker),
        Self::Thread(Thread::Vcpu),
        Self::Thread(Thread::Console),
        Self::Thread(Thread::Volumes),
        Self::Thread(Thread::Network),
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
        }
    }

    /// The kind's number in the kernel's `SIGSYS` information (`SECCOMP_RET_DATA`).
    pub(super) fn data(self) -> i32 {
        (1..)
            .zip(Self::ALL)
            .find(|(_, kind)| *kind == self)
            .map_or(0, |(number, _)| number)
    }

    /// The kind with this [number](Self::data).
    pub(super) fn from_data(data: i32) -> Option<Self> {
        let kind = (1..).zip(Self::ALL).find(|(number, _)| *number == data);
        kind.map(|(_, kind)| kind)
    }
}

/// The compiled policy.
#[derive(Debug)]
pub struct Filters(BpfMap);

impl Filters {
    /// Compiles the policy.
    ///
    /// # Errors
    /// The policy is invalid: a bug in it.
    pub fn compile() -> Result<Self, FilterError> {
        let policy = serde_json::to_vec(&filters()?)?;
        let mut map = seccompiler::compile_from_json(&policy[..], TargetArch::x86_64)?;
        for kind in Kind::ALL {
            let filter = map.get_mut(kind.name());
            name_in_traps(filter.ok_or(FilterError::Missing(kind.name()))?, kind);
        }
        let filters = Self(map);
        filters.get(KILLED)?;
        Ok(filters)
    }

    /// Confines the calling thread, and all threads that it starts from now on, to the system calls
    /// of this role.
    ///
    /// # Errors
    /// The kernel has no seccomp.
    pub fn confine_process(&self, role: Role) -> Result<(), FilterError> {
        apply(self.get(KILLED)?, libc::SECCOMP_FILTER_FLAG_LOG)?;
        self.confine_to(Kind::Role(role))
    }

    fn confine_to(&self, kind: Kind) -> Result<(), FilterError> {
        let names = (0..).map(|number| refusal_name(kind, number));
        for filter in names.map_while(|name| self.0.get(&name)) {
            apply(filter, 0)?;
        }
        apply(self.get(kind.name())?, libc::SECCOMP_FILTER_FLAG_LOG)
    }

    fn get(&self, name: &'static str) -> Result<&BpfProgram, FilterError> {
        self.0.get(name).ok_or(FilterError::Missing(name))
    }
}

/// Name of one of the filters that refuse calls to a kind of thread.
fn refusal_name(kind: Kind, number: usize) -> String {
    format!("{} refuses {number}", kind.name())
}

/// Adds a filter to the filters of the calling thread, which needs `no_new_privs`.
fn apply(filter: &BpfProgram, flags: libc::c_ulong) -> Result<(), FilterError> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| FilterError::Length)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` points at the instructions of `filter`, of the length that it says. Both
    // outlive the call; the kernel copies the instructions and never writes them.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0 => Ok(()),
        _ => Err(FilterError::Kernel(io::Error::last_os_error())),
    }
}

/// Makes the kernel report in a `SIGSYS` which filter sent it.
fn name_in_traps(filter: &mut BpfProgram, kind: Kind) {
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let data = kind.data().unsigned_abs();
    for instruction in filter {
        if u32::from(instruction.code) == RETURN && instruction.k == libc::SECCOMP_RET_TRAP {
            instruction.k |= data & libc::SECCOMP_RET_DATA;
        }
    }
}

/// The filters of the policy, in the format of the seccompiler crate.
fn filters() -> Result<Value, FilterError> {
    let policy = Policy::read()?;
    let filter = |mismatch: Value, matches: Value, rules: &[Rule]| json!({"mismatch_action": mismatch, "match_action": matches, "filter": rules});
    let mut filters = serde_json::Map::new();
    let killed = filter(json!("allow"), json!("kill_process"), &policy.killed);
    filters.insert(KILLED.to_owned(), killed);
    for kind in Kind::ALL {
        let mut rules = policy.rules(kind);
        for (number, refused) in policy.refused(kind).enumerate() {
            let action = json!({"errno": refused.errno});
            let refusal = filter(json!("allow"), action, &refused.calls);
            filters.insert(refusal_name(kind, number), refusal);
            // A trap would take precedence over the error.
            rules.extend_from_slice(&refused.calls);
        }
        let filter = filter(json!("trap"), json!("allow"), &rules);
        filters.insert(kind.name().to_owned(), filter);
    }
    Ok(filters.into())
}

impl Confine for Filters {
    fn confine(&self, thread: Thread) {
        if self.confine_to(Kind::Thread(thread)).is_err() {
            // The process's filter may allow calls that this thread must not make.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_complete() {
        Filters::compile().unwrap();
    }

    #[test]
    fn roles_have_names() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
    }

    #[test]
    fn kinds_have_numbers() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_data(kind.data()), Some(kind));
        }
        assert_eq!(Kind::from_data(0), None);
    }
}
