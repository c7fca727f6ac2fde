//! Snapshots: the checkpoint at which the VMM writes RAM to a file, and the continuation of a VM that
//! starts with such RAM.
//!
//! At a checkpoint all vCPUs run their idle tasks, so the registers of all tasks are in RAM and there
//! are no host frames. The last vCPU that leaves its task makes it, with the kernel's lock.

use crate::arch::clock;
use crate::arch::cpus;
use crate::arch::kick;
use crate::drivers::StartError;
use crate::drivers::tree_reader::TreeReader;
use crate::drivers::vectors;
use crate::exec::interp::fcsr;
use crate::exec::jit::Jit;
use crate::kernel::Kernel;
use crate::kernel::core_dump::HostFile;
use crate::kernel::random::Random;
use crate::mm::Exhausted;
use core::mem;
use hartline_abi::boot::strace;
use hartline_abi::call::Operation;
use hartline_abi::checkpoint::{SEED, SIGNAL, trigger};
use hartline_abi::image::variant;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;

/// Number of register a7, which has the number of a system call.
const A7: usize = 17;

/// When a checkpoint is made.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// One of [`trigger`].
    trigger: u32,
    /// The trigger was reached. Only a signal makes another checkpoint.
    is_reached: bool,
    /// The checkpoint must be made before a task runs.
    is_due: bool,
}

impl Checkpoint {
    /// A checkpoint at a [`trigger`].
    pub const fn new(trigger: u32) -> Self {
        Self {
            trigger,
            is_reached: trigger == trigger::IDLE,
            is_due: trigger == trigger::RESTORED,
        }
    }

    /// Whether a checkpoint must be made before a task runs.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Makes the checkpoint due, unless there was one.
    fn reach(&mut self) {
        self.is_due |= !core::mem::replace(&mut self.is_reached, true);
    }

    /// Whether the checkpoint is due now because a task waits for a call of the host for the first time.
    pub fn reach_call(&mut self) -> bool {
        let reached = self.trigger == trigger::CALL && !self.is_reached;
        if reached {
            self.reach();
        }
        reached
    }

    /// Whether a signal from outside is for the checkpoint, which is due then or when no task can run, and not
    /// for the program.
    pub fn takes(&mut self, signal: u8) -> bool {
        match self.trigger {
            trigger::SIGNAL if signal == SIGNAL => self.is_due = true,
            trigger::IDLE if signal == SIGNAL => self.is_reached = false,
            _ => return false,
        }
        true
    }
}

impl Kernel {
    /// Makes a checkpoint due if the current call is the first read of standard input. The call is
    /// repeated after it.
    pub(super) fn note_first_read(&mut self) {
        if self.streams.take_checkpoint() {
            self.checkpoint.reach();
            self.make_next();
        }
    }

    /// Makes a checkpoint due if no task can run and a task waits for a connection or for files.
    pub(super) fn reaches_checkpoint(&mut self) -> bool {
        let Checkpoint {
            trigger,
            is_reached,
            ..
        } = self.checkpoint;
        let is_when_idle = matches!(trigger, trigger::LISTEN | trigger::IDLE);
        let reached = is_when_idle && !is_reached && self.is_listening();
        if reached {
            self.checkpoint.reach();
        }
        reached
    }

    /// Whether a task waits for a connection, or for events of several files that are not answers of other hosts.
    fn is_listening(&self) -> bool {
        if self.net.awaits_answers() {
            return false;
        }
        let running = self.task().tid;
        self.tasks().filter(|task| task.wait.is_some()).any(|task| {
            let call = match &task.registers {
                _ if task.tid == running => self.hart().x(A7),
                Some(registers) => registers.x[A7],
                None => return false,
            };
            let calls = [
                nr::accept,
                nr::accept4,
                nr::epoll_pwait,
                nr::epoll_pwait2,
                nr::ppoll,
                nr::pselect6,
            ];
            calls.contains(&call)
        })
    }

    /// Makes the checkpoint if it is due, and switches to the next task that can run. The idle task of the
    /// only vCPU runs.
    pub(crate) fn leave_idle(&mut self) {
        self.make_checkpoint();
        let next = self.next_task();
        self.switch_to(next);
    }

