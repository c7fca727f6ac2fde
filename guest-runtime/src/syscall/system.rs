//! The system: its names, its size, the CPU's properties.

use super::Entry;
use crate::arch::clock::{self, SECOND};
use crate::convert::{low_i32, low_u16};
use crate::file::proc_text::FRACTION;
use crate::kernel::Kernel;
use crate::kernel::process::FIRST;
use crate::kernel::uts::UtsNames;
use crate::mm::user;
use alloc::string::String;
use hartline_abi::layout::USER_END;
use hartline_linux::capability::{CAP_SYS_ADMIN, CAP_SYS_TTY_CONFIG};
use hartline_linux::errno::Errno;
use hartline_linux::hwprobe::{
    RISCV_HWPROBE_BASE_BEHAVIOR_IMA, RISCV_HWPROBE_EXT_ZBA, RISCV_HWPROBE_EXT_ZBB,
    RISCV_HWPROBE_EXT_ZBC, RISCV_HWPROBE_EXT_ZBS, RISCV_HWPROBE_EXT_ZICOND, RISCV_HWPROBE_IMA_C,
    RISCV_HWPROBE_IMA_FD, RISCV_HWPROBE_KEY_BASE_BEHAVIOR, RISCV_HWPROBE_KEY_CPUPERF_0,
    RISCV_HWPROBE_KEY_HIGHEST_VIRT_ADDRESS, RISCV_HWPROBE_KEY_IMA_EXT_0, RISCV_HWPROBE_KEY_MARCHID,
    RISCV_HWPROBE_KEY_MIMPID, RISCV_HWPROBE_KEY_MISALIGNED_SCALAR_PERF,
    RISCV_HWPROBE_KEY_MISALIGNED_VECTOR_PERF, RISCV_HWPROBE_KEY_MVENDORID,
    RISCV_HWPROBE_KEY_TIME_CSR_FREQ, RISCV_HWPROBE_KEY_ZICBOZ_BLOCK_SIZE,
    RISCV_HWPROBE_MISALIGNED_FAST, RISCV_HWPROBE_MISALIGNED_VECTOR_UNSUPPORTED,
    RISCV_HWPROBE_WHICH_CPUS, RiscvHwprobe,
};
use hartline_linux::syscall::nr;
use hartline_linux::sysinfo::{SI_LOAD_SHIFT, Sysinfo};

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::uname, uname),
    (nr::vhangup, vhangup),
    (nr::sethostname, |kernel, a| {
        kernel.names.node = new_name(kernel, a)?;
        Ok(0)
    }),
    (nr::setdomainname, |kernel, a| {
        kernel.names.domain = new_name(kernel, a)?;
        Ok(0)
    }),
    (nr::sysinfo, sysinfo),
    (nr::riscv_hwprobe, riscv_hwprobe),
];

/// `uname -r`.
pub const RELEASE: &str = "6.12.0-hartline";
/// `uname -v`.
pub const VERSION: &str = "#1 SMP Hartline";

/// Succeeds for a process without a controlling terminal. Terminals cannot be hung up.
fn vhangup(kernel: &mut Kernel, _: &[u64; 6]) -> Result<u64, Errno> {
    let process = kernel.process();
    let session = process.terminal_session();
    let is_of_machine = session == FIRST && kernel.vfs.has_terminal();
    let has_terminal = is_of_machine || kernel.ptys.of_session(session).is_some();
    match process.has(CAP_SYS_TTY_CONFIG) && !has_terminal {
        true => Ok(0),
        false => Err(Errno::EPERM),
    }
}

fn uname(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const FIELD: usize = __NEW_UTS_LEN + 1;
    let UtsNames { node, domain } = &kernel.names;
    let names = ["Linux", node.as_str(), RELEASE, VERSION, "riscv64", domain];
    let mut bytes = [0; FIELD * 6];
    for (field, name) in bytes.chunks_exact_mut(FIELD).zip(names) {
        field[..name.len()].copy_from_slice(name.as_bytes());
    }
    user::write_bytes(kernel.memory_mut(), arguments[0], &bytes)?;
    Ok(0)
}

/// Longest name, bytes.
const __NEW_UTS_LEN: usize = 64;

