//! The identity of a task: users, groups and capabilities (`credentials(7)`, `capabilities(7)`),
//! and the rules by which calls and `execve` change them.

mod capabilities;
mod change;
mod execute;

pub use capabilities::Capabilities;
pub use execute::SetId;

use alloc::rc::Rc;
use hartline_linux::capability::{CAP_KILL, CAP_LAST_CAP};

/// Real, effective, saved and file system identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identifiers {
    /// Real.
    pub real: u32,
    /// Effective: the one that counts for most checks.
    pub effective: u32,
    /// Saved: the effective one may return to it.
    pub saved: u32,
    /// For access to files; it follows the effective one.
    pub files: u32,
}

impl Identifiers {
    /// The same identifier everywhere.
    #[must_use]
    pub const fn all(id: u32) -> Identifiers {
        Identifiers {
            real: id,
            effective: id,
            saved: id,
            files: id,
        }
    }
}

/// The identity of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub user: Identifiers,
    /// Group.
    pub group: Identifiers,
    /// Supplementary groups, in ascending order.
    pub groups: Rc<[u32]>,
    /// Capabilities that count for checks.
    pub effective: Capabilities,
    /// Capabilities that can become effective.
    pub permitted: Capabilities,
    /// Capabilities that a program file with the same inheritable ones keeps.
    pub inheritable: Capabilities,
    /// Capabilities that any program file keeps.
    pub ambient: Capabilities,
    /// Capabilities that `execve` can give.
    pub bounding: Capabilities,
    /// `SECBIT_…`.
    pub securebits: u32,
}

impl Credentials {
    /// A user without supplementary groups; root with all capabilities.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Credentials {
        let own = match uid {
            0 => Capabilities::ALL,
            _ => Capabilities::NONE,
        };
        Credentials {
            user: Identifiers::all(uid),
            group: Identifiers::all(gid),
            groups: Rc::default(),
            effective: own,
            permitted: own,
            inheritable: Capabilities::NONE,
            ambient: Capabilities::NONE,
            bounding: Capabilities::ALL,
            securebits: 0,
        }
    }

    /// The identity of the superuser.
    #[must_use]
    pub fn root() -> Credentials {
        Credentials::new(0, 0)
    }

    /// Whether a capability, one of `CAP_…`, is effective.
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        debug_assert!(capability <= CAP_LAST_CAP);
        self.effective.has(capability)
    }

    /// Whether `gid` is the group for files, or a supplementary one.
    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.group.files == gid || self.groups.binary_search(&gid).is_ok()
    }

    /// Whether `gid` is the effective group, or a supplementary one.
    #[must_use]
    pub fn is_in_effective_group(&self, gid: u32) -> bool {
        self.group.effective == gid || self.groups.binary_search(&gid).is_ok()
    }

    /// Whether a task with these credentials may send a signal to one with `target`'s (`kill(2)`).
    #[must_use]
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let own = [self.user.effective, self.user.real];
        let targets = [target.user.saved, target.user.real];
        own.iter().any(|id| targets.contains(id)) || self.has(CAP_KILL)
    }
}

#[cfg(test)]
mod tests;
