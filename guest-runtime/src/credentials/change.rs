//! Changes by `setuid` and its relatives, `capset` and `prctl`. `None` keeps an identifier.

use super::{Capabilities, Credentials, Identifiers};
use alloc::vec::Vec;
use hartline_linux::capability::{CAP_SETGID, CAP_SETPCAP, CAP_SETUID};
use hartline_linux::errno::Errno;
use hartline_linux::securebits::{
    SECBIT_KEEP_CAPS, SECBIT_KEEP_CAPS_LOCKED, SECBIT_NO_CAP_AMBIENT_RAISE, SECBIT_NO_SETUID_FIXUP,
    SECURE_ALL_BITS, SECURE_ALL_LOCKS,
};

impl Identifiers {
    /// `setuid`, `setgid`.
    fn set(self, id: u32, privileged: bool) -> Result<Identifiers, Errno> {
        match privileged {
            true => Ok(Identifiers::all(id)),
            false if id == self.real || id == self.saved => Ok(Identifiers {
                effective: id,
                files: id,
                ..self
            }),
            false => Err(Errno::EPERM),
        }
    }

    /// `setreuid`, `setregid`.
    fn set_two(
        self,
        real: Option<u32>,
        effective: Option<u32>,
        privileged: bool,
    ) -> Result<Identifiers, Errno> {
        let is_own = |id: u32| id == self.real || id == self.effective;
        if !privileged
            && (real.is_some_and(|id| !is_own(id))
                || effective.is_some_and(|id| !is_own(id) && id != self.saved))
        {
            return Err(Errno::EPERM);
        }
        let chosen = effective.unwrap_or(self.effective);
        let saves = real.is_some() || effective.is_some_and(|id| id != self.real);
        Ok(Identifiers {
            real: real.unwrap_or(self.real),
            effective: chosen,
            saved: if saves { chosen } else { self.saved },
            files: chosen,
        })
    }

    /// `setresuid`, `setresgid`.
    fn set_three(self, wanted: [Option<u32>; 3], privileged: bool) -> Result<Identifiers, Errno> {
        let own = [self.real, self.effective, self.saved];
        let allowed = |id: &Option<u32>| id.is_none_or(|id| own.contains(&id));
        if !privileged && !wanted.iter().all(allowed) {
            return Err(Errno::EPERM);
        }
        let [real, effective, saved] = wanted;
        let effective = effective.unwrap_or(self.effective);
        Ok(Identifiers {
            real: real.unwrap_or(self.real),
            effective,
            saved: saved.unwrap_or(self.saved),
            files: effective,
        })
    }

    fn is_root_anywhere(self) -> bool {
        [self.real, self.effective, self.saved].contains(&0)
    }
}

