//! Keys, identifiers and permissions of IPC objects.

use crate::credentials::Credentials;
use alloc::vec::Vec;
use hartline_linux::capability::{CAP_IPC_OWNER, CAP_SYS_ADMIN};
use hartline_linux::errno::Errno;
use hartline_linux::ipc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE, IPCMNI, Ipc64Perm};

/// Owner, creator and mode of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The key, or `IPC_PRIVATE`.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Group of the owner.
    pub gid: u32,
    cuid: u32,
    cgid: u32,
    /// Read and write bits of owner, group and others.
    pub mode: u32,
}

impl Permission {
    /// The permission of a new object: `flags` are those of `shmget`.
    #[must_use]
    pub fn new(key: i32, flags: u64, cred: &Credentials) -> Permission {
        Permission {
            key,
            uid: cred.user.effective,
            gid: cred.group.effective,
            cuid: cred.user.effective,
            cgid: cred.group.effective,
            mode: (flags & 0o777) as u32,
        }
    }

    /// Checks access with the bits of `wanted`, of which those of any of the three classes count.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, cred: &Credentials, wanted: u32) -> Result<(), Errno> {
        let wanted = wanted >> 6 | wanted >> 3 | wanted;
        let granted = if self.is_owner(cred) {
            self.mode >> 6
        } else if cred.is_in_group(self.gid) || cred.is_in_group(self.cgid) {
            self.mode >> 3
        } else {
            self.mode
        };
        match wanted & !granted & 7 {
            0 => Ok(()),
            _ if cred.has(CAP_IPC_OWNER) => Ok(()),
            _ => Err(Errno::EACCES),
        }
    }

    /// Whether `cred` is owner or creator.
    #[must_use]
    pub fn is_owner(&self, cred: &Credentials) -> bool {
        [self.uid, self.cuid].contains(&cred.user.effective)
    }

    /// Checks that the object may be changed or removed.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_owner(&self, cred: &Credentials) -> Result<(), Errno> {
        match self.is_owner(cred) || cred.has(CAP_SYS_ADMIN) {
            true => Ok(()),
            false => Err(Errno::EPERM),
        }
    }

    /// Sets owner and mode (`IPC_SET`).
    pub fn set(&mut self, from: &Ipc64Perm) {
        self.uid = from.uid;
        self.gid = from.gid;
        self.mode = self.mode & !0o777 | from.mode & 0o777;
    }

    /// The structure that `IPC_STAT` returns.
    #[must_use]
    pub fn to_uapi(&self, id: i32) -> Ipc64Perm {
        Ipc64Perm {
            key: self.key,
            uid: self.uid,
            gid: self.gid,
            cuid: self.cuid,
            cgid: self.cgid,
            mode: self.mode,
            seq: ((id.cast_unsigned() / IPCMNI) & 0xffff) as u16,
            ..Ipc64Perm::default()
        }
    }
}

/// An object with a permission.
pub trait Object {
    /// The permission.
    fn permission(&self) -> &Permission;
}

/// A slot for an object. An identifier is `sequence * IPCMNI + index`.
#[derive(Debug)]
struct Slot<T> {
    sequence: u16,
    object: Option<T>,
}

/// Objects of one kind by identifier.
#[derive(Debug)]
pub struct Ids<T> {
    slots: Vec<Slot<T>>,
    most: u32,
}

impl<T: Object> Ids<T> {
    /// No objects, of which there may be `most`, at most `IPCMNI`.
    #[must_use]
    pub const fn new(most: u32) -> Ids<T> {
        Ids {
            slots: Vec::new(),
            most,
        }
    }

    /// Returns the object with `key`, or creates one: `shmget`, `semget` and `msgget`. `fits` checks
    /// an existing one; `create` makes a new one.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, and those of the arguments.
    pub fn get(
        &mut self,
        key: i32,
        flags: u64,
        cred: &Credentials,
        fits: impl FnOnce(&T) -> Result<(), Errno>,
        create: impl FnOnce(Permission) -> Result<T, Errno>,
    ) -> Result<i32, Errno> {
        let found = (key != IPC_PRIVATE)
            .then(|| {
                self.iter()
                    .find(|(_, object)| object.permission().key == key)
            })
            .flatten();
        if let Some((id, object)) = found {
            if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 {
                return Err(Errno::EEXIST);
            }
            fits(object)?;
            object.permission().check(cred, (flags & 0o777) as u32)?;
            return Ok(id);
        }
        if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        self.insert(|| create(Permission::new(key, flags, cred)))
    }

    fn insert(&mut self, create: impl FnOnce() -> Result<T, Errno>) -> Result<i32, Errno> {
        let free = self.slots.iter().position(|slot| slot.object.is_none());
        let index = free.unwrap_or(self.slots.len());
        if index >= self.most.min(IPCMNI) as usize {
            return Err(Errno::ENOSPC);
        }
        let object = create()?;
        if index == self.slots.len() {
            self.slots.push(Slot {
                sequence: 0,
                object: None,
            });
        }
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        Ok(id_of(index, slot.sequence))
    }

