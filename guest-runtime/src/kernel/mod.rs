//! The state of the library OS, and the events that interrupt the running task.

pub mod aio;
pub mod call;
mod caller;
mod chaos;
mod checkpoint;
mod code;
mod core_dump;
pub mod current;
pub(crate) mod debug;
mod devices;
pub(crate) mod executable;
pub mod exit;
mod exports;
pub(crate) mod file_signals;
pub mod futex;
mod jit;
pub(crate) mod job_control;
pub mod lifecycle;
pub mod loader;
pub mod log;
pub(crate) mod oom;
pub(crate) mod parallel;
pub mod process;
pub(crate) mod ptrace;
pub mod random;
pub mod scheduler;
pub mod sequences;
pub mod signals;
pub mod space;
pub mod spawn;
pub mod stack;
pub mod table;
pub mod task;
mod timeline;
pub mod timers;
mod trace;
mod userfault;
pub mod uts;
mod waiting;
mod watch;

use crate::arch::host::Host;
use crate::arch::kick;
use crate::chaos::Chaos;
use crate::convert::low_u8;
use crate::drivers::streams::Streams;
use crate::exec::hotness::Counters;
use crate::exec::images::Images;
use crate::exec::jit::Jit;
use crate::exec::shadow::Shadow;
use crate::exec::translations::Translations;
use crate::file::Vfs;
use crate::file::mqueue::Queues;
use crate::file::pty::pair::Ptys;
use crate::fs;
use crate::fs::disks::Disks;
use crate::ipc::Ipc;
use crate::kernel::aio::FiredPolls;
use crate::kernel::call::Handlers;
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::core_dump::HostFile;
use crate::kernel::current::Current;
use crate::kernel::debug::Debugger;
use crate::kernel::exit::{Cause, End, Fault};
use crate::kernel::exports::Exports;
use crate::kernel::futex::Futexes;
use crate::kernel::log::KernelLog;
use crate::kernel::parallel::CpuState;
use crate::kernel::process::{FIRST, Process};
use crate::kernel::random::Random;
use crate::kernel::scheduler::Scheduler;
use crate::kernel::signals::{Delivery, SigInfo, Signals};
use crate::kernel::space::Space;
use crate::kernel::spawn::{Spawned, Starter};
use crate::kernel::table::{Slab, Table};
use crate::kernel::task::Task;
use crate::kernel::timers::TimerQueue;
use crate::kernel::uts::UtsNames;
use crate::mm::{self, Access, AddressSpace};
use crate::net::Network;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use hartline_abi::boot::{news, strace};
use hartline_abi::hart::{FAULT_PLACE_LONG, FAULT_PLACE_STORE, Hart, Kick};
use hartline_isa::Trap;
use hartline_linux::siginfo::{BUS_ADRERR, SEGV_ACCERR, SEGV_MAPERR, SI_USER};
use hartline_linux::signal::{
    SIGBUS, SIGILL, SIGINT, SIGQUIT, SIGSEGV, SIGTRAP, SIGTSTP, SIGWINCH,
};

/// Fraction of RAM (1/n) for POSIX message queues, and for those of System V.
const MESSAGES_SHARE: u64 = 8;

/// How the program continues after a system call or an interruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The program continues where it was.
    Continue,
    /// The program continues at `Hart::pc`, without any host frame.
    Restart,
    /// As `Restart`, but the registers belong to another task or program than before.
    Replaced,
    /// The program has ended.
    End(End),
}

