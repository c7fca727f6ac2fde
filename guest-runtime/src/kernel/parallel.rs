//! Tasks on several vCPUs: the vCPU that the kernel works for, idle vCPUs, and stopping tasks on
//! other vCPUs.
//!
//! Each vCPU has an idle task, all of them in one idle process, which "runs" while no other task
//! can. It never leaves the library OS. A task that runs on another vCPU differs from one that does
//! not run only in that it is not ready, and in that its registers are in the hart of that vCPU.

use crate::arch::clock;
use crate::arch::cpus;
use crate::arch::host::Host;
use crate::arch::kick;
use crate::exec::images::Images;
use crate::exec::interp::stretch::CpuInterpreter;
use crate::kernel::Kernel;
use crate::kernel::current::Current;
use crate::kernel::process::{IDLE, Process};
use crate::kernel::scheduler::{FIRST_IDLE, SPIN};
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::task::Task;
use crate::mm::AddressSpace;
use alloc::vec::Vec;
use core::ptr::addr_of;
use core::sync::atomic::Ordering;
use hartline_abi::boot::CpuWait;
use hartline_abi::hart::{Hart, Kick};

/// The activity of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// It runs a task, or was kicked to take one.
    Busy,
    /// It polls for a task.
    Idle,
    /// It has left the VM until it is woken.
    Asleep,
}

/// The state of a vCPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    /// Only code on the vCPU may access it.
    hart: *const Hart,
    pub(super) kick: &'static Kick,
    /// The running task.
    pub(super) current: Current,
    /// Its idle task.
    pub(super) idle: Current,
    activity: Activity,
    /// Its host frames must be dropped at the next safepoint, because its images or its task have
    /// changed.
    restart: bool,
    /// Its task was taken away: its state is discarded.
    lost: bool,
    /// When the running task was switched to, ns.
    pub(super) started: u64,
    /// The interpreter is executing from a checkpoint to the load that faulted.
    pub(super) replaying: bool,
    /// Its interpreter, which only code on the vCPU uses.
    pub(super) interpreter: *mut CpuInterpreter,
}

impl CpuState {
    fn new(hart: &'static Hart, current: Current, idle: Current) -> Self {
        Self {
            hart,
            kick: &hart.kick,
            current,
            idle,
            activity: match current == idle {
                true => Activity::Asleep,
                false => Activity::Busy,
            },
            restart: false,
            lost: false,
            started: clock::monotonic(),
            replaying: false,
            interpreter: CpuInterpreter::leak(),
        }
    }
}

