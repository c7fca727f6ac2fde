//! Filters of system calls (`seccomp(2)`): what a task may call, and the stack of its filters.

mod program;

pub use program::Program;

use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::seccomp::{
    SECCOMP_MODE_DISABLED, SECCOMP_MODE_FILTER, SECCOMP_MODE_STRICT, SECCOMP_RET_ACTION_FULL,
    SECCOMP_RET_ALLOW, SECCOMP_RET_DATA, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_THREAD,
    SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_TRAP, SECCOMP_RET_USER_NOTIF, SeccompData,
};
use hartline_linux::syscall::nr;
use zerocopy::transmute;

/// Number of 32-bit words in a `struct seccomp_data`.
pub const WORDS: usize = size_of::<SeccompData>() / size_of::<u32>();

/// Most instructions of the filters of a task; each filter counts [`OVERHEAD`] more
/// (`MAX_INSNS_PER_PATH`).
const MOST: usize = 32_768;
const OVERHEAD: usize = 4;

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is served.
    Allow,
    /// It fails with this number; 0 is success.
    Fail(u16),
    /// It causes `SIGSYS` with this data.
    Trap(u16),
    /// Its tracer is asked, with this data. Without one that wants it, it fails with `ENOSYS`.
    Trace(u16),
    /// Its thread ends, as by a signal: `SIGKILL` in strict mode, otherwise `SIGSYS`.
    KillThread {
        /// Whether the mode is the strict one.
        strict: bool,
    },
    /// Its process ends by `SIGSYS`.
    KillProcess,
}

/// A filter, and those that were installed before it.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    previous: Option<Rc<Filter>>,
    /// Instructions of this filter and its predecessors, with [`OVERHEAD`].
    total: usize,
    /// Number of this filter and its predecessors.
    depth: u32,
}

impl Filter {
    /// Returns the data of the strongest result of the filters. Of equal ones, the newest counts.
    fn evaluate(&self, data: &SeccompData) -> u32 {
        let words: [u32; WORDS] = transmute!(*data);
        // Actions are ordered as signed numbers.
        let action = |result: u32| (result & SECCOMP_RET_ACTION_FULL).cast_signed();
        let mut strongest = SECCOMP_RET_ALLOW;
        let mut next = Some(self);
        while let Some(filter) = next {
            let result = filter.program.run(&words);
            if action(result) < action(strongest) {
                strongest = result;
            }
            next = filter.previous.as_deref();
        }
        strongest
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Not recursively, since there may be thousands.
        let mut next = self.previous.take();
        while let Some(mut filter) = next.and_then(Rc::into_inner) {
            next = filter.previous.take();
        }
    }
}

/// Which system calls a task may make.
#[derive(Debug, Clone, Default)]
pub enum Seccomp {
    /// All.
    #[default]
    Disabled,
    /// `read`, `write`, `exit` and `rt_sigreturn`.
    Strict,
    /// Those that the filters allow.
    Filtered(Rc<Filter>),
}

impl Seccomp {
    /// The mode, as `PR_GET_SECCOMP` returns it.
    #[must_use]
    pub fn mode(&self) -> u64 {
        match self {
            Self::Disabled => SECCOMP_MODE_DISABLED,
            Self::Strict => SECCOMP_MODE_STRICT,
            Self::Filtered(_) => SECCOMP_MODE_FILTER,
        }
    }

    /// Number of filters.
    #[must_use]
    pub fn filters(&self) -> u32 {
        match self {
            Self::Filtered(filter) => filter.depth,
            _ => 0,
        }
    }

    /// The program of a filter; the one that was installed first has the index 0.
    ///
    /// # Errors
    /// `EINVAL` without filters; `ENOENT` if there are not so many.
    pub fn program(&self, index: u64) -> Result<&Program, Errno> {
        let Self::Filtered(newest) = self else {
            return Err(Errno::EINVAL);
        };
        let mut filters = core::iter::successors(Some(newest), |filter| filter.previous.as_ref());
        let filter = filters.find(|filter| u64::from(filter.depth - 1) == index);
        filter.map(|filter| &filter.program).ok_or(Errno::ENOENT)
    }

    /// Adds a filter.
    ///
    /// # Errors
    /// `EINVAL` in strict mode; `ENOMEM` if there are too many instructions.
    pub fn with_filter(&self, program: Program) -> Result<Self, Errno> {
        let previous = match self {
            Self::Strict => return Err(Errno::EINVAL),
            Self::Disabled => None,
            Self::Filtered(filter) => Some(Rc::clone(filter)),
        };
        let before = previous.as_ref().map_or(0, |filter| filter.total);
        let length = program.length();
        if before + length > MOST {
            return Err(Errno::ENOMEM);
        }
        Ok(Self::Filtered(Rc::new(Filter {
            program,
            total: before + length + OVERHEAD,
            depth: self.filters() + 1,
            previous,
        })))
    }

    /// Whether all filters of this state are also filters of `other`.
    #[must_use]
    pub fn is_ancestor_of(&self, other: &Self) -> bool {
        let (own, mut next) = match (self, other) {
            (Self::Disabled, _) => return true,
            (Self::Filtered(own), Self::Filtered(other)) => (own, Some(other)),
            _ => return false,
        };
        while let Some(filter) = next {
            if Rc::ptr_eq(own, filter) {
                return true;
            }
            next = filter.previous.as_ref();
        }
        false
    }

