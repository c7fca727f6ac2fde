//! Host calls of a hostile guest, in the mailbox. Each gets a result that a guest may get, the
//! interrupt table gets no gate that the guest may not have, and the VMM goes on.
//!
//! Needs `/dev/kvm`: images become memory slots of a VM, whose vCPUs never run.

#![no_main]

use hartline_abi::boot::Shared;
use hartline_abi::call::{CALL_DATA, MAX_REGISTER_ACCESSES, Operation};
use hartline_abi::exports::Channel;
use hartline_abi::interrupt::{Gate, MAX_DEVICES, TABLE_LENGTH};
use hartline_abi::layout::{DEVICE_GPA, RAM_GPA};
use hartline_vmm::fuzzing::Mailbox;
use hartline_vmm::platform::Kvm;
use libfuzzer_sys::fuzz_target;
use std::mem::offset_of;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Steps of an input besides calls: write the guest's RAM, write the pages shared with the VMM,
/// write a whole table of interrupt gates, and be called by the host while the pages are written.
const RAM: u8 = 0xf0;
const SHARED: u8 = 0xf1;
const TABLE: u8 = 0xf2;
const CALLED: u8 = 0xf3;

/// Arguments that bytes from [`FIRST_ODD`] on stand for. The byte 255 stands for the eight bytes
/// that follow.
const FIRST_ODD: u8 = 0xd0;
const ODD: [u64; 25] = [
    u64::MAX,
    u64::MAX - 1,
    1 << 63,
    i64::MAX as u64,
    1 << 32,
    1 << 31,
    CALL_DATA as u64,
    CALL_DATA as u64 + 1,
    MAX_REGISTER_ACCESSES as u64,
    MAX_REGISTER_ACCESSES as u64 + 1,
    RAM_GPA,
    RAM_GPA + 4096,
    RAM_GPA + Mailbox::RAM - TABLE_LENGTH as u64,
    RAM_GPA + Mailbox::RAM,
    DEVICE_GPA,
    // Terminal ioctls.
    0x5401,
    0x5402,
    0x5410,
    0x540f,
    0x5413,
    offset_of!(Shared, harts) as u64,
    offset_of!(Shared, volumes) as u64,
    offset_of!(Shared, exports) as u64,
    offset_of!(Shared, exports) as u64 + offset_of!(Channel, status) as u64,
    offset_of!(Shared, exports) as u64 + offset_of!(Channel, length) as u64,
];

/// The rest of an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn argument(&mut self) -> u64 {
        match self.byte() {
            u8::MAX => {
                let mut bytes = [0; 8];
                let taken = self.take(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
            byte => match byte.checked_sub(FIRST_ODD) {
                Some(odd) => ODD[usize::from(odd) % ODD.len()],
                None => byte.into(),
            },
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.byte();
        self.take(usize::from(length) * 4)
    }
}

static KVM: LazyLock<Kvm> = LazyLock::new(|| {
    let kvm = Kvm::open(Path::new(Kvm::DEVICE)).expect("KVM");
    // The guest's console has no input.
    let null = std::fs::File::open("/dev/null").expect("a device");
    // SAFETY: both descriptors are open.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), 0) };
    kvm
});

/// The VM, as long as it can be reused.
static VM: Mutex<Option<Mailbox>> = Mutex::new(None);

/// Whether this process has a terminal on a standard descriptor: the guest must not change it.
static HAS_TERMINAL: LazyLock<bool> = LazyLock::new(|| {
    // SAFETY: no memory is involved; `isatty` accepts any descriptor.
    (0..3).any(|fd| unsafe { libc::isatty(fd) } == 1)
});

fuzz_target!(|input: &[u8]| {
    let kvm = LazyLock::force(&KVM);
    let mut kept = VM.lock().unwrap_or_else(PoisonError::into_inner);
    let mut mailbox = match kept.take() {
        Some(mailbox) => mailbox,
        None => Mailbox::new(kvm).expect("a VM"),
    };
    let mut input = Input(input);
    while !input.0.is_empty() {
        step(&mut mailbox, &mut input);
    }
    *kept = mailbox.reset().then_some(mailbox);
});

fn step(mailbox: &mut Mailbox, input: &mut Input<'_>) {
    match input.byte() {
        RAM => {
            let at = input.argument().wrapping_sub(RAM_GPA);
            mailbox.write_ram(at, input.bytes());
        }
        SHARED => {
            let at = input.argument();
            mailbox.write_shared(at, input.bytes());
        }
        TABLE => mailbox.write_ram(0, &table(input.bytes())),
        CALLED => {
            let (name, argument) = (input.bytes(), input.bytes());
            let (at, reply) = (input.argument(), input.bytes());
            let called = mailbox.call_program((name, argument), |mailbox| {
                mailbox.write_shared(at, reply);
            });
            called.expect("the VMM made a mistake");
        }
        number => {
            let operation = match number {
                u8::MAX => u32::MAX,
                number => number.into(),
            };
            let args = std::array::from_fn(|_| input.argument());
            let data = input.bytes();
            let terminal = [Operation::Ioctl as u32, Operation::Stop as u32];
            if terminal.contains(&operation) && *HAS_TERMINAL {
                return;
            }
            let call = mailbox.call(operation, args, data);
            call.expect("the VMM made a mistake");
        }
    }
}

/// Returns a table with gates of devices. Each takes four bytes: the device, the vector, the byte
/// of the gate to change, and the change.
fn table(changes: &[u8]) -> Vec<u8> {
    let mut table = vec![0; TABLE_LENGTH];
    for change in changes.chunks_exact(4) {
        let [device, vector, byte, xor] = [change[0], change[1], change[2], change[3]];
        let gate = Gate::of_device(device % MAX_DEVICES);
        let mut bytes = [gate.low.to_le_bytes(), gate.high.to_le_bytes()].concat();
        bytes[usize::from(byte) % 16] ^= xor;
        table[usize::from(vector) * 16..][..16].copy_from_slice(&bytes);
    }
    table
}