/// Reads the new host name or domain.
fn new_name(kernel: &mut Kernel, a: &[u64; 6]) -> Result<String, Errno> {
    if !kernel.process().has(CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let length = match usize::try_from(low_i32(a[1])) {
        Ok(length) if length <= __NEW_UTS_LEN => length as u64,
        _ => return Err(Errno::EINVAL),
    };
    let mut name = user::slice(kernel.memory_mut(), a[0], length)?.to_vec();
    let end = name.iter().position(|&byte| byte == 0);
    name.truncate(end.unwrap_or(name.len()));
    String::from_utf8(name).map_err(|_| Errno::EINVAL)
}

fn sysinfo(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    /// The shift from the kernel's load-average fraction to `SI_LOAD_SHIFT`.
    const SHIFT: u32 = SI_LOAD_SHIFT - FRACTION;
    kernel.account_time();
    let (total, used) = {
        let frames = kernel.memory().frames().lock();
        (frames.ram().length(), frames.used())
    };
    let info = Sysinfo {
        uptime: clock::since_boot() / SECOND,
        loads: kernel.scheduler.load.averages.map(|load| load << SHIFT),
        totalram: total,
        freeram: total - used,
        procs: low_u16(kernel.task_count() as u64),
        mem_unit: 1,
        ..Sysinfo::default()
    };
    user::write(kernel.memory_mut(), arguments[0], &info)?;
    Ok(0)
}

/// The value of a key of `riscv_hwprobe`, if the key is known.
fn hardware_property(key: i64) -> Option<u64> {
    const EXTENSIONS: u64 = RISCV_HWPROBE_IMA_FD
        | RISCV_HWPROBE_IMA_C
        | RISCV_HWPROBE_EXT_ZBA
        | RISCV_HWPROBE_EXT_ZBB
        | RISCV_HWPROBE_EXT_ZBS
        | RISCV_HWPROBE_EXT_ZBC
        | RISCV_HWPROBE_EXT_ZICOND;
    match key {
        RISCV_HWPROBE_KEY_MVENDORID | RISCV_HWPROBE_KEY_MARCHID | RISCV_HWPROBE_KEY_MIMPID => {
            Some(0)
        }
        RISCV_HWPROBE_KEY_BASE_BEHAVIOR => Some(RISCV_HWPROBE_BASE_BEHAVIOR_IMA),
        RISCV_HWPROBE_KEY_IMA_EXT_0 => Some(EXTENSIONS),
        RISCV_HWPROBE_KEY_CPUPERF_0 | RISCV_HWPROBE_KEY_MISALIGNED_SCALAR_PERF => {
            Some(RISCV_HWPROBE_MISALIGNED_FAST)
        }
        RISCV_HWPROBE_KEY_MISALIGNED_VECTOR_PERF => {
            Some(RISCV_HWPROBE_MISALIGNED_VECTOR_UNSUPPORTED)
        }
        RISCV_HWPROBE_KEY_ZICBOZ_BLOCK_SIZE => Some(0),
        RISCV_HWPROBE_KEY_HIGHEST_VIRT_ADDRESS => Some(USER_END - 1),
        RISCV_HWPROBE_KEY_TIME_CSR_FREQ => Some(0),
        _ => None,
    }
}

fn riscv_hwprobe(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const PAIR: u64 = size_of::<RiscvHwprobe>() as u64;
    let [pairs, count, set_length, set, flags, _] = *arguments;
    if flags & !RISCV_HWPROBE_WHICH_CPUS != 0 || count > 1 << 16 {
        return Err(Errno::EINVAL);
    }
    let which = flags == RISCV_HWPROBE_WHICH_CPUS;
    let cpus = probed_cpus(kernel, (set, set_length), which)?;
    let mut all_match = true;
    for index in 0..count {
        let address = pairs.wrapping_add(index * PAIR);
        let RiscvHwprobe { key, value: asked } = user::read(kernel.memory_mut(), address)?;
        let value = match hardware_property(key) {
            // The frequency of the clock that `rdtime` reads.
            Some(_) if key == RISCV_HWPROBE_KEY_TIME_CSR_FREQ => Some(kernel.host.boot().tsc_hz),
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
            Some(value) => RiscvHwprobe { key, value },
            None => RiscvHwprobe { key: -1, value: 0 },
        };
        all_match = false;
        user::write(kernel.memory_mut(), address, &pair)?;
    }
    if which {
        // All harts are identical.
        let cpus = if all_match { cpus } else { 0 };
        let mut bytes = alloc::vec![0; set_length.min(MAX_SET) as usize];
        let count = bytes.len().min(8);
        bytes[..count].copy_from_slice(&cpus.to_le_bytes()[..count]);
        user::write_bytes(kernel.memory_mut(), set, &bytes)?;
    }
    Ok(0)
}

/// Keys of `riscv_hwprobe` whose values are sets.
const IS_SET: [i64; 3] = [
    RISCV_HWPROBE_KEY_BASE_BEHAVIOR,
    RISCV_HWPROBE_KEY_IMA_EXT_0,
    RISCV_HWPROBE_KEY_CPUPERF_0,
];
/// The longest vCPU set that is examined, bytes (Linux's `cpumask_size` is smaller).
const MAX_SET: u64 = 1024;

/// Returns the vCPUs that `riscv_hwprobe` is asked about, as a bit set. All vCPUs if no set is
/// given, or if the set is empty and the call asks which vCPUs match.
fn probed_cpus(kernel: &mut Kernel, (set, length): (u64, u64), which: bool) -> Result<u64, Errno> {
    let online = u64::MAX >> (64 - kernel.host.boot().cpus.clamp(1, 64));
    if set == 0 || length == 0 {
        return match set == 0 && length == 0 && !which {
            true => Ok(online),
            false => Err(Errno::EINVAL),
        };
    }
    let bytes = user::slice(kernel.memory_mut(), set, length.min(MAX_SET))?.to_vec();
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
