//! Signal state without a guest.

use super::*;
use hartline_abi::hart::Hart;
use hartline_linux::siginfo::SI_USER;
use hartline_linux::signal::{SA_RESTART, SIGINT, SIGPIPE, SIGSEGV, SIGTERM, SS_ONSTACK};
use zerocopy::IntoBytes;

/// The signal state of a process with one thread.
#[derive(Default)]
struct State {
    process: ProcessSignals,
    thread: ThreadSignals,
}

impl State {
    fn both(&mut self) -> Signals<'_> {
        Signals {
            process: &mut self.process,
            thread: &mut self.thread,
        }
    }

    fn set_action(&mut self, signal: u8, action: Sigaction) {
        if self.process.set_action(signal, action).unwrap() {
            self.process.drop_pending(bit(signal));
            self.thread.drop_pending(bit(signal));
        }
    }

    fn send(&mut self, info: SigInfo) {
        self.process.send(info, self.thread.kept());
    }
}

fn sent(signal: u8) -> SigInfo {
    SigInfo::sent(signal, SI_USER, 2, 1000)
}

fn handled(flags: u64) -> Sigaction {
    Sigaction {
        sa_handler: 0x1_0000,
        sa_flags: flags,
        sa_mask: bit(SIGINT),
    }
}

#[test]
fn masks_and_queues() {
    let mut state = State::default();
    state.thread.set_blocked(u64::MAX);
    assert_eq!(state.thread.blocked(), !UNBLOCKABLE);
    state.send(sent(SIGTERM));
    state.send(sent(SIGTERM));
    state.send(sent(40));
    state.send(sent(40));
    assert_eq!(state.both().pending(), bit(SIGTERM) | bit(40));
    assert!(!state.both().is_deliverable());
    // Standard signals are not queued twice, real-time signals are.
    assert_eq!(state.both().take(u64::MAX), Some(sent(SIGTERM)));
    assert_eq!(state.both().take(bit(40)), Some(sent(40)));
    assert_eq!(state.both().take(bit(40)), Some(sent(40)));
    assert_eq!(state.both().take(u64::MAX), None);
    state.send(sent(SIGKILL));
    assert!(state.both().is_deliverable());
}

#[test]
fn ignored_signals_vanish() {
    let mut state = State::default();
    state.send(sent(SIGCHLD));
    assert_eq!(state.both().pending(), 0);
    // A blocked signal stays pending, and is dropped when its action becomes to ignore it.
    state.thread.set_blocked(bit(SIGPIPE));
    state.send(sent(SIGPIPE));
    assert_eq!(state.both().pending(), bit(SIGPIPE));
    let ignore = Sigaction {
        sa_handler: SIG_IGN,
        ..Sigaction::default()
    };
    state.set_action(SIGPIPE, ignore);
    assert_eq!(state.both().pending(), 0);
    assert_eq!(
        state.process.set_action(SIGKILL, ignore),
        Err(Errno::EINVAL)
    );
}

#[test]
fn faults_come_first_and_cannot_be_ignored() {
    let mut state = State::default();
    state.set_action(SIGSEGV, handled(0));
    assert!(state.both().handles(SIGSEGV));
    state.thread.set_blocked(bit(SIGSEGV));
    assert!(!state.both().handles(SIGSEGV));
    state.send(sent(SIGINT));
    state.both().send_fault(SigInfo::fault(SIGSEGV, 1, 0x123));
    assert_eq!(state.both().next_deliverable(), Some(SIGSEGV));
    assert_eq!(state.process.disposition(SIGSEGV), Disposition::Terminate);
    assert_eq!(state.thread.blocked() & bit(SIGSEGV), 0);
}

#[test]
fn interrupted_calls_follow_the_handler() {
    let mut state = State::default();
    assert!(state.both().next_restarts());
    state.set_action(SIGINT, handled(0));
    state.send(sent(SIGINT));
    assert!(!state.both().next_restarts());
    state.set_action(SIGINT, handled(SA_RESTART));
    assert!(state.both().next_restarts());
}

#[test]
fn temporary_masks_come_back() {
    let mut state = State::default();
    state.thread.set_blocked(bit(SIGTERM));
    state.thread.set_temporary(0);
    assert_eq!(state.thread.blocked(), 0);
    state.both().end_temporary();
    assert_eq!(state.thread.blocked(), bit(SIGTERM));
}

#[test]
fn alternate_stacks_are_checked() {
    let mut state = State::default();
    let stack = StackT {
        ss_sp: 0x10_0000,
        ss_flags: 0,
        pad: 0,
        ss_size: 0x4000,
    };
    let small = StackT {
        ss_size: 100,
        ..stack
    };
    assert_eq!(state.thread.set_stack(small, 0), Err(Errno::ENOMEM));
    let odd = StackT {
        ss_flags: 8,
        ..stack
    };
    assert_eq!(state.thread.set_stack(odd, 0), Err(Errno::EINVAL));
    state.thread.set_stack(stack, 0).unwrap();
    assert_eq!(state.thread.stack_status(0x10_0000).ss_flags, 0);
    assert_eq!(state.thread.stack_status(0x10_0001).ss_flags, SS_ONSTACK);
    assert_eq!(state.thread.stack_status(0x10_4000).ss_flags, SS_ONSTACK);
    assert_eq!(state.thread.stack_status(0x10_4001).ss_flags, 0);
    assert_eq!(state.thread.set_stack(stack, 0x10_1000), Err(Errno::EPERM));
    state.thread.set_stack(NO_STACK, 0).unwrap();
    assert_eq!(state.thread.stack, NO_STACK);
}

#[test]
fn frames_hold_all_registers() {
    let hart = Hart::default();
    for n in 0..32 {
        if n != 0 {
            hart.set_x(n, 100 + n as u64);
        }
        hart.set_f(n, 200 + n as u64);
    }
    hart.pc.set(0x1_2344);
    hart.fflags.set(5);
    let frame = frame::frame(&hart, sent(SIGINT), NO_STACK, 0x55);
    let bytes = frame.as_bytes();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // siginfo_t: number, and sender; ucontext: mask at 40, pc at 176, f0 after 32 words.
    assert_eq!(word(0), u64::from(SIGINT));
    assert_eq!(word(16), 2 | 1000 << 32);
    assert_eq!(word(128 + 40), 0x55);
    assert_eq!(word(128 + 176), 0x1_2344);
    assert_eq!(word(128 + 176 + 8 * 31), 131);
    assert_eq!(word(128 + 176 + 256), 200);
    assert_eq!(word(128 + 176 + 256 + 256) & 31, 5);
    let other = Hart::default();
    frame::restore(&frame, &other);
    assert_eq!(other.pc, hart.pc);
    assert_eq!((other.x, other.f), (hart.x, hart.f));
    assert_eq!(other.fflags.get(), 5);
}

#[test]
fn numbers_are_checked() {
    assert_eq!(check_number(0), Err(Errno::EINVAL));
    assert_eq!(check_number(64), Ok(64));
    assert_eq!(check_number(65), Err(Errno::EINVAL));
    assert_eq!(check_number(u64::MAX), Err(Errno::EINVAL));
    let queued = sent(SIGINT).with_signal(SIGTERM);
    assert_eq!(queued.signal(), SIGTERM);
    assert!(
        !SigInfo::fault(SIGSEGV, 1, 0)
            .with_signal(SIGSEGV)
            .is_fault()
    );
}
