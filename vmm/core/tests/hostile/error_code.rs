//! The error code of this processor for a vector without a gate: some emulators are wrong.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// A vector of the host's kernel that programs may not raise.
const FORBIDDEN: u8 = 0x77;
/// Length of `int n`, bytes.
const INT_LENGTH: i64 = 2;

/// The vector that the VMM sees when `vector` has no gate.
///
/// The processor puts the gate's number into the error code, from bit 3 on, and sets bit 1 (Intel
/// SDM volume 3, 6.13). QEMU 7.2 puts the gate's distance in the table there, which is 16 for each
/// vector in 64-bit mode and not 8. It does that for each error code of a gate, so an `int n` that
/// the host's kernel does not allow shows whether this processor does.
pub fn told(vector: u8) -> u8 {
    static CODE: OnceLock<i64> = OnceLock::new();
    let code = *CODE.get_or_init(of_forbidden);
    let by_distance = i64::from(FORBIDDEN) * 16 + 2;
    if code == by_distance {
        vector.wrapping_mul(2)
    } else {
        vector
    }
}

/// The error code of #GP for an `int` that is not allowed.
fn of_forbidden() -> i64 {
    static CODE: AtomicI64 = AtomicI64::new(-1);

    extern "C" fn on_fault(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: with SA_SIGINFO, Linux passes a `ucontext_t` as the third argument.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let registers = &mut context.uc_mcontext.gregs;
        CODE.store(registers[libc::REG_ERR as usize], Ordering::SeqCst);
        registers[libc::REG_RIP as usize] += INT_LENGTH;
    }

    let handler: extern "C" fn(_, _, _) = on_fault;
    // SAFETY: zeros are a valid action. The handler changes only its arguments and an atomic, and
    // the program continues after the instruction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = MaybeUninit::zeroed();
        let set = libc::sigaction(libc::SIGSEGV, &raw const action, before.as_mut_ptr());
        assert_eq!(set, 0, "a handler");
        asm!("int {}", const FORBIDDEN);
        libc::sigaction(libc::SIGSEGV, before.as_ptr(), std::ptr::null_mut());
    }
    CODE.load(Ordering::SeqCst)
}
