//! seccomp filters: which system calls each kind of thread may make. The policy is
//! `policy.json`, in the format of the seccompiler crate.

use crate::confine::{Confine, Thread};
use seccompiler::{BpfMap, BpfProgram, TargetArch};
use serde_json::Value;

const POLICY: &str = include_str!("policy.json");
/// Makes `clone3` look as if the kernel had none, so that the C library uses `clone`,
/// whose flags can be checked.
const NO_CLONE3: &str = "no_clone3";

/// Kinds of jailed processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs one VM.
    Vmm,
    /// Runs one VM that has volumes: some system calls on files more.
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

    /// Its name on the command line and in the policy.
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

/// Why threads cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The policy, or the kernel, which may have no seccomp.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The policy is no JSON.
    #[error("the policy: {0}")]
    Json(#[from] serde_json::Error),
    /// The policy has no filter of this name.
    #[error("the policy has no filter {0}")]
    Missing(&'static str),
}

/// The compiled policy.
#[derive(Debug)]
pub struct Filters(BpfMap);

impl Filters {
    /// Compiles the policy.
    ///
    /// # Errors
    /// It is wrong: a mistake of ours.
    pub fn compile() -> Result<Self, FilterError> {
        let policy = serde_json::to_vec(&policy()?)?;
        let map = seccompiler::compile_from_json(&policy[..], TargetArch::x86_64)?;
        let filters = Self(map);
        filters.get(NO_CLONE3)?;
        for role in Role::ALL {
            filters.get(role.name())?;
        }
        for thread in Thread::ALL {
            filters.get(name(thread))?;
        }
        Ok(filters)
    }

    /// Confines the calling thread, and all that it starts from now on, to what a process
    /// of this role needs.
    ///
    /// # Errors
    /// The kernel has no seccomp.
    pub fn confine_process(&self, role: Role) -> Result<(), FilterError> {
        seccompiler::apply_filter(self.get(NO_CLONE3)?)?;
        seccompiler::apply_filter(self.get(role.name())?)?;
        Ok(())
    }

    fn get(&self, name: &'static str) -> Result<&BpfProgram, FilterError> {
        self.0.get(name).ok_or(FilterError::Missing(name))
    }
}

/// The policy, with the filter of a VMM that has volumes, which may do what its threads may.
fn policy() -> Result<Value, FilterError> {
    let mut policy: Value = serde_json::from_str(POLICY)?;
    let mut filter = policy[Role::Vmm.name()].clone();
    let more = policy[name(Thread::Volumes)]["filter"].as_array().cloned();
    if let (Some(rules), Some(more)) = (filter["filter"].as_array_mut(), more) {
        rules.extend(more);
        policy[Role::VmmWithVolumes.name()] = filter;
    }
    Ok(policy)
}

/// Name of a thread's filter.
fn name(thread: Thread) -> &'static str {
    match thread {
        Thread::Vcpu => "vcpu",
        Thread::Console => "console",
        Thread::Volumes => "volumes",
        Thread::Network => "network",
    }
}

impl Confine for Filters {
    fn confine(&self, thread: Thread) {
        let applied = self
            .get(name(thread))
            .and_then(|filter| Ok(seccompiler::apply_filter(filter)?));
        if applied.is_err() {
            // The process may make more system calls than this thread may.
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
}
