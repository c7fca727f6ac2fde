//! Memory mapping: `mmap`, `munmap`, `mremap`, `mprotect` and their relatives.

use super::Entry;
use super::files_stat::{mapped, path_of};
use crate::convert::low_u32;
use crate::file::operations::Mapped;
use crate::kernel::Kernel;
use crate::kernel::executable;
use crate::mm::user;
use crate::mm::{
    Access, Backing, Label, MapLocation, MapRequest, MappedFile, Populate, Protection,
    SharedMemory, VmFlags,
};
use core::ops::Range;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::cacheflush::SYS_RISCV_FLUSH_ICACHE_LOCAL;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{F_SEAL_FUTURE_WRITE, F_SEAL_WRITE};
use hartline_linux::mman::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED,
    MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE,
    MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT, MREMAP_FIXED, MREMAP_MAYMOVE, MS_ASYNC,
    MS_INVALIDATE, MS_SYNC, PROT_GROWSDOWN, PROT_GROWSUP,
};
use hartline_linux::mount::MS_NOEXEC;
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::brk, brk),
    (nr::munmap, munmap),
    (nr::mremap, mremap),
    (nr::mmap, mmap),
    (nr::mprotect, mprotect),
    (nr::msync, msync),
    (nr::mlock, mlock),
    (nr::munlock, munlock),
    (nr::mlockall, mlockall),
    (nr::munlockall, munlockall),
    (nr::mincore, mincore),
    (nr::madvise, madvise),
    (nr::riscv_flush_icache, riscv_flush_icache),
    (nr::mlock2, mlock2),
];

fn brk(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    Ok(kernel.memory_mut().set_break(arguments[0]))
}

/// Private anonymous mappings up to this length, bytes, are populated at once: page faults cost
/// more.
const PREPARED: u64 = 128 << 10;

fn mmap(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, protection, flags, fd, offset] = *arguments;
    let protection = Protection::from_bits(protection)?;
    if !offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if flags & MAP_ANONYMOUS == 0 {
        kernel.file(fd)?;
    }
    if length == 0 || flags & MAP_HUGETLB != 0 {
        return Err(Errno::EINVAL);
    }
    let shared = match flags & MAP_TYPE {
        MAP_SHARED | MAP_SHARED_VALIDATE => true,
        MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    let location = if flags & MAP_FIXED_NOREPLACE != 0 {
        MapLocation::FixedNoReplace(address)
    } else if flags & MAP_FIXED != 0 {
        forget(kernel, address, length);
        MapLocation::Fixed(address)
    } else {
        MapLocation::Hint(address)
    };
    let (backing, label, file_flags) = match flags & MAP_ANONYMOUS {
        0 => file_contents(kernel, fd, (offset, length), shared, protection)?,
        _ => (Backing::Zero, Label::None, VmFlags::NONE),
    };
    let set = vm_flags(kernel, flags, shared)?.with(file_flags);
    let start = kernel.memory_mut().map(MapRequest {
        location,
        length,
        protection,
        shared,
        no_reserve: flags & MAP_NORESERVE != 0,
        backing,
        label,
        flags: set,
    })?;
    // A page that the program may want to fill itself stays missing.
    let prepares = !kernel.memory().has_user_faults();
    let is_short = flags & MAP_ANONYMOUS != 0 && !shared && length <= PREPARED && prepares;
    let wanted = flags & MAP_POPULATE != 0 || is_short && protection.writable();
    if wanted && protection.readable() {
        // As on Linux, the mapping exists even if its pages cannot be populated now.
        let _ = kernel.memory_mut().prepare(start, length, Access::Read);
    }
    admit(kernel, start..start + length, protection);
    Ok(start)
}