/// The state of the library OS.
pub struct Kernel {
    /// The interface to the host.
    pub host: Host,
    /// All tasks, idle ones included.
    pub tasks: Table<Task>,
    /// All processes, zombies and the idle one included.
    pub processes: Table<Process>,
    /// All address spaces.
    pub spaces: Slab<Space>,
    /// What the vCPU that holds the lock runs.
    pub current: Current,
    /// Files of the VM.
    pub vfs: Vfs,
    /// Sockets.
    pub net: Network,
    /// Pseudo-terminals.
    pub ptys: Ptys,
    /// Block devices, and requests to volumes.
    pub disks: Disks,
    /// Standard streams.
    pub streams: Streams,
    /// The queues of tasks.
    pub scheduler: Scheduler,
    /// Tasks that wait for futexes.
    pub futexes: Futexes,
    /// System V IPC.
    pub ipc: Ipc,
    /// POSIX message queues.
    pub message_queues: Queues,
    /// Asynchronous I/O whose files may have become ready.
    polls: FiredPolls,
    /// Host name and domain.
    pub names: UtsNames,
    /// The kernel's log.
    pub log: KernelLog,
    /// Times at which timers expire.
    pub timers: TimerQueue,
    /// The foreground process group of the terminal.
    pub foreground: u32,
    /// Random numbers for the program.
    pub random: Random,
    /// The handlers of system calls.
    handlers: &'static Handlers,
    /// Executes the first program of a process that the host starts.
    starter: Starter,
    /// Processes that the host has started.
    pub(crate) spawned: Spawned,
    /// Calls between the host and the program.
    exports: Exports,
    /// The debugger, while one is connected.
    pub(crate) debugger: Option<Box<Debugger>>,
    /// Processes that trace others have begun to do so, and ends they have not waited for.
    pub(crate) tracing: ptrace::Tracing,
    /// How the program continues after the current system call.
    pub control: Control,
    /// Whether system calls are traced (`--strace`): one of [`hartline_abi::boot::strace`].
    pub traces: u32,
    /// The file for a core dump, if the host has one.
    core: Option<HostFile>,
    /// Whether system calls are traced, or filtered for any task (`seccomp`).
    pub(crate) watches: bool,
    /// Number of system calls so far.
    pub syscalls: u64,
    /// System calls that are not implemented: number and count, in the order of their first use.
    pub missing: Vec<[u32; 2]>,
    /// Number of times that translated code entered the interpreter.
    pub interpreter_entries: u64,
    /// Translation images from the host.
    pub(crate) translations: Translations,
    /// Translations of code that programs made.
    pub(crate) jit: Jit,
    /// Counters of interpreted code.
    pub hotness: Counters,
    /// The state of each vCPU.
    pub(crate) cpus: Vec<CpuState>,
    /// The vCPU that the kernel works for: the lock's holder, or its last holder.
    pub(crate) cpu: usize,
    hart: &'static Hart,
    pub(crate) interpret_only: bool,
    /// Memory around the last fetch from which the interpreter may fetch.
    fetch: Range<u64>,
    /// This memory, if its code is not that of an unchanged file.
    made: Range<u64>,
    /// The snapshot that the VMM writes at a checkpoint.
    checkpoint: Checkpoint,
    /// Decisions of chaos.
    pub(crate) chaos: Chaos,
    /// Checks of translated code (`--check`).
    pub(crate) shadow: Option<Box<Shadow>>,
}

