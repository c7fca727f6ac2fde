//! `shmget`, `shmat`, `shmdt` and `shmctl`.

use super::super::Entry;
use super::super::memory::{admit, forget};
use super::{current_cred, now};
use crate::convert::{low_i32, sign_extended};
use crate::ipc::{Ids, Object, Segment};
use crate::kernel::Kernel;
use crate::mm::{
    Backing, Label, MapLocation, MapRequest, MappedFile, Protection, SharedMemory, VmFlags, user,
};
use alloc::format;
use alloc::rc::Rc;
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::capability::CAP_IPC_LOCK;
use hartline_linux::errno::Errno;
use hartline_linux::ipc::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT};
use hartline_linux::shm::{
    SHM_EXEC, SHM_HUGETLB, SHM_INFO, SHM_LOCK, SHM_RDONLY, SHM_REMAP, SHM_RND, SHM_STAT,
    SHM_STAT_ANY, SHM_UNLOCK, SHMALL, SHMLBA, SHMMAX, SHMMIN, SHMMNI, ShmInfo, Shmid64Ds,
    Shminfo64,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::shmget, shmget),
    (nr::shmctl, shmctl),
    (nr::shmat, shmat),
    (nr::shmdt, shmdt),
];

fn shmget(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [key, size, flags, ..] = *arguments;
    let cred = current_cred(kernel);
    let caller = (kernel.process().pid, now());
    let frames = kernel.memory().frames();
    let ram = frames.lock().ram().length();
    let fits = |segment: &Segment| match size > segment.size {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    };
    let ids = kernel.ipc.segments.ids();
    let id = ids.get(low_i32(key), flags, &cred, fits, |permission| {
        if !(SHMMIN..=SHMMAX).contains(&size) || flags & SHM_HUGETLB != 0 {
            return Err(Errno::EINVAL);
        }
        if size > ram {
            return Err(Errno::ENOMEM);
        }
        let pages = size.next_multiple_of(PAGE_SIZE);
        let memory = SharedMemory::new(frames, pages, None);
        Ok(Segment::new(permission, size, memory, caller))
    })?;
    Ok(sign_extended(id))
}

/// The place of a segment that is attached at `address`.
fn location(kernel: &Kernel, address: u64, length: u64, flags: u64) -> Result<MapLocation, Errno> {
    if address == 0 {
        return match flags & SHM_REMAP {
            0 => Ok(MapLocation::Hint(0)),
            _ => Err(Errno::EINVAL),
        };
    }
    let aligned = address & !(SHMLBA - 1);
    if aligned != address && flags & SHM_RND == 0 || aligned == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & SHM_REMAP != 0 {
        return Ok(MapLocation::Fixed(aligned));
    }
    let end = aligned.checked_add(length).ok_or(Errno::EINVAL)?;
    match kernel.memory().vmas().is_free(aligned..end) {
        true => Ok(MapLocation::FixedNoReplace(aligned)),
        false => Err(Errno::EINVAL),
    }
}

fn shmat(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, address, flags, ..] = *arguments;
    let id = low_i32(id);
    let cred = current_cred(kernel);
    let pid = kernel.process().pid;
    let segment = kernel.ipc.segments.ids().find_mut(id)?;
    let mut protection = Protection::READ;
    let mut wanted = 0o444;
    if flags & SHM_RDONLY == 0 {
        protection = protection.union(Protection::WRITE);
        wanted |= 0o222;
    }
    if flags & SHM_EXEC != 0 {
        protection = protection.union(Protection::EXECUTE);
        wanted |= 0o111;
    }
    segment.permission().check(&cred, wanted)?;
    let memory = segment.memory().ok_or(Errno::EIDRM)?;
    let key = segment.permission().key;
    let length = segment.size.next_multiple_of(PAGE_SIZE);
    let location = location(kernel, address, length, flags)?;
    if let MapLocation::Fixed(at) = location {
        forget(kernel, at, length);
    }
    let start = kernel.memory_mut().map(MapRequest {
        location,
        length,
        protection,
        shared: true,
        no_reserve: true,
        backing: Backing::Shared(memory, 0),
        label: Label::File(MappedFile {
            path: format!("/SYSV{key:08x} (deleted)").into_bytes().into(),
            offset: 0,
            inode: None,
            read_only: flags & SHM_RDONLY != 0,
        }),
        flags: VmFlags::NONE,
    })?;
    admit(kernel, start..start + length, protection);
    let segment = kernel.ipc.segments.ids().find_mut(id)?;
    segment.times[0] = now();
    segment.last = pid;
    Ok(start)
}