/// The properties that flags of `mmap` set.
fn vm_flags(kernel: &Kernel, flags: u64, shared: bool) -> Result<VmFlags, Errno> {
    let mut set = VmFlags::NONE;
    if flags & MAP_GROWSDOWN != 0 {
        if shared {
            return Err(Errno::EINVAL);
        }
        // A file has nothing before its start.
        if flags & MAP_ANONYMOUS != 0 {
            set = set.with(VmFlags::VM_GROWSDOWN);
        }
    }
    if flags & MAP_LOCKED != 0 {
        kernel.memory().may_lock()?;
        set = set.with(VmFlags::VM_LOCKED);
    }
    Ok(set)
}

/// Returns the backing of a file mapping of `length` bytes from `offset` on, and the properties of
/// its range.
fn file_contents(
    kernel: &mut Kernel,
    fd: u64,
    (offset, length): (u64, u64),
    shared: bool,
    protection: Protection,
) -> Result<(Backing, Label, VmFlags), Errno> {
    let code = !shared && protection.executable();
    if code {
        let ino = kernel.process().files.fds.get(low_u32(fd))?.ino;
        executable::copy_code(kernel, ino);
    }
    let ino = kernel.process().files.fds.get(low_u32(fd))?.ino;
    let no_code = match kernel.vfs.fs.has_mount_flag(ino, MS_NOEXEC) {
        true if protection.executable() => return Err(Errno::EPERM),
        true => VmFlags::NO_MAYEXEC,
        false => VmFlags::NONE,
    };
    let mapped = mapped(kernel, fd, code)?;
    let path = path_of(kernel, fd).unwrap_or_default();
    let mut file = MappedFile {
        path: path.into(),
        offset,
        inode: None,
        read_only: false,
    };
    let (Mapped::File { writable, .. } | Mapped::Zero { writable }) = mapped;
    if shared && protection.writable() && !writable {
        return Err(Errno::EACCES);
    }
    let Mapped::File { ino, image, .. } = mapped else {
        let flags = match shared && !writable {
            true => VmFlags::NO_MAYWRITE,
            false => VmFlags::NONE,
        };
        return Ok((Backing::Zero, Label::None, flags));
    };
    let sealed = kernel.vfs.fs.seals(ino).unwrap_or(0) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
    if shared && protection.writable() && sealed != 0 {
        return Err(Errno::EPERM);
    }
    file.read_only = shared && (!writable || sealed != 0);
    offset.checked_add(length).ok_or(Errno::EOVERFLOW)?;
    // A mapping whose stores may reach the file needs the file in memory.
    if let Some((bytes, inode)) = image
        && !(shared && writable)
    {
        file.inode = inode;
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
        let backing = Backing::File(rest.unwrap_or_default());
        return Ok((backing, Label::File(file), no_code));
    }
    let frames = kernel.memory().frames();
    let memory = kernel.vfs.fs.share(ino, frames)?;
    let backing = Backing::Shared(memory, offset);
    Ok((backing, Label::File(file), no_code))
}

/// Whether any process has `memory` mapped so that stores reach it.
pub(super) fn is_stored_to(kernel: &Kernel, memory: &SharedMemory) -> bool {
    let mut spaces = kernel.spaces.iter();
    spaces.any(|space| space.memory.stores_to(memory))
}

/// Invalidates translations of a range whose code or constants are about to change.
pub(super) fn forget(kernel: &mut Kernel, address: u64, length: u64) {
    let range: Range<u64> = address..address.saturating_add(length).min(USER_END);
    kernel.forget_code(range);
}

/// Admits the code or constants now mapped in a range.
pub(super) fn admit(kernel: &mut Kernel, range: Range<u64>, protection: Protection) {
    if protection.executable() {
        kernel.admit_code(range);
    } else if protection.readable() && !protection.writable() {
        kernel.admit_constants(range);
    }
}

pub(super) fn munmap(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    forget(kernel, arguments[0], arguments[1]);
    kernel.memory_mut().unmap(arguments[0], arguments[1])?;
    let end = arguments[0].saturating_add(arguments[1]);
    kernel.jit.forget(arguments[0]..end);
    Ok(0)
}