    /// What happens to a system call.
    #[must_use]
    pub fn verdict(&self, call: &SeccompData) -> Verdict {
        let result = match self {
            Self::Disabled => return Verdict::Allow,
            Self::Strict => {
                let allowed = [nr::read, nr::write, nr::exit, nr::rt_sigreturn];
                return match allowed.contains(&u64::from(call.nr)) {
                    true => Verdict::Allow,
                    false => Verdict::KillThread { strict: true },
                };
            }
            Self::Filtered(filter) => filter.evaluate(call),
        };
        let data = crate::convert::low_u16(u64::from(result & SECCOMP_RET_DATA));
        match result & SECCOMP_RET_ACTION_FULL {
            SECCOMP_RET_ALLOW | SECCOMP_RET_LOG => Verdict::Allow,
            SECCOMP_RET_ERRNO => Verdict::Fail(data.min(MAX_ERRNO)),
            SECCOMP_RET_TRAP => Verdict::Trap(data),
            SECCOMP_RET_TRACE => Verdict::Trace(data),
            // There is no supervisor.
            SECCOMP_RET_USER_NOTIF => Verdict::Fail(Errno::ENOSYS.number()),
            SECCOMP_RET_KILL_THREAD => Verdict::KillThread { strict: false },
            _ => Verdict::KillProcess,
        }
    }
}

/// The greatest error number.
const MAX_ERRNO: u16 = 4095;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::low_u32;
    use hartline_linux::audit::AUDIT_ARCH_RISCV64;
    use hartline_linux::filter::{BPF_MAXINSNS, BPF_RET, SockFilter};
    use hartline_linux::seccomp::SECCOMP_RET_KILL_PROCESS;

    fn returns(result: u32, length: usize) -> Program {
        let instruction = SockFilter {
            code: BPF_RET,
            jt: 0,
            jf: 0,
            k: result,
        };
        Program::check(alloc::vec![instruction; length]).unwrap()
    }

    fn stack(results: &[u32]) -> Seccomp {
        let mut state = Seccomp::Disabled;
        for &result in results {
            state = state.with_filter(returns(result, 1)).unwrap();
        }
        state
    }

    fn verdict(state: &Seccomp, number: u64) -> Verdict {
        state.verdict(&SeccompData {
            nr: low_u32(number),
            arch: AUDIT_ARCH_RISCV64,
            instruction_pointer: 0,
            args: [0; 6],
        })
    }

    #[test]
    fn the_strongest_result_counts() {
        let errno = |number| SECCOMP_RET_ERRNO | number;
        let of = |results: &[u32]| verdict(&stack(results), nr::read);
        assert_eq!(of(&[]), Verdict::Allow);
        assert_eq!(of(&[SECCOMP_RET_LOG]), Verdict::Allow);
        assert_eq!(of(&[errno(3), SECCOMP_RET_ALLOW]), Verdict::Fail(3));
        assert_eq!(of(&[errno(3), errno(4)]), Verdict::Fail(4));
        assert_eq!(of(&[errno(0xffff)]), Verdict::Fail(4095));
        assert_eq!(of(&[errno(3), SECCOMP_RET_TRAP | 9]), Verdict::Trap(9));
        assert_eq!(of(&[SECCOMP_RET_TRACE | 3]), Verdict::Trace(3));
        let thread = Verdict::KillThread { strict: false };
        assert_eq!(of(&[0, SECCOMP_RET_TRAP]), thread);
        assert_eq!(of(&[0, SECCOMP_RET_KILL_PROCESS]), Verdict::KillProcess);
        // An unknown action.
        assert_eq!(of(&[0x0001_0000]), Verdict::KillProcess);
    }

    #[test]
    fn strict_mode_allows_four_calls_and_no_filter() {
        assert_eq!(verdict(&Seccomp::Strict, nr::write), Verdict::Allow);
        let killed = Verdict::KillThread { strict: true };
        assert_eq!(verdict(&Seccomp::Strict, nr::exit_group), killed);
        let refused = Seccomp::Strict.with_filter(returns(0, 1));
        assert_eq!(refused.err(), Some(Errno::EINVAL));
    }

    #[test]
    fn programs_are_found_from_the_oldest() {
        let state = stack(&[SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP]);
        let result = |index| {
            state
                .program(index)
                .map(|program| program.instructions()[0].k)
        };
        assert_eq!(result(0), Ok(SECCOMP_RET_ALLOW));
        assert_eq!(result(1), Ok(SECCOMP_RET_TRAP));
        assert_eq!(result(2), Err(Errno::ENOENT));
        assert_eq!(result(u64::MAX), Err(Errno::ENOENT));
        assert_eq!(Seccomp::Strict.program(0).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn filters_are_limited_together() {
        let mut state = Seccomp::Disabled;
        for _ in 0..7 {
            let full = returns(SECCOMP_RET_ALLOW, BPF_MAXINSNS);
            state = state.with_filter(full).unwrap();
        }
        let full = state.with_filter(returns(0, BPF_MAXINSNS));
        assert_eq!(full.err(), Some(Errno::ENOMEM));
        let rest = BPF_MAXINSNS - 7 * OVERHEAD;
        assert!(state.with_filter(returns(0, rest + 1)).is_err());
        assert_eq!(state.with_filter(returns(0, rest)).unwrap().filters(), 8);
    }

    #[test]
    fn a_long_stack_is_dropped_and_ancestors_are_found() {
        let mut states = alloc::vec![Seccomp::Disabled];
        while let Ok(next) = states[states.len() - 1].with_filter(returns(0, 1)) {
            states.push(next);
        }
        assert_eq!(states.len(), MOST / (1 + OVERHEAD) + 2);
        let (first, last) = (&states[1], &states[states.len() - 1]);
        assert!(first.is_ancestor_of(last) && !last.is_ancestor_of(first));
        assert!(last.is_ancestor_of(last) && Seccomp::Disabled.is_ancestor_of(first));
        assert!(!stack(&[0]).is_ancestor_of(last) && !Seccomp::Strict.is_ancestor_of(last));
        let last = states.pop();
        drop(states);
        drop(last);
    }
}