    /// Makes the checkpoint if it is due, or if no task can run and one waits for connections or files, as soon as
    /// no vCPU runs a task. Returns whether it is due: then this vCPU must not take a task. Its idle task runs.
    pub(super) fn serve_checkpoint(&mut self) -> bool {
        if self.checkpoint.trigger == trigger::NONE {
            return false;
        }
        let others = self.cpus.iter().enumerate();
        let busy = others.filter(|&(number, cpu)| number != self.cpu && cpu.current != cpu.idle);
        let mut is_any_busy = false;
        for (_, cpu) in busy {
            is_any_busy = true;
            if self.checkpoint.is_due {
                kick::kick(cpu.kick);
            }
        }
        if !is_any_busy
            && (self.checkpoint.is_due || !self.scheduler.has_ready() && self.reaches_checkpoint())
        {
            self.make_checkpoint();
        }
        self.checkpoint.is_due
    }

    /// Makes the checkpoint if it is due. All vCPUs run their idle tasks.
    fn make_checkpoint(&mut self) {
        if !mem::take(&mut self.checkpoint.is_due) {
            return;
        }
        // A VM that is reset goes on with the page table that it has now, and another one with the boot page table
        // (`cpus::start_over`). Loading a page table costs two exits on some hosts.
        if cpus::several() {
            cpus::load_boot_table();
        }
        // The VMM reports errors. The program goes on in any case.
        let _ = self.streams.flush();
        let frames = self.memory().frames().lock().table();
        let mut args = [clock::monotonic(), 0, frames, 0, 0, 0];
        let _ = self.host.call(Operation::Checkpoint, &mut args);
        if args[1] != 0 {
            self.begin_again();
        }
    }

    /// Continues after the VM was reset to the checkpoint: nothing secret may be as it was before. Devices,
    /// translations and the clock are those of the checkpoint.
    fn begin_again(&mut self) {
        let mut seed = [0; SEED];
        seed.copy_from_slice(&self.host.call_data()[..SEED]);
        self.random.replace_seed(seed);
        self.note_generation();
        for space in self.spaces.iter_mut() {
            // Without RAM for it, the ranges would not have been at the checkpoint.
            let _ = space.memory.wipe_on_fork();
        }
        self.announce_time();
        self.kick_self();
    }

    /// Continues in another VM, which has the RAM of a checkpoint, new shared pages and new devices, on its first
    /// vCPU. The idle tasks run.
    ///
    /// # Errors
    /// The VMM refuses interrupt vectors, or RAM is used up.
    #[cold]
    pub(crate) fn continue_elsewhere(&mut self) -> Result<(), Errno> {
        let boot = self.host.boot();
        clock::set_up(boot);
        self.start_cpus_over();
        fcsr::fcsr_reset(self.hart());
        let mut seed = [0; 32];
        seed.copy_from_slice(&boot.seed[32..]);
        self.random = Random::new(seed, Some(self.host));
        self.streams.restart();
        self.spawned.restart(self.host);
        self.exports.restart(self.host);
        self.checkpoint = Checkpoint::new(boot.checkpoint);
        self.interpret_only = boot.interpret_only != 0;
        self.watches |= boot.strace != strace::OFF;
        self.traces = boot.strace;
        self.forget_host_memory();
        self.core = HostFile::of(self.host);
        self.note_generation();
        for space in self.spaces.iter_mut() {
            space
                .memory
                .wipe_on_fork()
                .map_err(|Exhausted| Errno::ENOMEM)?;
            if self.core.is_some() {
                // No task has host frames.
                space.images.variant = variant::PRECISE;
                space.images.stays_precise = true;
            }
        }
        if self.scheduler.take_ticking() {
            self.start_ticking();
        }
        self.await_debugger();
        self.timers.forget_announced();
        self.announce_time();
        vectors::request(self.host)
    }

    /// Starts over with the network device of this VM, in the place of the one before the checkpoint.
    /// Without one before, it does nothing.
    ///
    /// # Errors
    /// [`StartError`].
    #[cold]
    pub(crate) fn restart_network(&mut self) -> Result<(), StartError> {
        // SAFETY: the device belonged to the VM before the checkpoint, and cannot access this VM's RAM.
        let Some(lost) = (unsafe { self.net.lose_wire() }) else {
            return Ok(());
        };
        self.start_network()?;
        self.net.move_sockets(&lost);
        self.serve_wakeups();
        Ok(())
    }

    /// Forgets the translations, which are in memory of the VMM that this VM does not have, and which parts of
    /// files it has accessed.
    #[cold]
    fn forget_host_memory(&mut self) {
        let reader = TreeReader::leaked(self.host, &self.host.boot().files[0]);
        self.memory().frames().lock().set_file_reader(reader);
        self.translations.forget();
        self.jit = Jit::new(self.host.boot().ram_length);
        for space in self.spaces.iter_mut() {
            space.images.forget();
        }
        self.use_dispatch_cache();
    }
}