impl Kernel {
    /// Adds the vCPUs with their harts and idle tasks; the first vCPU runs the current task. Idle
    /// vCPUs use `memory`.
    pub(super) fn add_cpus(&mut self, harts: &[&'static Hart], memory: AddressSpace) {
        let space = Space::new(memory, Images::default());
        let space = self.spaces.insert(space);
        let (mut io, first) = self.io();
        let mut files = io.vfs.fork(first, IDLE);
        io.close_all(&mut files);
        let mut process = Process::new(self.host.boot(), space, files);
        process.pid = IDLE;
        let process = self.processes.insert(IDLE, process);
        for (number, &hart) in (0..).zip(harts) {
            let tid = FIRST_IDLE + number;
            let task = Task {
                pid: IDLE,
                ..Task::new(tid, process)
            };
            let idle = Current {
                task: self.tasks.insert(tid, task),
                process,
                space,
            };
            let current = if number == 0 { self.current } else { idle };
            self.cpus.push(CpuState::new(hart, current, idle));
        }
    }

    /// Makes the kernel work for this vCPU, after it has taken the lock. Returns whether its host
    /// frames must be dropped.
    #[inline]
    pub(crate) fn adopt_cpu(&mut self) -> bool {
        if !cpus::several() {
            return false;
        }
        self.change_cpu(cpus::this());
        self.use_dispatch_cache();
        let state = &mut self.cpus[self.cpu];
        state.lost = false;
        let restarts = core::mem::take(&mut state.restart);
        if restarts {
            self.release_images();
        }
        restarts
    }

    /// As [`adopt_cpu`](Self::adopt_cpu), for an exception in code of the program. In translated code
    /// the program's registers are only in host registers, so host frames are dropped at once only if
    /// the task was taken away. Otherwise the code continues up to its next safepoint, for which the
    /// hart is kicked. The interpreter executes the instruction that was interrupted again.
    pub(crate) fn adopt_cpu_in_exception(&mut self) -> bool {
        if !cpus::several() {
            return false;
        }
        let state = &self.cpus[cpus::this()];
        // SAFETY: this vCPU's interpreter, which the exception has interrupted.
        let interprets = unsafe { (*state.interpreter).is_executing() };
        if state.lost || state.restart && interprets {
            return self.adopt_cpu();
        }
        self.change_cpu(cpus::this());
        self.use_dispatch_cache();
        if self.cpus[self.cpu].restart {
            kick::kick(self.kick());
        }
        false
    }

    /// Releases the windows of dropped images, unless another vCPU still executes their code.
    pub(crate) fn release_images(&mut self) {
        if !is_awaited(&self.cpus, self.memory()) {
            self.space_mut().images.release();
        }
    }

    /// As [`release_images`](Self::release_images), of another address space.
    pub(super) fn release_images_of(&mut self, handle: Handle<Space>) {
        let space = &mut self.spaces[handle];
        if !is_awaited(&self.cpus, &space.memory) {
            space.images.release();
        }
    }

    /// As [`release_images`](Self::release_images), for the images of all processes.
    pub(crate) fn release_all_images(&mut self) {
        for space in self.spaces.iter_mut() {
            if !is_awaited(&self.cpus, &space.memory) {
                space.images.release();
            }
        }
    }

    fn change_cpu(&mut self, cpu: usize) {
        if cpu == self.cpu {
            return;
        }
        self.cpu = cpu;
        let CpuState { hart, current, .. } = self.cpus[cpu];
        // SAFETY: harts are never freed, and this is the vCPU of this one.
        self.hart = unsafe { &*hart };
        let old = self.set_current(current);
        if old.space != current.space && !self.is_idle() {
            self.catch_up_translations();
        }
    }

    /// Number of instructions that all vCPUs have interpreted.
    pub(crate) fn interpreted(&self) -> u64 {
        // SAFETY: interpreters are never freed. Other vCPUs may be interpreting, so only the counters
        // are used, which are atomic.
        let count = |cpu: &CpuState| unsafe { CpuInterpreter::executed_on(cpu.interpreter) };
        self.cpus.iter().map(count).sum()
    }

    /// Tells idle vCPUs of ready tasks, and one of them of new times to wait for. Returns whether
    /// the host must wake any.
    pub(crate) fn rouse(&mut self) -> bool {
        let earlier = core::mem::take(&mut self.scheduler.has_earlier_event);
        let mut idle = 0u64;
        for (number, cpu) in self.cpus.iter().enumerate() {
            idle |= u64::from(cpu.activity != Activity::Busy) << number;
        }
        if idle == 0 {
            return false;
        }
        let mut kicked = 0u64;
        for affinity in self.ready_affinities() {
            let suited = affinity & idle & !kicked;
            // The lowest set bit.
            kicked |= suited & suited.wrapping_neg();
            if kicked == idle {
                break;
            }
        }
        if kicked == 0 && earlier && !self.is_idle() {
            kicked = idle & idle.wrapping_neg();
        }
        let mut wakes = false;
        for number in (0..self.cpus.len()).filter(|&number| kicked >> number & 1 != 0) {
            let cpu = &mut self.cpus[number];
            match cpu.activity {
                Activity::Busy => {}
                Activity::Idle => kick::kick(cpu.kick),
                Activity::Asleep => {
                    wakes = true;
                    wait_of(self.host, number).wake.store(1, Ordering::SeqCst);
                }
            }
            cpu.activity = Activity::Busy;
        }
        wakes
    }

    /// Whether this vCPU has no task.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.current == self.cpus[self.cpu].idle
    }

    /// Makes this idle vCPU run a task, if there is one. Returns whether there was.
    pub(crate) fn take_task(&mut self) -> bool {
        kick::clear_kick(self.hart());
        self.absorb_signals();
        self.poll_network();
        self.serve_disks();
        self.serve_host();
        self.settle_stop(true);
        self.expire_timers();
        if self.serve_checkpoint() {
            return false;
        }
        let next = self.take_ready();
        if let Some(next) = next {
            self.cpus[self.cpu].activity = Activity::Busy;
            self.switch_to(next);
        }
        next.is_some()
    }

