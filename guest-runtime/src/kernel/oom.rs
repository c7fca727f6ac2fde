//! Out-of-memory handling: the process with the most memory is killed.

use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::signals::SigInfo;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::SIGKILL;

/// An address space, and the processes that use it.
struct Victim {
    space: Handle<Space>,
    /// Memory of the resident pages, bytes.
    size: u64,
    /// What `oom_score_adj` adds to the size, bytes.
    adjustment: i64,
    /// Processes of the address space, newest last.
    pids: Vec<u32>,
}

impl Kernel {
    /// Kills the process with the most memory, and frees the memory. Returns false if that is the
    /// running process, which the caller must end.
    pub(crate) fn free_memory(&mut self) -> bool {
        let Some(victim) = self.largest() else {
            return false;
        };
        if victim.space == self.process().space {
            // The end of the first process ends the VM, which reports the reason.
            if self.process().pid != crate::kernel::process::FIRST {
                self.tell_killed(self.process().pid, victim.size);
            }
            return false;
        }
        for &pid in &victim.pids {
            self.tell_killed(pid, victim.size);
            for tid in self.threads(pid) {
                self.take_from_cpu(tid);
            }
            self.signal_process(pid, SigInfo::sent(SIGKILL, SI_KERNEL, 0, 0));
        }
        self.spaces[victim.space].memory.empty()
    }

    /// The address space with the most memory; the newest of equal ones. `oom_score_adj` adds or
    /// subtracts thousandths of RAM, or exempts a process.
    fn largest(&self) -> Option<Victim> {
        const NEVER: i16 = -1000;
        let mut victims: Vec<Victim> = Vec::new();
        let adjustment = |process: &Process| process.files.oom_score.get().adjustment;
        let alive = |process: &&Process| !process.is_zombie() && adjustment(process) != NEVER;
        let thousandth = self.memory().frames().lock().ram().length().cast_signed() / 1000;
        for process in self.processes().filter(alive) {
            let known = victims.iter_mut();
            if let Some(victim) = { known }.find(|victim| victim.space == process.space) {
                victim.pids.push(process.pid);
                continue;
            }
            victims.push(Victim {
                space: process.space,
                size: self.spaces[process.space].memory.all_resident(),
                adjustment: i64::from(adjustment(process)) * thousandth,
                pids: Vec::from([process.pid]),
            });
        }
        victims.into_iter().max_by_key(|victim| {
            let score = victim.size.cast_signed() + victim.adjustment;
            (score, victim.pids.last().copied())
        })
    }

    /// Writes on standard error that a process is killed.
    fn tell_killed(&mut self, pid: u32, size: u64) {
        let name = self.tasks.get_mut(pid).map_or([0; 16], |task| task.name);
        let name: &[u8] = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let line = format!(
            "hartline: out of memory: killed process {pid} ({}), which had {} MiB\n",
            String::from_utf8_lossy(name).escape_debug(),
            size >> 20,
        );
        // If writing fails, the process is killed nevertheless.
        let _ = self.streams.write(2, line.as_bytes());
    }
}