/// The memory of the first segment at or above `address` whose first byte would be at `address`.
fn attached_at(kernel: &mut Kernel, address: u64) -> Option<Rc<SharedMemory>> {
    let segments = &mut kernel.ipc.segments;
    let space = &kernel.spaces[kernel.current];
    let mut shared =
        (space.memory.vmas().overlapping(address..USER_END)).filter_map(|(start, vma)| match &vma
            .backing
        {
            Backing::Shared(memory, offset) if start.checked_sub(address) == Some(*offset) => {
                Some(memory)
            }
            _ => None,
        });
    shared
        .find(|memory| segments.of_memory(memory).is_some())
        .cloned()
}

fn shmdt(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let address = arguments[0];
    if !address.is_multiple_of(SHMLBA) {
        return Err(Errno::EINVAL);
    }
    let memory = attached_at(kernel, address).ok_or(Errno::EINVAL)?;
    let pid = kernel.process().pid;
    let Some(segment) = kernel.ipc.segments.of_memory(&memory) else {
        return Err(Errno::EINVAL);
    };
    segment.times[1] = now();
    segment.last = pid;
    let end = address.saturating_add(segment.size.next_multiple_of(PAGE_SIZE));
    // Parts of it may be unmapped, or covered by other mappings.
    let parts: alloc::vec::Vec<Range<u64>> = (kernel.memory().vmas().overlapping(address..end))
        .filter(|(start, vma)| {
            matches!(&vma.backing, Backing::Shared(of, offset)
                if Rc::ptr_eq(of, &memory) && start.checked_sub(address) == Some(*offset))
        })
        .map(|(start, vma)| start..vma.end)
        .collect();
    for part in parts {
        let length = part.end - part.start;
        forget(kernel, part.start, length);
        kernel.memory_mut().unmap(part.start, length)?;
    }
    Ok(0)
}

fn shmctl(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, command, buffer, ..] = *arguments;
    let (id, command) = (low_i32(id), command & 0xffff_ffff);
    let cred = current_cred(kernel);
    let ids = kernel.ipc.segments.ids();
    match command {
        IPC_INFO => {
            let info = Shminfo64 {
                shmmax: SHMMAX,
                shmmin: SHMMIN,
                shmmni: u64::from(SHMMNI),
                shmseg: u64::from(SHMMNI),
                shmall: SHMALL,
                ..Shminfo64::default()
            };
            let highest = ids.highest();
            user::write(kernel.memory_mut(), buffer, &info)?;
            Ok(highest as u64)
        }
        SHM_INFO => {
            let (info, highest) = (usage(ids), ids.highest());
            user::write(kernel.memory_mut(), buffer, &info)?;
            Ok(highest as u64)
        }
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            let (id, segment) = match command {
                IPC_STAT => (id, ids.find(id)?),
                _ => ids.at(id)?,
            };
            if command != SHM_STAT_ANY {
                segment.permission().check(&cred, 0o444)?;
            }
            let status = segment.to_uapi(id);
            user::write(kernel.memory_mut(), buffer, &status)?;
            Ok(if command == IPC_STAT {
                0
            } else {
                sign_extended(id)
            })
        }
        IPC_SET => {
            ids.find(id)?;
            let new: Shmid64Ds = user::read(kernel.memory_mut(), buffer)?;
            let segment = kernel.ipc.segments.ids().find_mut(id)?;
            segment.permission().check_owner(&cred)?;
            segment.permission_mut().set(&new.shm_perm);
            segment.times[2] = now();
            Ok(0)
        }
        IPC_RMID => {
            ids.find(id)?.permission().check_owner(&cred)?;
            kernel.ipc.segments.remove(id)?;
            Ok(0)
        }
        SHM_LOCK | SHM_UNLOCK => {
            let segment = ids.find_mut(id)?;
            if !segment.permission().is_owner(&cred) && !cred.has(CAP_IPC_LOCK) {
                return Err(Errno::EPERM);
            }
            segment.is_locked = command == SHM_LOCK;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The memory that all segments use.
fn usage(ids: &Ids<Segment>) -> ShmInfo {
    let mut info = ShmInfo::default();
    for (_, segment) in ids.iter() {
        info.used_ids += 1;
        info.shm_tot += segment.size.div_ceil(PAGE_SIZE);
        info.shm_rss += segment.memory().map_or(0, |memory| memory.count());
    }
    info
}