    /// Works for the first vCPU of a VM with the RAM of a checkpoint, at which no vCPU ran a task. The others have
    /// not started.
    pub(super) fn start_cpus_over(&mut self) {
        let now = clock::monotonic();
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            cpu.activity = match number {
                0 => Activity::Busy,
                _ => Activity::Asleep,
            };
            (cpu.restart, cpu.lost, cpu.replaying) = (false, false, false);
            cpu.started = now;
        }
        self.change_cpu(0);
    }

    /// Starts polling for a task, until `poll_limit` is raised or the time is over.
    /// Returns the end of that time, ns.
    pub(crate) fn begin_idle(&mut self) -> u64 {
        self.cpus[self.cpu].activity = Activity::Idle;
        let now = clock::monotonic();
        let soon = now + SPIN.max(self.most_watching());
        match self.first_time() {
            // Leaving the VM would take longer.
            Some(at) if at < soon + SPIN => at,
            _ => soon,
        }
    }

    /// Prepares this vCPU to leave the VM until it is woken, unless a timer expires soon.
    pub(crate) fn begin_sleep(&mut self) -> Option<Host> {
        let now = clock::monotonic();
        let first = self.first_time();
        let left = first.map_or(u64::MAX, |at| at.saturating_sub(now));
        if left < SPIN {
            return None;
        }
        cpus::load_boot_table();
        let wait = wait_of(self.host, self.cpu);
        wait.timeout.store(left, Ordering::SeqCst);
        let input = u32::from(self.wants_input());
        wait.input.store(input, Ordering::SeqCst);
        self.cpus[self.cpu].activity = Activity::Asleep;
        Some(self.host)
    }

    /// Handles the return of this vCPU from its sleep.
    pub(crate) fn end_sleep(&mut self) {
        // Sample before tasks of expired timers become runnable.
        self.sample_load(clock::monotonic());
        self.cpus[self.cpu].activity = Activity::Busy;
        let wait = wait_of(self.host, self.cpu);
        wait.wake.store(0, Ordering::SeqCst);
        // The host is asked again, so that those who are woken find it: another vCPU may have read it
        // meanwhile.
        if wait.ready.swap(0, Ordering::SeqCst) != 0 {
            self.poll_input();
        }
    }

    /// The other vCPUs that run tasks.
    pub(crate) fn other_busy_cpus(&self) -> Vec<usize> {
        let cpus = self.cpus.iter().enumerate();
        let busy = cpus.filter(|&(number, cpu)| number != self.cpu && cpu.current != cpu.idle);
        busy.map(|(number, _)| number).collect()
    }

    /// The number of the vCPU that runs a task, if one does.
    fn cpu_of(&self, task: Handle<Task>) -> Option<usize> {
        let mut cpus = self.cpus.iter();
        cpus.position(|cpu| cpu.current.task == task)
    }

    /// CPU time that vCPUs have spent since their last task switch on what `chosen` selects, ns.
    pub(super) fn time_since_switch(&self, chosen: impl Fn(&Current) -> bool) -> u64 {
        let now = clock::monotonic();
        let cpus = self.cpus.iter().filter(|cpu| chosen(&cpu.current));
        cpus.map(|cpu| now.saturating_sub(cpu.started)).sum()
    }

    /// Kicks the vCPU that runs a task, if one does.
    pub(crate) fn ask_task(&self, task: Handle<Task>) {
        if let Some(cpu) = self.cpu_of(task) {
            kick::kick(self.cpus[cpu].kick);
        }
    }

    /// Kicks the vCPUs that run tasks of the running process.
    pub(super) fn ask_process(&self) {
        let process = self.current.process;
        for cpu in self
            .cpus
            .iter()
            .filter(|cpu| cpu.current.process == process)
        {
            kick::kick(cpu.kick);
        }
    }

    /// Takes a task away from the other vCPU that runs it, which becomes idle. The task's registers
    /// are lost.
    pub(crate) fn take_from_cpu(&mut self, tid: u32) {
        let cpu = self.tasks.handle(tid).and_then(|task| self.cpu_of(task));
        if let Some(cpu) = cpu.filter(|&cpu| cpu != self.cpu) {
            cpus::halt(cpu);
            self.take_identifier_of(tid);
            let state = &mut self.cpus[cpu];
            state.current = state.idle;
            state.restart = true;
            state.lost = true;
        }
    }

    /// Stops all other vCPUs that run code of the running process's address space, before its
    /// images change. When the lock is free they continue without host frames; one that was
    /// interrupted by an exception drops its frames at its next safepoint.
    pub(crate) fn stop_sharers(&mut self) {
        let table = self.memory().table_address();
        stop_users(&mut self.cpus, table);
    }

    /// As [`stop_sharers`](Self::stop_sharers), for another address space.
    pub(super) fn stop_users_of(&mut self, handle: Handle<Space>) {
        let table = self.spaces[handle].memory.table_address();
        stop_users(&mut self.cpus, table);
    }

    /// Makes all processes stop using translations of code that programs made, and stops the other
    /// vCPUs that run such code, as [`stop_sharers`](Self::stop_sharers) does.
    pub(super) fn drop_all_jit(&mut self) {
        for space in self.spaces.iter_mut() {
            if space.images.has_jit() {
                stop_users(&mut self.cpus, space.memory.table_address());
                space.images.drop_jit();
            }
        }
        self.release_all_images();
        self.use_dispatch_cache();
    }
}

/// Stops all other vCPUs that use a page table, whose host frames are dropped.
fn stop_users(states: &mut [CpuState], table: u64) {
    if !cpus::several() {
        return;
    }
    for cpu in cpus::users_of(table) {
        cpus::halt(cpu);
        states[cpu].restart = true;
    }
}

/// Whether another vCPU that was stopped may still execute code of dropped images in `memory`.
fn is_awaited(states: &[CpuState], memory: &AddressSpace) -> bool {
    let mut users = cpus::users_of(memory.table_address());
    cpus::several() && users.any(|cpu| states[cpu].restart)
}

/// The sleep settings of vCPU `cpu`.
fn wait_of(host: Host, cpu: usize) -> &'static CpuWait {
    // SAFETY: the shared pages stay mapped; all fields are atomics.
    unsafe { &(*addr_of!((*host.shared().as_ptr()).waits))[cpu] }
}
