//! Processes: identity, limits and state.

pub use crate::ids::{FIRST, NO_SESSION};

use crate::convert::low_u32;
use crate::credentials::Credentials;
use crate::file::description::MAX_FILES;
use crate::fs;
use crate::kernel::core_dump;
use crate::kernel::signals::{ProcessSignals, SigInfo};
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::task::Policy;
use crate::kernel::timers::ProcessTimers;
use crate::mm;
use crate::wait::WaitQueue;
use alloc::vec::Vec;
use hartline_abi::boot::BootInfo;
use hartline_linux::capability::CAP_IPC_LOCK;
use hartline_linux::resource::{
    MLOCK_LIMIT, RLIM_INFINITY, RLIM_NLIMITS, RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_MEMLOCK,
    RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NOFILE, RLIMIT_RTPRIO, RLIMIT_SIGPENDING, RLIMIT_STACK,
    Rlimit64,
};
use hartline_linux::sched::SCHED_IDLE;
use hartline_linux::siginfo::{
    CLD_CONTINUED, CLD_DUMPED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, CLD_TRAPPED,
};
use hartline_linux::signal::SIGCONT;
use hartline_linux::wait::WCOREFLAG;

/// Number of the process of the idle tasks ([`crate::kernel::parallel`]), which programs cannot see.
pub(crate) const IDLE: u32 = 0;
/// Default of `RLIMIT_MSGQUEUE`, bytes (`MQ_BYTES_MAX`).
const MESSAGE_QUEUES: u64 = 819_200;
/// Default of `RLIMIT_SIGPENDING`.
const QUEUED_SIGNALS: u64 = 4096;
/// The parent of [`FIRST`], as programs see it: none.
const NO_PARENT: u32 = 0;

/// A change of a process's state that its parent can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `exit_group` with this status.
    Exited(u8),
    /// Killed by a signal.
    Signaled {
        /// The signal.
        signal: u8,
        /// The process has left a core dump.
        has_core: bool,
    },
    /// Stopped by this signal.
    Stopped(u8),
    /// A task that is traced stopped: the signal, and the event from bit 8 on.
    Trapped(u32),
    /// Continued after a stop.
    Continued,
}

impl Status {
    /// The status as `wait4` returns it.
    #[must_use]
    pub fn encoded(self) -> u32 {
        match self {
            Status::Exited(code) => u32::from(code) << 8,
            Status::Signaled { signal, has_core } => {
                u32::from(signal) | if has_core { WCOREFLAG } else { 0 }
            }
            Status::Stopped(signal) => u32::from(signal) << 8 | 0x7f,
            Status::Trapped(code) => code << 8 | 0x7f,
            Status::Continued => 0xffff,
        }
    }

