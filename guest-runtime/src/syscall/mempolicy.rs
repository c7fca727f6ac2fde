//! Memory policies of NUMA machines. The VM has one node, number 0, so a policy has no other effect
//! than to be valid.

use super::Entry;
use super::task::find_task;
use crate::convert::low_u32;
use crate::kernel::Kernel;
use crate::kernel::task::MemoryPolicy;
use crate::mm::user;
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_linux::capability::CAP_SYS_NICE;
use hartline_linux::errno::Errno;
use hartline_linux::mempolicy::{
    MPOL_BIND, MPOL_DEFAULT, MPOL_F_ADDR, MPOL_F_MEMS_ALLOWED, MPOL_F_NODE, MPOL_F_NUMA_BALANCING,
    MPOL_F_RELATIVE_NODES, MPOL_F_STATIC_NODES, MPOL_INTERLEAVE, MPOL_LOCAL, MPOL_MAX,
    MPOL_MF_MOVE, MPOL_MF_MOVE_ALL, MPOL_MF_STRICT, MPOL_MODE_FLAGS, MPOL_PREFERRED,
    MPOL_PREFERRED_MANY, MPOL_WEIGHTED_INTERLEAVE,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::mbind, mbind),
    (nr::get_mempolicy, get_mempolicy),
    (nr::set_mempolicy, set_mempolicy),
    (nr::migrate_pages, migrate_pages),
    (nr::move_pages, move_pages),
];

/// The nodes of the VM, as a bit set.
const NODES: u64 = 1;
/// Bits of a word of a bit set.
const WORD: u64 = u64::BITS as u64;

