//! Contents of the files of `/sys` and `/sys/fs/cgroup`.

use super::proc_text::{Load, System};
use crate::fs::proc::{Node, Text};
use crate::fs::process::Process;
use alloc::string::String;
use core::fmt::Write;

/// Writes the contents of a file of this kind.
pub(super) fn write(
    out: &mut String,
    (node, text): (Node, Text),
    process: &Process,
    system: &dyn System,
) {
    // Writing to a string does not fail.
    let _ = match text {
        Text::CgroupProcs | Text::CgroupThreads => {
            let numbers = process.registry.numbers(text == Text::CgroupThreads);
            numbers
                .iter()
                .try_for_each(|number| writeln!(out, "{number}"))
        }
        Text::CgroupCpuStat | Text::CgroupPidsCurrent => usage(out, text, system.load()),
        Text::CgroupMemoryCurrent | Text::CgroupMemoryStat => {
            let memory = system.memory();
            let used = memory.total.saturating_sub(memory.free);
            match text {
                Text::CgroupMemoryCurrent => writeln!(out, "{used}"),
                _ => writeln!(
                    out,
                    "anon {used}\nfile 0\ninactive_anon 0\nactive_anon {used}\n\
                     inactive_file 0\nactive_file 0"
                ),
            }
        }
        _ => processors(out, text, node.processor(), system.processors()),
    };
}

/// Writes the files of the group about processor time and tasks.
fn usage(out: &mut String, text: Text, load: Load) -> core::fmt::Result {
    if text == Text::CgroupPidsCurrent {
        return writeln!(out, "{}", load.tasks);
    }
    let [all, system] = [load.cpu_time, load.system_time].map(|time| time / 1000);
    let user = all.saturating_sub(system);
    writeln!(
        out,
        "usage_usec {all}\nuser_usec {user}\nsystem_usec {system}\nnr_periods 0\n\
         nr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0"
    )
}

/// Writes a set of processors, of which there are `count`: all, or only `one`.
fn processors(out: &mut String, text: Text, one: Option<u32>, count: u32) -> core::fmt::Result {
    let count = count.clamp(1, u64::BITS);
    let one = one.unwrap_or(0).min(u64::BITS - 1);
    let set = match text {
        Text::CpuSet if count > 1 => return writeln!(out, "0-{}", count - 1),
        Text::CpuSet | Text::OneCpu => return writeln!(out, "{one}"),
        Text::OneCpuMask => 1 << one,
        _ => u64::MAX >> (u64::BITS - count),
    };
    // Words of 32 bits; as many digits as the set of all processors has.
    let digits = count.div_ceil(4) as usize;
    match digits.saturating_sub(8) {
        0 => writeln!(out, "{set:0digits$x}"),
        high => writeln!(out, "{:0high$x},{:08x}", set >> 32, set & 0xffff_ffff),
    }
}
