//! Changes by `execve`.

use super::{Capabilities, Credentials};
use hartline_linux::securebits::{SECBIT_KEEP_CAPS, SECBIT_NOROOT};

/// The owners that a program file with `S_ISUID` or `S_ISGID` gives the new program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetId {
    /// Owner of a file with `S_ISUID`.
    pub user: Option<u32>,
    /// Group of a file with `S_ISGID`.
    pub group: Option<u32>,
}

impl Credentials {
    /// The credentials of a new program, and whether it has more rights than its caller
    /// (`AT_SECURE`). Files have no capabilities here. The caller leaves `set_id` empty for a task
    /// with `PR_SET_NO_NEW_PRIVS`.
    #[must_use]
    pub fn after_execve(&self, set_id: SetId) -> (Credentials, bool) {
        let mut new = self.clone();
        if let Some(uid) = set_id.user {
            new.user.effective = uid;
        }
        if let Some(gid) = set_id.group {
            new.group.effective = gid;
        }
        for ids in [&mut new.user, &mut new.group] {
            ids.saved = ids.effective;
            ids.files = ids.effective;
        }
        let changes =
            new.user.effective != self.user.real || new.group.effective != self.group.real;
        if changes {
            new.ambient = Capabilities::NONE;
        }
        let has_root = self.securebits & SECBIT_NOROOT == 0;
        let is_root = [new.user.real, new.user.effective].contains(&0);
        new.permitted = match has_root && is_root {
            true => self.inheritable.union(self.bounding),
            false => Capabilities::NONE,
        };
        new.permitted = new.permitted.union(new.ambient);
        new.effective = match has_root && new.user.effective == 0 {
            true => new.permitted,
            false => new.ambient,
        };
        new.securebits &= !SECBIT_KEEP_CAPS;
        (new, changes)
    }
}