/// Reads a bit set of nodes, with room for `room` bits, of which Linux ignores the last one.
///
/// # Errors
/// `EINVAL` for nodes that no machine has, `EFAULT`.
fn read_nodes(kernel: &mut Kernel, address: u64, room: u64) -> Result<u64, Errno> {
    let bits = room.wrapping_sub(1);
    if address == 0 || bits == 0 {
        return Ok(0);
    }
    if bits > PAGE_SIZE * 8 {
        return Err(Errno::EINVAL);
    }
    let mut first = 0;
    for word in 0..bits.div_ceil(WORD) {
        let at = address.wrapping_add(word * 8);
        let mut value: u64 = user::read(kernel.memory_mut(), at)?;
        let used = bits - word * WORD;
        if used < WORD {
            value &= (1 << used) - 1;
        }
        match word {
            0 => first = value,
            _ if value != 0 => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    Ok(first)
}

/// Checks a mode with its flags and nodes; returns the policy.
///
/// # Errors
/// `EINVAL`.
fn policy(mode: u64, nodes: u64) -> Result<MemoryPolicy, Errno> {
    let all = u32::try_from(mode).map_err(|_| Errno::EINVAL)?;
    let (mut mode, flags) = (all & !MPOL_MODE_FLAGS, all & MPOL_MODE_FLAGS);
    let keeps = flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES);
    let can_balance = matches!(mode, MPOL_BIND | MPOL_PREFERRED_MANY);
    let is_wrong = mode >= MPOL_MAX
        || keeps.count_ones() == 2
        || flags & MPOL_F_NUMA_BALANCING != 0 && !can_balance;
    if is_wrong {
        return Err(Errno::EINVAL);
    }
    let is_good = match mode {
        MPOL_DEFAULT => nodes == 0,
        MPOL_PREFERRED if nodes == 0 => {
            mode = MPOL_LOCAL;
            keeps == 0
        }
        MPOL_LOCAL => nodes == 0 && keeps == 0,
        // Relative nodes count from the first allowed one, over and over.
        _ if flags & MPOL_F_RELATIVE_NODES != 0 => nodes != 0,
        _ => nodes & NODES != 0,
    };
    match (is_good, mode) {
        (false, _) => Err(Errno::EINVAL),
        (true, MPOL_DEFAULT) => Ok(MemoryPolicy::default()),
        (true, _) => Ok(MemoryPolicy {
            mode: mode | flags,
            nodes: match (mode, keeps) {
                (MPOL_LOCAL, _) => 0,
                (_, 0) => NODES,
                _ => nodes,
            },
        }),
    }
}

fn set_mempolicy(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let nodes = read_nodes(kernel, a[1], a[2])?;
    // The mode is an `int`.
    kernel.task_mut().memory_policy = policy(low_u32(a[0]).into(), nodes)?;
    Ok(0)
}

fn get_mempolicy(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [mode, mask, room, address, flags, _] = *a;
    if flags & !(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED) != 0 || mask != 0 && room == 0 {
        return Err(Errno::EINVAL);
    }
    let own = kernel.task().memory_policy;
    let is_mapped = kernel.memory().vmas().find(address).is_some();
    let (number, nodes) = match flags {
        MPOL_F_MEMS_ALLOWED => (0, NODES),
        _ if flags & MPOL_F_MEMS_ALLOWED != 0 => return Err(Errno::EINVAL),
        _ if flags & MPOL_F_ADDR != 0 && !is_mapped => return Err(Errno::EFAULT),
        // The number of the page's node, or of the node of the next page.
        _ if flags & MPOL_F_NODE != 0 => {
            let base = own.mode & !MPOL_MODE_FLAGS;
            let interleaves = matches!(base, MPOL_INTERLEAVE | MPOL_WEIGHTED_INTERLEAVE);
            if flags & MPOL_F_ADDR == 0 && (address != 0 || !interleaves) {
                return Err(Errno::EINVAL);
            }
            (
                0,
                if flags & MPOL_F_ADDR == 0 {
                    own.nodes
                } else {
                    0
                },
            )
        }
        MPOL_F_ADDR => (MPOL_DEFAULT, 0),
        _ if address != 0 => return Err(Errno::EINVAL),
        _ => (own.mode, own.nodes),
    };
    if mode != 0 {
        user::write(kernel.memory_mut(), mode, &number)?;
    }
    if mask != 0 {
        let words = (room - 1).div_ceil(WORD);
        if words > PAGE_SIZE / 8 {
            return Err(Errno::EINVAL);
        }
        for word in 0..words {
            let value = if word == 0 { nodes } else { 0 };
            user::write(kernel.memory_mut(), mask.wrapping_add(word * 8), &value)?;
        }
    }
    Ok(0)
}

/// Checks that flags say to move pages in a way that the caller may.
fn check_move(kernel: &Kernel, flags: u64, known: u64) -> Result<(), Errno> {
    match () {
        () if flags & !known != 0 => Err(Errno::EINVAL),
        () if flags & MPOL_MF_MOVE_ALL != 0 && !kernel.process().has(CAP_SYS_NICE) => {
            Err(Errno::EPERM)
        }
        () => Ok(()),
    }
}

fn mbind(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [start, length, mode, mask, room, flags] = *a;
    let nodes = read_nodes(kernel, mask, room)?;
    check_move(
        kernel,
        flags,
        MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL,
    )?;
    if !start.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let length = length.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    if end == start {
        return Ok(0);
    }
    policy(mode, nodes)?;
    let mut at = start;
    while at < end {
        let (_, vma) = kernel.memory().vmas().find(at).ok_or(Errno::EFAULT)?;
        at = vma.end;
    }
    Ok(0)
}

fn migrate_pages(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [pid, room, old, new, ..] = *a;
    read_nodes(kernel, old, room)?;
    let new = read_nodes(kernel, new, room)?;
    inspectable(kernel, pid)?;
    match new & NODES {
        0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// Finds the process of a task whose pages the caller may move.
fn inspectable(kernel: &mut Kernel, pid: u64) -> Result<u32, Errno> {
    let tid = find_task(kernel, pid)?;
    let task = kernel.tasks.get(tid).ok_or(Errno::ESRCH)?;
    let (own, target) = (kernel.process(), &kernel.processes[task.process]);
    let is_own = own.pid == target.pid;
    let may = (own.credentials()).may_inspect(target.credentials(), target.files.dumpable == 1);
    match is_own || may {
        true => Ok(tid),
        false => Err(Errno::EPERM),
    }
}

fn move_pages(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    /// Most pages of one call: the call does not let other tasks run.
    const MOST: u64 = 1 << 20;
    let [pid, count, pages, nodes, status, flags] = *a;
    if count > MOST {
        return Err(Errno::E2BIG);
    }
    check_move(kernel, flags, MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)?;
    let tid = inspectable(kernel, pid)?;
    for n in 0..count {
        let address: u64 = user::read(kernel.memory_mut(), pages.wrapping_add(n * 8))?;
        if nodes != 0 {
            let node: i32 = user::read(kernel.memory_mut(), nodes.wrapping_add(n * 4))?;
            if node != 0 {
                return Err(Errno::ENODEV);
            }
        }
        let task = kernel.tasks.get(tid).ok_or(Errno::ESRCH)?;
        let memory = &kernel.spaces[kernel.processes[task.process].space].memory;
        let page = address & !(PAGE_SIZE - 1);
        let is_here = page < USER_END && memory.vmas().find(page).is_some();
        let found = match is_here {
            false => -i32::from(Errno::EFAULT.number()),
            true if memory.resident(page..page + PAGE_SIZE) == 0 => {
                -i32::from(Errno::ENOENT.number())
            }
            true => 0,
        };
        let at = status.wrapping_add(n * 4);
        user::write(kernel.memory_mut(), at, &found)?;
    }
    Ok(0)
}