    /// The `siginfo_t` of the process `pid` of user `uid`, as for `waitid` and `SIGCHLD`.
    #[must_use]
    pub fn info(self, pid: u32, uid: u32) -> SigInfo {
        let (code, status) = match self {
            Status::Exited(code) => (CLD_EXITED, i32::from(code)),
            Status::Signaled { signal, has_core } => {
                let code = if has_core { CLD_DUMPED } else { CLD_KILLED };
                (code, i32::from(signal))
            }
            Status::Stopped(signal) => (CLD_STOPPED, i32::from(signal)),
            Status::Trapped(code) => (CLD_TRAPPED, code.cast_signed()),
            Status::Continued => {
                let signal = SIGCONT;
                (CLD_CONTINUED, i32::from(signal))
            }
        };
        SigInfo::child(code, pid, uid, status)
    }
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its tasks run or wait.
    Running,
    /// Its tasks do not run until `SIGCONT`.
    Stopped,
    /// It has ended, and the parent has not waited for it yet.
    Zombie(Status),
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Number of the process.
    pub pid: u32,
    /// Number of the parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// It has released the terminal of its session (`TIOCNOTTY`).
    pub has_no_terminal: bool,
    /// The foreground process group of the session's terminal when that hung up, if this process was
    /// the session's leader; otherwise 0.
    pub old_foreground: u32,
    /// Resource limits.
    pub limits: [Rlimit64; RLIM_NLIMITS],
    /// `AT_SECURE`: its program file gave it more rights than its caller had.
    pub is_secure: bool,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// `PR_SET_PDEATHSIG`.
    pub parent_death_signal: u64,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub is_subreaper: bool,
    /// Nice value, −20 to 19.
    pub nice: i8,
    /// `personality`.
    pub personality: u32,
    /// Path of the program.
    pub executable: Vec<u8>,
    /// Addresses of the argument strings, for `/proc`.
    pub arguments: core::ops::Range<u64>,
    /// Addresses of the environment strings, for `/proc`.
    pub environment: core::ops::Range<u64>,
    /// Addresses of the auxiliary vector, for core dumps.
    pub auxiliary: core::ops::Range<u64>,
    /// A debugger sees its threads stop.
    pub(crate) debugged: bool,
    /// The core dump that its threads are suspended for.
    pub(crate) dump: Option<core_dump::Pending>,
    /// State of the process.
    pub state: State,
    /// Name of the first task when it ended.
    pub last_name: [u8; 16],
    /// A stop or continuation that the parent has not waited for yet.
    pub unreported: Option<Status>,
    /// Signal for the parent at the end; 0: none.
    pub exit_signal: u8,
    /// Number of tasks that have not ended.
    pub threads: u32,
    /// It has called `execve`, so its parent cannot change its process group any more.
    pub has_executed: bool,
    /// The task that waits, after `vfork`, until this process releases the memory.
    pub vfork_parent: Option<u32>,
    /// Its address space; invalid after its end.
    pub(crate) space: Handle<Space>,
    /// CPU time used, ns; while the process runs, up to the last switch.
    pub cpu_time: u64,
    /// The part of the CPU time that is system time, ns: an estimate from some of the system calls.
    pub system_time: u64,
    /// CPU time at the last change or report of the system time, ns.
    sampled_at: u64,
    /// CPU time of waited-for children, ns.
    pub children_time: u64,
    /// The part of it that is system time, ns.
    pub children_system_time: u64,
    /// Timers of the process.
    pub timers: ProcessTimers,
    /// Descriptors and directories; after its end there are no descriptors.
    pub files: fs::process::Process,
    /// Signal state of the process as a whole.
    pub signals: ProcessSignals,
    /// Woken when the process ends.
    pub exit_waiters: WaitQueue,
    /// Woken when a signal is sent that a task has blocked.
    pub signal_waiters: WaitQueue,
}

impl Process {
    /// Creates the first process from the boot information, with its address space and files.
    #[must_use]
    pub fn new(boot: &BootInfo, space: Handle<Space>, files: fs::process::Process) -> Process {
        let unlimited = Rlimit64 {
            rlim_cur: RLIM_INFINITY,
            rlim_max: RLIM_INFINITY,
        };
        let mut limits = [unlimited; RLIM_NLIMITS];
        limits[RLIMIT_STACK].rlim_cur = boot.stack_limit;
        limits[RLIMIT_CORE].rlim_cur = 0;
        limits[RLIMIT_NOFILE] = Rlimit64 {
            rlim_cur: 1024,
            rlim_max: 1 << 20,
        };
        limits[RLIMIT_MEMLOCK] = Rlimit64 {
            rlim_cur: MLOCK_LIMIT,
            rlim_max: MLOCK_LIMIT,
        };
        limits[RLIMIT_SIGPENDING] = Rlimit64 {
            rlim_cur: QUEUED_SIGNALS,
            rlim_max: QUEUED_SIGNALS,
        };
        limits[RLIMIT_MSGQUEUE] = Rlimit64 {
            rlim_cur: MESSAGE_QUEUES,
            rlim_max: MESSAGE_QUEUES,
        };
        for limit in [RLIMIT_NICE, RLIMIT_RTPRIO] {
            limits[limit] = Rlimit64 {
                rlim_cur: 0,
                rlim_max: 0,
            };
        }
        Process {
            pid: FIRST,
            parent: NO_PARENT,
            group: FIRST,
            session: FIRST,
            has_no_terminal: false,
            old_foreground: 0,
            limits,
            is_secure: false,
            no_new_privileges: false,
            parent_death_signal: 0,
            is_subreaper: false,
            nice: 0,
            personality: 0,
            executable: Vec::new(),
            arguments: 0..0,
            environment: 0..0,
            auxiliary: 0..0,
            debugged: false,
            dump: None,
            state: State::Running,
            last_name: [0; 16],
            unreported: None,
            exit_signal: 0,
            threads: 1,
            has_executed: false,
            vfork_parent: None,
            space,
            cpu_time: 0,
            system_time: 0,
            sampled_at: 0,
            children_time: 0,
            children_system_time: 0,
            timers: ProcessTimers::default(),
            files,
            signals: ProcessSignals::default(),
            exit_waiters: WaitQueue::default(),
            signal_waiters: WaitQueue::default(),
        }
    }

