//! System calls: dispatch to their handlers, waiting, and restart.

use crate::arch::clock;
use crate::kernel::timers::CpuClock;
use crate::kernel::{Control, Kernel};
use hartline_abi::chaos::Kind;
use hartline_abi::exports;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::{LIMIT, Restart, find, nr};

/// Serves one system call: `arguments` are `a0`–`a5`, the result goes to `a0`.
pub type Handler = fn(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno>;

/// The handler of each system call number.
pub type Handlers = [Option<Handler>; LIMIT];

/// One of this many system calls is timed, which takes longer than a short call itself; a prime,
/// since programs repeat sequences.
const SAMPLE: u64 = 31;
/// Length of `ecall`, bytes.
pub(in crate::kernel) const ECALL_LENGTH: u64 = 4;
/// Number of register a0 in the system call ABI.
const A0: usize = 10;
const A7: usize = 17;

impl Kernel {
    /// Serves the `ecall` at `Hart::pc`.
    pub(super) fn system_call(&mut self) -> Control {
        self.arm_safepoints();
        let hart = self.hart();
        hart.pc.set(hart.pc.get().wrapping_add(ECALL_LENGTH));
        let number = hart.x(A7);
        let arguments = hart.arguments();
        if self.watches
            && let Some(control) = self.watch(number, &arguments)
        {
            return control;
        }
        let result = loop {
            self.control = Control::Continue;
            if self.net.is_pending() {
                self.poll_network();
            }
            if self.disks.is_pending() {
                self.serve_disks();
            }
            let result = self.serve(number, &arguments);
            self.serve_wakeups();
            match (&self.control, result) {
                (Control::Replaced, _) => {
                    // `execve` has replaced the program.
                    self.trace_exit(Ok(0));
                    return Control::Restart;
                }
                (_, Err(Errno::ERESTARTSYS)) => self.note_first_read(),
                _ => break result,
            }
            // Other vCPUs see a waiting task before its `ecall`.
            let hart = self.hart();
            hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
            if !self.wait() || core::mem::take(&mut self.task_mut().debug.moved) {
                return Control::Restart;
            }
            // A debugger has changed code meanwhile: the host frames return to the old translation.
            if matches!(self.control, Control::Restart) {
                return Control::Restart;
            }
            let hart = self.hart();
            hart.pc.set(hart.pc.get().wrapping_add(ECALL_LENGTH));
        };
        if !self.task().registrations.is_empty() {
            self.leave_wait_queues(result.is_ok());
        }
        if result == Err(Errno::EINTR) && self.goes_on_after_stop(number) {
            let hart = self.hart();
            hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
            return self.deliver();
        }
        let task = self.task_mut();
        task.retry = None;
        let tid = task.tid;
        self.forget_disks(tid);
        if self.watches {
            self.trace_exit(result);
            self.catch_return(number);
            self.stop_at_return();
        }
        // Most calls leave `Continue`: then nothing is moved.
        if !matches!(self.control, Control::Continue) {
            match core::mem::replace(&mut self.control, Control::Continue) {
                Control::Continue | Control::Replaced => {}
                // It leaves no result in `a0`.
                Control::Restart if number == nr::rt_sigreturn => {
                    self.kick_self();
                    return Control::Restart;
                }
                Control::Restart => {
                    self.set_result(result);
                    return Control::Restart;
                }
                end @ Control::End(_) => return end,
            }
        }
        self.set_result(result);
        if result == Err(Errno::EINTR) {
            self.maybe_repeat(number, &arguments);
        }
        self.after_call()
    }

    /// Delivers signals after a call, and serves a kick.
    #[inline]
    pub(super) fn after_call(&mut self) -> Control {
        self.notice_changed_code();
        if self.signals().is_deliverable() {
            return self.deliver();
        }
        if self.chaos.does(Kind::Switch) && self.yield_now() {
            return Control::Restart;
        }
        self.serve_kick()
    }

    /// Ends the wait of a call that was woken alone. If the call failed it has not used the
    /// wake-up, which another task gets.
    fn leave_wait_queues(&mut self, used: bool) {
        match used {
            true => self.task_mut().registrations.clear(),
            false => self.task_mut().pass_on(),
        }
        self.wake_tasks();
    }

    pub(super) fn set_result(&mut self, result: Result<u64, Errno>) {
        self.hart()
            .set_x(A0, result.unwrap_or_else(Errno::as_result));
    }

    /// Whether the interrupted call is repeated, with its old time limit, when the process
    /// continues after the signal that stops it now.
    fn goes_on_after_stop(&mut self, number: u64) -> bool {
        let restart = find(number).map(|call| call.restart);
        let goes_on = self.signals().next_stops() && restart.is_some_and(Restart::after_stop);
        if goes_on && self.task().retry.is_none() {
            // The repeated call starts again, and sets its mask again.
            self.task_mut().signals.restore_mask();
        }
        goes_on
    }

    /// Makes an interrupted call repeat after the handler, if Linux restarts it.
    fn maybe_repeat(&mut self, number: u64, arguments: &[u64; 6]) {
        let sa_restart = self.signals().next_restarts();
        let restart = find(number).map(|call| call.restart);
        if restart.is_some_and(|restart| restart.after_handler(arguments, sa_restart)) {
            let hart = self.hart();
            hart.pc.set(hart.pc.get().wrapping_sub(ECALL_LENGTH));
            hart.set_x(A0, arguments[0]);
        }
    }

    /// Serves system call `number`. The call may ask to be restarted later
    /// ([`Errno::ERESTARTSYS`]). An unknown number fails with `ENOSYS` and is counted.
    fn serve(&mut self, number: u64, arguments: &[u64; 6]) -> Result<u64, Errno> {
        self.syscalls += u64::from(self.task().retry.is_none());
        let handler = usize::try_from(number).map(|number| self.handlers.get(number));
        match handler {
            Ok(Some(Some(handler))) => match self.syscalls.is_multiple_of(SAMPLE) {
                false => handler(self, arguments),
                true => self.serve_timed(*handler, arguments),
            },
            _ if number == exports::NUMBER => self.exports_call(arguments),
            _ => {
                self.count_missing(number);
                Err(Errno::ENOSYS)
            }
        }
    }

    /// Serves a system call, and estimates the system time of the process from its duration.
    fn serve_timed(&mut self, handler: Handler, arguments: &[u64; 6]) -> Result<u64, Errno> {
        let (process, started) = (self.current.process, clock::monotonic());
        let result = handler(self, arguments);
        if self.control == Control::Continue && self.current.process == process {
            let used = clock::monotonic().saturating_sub(started);
            let cpu_time = self.cpu_time(CpuClock::Process(self.process().pid));
            self.process_mut()
                .add_system_time(used.saturating_mul(SAMPLE), cpu_time);
        }
        result
    }

    /// Counts an unimplemented call for the report.
    fn count_missing(&mut self, number: u64) {
        /// The maximum number of distinct numbers; the report has room for fewer.
        const MOST: usize = 64;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let missing = &mut self.missing;
        match missing.iter().position(|entry| entry[0] == number) {
            Some(index) => missing[index][1] = missing[index][1].saturating_add(1),
            None if missing.len() < MOST => missing.push([number, 1]),
            None => {}
        }
    }
}
