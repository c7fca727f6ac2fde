//! Processes: identity, limits, and what becomes of them.

use crate::signals::{SigInfo, Signals};
use crate::timers::ProcessTimers;
use crate::vfs;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::boot::BootInfo;
use hartline_linux::resource::{
    RLIM_INFINITY, RLIM_NLIMITS, RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_STACK, Rlimit64,
};
use hartline_linux::siginfo::{CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED};
use hartline_linux::signal::SIGCONT;

/// The first process. The VM ends when it does. 1 is `init`, which programs treat
/// specially.
pub const FIRST: u32 = 2;
/// The process of the tasks that run while there is nothing to do ([`crate::parallel`]).
/// Nobody sees it.
pub(crate) const IDLE: u32 = 0;
/// Number of no session.
pub const NO_SESSION: u32 = u32::MAX;
/// `init`, outside the VM: the parent of [`FIRST`], and of processes whose parent has
/// ended. It takes zombies away at once.
pub const INIT: u32 = 1;

/// A change of a process's state that its parent can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `exit_group` with this status.
    Exited(u8),
    /// Killed by this signal.
    Signaled(u8),
    /// Stopped by this signal.
    Stopped(u8),
    /// Goes on after a stop.
    Continued,
}

impl Status {
    /// As `wait4` tells it.
    #[must_use]
    pub fn encoded(self) -> u32 {
        match self {
            Status::Exited(code) => u32::from(code) << 8,
            Status::Signaled(signal) => u32::from(signal),
            Status::Stopped(signal) => u32::from(signal) << 8 | 0x7f,
            Status::Continued => 0xffff,
        }
    }

    /// As `waitid` and `SIGCHLD` tell it of the process `pid` of user `uid`.
    #[must_use]
    pub fn info(self, pid: u32, uid: u32) -> SigInfo {
        let (code, status) = match self {
            Status::Exited(code) => (CLD_EXITED, i32::from(code)),
            Status::Signaled(signal) => (CLD_KILLED, i32::from(signal)),
            Status::Stopped(signal) => (CLD_STOPPED, i32::from(signal)),
            Status::Continued => {
                let signal = SIGCONT;
                (CLD_CONTINUED, i32::from(signal))
            }
        };
        SigInfo::child(code, pid, uid, status)
    }
}

/// What a process can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its tasks run or wait.
    Running,
    /// Its tasks do not run until `SIGCONT`.
    Stopped,
    /// It has ended and waits for its parent to ask.
    Zombie(Status),
}

/// Parts of a process that does not run: those of the running one are the kernel's.
#[derive(Debug)]
pub(crate) struct Parked {
    pub files: vfs::process::Process,
    pub signals: Signals,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The parent's.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// User, real and effective.
    pub uid: u32,
    /// Group, real and effective.
    pub gid: u32,
    /// Supplementary groups, in ascending order.
    pub groups: Rc<[u32]>,
    /// It has given its session's terminal up (`TIOCNOTTY`).
    pub has_no_terminal: bool,
    /// Resource limits.
    pub limits: [Rlimit64; RLIM_NLIMITS],
    /// `PR_SET_DUMPABLE`.
    pub dumpable: u64,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// `PR_SET_PDEATHSIG`.
    pub parent_death_signal: u64,
    /// Nice value, −20 to 19.
    pub nice: i8,
    /// `personality`.
    pub personality: u32,
    /// Path of the program.
    pub executable: Vec<u8>,
    /// Where in memory the arguments and the environment strings are, for `/proc`.
    pub arguments: core::ops::Range<u64>,
    /// See [`arguments`](Self::arguments).
    pub environment: core::ops::Range<u64>,
    /// What it can do.
    pub state: State,
    /// Name of its first task when it ended.
    pub last_name: [u8; 16],
    /// A stop or continuation that the parent has not asked for yet.
    pub news: Option<Status>,
    /// Signal for the parent at the end; 0: none.
    pub exit_signal: u8,
    /// Tasks that have not ended.
    pub threads: u32,
    /// It has called `execve`: its parent cannot change its process group any more.
    pub has_executed: bool,
    /// The task that waits, after `vfork`, until this process gives the memory back.
    pub vfork_parent: Option<u32>,
    /// Number of its address space.
    pub(crate) space: u32,
    /// Processor time used, ns; while it runs, up to the last switch.
    pub cpu_time: u64,
    /// Processor time of children that were waited for, ns.
    pub children_time: u64,
    /// Its timers.
    pub timers: ProcessTimers,
    /// Parts that the kernel has while the process runs, and that are gone after its end.
    pub(crate) parked: Option<Parked>,
}

impl Process {
    /// The first process, as the VMM described it.
    #[must_use]
    pub fn new(boot: &BootInfo) -> Process {
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
        Process {
            pid: FIRST,
            parent: INIT,
            group: FIRST,
            session: FIRST,
            uid: boot.uid,
            gid: boot.gid,
            groups: Rc::default(),
            has_no_terminal: false,
            limits,
            dumpable: 1,
            no_new_privileges: false,
            parent_death_signal: 0,
            nice: 0,
            personality: 0,
            executable: Vec::new(),
            arguments: 0..0,
            environment: 0..0,
            state: State::Running,
            last_name: [0; 16],
            news: None,
            exit_signal: 0,
            threads: 1,
            has_executed: false,
            vfork_parent: None,
            space: 0,
            cpu_time: 0,
            children_time: 0,
            timers: ProcessTimers::default(),
            parked: None,
        }
    }

    /// A process that this one makes: its child `pid` in the address space `space`.
    #[must_use]
    pub(crate) fn fork(&self, pid: u32, space: u32, parked: Parked) -> Process {
        Process {
            pid,
            parent: self.pid,
            executable: self.executable.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            groups: Rc::clone(&self.groups),
            state: State::Running,
            parent_death_signal: 0,
            news: None,
            exit_signal: 0,
            threads: 1,
            has_executed: false,
            vfork_parent: None,
            space,
            cpu_time: 0,
            children_time: 0,
            timers: ProcessTimers::default(),
            parked: Some(parked),
            ..*self
        }
    }

    /// The session whose terminal controls it; none if it has given that up.
    #[must_use]
    pub fn terminal_session(&self) -> u32 {
        match self.has_no_terminal {
            true => NO_SESSION,
            false => self.session,
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, State::Zombie(_))
    }
}