impl Kernel {
    /// Creates the library OS for a program that runs on the first of `harts` in `memory`, with
    /// nothing loaded yet. `process` is the file state of its process. Idle vCPUs use `idle`. System
    /// calls are served by `handlers`, and processes of the host begin with `starter`.
    #[must_use]
    pub fn new(
        host: Host,
        harts: &[&'static Hart],
        memory: AddressSpace,
        idle: AddressSpace,
        (vfs, process): (Vfs, fs::process::Process),
        (handlers, starter): (&'static Handlers, Starter),
    ) -> Kernel {
        let boot = host.boot();
        process.registry.set_processors(boot.cpus);
        // The loopback interface.
        process.registry.set_interfaces(1);
        let mut seed = [0; 32];
        seed.copy_from_slice(&boot.seed[32..]);
        let shadow = (boot.chaos.check != 0).then(|| Box::new(Shadow::new()));
        let (mut tasks, mut processes) = (Table::default(), Table::default());
        let mut spaces = Slab::default();
        let images = Images::new(boot.variant);
        let space = spaces.insert(Space::new(memory, images));
        let process = processes.insert(FIRST, Process::new(boot, space, process));
        let current = Current {
            task: tasks.insert(FIRST, Task::new(FIRST, process)),
            process,
            space,
        };
        let mut kernel = Kernel {
            host,
            tasks,
            processes,
            spaces,
            current,
            vfs,
            net: Network::default(),
            ptys: Ptys::default(),
            disks: Disks::default(),
            streams: Streams::new(host),
            scheduler: Scheduler::new(FIRST),
            futexes: Futexes::default(),
            ipc: Ipc::new(boot.ram_length / MESSAGES_SHARE),
            message_queues: Queues::new(boot.ram_length / MESSAGES_SHARE),
            polls: FiredPolls::default(),
            names: UtsNames::default(),
            log: KernelLog::default(),
            timers: TimerQueue::default(),
            foreground: FIRST,
            random: Random::new(seed, Some(host)),
            handlers,
            starter,
            spawned: Spawned::new(host),
            exports: Exports::new(host),
            debugger: None,
            tracing: ptrace::Tracing::default(),
            control: Control::Continue,
            traces: boot.strace,
            core: HostFile::of(host),
            watches: boot.strace != strace::OFF,
            syscalls: 0,
            missing: Vec::new(),
            interpreter_entries: 0,
            translations: Translations::default(),
            jit: Jit::new(boot.ram_length),
            hotness: Counters::of(host),
            cpus: Vec::new(),
            cpu: 0,
            hart: harts[0],
            interpret_only: boot.interpret_only != 0,
            fetch: 0..0,
            made: 0..0,
            checkpoint: Checkpoint::new(boot.checkpoint),
            chaos: Chaos::new(boot.chaos),
            shadow,
        };
        kernel.add_cpus(harts, idle);
        kernel.use_dispatch_cache();
        kernel
    }

    /// The hart that made the current call.
    #[must_use]
    pub fn hart(&self) -> &'static Hart {
        self.hart
    }

    /// The words with which this vCPU is kicked.
    pub(crate) fn kick(&self) -> &'static Kick {
        &self.hart.kick
    }

    /// Sends the signal of a forbidden fetch at `Hart::pc`.
    pub(crate) fn fetch_fault(&mut self) {
        let pc = self.hart().pc.get();
        if self.reached_breakpoint(pc) {
            return;
        }
        let why = self.memory().check(pc, Access::Execute);
        let (signal, code) = fault_signal(why.err().unwrap_or(mm::Fault::NotMapped));
        self.fault(Fault {
            signal,
            code,
            cause: Cause::InstructionPageFault,
            address: pc,
            host: None,
        });
    }

    /// Moves the hart to the last checkpoint of translated code of the precise variant, whose text
    /// starts at `text`. If `behind` is set and the checkpoint is a store, the hart moves behind
    /// the store, which has been done.
    pub(crate) fn roll_back(&mut self, text: u64, behind: bool) {
        let hart = self.hart();
        let location = hart.fault_place.get();
        let distance = location & !(FAULT_PLACE_STORE | FAULT_PLACE_LONG);
        let is_store = location & FAULT_PLACE_STORE != 0;
        let length = match location & FAULT_PLACE_LONG {
            _ if !(is_store && behind) => 0,
            0 => 2,
            _ => 4,
        };
        hart.pc.set(text.wrapping_add(u64::from(distance) + length));
    }

    /// The address that the interpreted instruction accesses, and whether it writes there.
    pub(crate) fn interpreted_access(&mut self) -> Option<(u64, bool)> {
        let hart = self.hart;
        self.interpreter().access(hart)
    }

    /// Makes the interpreter execute instructions up to a fault.
    pub(crate) fn replay(&mut self) {
        self.cpus[self.cpu].replaying = true;
    }

    /// Ends [`replay`](Self::replay), after the fault or because there is none.
    pub(crate) fn end_replay(&mut self) {
        self.cpus[self.cpu].replaying = false;
    }