fn mprotect(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let mut arguments = *arguments;
    if arguments[2] & PROT_GROWSUP != 0 {
        return Err(Errno::EINVAL);
    }
    if arguments[2] & PROT_GROWSDOWN != 0 {
        let end = arguments[0]
            .checked_add(arguments[1])
            .ok_or(Errno::ENOMEM)?;
        arguments[0] = kernel.memory().start_of_stack(arguments[0])?;
        arguments[1] = end - arguments[0];
        arguments[2] &= !PROT_GROWSDOWN;
    }
    let protection = Protection::from_bits(arguments[2])?;
    // Executable, read-only code stays as it is, so it need not be invalidated.
    if !protection.executable() || protection.writable() {
        forget(kernel, arguments[0], arguments[1]);
    }
    kernel
        .memory_mut()
        .protect(arguments[0], arguments[1], protection)?;
    let range = arguments[0]..arguments[0] + arguments[1];
    admit(kernel, range, protection);
    Ok(0)
}

fn mremap(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, old_length, new_length, flags, new_address, _] = *arguments;
    if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED) != 0 {
        return Err(Errno::EINVAL);
    }
    forget(kernel, address, old_length);
    let fixed = (flags & MREMAP_FIXED != 0).then_some(new_address);
    if fixed.is_some() {
        forget(kernel, new_address, new_length);
    }
    let may_move = flags & MREMAP_MAYMOVE != 0;
    kernel
        .memory_mut()
        .remap(address, old_length, new_length, may_move, fixed)
}

fn msync(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const FLAGS: u64 = MS_ASYNC | MS_INVALIDATE | MS_SYNC;
    const BOTH: u64 = MS_ASYNC | MS_SYNC;
    if arguments[2] & !FLAGS != 0 || arguments[2] & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    if arguments[2] & MS_INVALIDATE != 0 {
        kernel
            .memory()
            .check_invalidation(arguments[0], arguments[1])?;
    }
    kernel.memory().write_back(arguments[0], arguments[1])?;
    Ok(0)
}

fn mlock(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, ..] = *arguments;
    kernel.memory_mut().lock(address, length, Populate::Now)?;
    Ok(0)
}

fn mlock2(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, flags, ..] = *arguments;
    let populate = match flags {
        0 => Populate::Now,
        MLOCK_ONFAULT => Populate::OnFault,
        _ => return Err(Errno::EINVAL),
    };
    kernel.memory_mut().lock(address, length, populate)?;
    Ok(0)
}

fn munlock(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.memory_mut().unlock(arguments[0], arguments[1])?;
    Ok(0)
}

fn mlockall(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const ALL: u64 = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    let flags = arguments[0];
    if flags & !ALL != 0 || flags & (MCL_CURRENT | MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    let populate = match flags & MCL_ONFAULT {
        0 => Populate::Now,
        _ => Populate::OnFault,
    };
    let wanted = |flag| (flags & flag != 0).then_some(populate);
    kernel
        .memory_mut()
        .lock_all(wanted(MCL_CURRENT), wanted(MCL_FUTURE))?;
    Ok(0)
}

fn munlockall(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    kernel.memory_mut().unlock_all();
    Ok(0)
}

fn mincore(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, vector, ..] = *arguments;
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    kernel.memory().check_mapped(address, length)?;
    let pages = length.div_ceil(PAGE_SIZE);
    for page in 0..pages {
        let resident = u8::from(kernel.memory().is_resident(address + page * PAGE_SIZE));
        user::write(kernel.memory_mut(), vector.wrapping_add(page), &resident)?;
    }
    Ok(0)
}

fn madvise(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, length, advice, ..] = *arguments;
    kernel.memory_mut().advise(address, length, advice)?;
    Ok(0)
}

fn riscv_flush_icache(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if arguments[2] & !SYS_RISCV_FLUSH_ICACHE_LOCAL != 0 {
        return Err(Errno::EINVAL);
    }
    // Linux ignores the range, and flushes everything.
    let [start, end, ..] = *arguments;
    let is_range = start < end && end <= USER_END;
    kernel.flush_code(is_range.then_some(start..end));
    Ok(0)
}