    fn index(&self, id: i32) -> Result<usize, Errno> {
        let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
        let index = (id % IPCMNI) as usize;
        match self.slots.get(index) {
            Some(slot) if slot.object.is_none() => Err(Errno::EINVAL),
            Some(slot) if u32::from(slot.sequence) == id / IPCMNI => Ok(index),
            Some(_) => Err(Errno::EIDRM),
            None => Err(Errno::EINVAL),
        }
    }

    /// The object `id`.
    ///
    /// # Errors
    /// `EINVAL`; `EIDRM` if another object has its place.
    pub fn find(&self, id: i32) -> Result<&T, Errno> {
        let index = self.index(id)?;
        self.slots[index].object.as_ref().ok_or(Errno::EINVAL)
    }

    /// The object `id`, to change it.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_mut(&mut self, id: i32) -> Result<&mut T, Errno> {
        let index = self.index(id)?;
        self.slots[index].object.as_mut().ok_or(Errno::EINVAL)
    }

    /// Identifier and object at an index (`SHM_STAT`).
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn at(&self, index: i32) -> Result<(i32, &T), Errno> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let slot = self.slots.get(index).ok_or(Errno::EINVAL)?;
        let object = slot.object.as_ref().ok_or(Errno::EINVAL)?;
        Ok((id_of(index, slot.sequence), object))
    }

    /// Removes the object `id`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn remove(&mut self, id: i32) -> Result<T, Errno> {
        let index = self.index(id)?;
        let slot = &mut self.slots[index];
        slot.sequence = (slot.sequence + 1) % SEQUENCES;
        slot.object.take().ok_or(Errno::EINVAL)
    }

    /// All objects with their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &T)> {
        (self.slots.iter().enumerate())
            .filter_map(|(index, slot)| Some((id_of(index, slot.sequence), slot.object.as_ref()?)))
    }

    /// Number of objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Highest index in use; 0 if none is.
    #[must_use]
    pub fn highest(&self) -> usize {
        let used = self.slots.iter().rposition(|slot| slot.object.is_some());
        used.unwrap_or(0)
    }
}

/// Number of sequences, so that identifiers are positive.
const SEQUENCES: u16 = u16::MAX;
const _: () = assert!(SEQUENCES as u32 == i32::MAX.cast_unsigned() / IPCMNI);

/// The identifier of an object; `index` is below [`IPCMNI`].
fn id_of(index: usize, sequence: u16) -> i32 {
    let index = u32::try_from(index).unwrap_or(IPCMNI - 1);
    (u32::from(sequence) * IPCMNI + index).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Object for Permission {
        fn permission(&self) -> &Permission {
            self
        }
    }

    fn get(ids: &mut Ids<Permission>, key: i32, flags: u64, uid: u32) -> Result<i32, Errno> {
        ids.get(key, flags, &Credentials::new(uid, uid), |_| Ok(()), Ok)
    }

    #[test]
    fn keys_find_objects() {
        let mut ids = Ids::new(3);
        assert_eq!(get(&mut ids, 7, 0o600, 5), Err(Errno::ENOENT));
        let id = get(&mut ids, 7, IPC_CREAT | 0o640, 5).unwrap();
        assert_eq!(get(&mut ids, 7, 0o600, 5), Ok(id));
        assert_eq!(
            get(&mut ids, 7, IPC_CREAT | IPC_EXCL, 5),
            Err(Errno::EEXIST)
        );
        assert_eq!(get(&mut ids, 7, 0o400, 6), Err(Errno::EACCES));
        assert_eq!(get(&mut ids, 7, 0o600, 0), Ok(id));
        let private = get(&mut ids, IPC_PRIVATE, 0, 5).unwrap();
        assert_ne!(get(&mut ids, IPC_PRIVATE, 0, 5).unwrap(), private);
        assert_eq!(get(&mut ids, IPC_PRIVATE, 0, 5), Err(Errno::ENOSPC));
        ids.remove(id).unwrap();
        assert_eq!(ids.find(id), Err(Errno::EINVAL));
        let next = get(&mut ids, 7, IPC_CREAT, 5).unwrap();
        assert_eq!(next, id + IPCMNI.cast_signed());
        assert_eq!(ids.find(id), Err(Errno::EIDRM));
        assert_eq!(ids.at(0).unwrap().0, next);
        assert_eq!((ids.count(), ids.highest()), (3, 2));
    }

    #[test]
    fn identifiers_stay_positive() {
        let mut ids = Ids::new(1);
        for _ in 0..70_000 {
            let id = get(&mut ids, IPC_PRIVATE, 0, 1).unwrap();
            assert!(id >= 0);
            ids.remove(id).unwrap();
        }
    }
}
