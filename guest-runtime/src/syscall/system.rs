//! The system: its names, its size, the processor's properties.

use super::Entry;
use crate::clock::{self, SECOND};
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::scheduler::load::FRACTION;
use crate::user;
use hartline_abi::layout::USER_END;
use hartline_linux::syscall::nr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::uname, uname),
    (nr::sethostname, not_permitted),
    (nr::setdomainname, not_permitted),
    (nr::sysinfo, sysinfo),
    (nr::riscv_hwprobe, riscv_hwprobe),
];

/// `uname -s`, `-n`, `-r`, `-v`, `-m` and the NIS domain.
pub const NAMES: [&str; 6] = [
    "Linux",
    "hartline",
    "6.12.0-hartline",
    "#1 SMP Hartline",
    "riscv64",
    "(none)",
];

fn uname(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const FIELD: usize = 65;
    let mut bytes = [0; FIELD * NAMES.len()];
    for (field, name) in bytes.chunks_exact_mut(FIELD).zip(NAMES) {
        field[..name.len()].copy_from_slice(name.as_bytes());
    }
    user::write_bytes(&mut kernel.memory, arguments[0], &bytes)?;
    Ok(0)
}

fn not_permitted(_: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    Err(Errno::EPERM)
}

/// `struct sysinfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
struct SysInfo {
    uptime: u64,
    loads: [u64; 3],
    total_ram: u64,
    free_ram: u64,
    shared_ram: u64,
    buffer_ram: u64,
    total_swap: u64,
    free_swap: u64,
    processes: u16,
    padding: [u16; 3],
    total_high: u64,
    free_high: u64,
    unit: u32,
    padding2: u32,
}

const _: () = assert!(size_of::<SysInfo>() == 112);

fn sysinfo(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    /// From the bits behind the point of a load average to those that are told.
    const SHIFT: u32 = 16 - FRACTION;
    kernel.account_time();
    let (total, used) = {
        let frames = kernel.memory.frames().lock();
        (frames.ram().length(), frames.used())
    };
    let info = SysInfo {
        uptime: clock::since_boot() / SECOND,
        loads: kernel.scheduler.load.averages.map(|load| load << SHIFT),
        total_ram: total,
        free_ram: total - used,
        shared_ram: 0,
        buffer_ram: 0,
        total_swap: 0,
        free_swap: 0,
        processes: kernel.scheduler.task_count() as u16,
        padding: [0; 3],
        total_high: 0,
        free_high: 0,
        unit: 1,
        padding2: 0,
    };
    user::write(&mut kernel.memory, arguments[0], &info)?;
    Ok(0)
}

/// The value of a key of `riscv_hwprobe`, if the key is known.
fn hardware_property(key: i64) -> Option<u64> {
    const MVENDORID: i64 = 0;
    const MARCHID: i64 = 1;
    const MIMPID: i64 = 2;
    const BASE_BEHAVIOR: i64 = 3;
    const IMA_EXT_0: i64 = 4;
    const CPUPERF_0: i64 = 5;
    const ZICBOZ_BLOCK_SIZE: i64 = 6;
    const HIGHEST_VIRT_ADDRESS: i64 = 7;
    const TIME_CSR_FREQ: i64 = 8;
    const MISALIGNED_SCALAR_PERF: i64 = 9;
    const MISALIGNED_VECTOR_PERF: i64 = 10;
    /// I, M and A.
    const BASE_IMA: u64 = 1;
    /// F and D; C; Zba; Zbb; Zbs; Zbc; Zicond.
    const EXTENSIONS: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 35;
    const MISALIGNED_FAST: u64 = 3;
    const VECTOR_UNSUPPORTED: u64 = 4;
    match key {
        MVENDORID | MARCHID | MIMPID => Some(0),
        BASE_BEHAVIOR => Some(BASE_IMA),
        IMA_EXT_0 => Some(EXTENSIONS),
        CPUPERF_0 | MISALIGNED_SCALAR_PERF => Some(MISALIGNED_FAST),
        MISALIGNED_VECTOR_PERF => Some(VECTOR_UNSUPPORTED),
        ZICBOZ_BLOCK_SIZE => Some(0),
        HIGHEST_VIRT_ADDRESS => Some(USER_END - 1),
        TIME_CSR_FREQ => Some(0),
        _ => None,
    }
}

fn riscv_hwprobe(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const PAIR: u64 = 16;
    const WHICH_CPUS: u64 = 1;
    let [pairs, count, set_length, set, flags, _] = *arguments;
    if flags & !WHICH_CPUS != 0 || count > 1 << 16 {
        return Err(Errno::EINVAL);
    }
    let which = flags == WHICH_CPUS;
    let cpus = probed_cpus(kernel, (set, set_length), which)?;
    let mut all_match = true;
    for index in 0..count {
        let address = pairs.wrapping_add(index * PAIR);
        let [key, asked]: [u64; 2] = user::read(&mut kernel.memory, address)?;
        let value = match hardware_property(key.cast_signed()) {
            // The clock that `rdtime` reads.
            Some(_) if key == 8 => Some(kernel.host.boot().tsc_hz),
            value => value,
        };
        let pair = match value {
            Some(value) if which => {
                all_match &= match IS_SET.contains(&key) {
                    true => value & asked == asked,
                    false => value == asked,
                };
                continue;
            }
            Some(value) => [key, value],
            None => [u64::MAX, 0],
        };
        all_match = false;
        user::write(&mut kernel.memory, address, &pair)?;
    }
    if which {
        // All harts are the same.
        let cpus = if all_match { cpus } else { 0 };
        let mut bytes = alloc::vec![0; set_length.min(MAX_SET) as usize];
        let count = bytes.len().min(8);
        bytes[..count].copy_from_slice(&cpus.to_le_bytes()[..count]);
        user::write_bytes(&mut kernel.memory, set, &bytes)?;
    }
    Ok(0)
}

/// Keys of `riscv_hwprobe` whose values are sets: base behaviour, extensions, speed.
const IS_SET: [u64; 3] = [3, 4, 5];
/// Longest set of vCPUs that is looked at (`cpumask_size` is less), bytes.
const MAX_SET: u64 = 1024;

/// The vCPUs that `riscv_hwprobe` is asked about, as a set of bits: all of them without a
/// set, and if none is in it when it asks which.
fn probed_cpus(kernel: &mut Kernel, (set, length): (u64, u64), which: bool) -> Result<u64, Errno> {
    let online = u64::MAX >> (64 - kernel.host.boot().cpus.clamp(1, 64));
    if set == 0 || length == 0 {
        return match set == 0 && length == 0 && !which {
            true => Ok(online),
            false => Err(Errno::EINVAL),
        };
    }
    let bytes = user::slice(&mut kernel.memory, set, length.min(MAX_SET))?;
    let mut low = [0; 8];
    let count = bytes.len().min(8);
    low[..count].copy_from_slice(&bytes[..count]);
    let is_empty = bytes.iter().all(|&byte| byte == 0);
    match u64::from_le_bytes(low) & online {
        0 if which && is_empty => Ok(online),
        0 if !which => Err(Errno::EINVAL),
        cpus => Ok(cpus),
    }
}
