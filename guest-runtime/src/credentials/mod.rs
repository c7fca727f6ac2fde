//! The identity of a task: users, groups and capabilities (`credentials(7)`, `capabilities(7)`),
//! and the rules by which calls and `execve` change them.

mod capabilities;
mod change;
mod execute;

pub use capabilities::Capabilities;
pub use execute::SetId;

use alloc::rc::Rc;
use hartline_linux::capability::{
    CAP_KILL, CAP_LAST_CAP, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_PTRACE,
    CAP_SYS_RESOURCE,
};
use hartline_linux::securebits::SECBIT_NO_SETUID_FIXUP;

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

    /// User and group of the files that a task creates.
    #[must_use]
    pub fn file_owner(&self) -> (u32, u32) {
        (self.user.files, self.group.files)
    }

    /// The identity with which `access(2)` checks permissions, that of the real user and group; none
    /// if it is the same.
    #[must_use]
    pub fn of_real_user(&self) -> Option<Credentials> {
        let effective = match (self.securebits & SECBIT_NO_SETUID_FIXUP, self.user.real) {
            (0, 0) => self.permitted,
            (0, _) => Capabilities::NONE,
            _ => self.effective,
        };
        if self.file_owner() == (self.user.real, self.group.real) && effective == self.effective {
            return None;
        }
        let mut real = Credentials {
            effective,
            ..self.clone()
        };
        real.user.files = real.user.real;
        real.group.files = real.group.real;
        Some(real)
    }

    /// Whether a process that changes from `old` to these credentials has other or more rights, so
    /// that its memory may hold what others must not read.
    #[must_use]
    pub fn changes_rights(&self, old: &Credentials) -> bool {
        self.user.effective != old.user.effective
            || self.group.effective != old.group.effective
            || self.file_owner() != old.file_owner()
            || !old.permitted.contains(self.permitted)
    }

    /// Whether a task with these credentials may change the scheduling of one with `target`'s.
    #[must_use]
    pub fn may_schedule(&self, target: &Credentials) -> bool {
        [target.user.real, target.user.effective].contains(&self.user.effective)
            || self.has(CAP_SYS_NICE)
    }

    /// Whether a task with these credentials may inspect one with `target`'s, which is `dumpable` or
    /// not (`PTRACE_MODE_ATTACH_REALCREDS`).
    #[must_use]
    pub fn may_inspect(&self, target: &Credentials, dumpable: bool) -> bool {
        let is_all = |ids: Identifiers, id| [ids.real, ids.effective, ids.saved] == [id; 3];
        let is_like = is_all(target.user, self.user.real)
            && is_all(target.group, self.group.real)
            && self.permitted.contains(target.permitted);
        is_like && dumpable || self.has(CAP_SYS_PTRACE)
    }

    /// Whether a task with `child`'s credentials may make its parent with these the tracer
    /// (`PTRACE_TRACEME`).
    #[must_use]
    pub fn may_be_asked_to_trace(&self, child: &Credentials) -> bool {
        self.permitted.contains(child.permitted) || self.has(CAP_SYS_PTRACE)
    }

    /// Whether a task with these credentials may see and change the limits of one with `target`'s
    /// (`prlimit(2)`).
    #[must_use]
    pub fn may_limit(&self, target: &Credentials) -> bool {
        let is_all = |ids: Identifiers, id| [ids.real, ids.effective, ids.saved] == [id; 3];
        is_all(target.user, self.user.real) && is_all(target.group, self.group.real)
            || self.has(CAP_SYS_RESOURCE)
    }

    /// Whether a task with these credentials may send them in a message (`SCM_CREDENTIALS`);
    /// `is_own` says whether the process number is the sender's.
    #[must_use]
    pub fn may_send(&self, user: u32, group: u32, is_own: bool) -> bool {
        let has = |ids: Identifiers, id| [ids.real, ids.effective, ids.saved].contains(&id);
        (is_own || self.has(CAP_SYS_ADMIN))
            && (has(self.user, user) || self.has(CAP_SETUID))
            && (has(self.group, group) || self.has(CAP_SETGID))
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
