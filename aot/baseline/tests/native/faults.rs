//! Accesses that fault: the access's entry in the table gives the pc, and all registers are as
//! before the instruction.

use std::cell::Cell;
use std::sync::Once;

use hartline_abi::hart::{Hart, PINNED_X};
use hartline_guest::exec::interp::fcsr;
use hartline_isa::{CSR_FRM, Operation, decode, encode};

use crate::generator::{ALIGNED, Generator, POINTERS};
use crate::host::Host;
use crate::input::Random;
use crate::instructions::State;
use crate::thunks::{self, Reason, TestHart};

thread_local! {
    /// Host address of the last fault, and the integer registers in the order of [`PINNED_X`].
    static FAULT: Cell<(u64, [u64; 11])> = const { Cell::new((0, [0; 11])) };
    /// The floating-point registers in the `Hart` structure at the last fault.
    static HART_F: Cell<[u64; 32]> = const { Cell::new([0; 32]) };
}

/// Registers of a signal frame in the order of [`PINNED_X`].
const PINNED: [libc::c_int; 11] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RDI,
    libc::REG_RSI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Address that no access reaches: not canonical, so that the fault is at the instruction.
const NOWHERE: u64 = 0x4000_0000_0000_0000;

extern "C" fn on_fault(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the frame's context.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let values = PINNED.map(|register| registers[register as usize] as u64);
    FAULT.set((registers[libc::REG_RIP as usize] as u64, values));
    // SAFETY: the hart outlives the run, which waits for this handler.
    HART_F.set(unsafe { (*thunks::current()).f.get() });
    registers[libc::REG_RIP as usize] = thunks::fault_address() as i64;
}

fn handle_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the structure is plain data, and the handler returns to code of the test.
        let result = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut())
        };
        assert_eq!(result, 0);
    });
}

/// Draws an instruction that accesses memory.
fn access(draw: &mut Generator<'_>) -> Operation {
    loop {
        let operation = match draw.random.below(2) {
            0 => draw.memory(),
            _ => draw.atomic(),
        };
        if decode(encode(operation)).is_some_and(|instruction| instruction.may_fault()) {
            return operation;
        }
    }
}

/// Runs the program until the fault, and returns the hart as the runtime would see it.
fn run(host: &mut Host, state: &State) -> TestHart {
    host.set_data(&state.data);
    let hart = host.hart();
    prepare(state, &hart);
    let entry = host.entry(hart.pc.get()).expect("the program's start");
    // SAFETY: an entry of the code in place.
    assert_eq!(unsafe { thunks::enter(&hart, entry) }, Reason::Fault);
    let (rip, pinned) = FAULT.get();
    let offset = u32::try_from(rip - host.code()).expect("in the code");
    let access = host.translation.access_at(offset).expect("an access");
    if host.write_through {
        hart.f.set(HART_F.get());
    } else {
        for (register, value) in PINNED_X.into_iter().zip(pinned) {
            if access.in_hart >> register & 1 == 0 {
                hart.set_x(register.into(), value);
            }
        }
    }
    hart.pc.set(access.pc);
    hart
}

fn prepare(state: &State, hart: &Hart) {
    state.apply(hart);
    for pointer in POINTERS.iter().chain(&ALIGNED) {
        hart.set_x((*pointer).into(), NOWHERE);
    }
    fcsr::fcsr_reset(hart);
    // The conditional store takes place.
    hart.reservation.set(NOWHERE);
    hart.reserved_value.set(5);
}

#[test]
fn registers_are_exact() {
    handle_faults();
    let mut random = Random::seeded();
    for write_through in [false, true] {
        let mut host = Host::new(true);
        host.write_through = write_through;
        for _ in 0..3000 {
            let mut draw = Generator {
                random: &mut random,
            };
            let mut operations = Vec::new();
            while operations.len() < 6 {
                let operation = draw.any();
                let instruction = decode(encode(operation)).expect("an instruction");
                // In another rounding mode, the interpreter would execute the access.
                let sets_mode = matches!(operation, Operation::Csr { csr: CSR_FRM, .. });
                if !instruction.may_fault() && !sets_mode {
                    operations.push(operation);
                }
            }
            operations.push(access(&mut draw));
            operations.push(Operation::Ebreak);
            let code: Vec<u8> = operations
                .iter()
                .flat_map(|&operation| encode(operation).to_le_bytes())
                .collect();
            host.load(&code, &[0], &[]);
            let state = State::random(&mut random, &host);
            let actual = run(&mut host, &state);

            let expected = host.hart();
            prepare(&state, &expected);
            host.interpret(&expected, operations.len() as u64 - 2);
            assert_eq!(actual.x.get(), expected.x.get(), "{operations:?}");
            assert_eq!(actual.f.get(), expected.f.get(), "{operations:?}");
            assert_eq!(actual.pc.get(), expected.pc.get(), "{operations:?}");
        }
    }
}
