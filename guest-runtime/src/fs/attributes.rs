//! Changes of the attributes that `stat` returns: permissions, owners, times, lengths.

use super::budget::Budget;
use super::data::FileData;
use super::filesystem::FileSystem;
use super::inode::{Inode, Kind};
use super::mounts::Mount;
use super::types::{Ino, Timestamp};
use super::volume;
use crate::credentials::Credentials;
use crate::mm::{SharedFrames, SharedMemory, UserSliceMut};
use alloc::rc::Rc;
use hartline_linux::capability::{CAP_CHOWN, CAP_FOWNER, CAP_FSETID};
use hartline_linux::errno::Errno;
use hartline_linux::falloc::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
use hartline_linux::fcntl::{F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_WRITE};
use hartline_linux::inotify::{IN_ATTRIB, IN_MODIFY};
use hartline_linux::mount::{MS_NOATIME, MS_NODIRATIME, MS_STRICTATIME};
use hartline_linux::stat::{S_IFMT, S_ISGID, S_ISUID};

/// A new time of `utimensat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// `UTIME_OMIT`
    Keep,
    /// `UTIME_NOW`
    Now,
    /// This one.
    At(Timestamp),
}

impl FileSystem {
    /// Sets the permissions.
    ///
    /// # Errors
    /// `EPERM` unless `cred` is the owner, `EOPNOTSUPP` for a symbolic link.
    pub fn set_mode(&mut self, ino: Ino, mode: u32, cred: &Credentials) -> Result<(), Errno> {
        self.check_writable(ino)?;
        let now = self.now();
        let inode = self.inode(ino)?;
        if matches!(inode.kind, Kind::Link(_)) {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.check_owner(cred)?;
        if self.overlays.contains(ino) {
            return self.change_in_upper(ino, |fs, upper| fs.set_mode(upper, mode, cred));
        }
        let inode = self.inode_mut(ino)?;
        let mut mode = mode & 0o7777;
        if !inode.keeps_set_group_id(cred) {
            mode &= !S_ISGID;
        }
        if volume::is_volume(ino) {
            return self.volume_set_mode(ino, mode);
        }
        if inode.seals & F_SEAL_EXEC != 0 && (inode.mode ^ mode) & 0o111 != 0 {
            return Err(Errno::EPERM);
        }
        inode.mode = inode.mode & S_IFMT | mode;
        inode.ctime = now;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Sets owner and group; `None` keeps the old one.
    ///
    /// # Errors
    /// `EPERM` unless `cred` has `CAP_CHOWN`, or is the owner and changes the group to one of its
    /// own groups.
    pub fn set_owner(
        &mut self,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_writable(ino)?;
        let now = self.now();
        let inode = self.inode(ino)?;
        let owns = cred.user.files == inode.uid;
        let uid_allowed = uid.is_none_or(|uid| owns && uid == inode.uid);
        let gid_allowed = gid.is_none_or(|gid| owns && (cred.is_in_group(gid) || gid == inode.gid));
        if !(uid_allowed && gid_allowed || cred.has(CAP_CHOWN)) {
            return Err(Errno::EPERM);
        }
        if self.overlays.contains(ino) {
            return self.change_in_upper(ino, |fs, upper| fs.set_owner(upper, uid, gid, cred));
        }
        let inode = self.inode_mut(ino)?;
        if volume::is_volume(ino) {
            return self.volume_set_owner(ino, uid, gid);
        }
        if !matches!(inode.kind, Kind::Directory(_)) {
            let keeps_group = inode.keeps_set_group_id(cred);
            inode.drop_set_id();
            if !keeps_group {
                inode.mode &= !S_ISGID;
            }
        }
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        inode.ctime = now;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Sets access and modification time. `may_write`: `cred` may write the file, which is enough to
    /// set both to the current time.
    ///
    /// # Errors
    /// `EPERM`, or `EACCES` if both are to be the current time.
    pub fn set_times(
        &mut self,
        ino: Ino,
        [access, modification]: [NewTime; 2],
        cred: &Credentials,
        may_write: bool,
    ) -> Result<(), Errno> {
        self.check_writable(ino)?;
        let now = self.now();
        let inode = self.inode(ino)?;
        let both_now = access == NewTime::Now && modification == NewTime::Now;
        if let Err(error) = inode.check_owner(cred) {
            match (both_now, may_write) {
                (true, true) => {}
                (true, false) => return Err(Errno::EACCES),
                (false, _) => return Err(error),
            }
        }
        if volume::is_volume(ino) {
            return self.volume_set_times(ino, [access, modification]);
        }
        if self.overlays.contains(ino) {
            let times = [access, modification];
            return self
                .change_in_upper(ino, |fs, upper| fs.set_times(upper, times, cred, may_write));
        }
        let inode = self.inode_mut(ino)?;
        let apply = |old: &mut Timestamp, new| match new {
            NewTime::Keep => {}
            NewTime::Now => *old = now,
            NewTime::At(time) => *old = time,
        };
        apply(&mut inode.atime, access);
        apply(&mut inode.mtime, modification);
        inode.ctime = now;
        self.fsnotify(ino, IN_ATTRIB);
        Ok(())
    }

    /// Sets the length of a regular file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EFBIG`.
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        self.check_writable(ino)?;
        match volume::is_volume(ino) {
            true => self.volume_truncate(ino, size),
            false => {
                self.check_length(ino, size)?;
                self.copy_to_upper(ino)?;
                self.change_data(ino, |data, budget| data.truncate(budget, size))
            }
        }
    }

    /// Clears the set-ID bits of a regular file whose contents `cred` changes, unless it has
    /// `CAP_FSETID`. The host does so for files of volumes.
    pub fn contents_changed_by(&mut self, ino: Ino, cred: &Credentials) {
        if let Ok(inode) = self.inode_mut(ino)
            && matches!(inode.kind, Kind::File(_))
        {
            inode.contents_changed_by(cred);
        }
    }

    /// Changes the contents of a regular file with `change`.
    ///
    /// # Errors
    /// `EINVAL` if the file is not regular, and the errors of `change`.
    pub fn change_data(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut FileData, &mut Budget) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let now = self.now();
        let (inode, budget) = self.data_parts(ino)?;
        match &mut inode.kind {
            Kind::File(data) => change(data, budget)?,
            Kind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        self.changed(ino, now)?;
        self.fsnotify(ino, IN_MODIFY);
        Ok(())
    }

    /// The contents of a regular file as memory that programs can map.
    ///
    /// # Errors
    /// `ENOMEM`, `ENODEV` if the file is not regular, or an error of the host.
    pub fn share(
        &mut self,
        ino: Ino,
        frames: &'static SharedFrames,
    ) -> Result<Rc<SharedMemory>, Errno> {
        if volume::is_volume(ino) {
            return self.volume_memory(ino, frames);
        }
        let (inode, budget) = self.data_parts(ino)?;
        match &mut inode.kind {
            Kind::File(data) => data.share(budget, frames),
            _ => Err(Errno::ENODEV),
        }
    }

    /// The memory of a regular file that programs have mapped at some time.
    pub fn shared(&self, ino: Ino) -> Option<Rc<SharedMemory>> {
        match &self.inode(ino).ok()?.kind {
            Kind::File(data) => data.memory().cloned(),
            Kind::Volume(_) => self.mapped_volume(ino),
            _ => None,
        }
    }

    /// Reserves or frees space of a regular file (`fallocate`); `mode` has Linux's bits.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another mode, `ENOSPC`, or an error of the host.
    pub fn allocate(&mut self, ino: Ino, mode: u64, from: u64, to: u64) -> Result<(), Errno> {
        if volume::is_volume(ino) {
            return self.volume_allocate(ino, mode, from, to - from);
        }
        match mode & FALLOC_FL_PUNCH_HOLE {
            0 => self.check_length(ino, to.max(self.size(ino)?))?,
            _ => self.check_seals(ino, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?,
        }
        self.change_data(ino, |data, budget| {
            let keep = mode & FALLOC_FL_KEEP_SIZE != 0;
            match mode & !FALLOC_FL_KEEP_SIZE {
                0 => data.allocate(budget, from, to)?,
                FALLOC_FL_PUNCH_HOLE if keep => data.punch(budget, from, to)?,
                FALLOC_FL_ZERO_RANGE => data.punch(budget, from, to)?,
                _ => return Err(Errno::EOPNOTSUPP),
            }
            match keep || to <= data.size() {
                true => Ok(()),
                false => data.truncate(budget, to),
            }
        })
    }

    /// Updates the access time, if and when the flags of the mount say so. The default is `relatime`.
    pub fn accessed(&mut self, ino: Ino) {
        let Some(flags) = self.access_flags(ino) else {
            return;
        };
        let now = self.now();
        if let Ok(inode) = self.inode_mut(ino) {
            inode.accessed(flags, now);
        }
    }

    /// As [`read`](Self::read) and [`accessed`](Self::accessed), with one search for the inode.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_accessed(
        &mut self,
        ino: Ino,
        offset: u64,
        to: UserSliceMut<'_>,
    ) -> Result<usize, Errno> {
        let Some(flags) = self.access_flags(ino) else {
            return self.read(ino, offset, to);
        };
        let now = self.now();
        let inode = self.inode_mut(ino)?;
        let done = inode.data()?.read(offset, to);
        inode.accessed(flags, now);
        Ok(done)
    }

    /// The flags of the inode's mount, if access times are updated there. The host updates those of
    /// its files.
    fn access_flags(&self, ino: Ino) -> Option<u64> {
        let mount = self.mounts.get(ino.1);
        let flags = mount.map_or(0, |mount| mount.flags);
        let never = flags & MS_NOATIME != 0 || mount.is_some_and(Mount::is_read_only);
        (!never && !volume::is_volume(ino) && !self.is_in_lower(ino)).then_some(flags)
    }
}

impl Inode {
    /// Updates the access time at `now`, if `flags` of the mount say so.
    fn accessed(&mut self, flags: u64, now: Timestamp) {
        const DAY: i64 = 24 * 60 * 60;
        if flags & MS_NODIRATIME != 0 && matches!(self.kind, Kind::Directory(_)) {
            return;
        }
        let strict = flags & MS_STRICTATIME != 0;
        let stale = strict || self.atime <= self.mtime || self.atime <= self.ctime;
        if stale || now.seconds.saturating_sub(self.atime.seconds) >= DAY {
            self.atime = now;
        }
    }

    /// Checks that `cred` may do operations of the owner.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub fn check_owner(&self, cred: &Credentials) -> Result<(), Errno> {
        if cred.user.files == self.uid || cred.has(CAP_FOWNER) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Whether `cred` may leave `S_ISGID` set when it changes the inode's attributes.
    fn keeps_set_group_id(&self, cred: &Credentials) -> bool {
        cred.is_in_group(self.gid) || cred.has(CAP_FSETID)
    }

    /// Clears `S_ISUID` and `S_ISGID`, the latter only of an executable file: without group execute
    /// it has another meaning.
    fn drop_set_id(&mut self) {
        self.mode &= !S_ISUID;
        if self.mode & 0o010 != 0 {
            self.mode &= !S_ISGID;
        }
    }

    /// Clears the set-ID bits of a file whose contents `cred` changes, unless it has `CAP_FSETID`.
    #[inline]
    pub fn contents_changed_by(&mut self, cred: &Credentials) {
        if self.mode & (S_ISUID | S_ISGID) != 0 && !cred.has(CAP_FSETID) {
            self.drop_set_id();
        }
    }
}