    /// Sends the signal of a fault with exact registers.
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.end_replay();
        let info = SigInfo::fault(fault.signal, fault.code, fault.address);
        if !self.signals().handles(fault.signal) {
            self.task_mut().fault = Some(fault);
        }
        self.signals().send_fault(info);
        self.kick_self();
    }

    pub(crate) fn kick_self(&self) {
        kick::kick(self.kick());
    }

    /// Whether the host or the kernel has kicked the hart ([`serve_kick`](Self::serve_kick)).
    pub(crate) fn is_kicked(&self) -> bool {
        kick::is_kicked(self.kick())
    }

    /// Whether the host has signals for the program, other than a new size of its terminal.
    pub(super) fn has_signals(&self) -> bool {
        let shared = self.host.shared().as_ptr();
        // SAFETY: the shared pages stay mapped; the word is atomic.
        let signals = unsafe { (*shared).signals.load(Ordering::SeqCst) };
        signals & !(1 << (SIGWINCH - 1)) != 0
    }

    /// Takes the signals of the host: signals of the terminal are for its foreground process group,
    /// others for the first process.
    pub(crate) fn absorb_signals(&mut self) {
        let shared = self.host.shared().as_ptr();
        // SAFETY: the shared pages stay mapped; the word is atomic.
        let signals = unsafe { &(*shared).signals };
        let mut set = signals.swap(0, Ordering::SeqCst);
        while set != 0 {
            let signal = low_u8(set.trailing_zeros().into()) + 1;
            set &= set - 1;
            if self.checkpoint.takes(signal) {
                self.kick_self();
                continue;
            }
            // The user may end a program that waits for a debugger. Its own signals, such as those of timers and
            // children, wait too.
            if self.debugger.is_none() && signal != SIGWINCH {
                self.release_hold(FIRST);
            }
            let info = SigInfo::sent(signal, SI_USER, 0, 0);
            match signal {
                SIGINT | SIGQUIT | SIGTSTP | SIGWINCH => {
                    self.signal_group(self.foreground, info);
                }
                _ => self.signal_process(FIRST, info),
            }
        }
    }

    /// Whether a signal is deliverable: a blocking call then returns `EINTR`. Otherwise the call
    /// continues to wait although the host has interrupted it.
    pub fn interrupted(&mut self) -> bool {
        self.absorb_signals();
        self.signals().is_deliverable()
    }

    /// Continues the running task at `Hart::pc` without host frames: repeats its system call, if it
    /// waited in one, and serves a kick.
    pub(crate) fn resume(&mut self) -> Control {
        self.arm_safepoints();
        if core::mem::take(&mut self.task_mut().awaits_page) && !self.wait() {
            return Control::Restart;
        }
        if let Some(start) = self.task_mut().start.take() {
            return self.begin_program(start);
        }
        if let Some(control) = self.resume_crashed() {
            return control;
        }
        if let Some(control) = self.resume_traced_call() {
            return control;
        }
        if self.task().retry.is_some() {
            if self.is_held() {
                self.suspend();
                return Control::Restart;
            }
            let tid = self.task().tid;
            let control = self.system_call();
            let is_done = self.task().tid == tid && self.task().retry.is_none();
            if is_done && self.is_stepped() {
                self.after_step(None);
            }
            return control;
        }
        self.chaos.set_quiet(true);
        let control = self.serve_kick();
        self.chaos.set_quiet(false);
        control
    }

    /// Serves a kick: delivers signals, and switches tasks if the time slice is over. The program
    /// continues at `Hart::pc`.
    #[inline]
    pub(crate) fn serve_kick(&mut self) -> Control {
        match self.is_kicked() {
            true => self.serve_kick_now(),
            false => Control::Continue,
        }
    }

    /// Serves a kick that has come.
    #[inline(never)]
    fn serve_kick_now(&mut self) -> Control {
        kick::clear_kick(self.hart);
        self.arm_safepoints();
        let is_changed = self.drop_changed_code();
        let news = self.host.take_news();
        if news & news::IMAGES != 0 {
            self.renew_translations();
        }
        if news & news::JIT != 0 {
            self.take_optimised();
        }
        self.absorb_signals();
        if self.checkpoint.is_due() {
            self.stand_aside();
            return Control::Restart;
        }
        self.poll_network();
        self.serve_disks();
        self.serve_host();
        self.wake_for_call();
        if let Some(end) = self.serve_dump() {
            return Control::End(end);
        }
        self.enter_wanted_stop();
        if self.must_stand(self.task()) {
            // A thread on another vCPU has stopped the process, or a debugger has.
            self.suspend();
            return Control::Restart;
        }
        if !self.may_stay() {
            self.move_away();
            return Control::Restart;
        }
        self.await_announced();
        self.run_timers();
        self.run_cpu_timers();
        let is_renewed = self.renew_jit() || is_changed;
        match self.deliver() {
            Control::Continue if self.preempt() || is_renewed => Control::Restart,
            Control::Continue => self.disturb(),
            control => control,
        }
    }

    /// Delivers pending signals.
    fn deliver(&mut self) -> Control {
        if self.intercept_signal() || self.stop_with_signal() {
            return Control::Restart;
        }
        if self.traces != strace::OFF
            && let Some(info) = self.signals().next_info()
        {
            self.trace_signal(&info);
        }
        self.settle_timer_signals(!self.task().signals.blocked());
        let is_moved = self.settle_sequence();
        let mut signals = Signals {
            process: &mut self.processes[self.current].signals,
            thread: &mut self.tasks[self.current].signals,
        };
        let memory = &mut self.spaces[self.current].memory;
        match signals.deliver(self.hart, memory) {
            Delivery::Nothing if is_moved => {
                // There may be another task.
                self.kick_self();
                Control::Restart
            }
            Delivery::Nothing => Control::Continue,
            // There may be more signals, or another task.
            Delivery::Ignored => {
                self.kick_self();
                Control::Restart
            }
            Delivery::Stop(signal) => {
                self.stop_process(signal);
                self.kick_self();
                Control::Restart
            }
            Delivery::Handler => {
                self.end_replay();
                if self.task().debug.step.is_some() {
                    self.after_step(None);
                }
                // One frame at a time: as on Linux, the next signal interrupts the handler at its
                // first instruction.
                self.kick_self();
                Control::Restart
            }
            Delivery::Terminate(info) if self.stop_at_end_by(info) => Control::Restart,
            Delivery::Terminate(info) => {
                let signal = info.signal();
                self.task_mut().fatal = Some(info);
                Control::End(match self.task_mut().fault.take() {
                    Some(fault) if fault.signal == signal => End::Fault(fault),
                    _ => End::Signaled(signal),
                })
            }
        }
    }

    /// Handles a trap of the instruction at `Hart::pc`.
    pub(crate) fn trap(&mut self, trap: Trap) -> Control {
        let pc = self.hart().pc.get();
        let (signal, cause, address) = match trap {
            Trap::EnvironmentCall => return self.system_call(),
            Trap::Breakpoint if self.reached_breakpoint(pc) => {
                return match self.serve_kick() {
                    Control::Continue => Control::Restart,
                    control => control,
                };
            }
            Trap::Breakpoint => (SIGTRAP, Cause::Breakpoint, pc),
            Trap::IllegalInstruction => (SIGILL, Cause::IllegalInstruction, pc),
            Trap::LoadMisaligned(address) => (SIGBUS, Cause::LoadMisaligned, address),
            Trap::StoreMisaligned(address) => (SIGBUS, Cause::StoreMisaligned, address),
        };
        self.fault(Fault {
            signal,
            // ILL_ILLOPC, TRAP_BRKPT, BUS_ADRALN.
            code: 1,
            cause,
            address,
            host: None,
        });
        match self.serve_kick() {
            Control::Continue => Control::Restart,
            control => control,
        }
    }
}

/// The signal of a forbidden memory access, and its `si_code`.
pub(crate) fn fault_signal(fault: mm::Fault) -> (u8, i32) {
    match fault {
        mm::Fault::NotPermitted => (SIGSEGV, SEGV_ACCERR),
        mm::Fault::BeyondEnd | mm::Fault::OfProgram => (SIGBUS, BUS_ADRERR),
        mm::Fault::NotMapped | mm::Fault::Exhausted => (SIGSEGV, SEGV_MAPERR),
    }
}

impl core::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kernel")
            .field("task", self.task())
            .field("memory", self.memory())
            .finish_non_exhaustive()
    }
}