    /// Creates a process that the host starts, in the address space `space`, with the number of
    /// `files`: the leader of its own session.
    #[must_use]
    pub(crate) fn of_host(
        boot: &BootInfo,
        space: Handle<Space>,
        files: fs::process::Process,
    ) -> Process {
        let pid = files.pid;
        Process {
            pid,
            group: pid,
            session: pid,
            ..Process::new(boot, space, files)
        }
    }

    /// The limits of the process's address space.
    #[must_use]
    pub(crate) fn memory_limits(&self) -> mm::Limits {
        let soft = |resource: usize| self.limits[resource].rlim_cur;
        mm::Limits {
            address_space: soft(RLIMIT_AS),
            data: soft(RLIMIT_DATA),
            stack: soft(RLIMIT_STACK),
            locked: match self.has(CAP_IPC_LOCK) {
                true => RLIM_INFINITY,
                false => soft(RLIMIT_MEMLOCK),
            },
        }
    }

    /// Creates a child of this process in the address space `space`, with the number of `files`.
    #[must_use]
    pub(crate) fn fork(
        &self,
        space: Handle<Space>,
        files: fs::process::Process,
        signals: ProcessSignals,
    ) -> Process {
        Process {
            pid: files.pid,
            parent: self.pid,
            executable: self.executable.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            auxiliary: self.auxiliary.clone(),
            debugged: false,
            dump: None,
            state: State::Running,
            parent_death_signal: 0,
            is_subreaper: false,
            old_foreground: 0,
            unreported: None,
            exit_signal: 0,
            threads: 1,
            has_executed: false,
            vfork_parent: None,
            space,
            cpu_time: 0,
            system_time: 0,
            sampled_at: 0,
            children_time: 0,
            children_system_time: 0,
            timers: ProcessTimers::default(),
            files,
            signals,
            exit_waiters: WaitQueue::default(),
            signal_waiters: WaitQueue::default(),
            ..*self
        }
    }

    /// Users, groups and capabilities.
    #[inline]
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.files.cred
    }

    /// Whether a capability, one of `CAP_…`, is effective.
    #[inline]
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        self.credentials().has(capability)
    }

    /// The real user, which `siginfo_t` has.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.credentials().user.real
    }

    /// Adds an estimate of the system time since the last call; `cpu_time` is the CPU time now. Like
    /// the CPU time, neither system nor user time decreases.
    pub(crate) fn add_system_time(&mut self, estimate: u64, cpu_time: u64) {
        let before = core::mem::replace(&mut self.sampled_at, cpu_time);
        self.system_time += estimate.min(cpu_time.saturating_sub(before));
    }

    /// Whether `RLIMIT_NICE` allows this nice value.
    #[must_use]
    pub fn may_have_nice(&self, nice: i8) -> bool {
        let rank = u64::try_from(20 - i16::from(nice)).unwrap_or(0);
        rank <= self.limits[RLIMIT_NICE].rlim_cur
    }

    /// Whether a process without `CAP_SYS_NICE` may change the policy of a task of this process from
    /// `old` to `new`, and the nice value.
    #[must_use]
    pub fn may_change_policy(&self, old: Policy, new: Policy, nice: Option<i8>) -> bool {
        let highest = self.limits[RLIMIT_RTPRIO].rlim_cur;
        let priority_suits = match new.is_real_time() {
            true => {
                (new.number == old.number || highest > 0)
                    && (new.priority <= old.priority || u64::from(new.priority) <= highest)
            }
            false => nice.is_none_or(|nice| nice >= self.nice || self.may_have_nice(nice)),
        };
        let leaves_idle = old.number == SCHED_IDLE && new.number != SCHED_IDLE;
        priority_suits
            && (!leaves_idle || self.may_have_nice(self.nice))
            && (new.resets || !old.resets)
    }

    /// Sets a resource limit.
    pub fn set_limit(&mut self, resource: usize, limit: Rlimit64) {
        self.limits[resource] = limit;
        if resource == RLIMIT_NOFILE {
            self.files.fds.limit = low_u32(limit.rlim_cur.min(MAX_FILES as u64));
        }
    }

    /// The session of its controlling terminal; none if it has released the terminal.
    #[must_use]
    pub fn terminal_session(&self) -> u32 {
        match self.has_no_terminal {
            true => NO_SESSION,
            false => self.session,
        }
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, State::Zombie(_))
    }
}