impl Credentials {
    /// `setuid`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_uid(&mut self, uid: u32) -> Result<(), Errno> {
        let user = self.user.set(uid, self.has(CAP_SETUID))?;
        self.change_user(user);
        Ok(())
    }

    /// `setreuid`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_reuid(&mut self, real: Option<u32>, effective: Option<u32>) -> Result<(), Errno> {
        let user = self.user.set_two(real, effective, self.has(CAP_SETUID))?;
        self.change_user(user);
        Ok(())
    }

    /// `setresuid`: real, effective and saved user.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_resuid(&mut self, wanted: [Option<u32>; 3]) -> Result<(), Errno> {
        let user = self.user.set_three(wanted, self.has(CAP_SETUID))?;
        self.change_user(user);
        Ok(())
    }

    /// `setfsuid`: changes the user for files if that is allowed; returns the old one.
    pub fn set_fsuid(&mut self, uid: Option<u32>) -> u32 {
        let old = self.user.files;
        let Identifiers {
            real,
            effective,
            saved,
            files,
        } = self.user;
        let allowed =
            |id: &u32| [real, effective, saved, files].contains(id) || self.has(CAP_SETUID);
        if let Some(uid) = uid.filter(allowed) {
            self.user.files = uid;
            if self.securebits & SECBIT_NO_SETUID_FIXUP == 0 {
                let of_files = Capabilities::OF_FILES;
                if old == 0 && uid != 0 {
                    self.effective = self.effective.without(of_files);
                } else if old != 0 && uid == 0 {
                    let regained = self.permitted.intersection(of_files);
                    self.effective = self.effective.union(regained);
                }
            }
        }
        old
    }

    /// `setgid`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_gid(&mut self, gid: u32) -> Result<(), Errno> {
        self.group = self.group.set(gid, self.has(CAP_SETGID))?;
        Ok(())
    }

    /// `setregid`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_regid(&mut self, real: Option<u32>, effective: Option<u32>) -> Result<(), Errno> {
        self.group = self.group.set_two(real, effective, self.has(CAP_SETGID))?;
        Ok(())
    }

    /// `setresgid`: real, effective and saved group.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_resgid(&mut self, wanted: [Option<u32>; 3]) -> Result<(), Errno> {
        self.group = self.group.set_three(wanted, self.has(CAP_SETGID))?;
        Ok(())
    }

    /// `setfsgid`: changes the group for files if that is allowed; returns the old one.
    pub fn set_fsgid(&mut self, gid: Option<u32>) -> u32 {
        let old = self.group.files;
        let Identifiers {
            real,
            effective,
            saved,
            files,
        } = self.group;
        let allowed =
            |id: &u32| [real, effective, saved, files].contains(id) || self.has(CAP_SETGID);
        if let Some(gid) = gid.filter(allowed) {
            self.group.files = gid;
        }
        old
    }

    /// `setgroups`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_groups(&mut self, mut groups: Vec<u32>) -> Result<(), Errno> {
        if !self.has(CAP_SETGID) {
            return Err(Errno::EPERM);
        }
        groups.sort_unstable();
        self.groups = groups.into();
        Ok(())
    }

    /// Sets the user identifiers, and the capabilities that follow from them.
    fn change_user(&mut self, new: Identifiers) {
        let old = core::mem::replace(&mut self.user, new);
        if self.securebits & SECBIT_NO_SETUID_FIXUP != 0 {
            return;
        }
        if old.is_root_anywhere() && !new.is_root_anywhere() {
            if self.securebits & SECBIT_KEEP_CAPS == 0 {
                self.permitted = Capabilities::NONE;
                self.effective = Capabilities::NONE;
            }
            self.ambient = Capabilities::NONE;
        }
        if old.effective == 0 && new.effective != 0 {
            self.effective = Capabilities::NONE;
        }
        if old.effective != 0 && new.effective == 0 {
            self.effective = self.permitted;
        }
    }

    /// `capset`.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn set_capabilities(
        &mut self,
        effective: Capabilities,
        permitted: Capabilities,
        inheritable: Capabilities,
    ) -> Result<(), Errno> {
        let passed = match self.has(CAP_SETPCAP) {
            true => Capabilities::ALL,
            false => self.inheritable.union(self.permitted),
        };
        let allowed = passed.contains(inheritable)
            && self.inheritable.union(self.bounding).contains(inheritable)
            && self.permitted.contains(permitted)
            && permitted.contains(effective);
        if !allowed {
            return Err(Errno::EPERM);
        }
        self.effective = effective;
        self.permitted = permitted;
        self.inheritable = inheritable;
        let kept = permitted.intersection(inheritable);
        self.ambient = self.ambient.intersection(kept);
        Ok(())
    }

    /// `PR_CAPBSET_DROP`.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL` for an unknown capability.
    pub fn drop_from_bounding(&mut self, capability: u64) -> Result<(), Errno> {
        if !self.has(CAP_SETPCAP) {
            return Err(Errno::EPERM);
        }
        let one = Capabilities::one(capability).ok_or(Errno::EINVAL)?;
        self.bounding = self.bounding.without(one);
        Ok(())
    }

    /// `PR_CAP_AMBIENT_RAISE`.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL` for an unknown capability.
    pub fn raise_ambient(&mut self, capability: u64) -> Result<(), Errno> {
        let one = Capabilities::one(capability).ok_or(Errno::EINVAL)?;
        let both = self.permitted.intersection(self.inheritable);
        if !both.contains(one) || self.securebits & SECBIT_NO_CAP_AMBIENT_RAISE != 0 {
            return Err(Errno::EPERM);
        }
        self.ambient = self.ambient.union(one);
        Ok(())
    }

    /// `PR_CAP_AMBIENT_LOWER`.
    ///
    /// # Errors
    /// `EINVAL` for an unknown capability.
    pub fn lower_ambient(&mut self, capability: u64) -> Result<(), Errno> {
        let one = Capabilities::one(capability).ok_or(Errno::EINVAL)?;
        self.ambient = self.ambient.without(one);
        Ok(())
    }

    /// `PR_SET_KEEPCAPS`.
    ///
    /// # Errors
    /// `EPERM` if that is locked, `EINVAL` for another value than 0 and 1.
    pub fn keep_capabilities(&mut self, keep: u64) -> Result<(), Errno> {
        if keep > 1 {
            return Err(Errno::EINVAL);
        }
        if self.securebits & SECBIT_KEEP_CAPS_LOCKED != 0 {
            return Err(Errno::EPERM);
        }
        self.securebits &= !SECBIT_KEEP_CAPS;
        if keep == 1 {
            self.securebits |= SECBIT_KEEP_CAPS;
        }
        Ok(())
    }

    /// `PR_SET_SECUREBITS`.
    ///
    /// # Errors
    /// `EPERM` for a locked or unknown bit.
    pub fn set_securebits(&mut self, bits: u64) -> Result<(), Errno> {
        let old = self.securebits;
        let new = u32::try_from(bits).map_err(|_| Errno::EPERM)?;
        let locked = (old & SECURE_ALL_LOCKS) >> 1;
        let allowed = locked & (old ^ new) == 0
            && old & SECURE_ALL_LOCKS & !new == 0
            && new & !(SECURE_ALL_BITS | SECURE_ALL_LOCKS) == 0
            && self.has(CAP_SETPCAP);
        if !allowed {
            return Err(Errno::EPERM);
        }
        self.securebits = new;
        Ok(())
    }
}
