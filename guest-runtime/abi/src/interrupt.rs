//! Device interrupts by vectors of the CPU, if the VM is configured for them
//! ([`crate::boot::BootInfo::vectors`]).
//!
//! The interrupt descriptor table that the CPU uses belongs to the VMM. The runtime writes the
//! table that it wants into its own memory, and requests it ([`crate::call::Operation::Vectors`]).
//! The VMM checks the table and copies the gates of devices.

use crate::hart::Pending;
use crate::layout::{INTERRUPT_STUBS, KERNEL_CS, PAGE_SIZE};

/// Entries of the table.
pub const VECTORS: usize = 256;
/// Length of the table, bytes.
pub const TABLE_LENGTH: usize = VECTORS * size_of::<Gate>();
/// Vector of device 0 ([`crate::virtio`]); the others follow.
pub const FIRST_VECTOR: u8 = 0x40;
/// Most devices: a set of devices fits a 32-bit word.
pub const MAX_DEVICES: u8 = 32;
/// Distance between the entry points of devices in [`INTERRUPT_STUBS`], bytes.
pub const STUB_STRIDE: u64 = PAGE_SIZE / MAX_DEVICES as u64;
/// Interrupt stack table entry of all device gates: an interrupt must not overwrite the frame of an
/// exception that is being handled.
pub const STACK: u8 = 1;
/// Bits that the stubs set in [`crate::hart::Kick::pending`].
pub const PENDING: u64 = Pending::Device as u64;

/// Type of a 64-bit interrupt gate, which masks further interrupts.
const INTERRUPT_GATE: u64 = 0xe << 40;
const PRESENT: u64 = 1 << 47;

/// Vector of a device, below [`MAX_DEVICES`].
#[must_use]
pub const fn vector_of(device: u8) -> u8 {
    FIRST_VECTOR + device
}

/// Device of a vector; none if the vector belongs to no device.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the guard compares with MAX_DEVICES"
)]
pub const fn device_of(vector: usize) -> Option<u8> {
    match vector.checked_sub(FIRST_VECTOR as usize) {
        Some(device) if device < MAX_DEVICES as usize => Some(device as u8),
        _ => None,
    }
}

/// Address of the entry point of a device.
#[must_use]
pub const fn stub_of(device: u8) -> u64 {
    INTERRUPT_STUBS + device as u64 * STUB_STRIDE
}

/// A gate of the table (Intel SDM volume 3, 6.14.1).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Bits 63 to 0.
    pub low: u64,
    /// Bits 127 to 64.
    pub high: u64,
}

impl Gate {
    /// A gate that is not present, for an unassigned vector: it raises #NP. Its type is valid,
    /// since an invalid type would raise #GP, as a wild `int` does.
    pub const ABSENT: Self = Self {
        low: INTERRUPT_GATE | (KERNEL_CS as u64) << 16,
        high: 0,
    };

    /// An interrupt gate to CPL 0. `privilege` is the DPL, the CPL from which `int` may use the
    /// gate: 0 or 3. `stack` is an entry of the interrupt stack table, or 0.
    #[must_use]
    pub const fn interrupt(handler: u64, privilege: u8, stack: u8) -> Self {
        let low = handler & 0xffff
            | (KERNEL_CS as u64) << 16
            | (stack as u64 & 7) << 32
            | INTERRUPT_GATE
            | (privilege as u64 & 3) << 45
            | PRESENT
            | (handler >> 16 & 0xffff) << 48;
        let high = handler >> 32;
        Self { low, high }
    }

    /// The gate of a device's interrupts.
    #[must_use]
    pub const fn of_device(device: u8) -> Self {
        Self::interrupt(stub_of(device), 0, STACK)
    }

    /// Whether the gate is present.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.low & PRESENT != 0
    }

    /// Address of the handler.
    #[must_use]
    pub const fn handler(self) -> u64 {
        self.low & 0xffff | (self.low >> 48) << 16 | self.high << 32
    }
}

/// The interrupt descriptor table that a runtime requests.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Table {
    /// Gates by vector.
    pub gates: [Gate; VECTORS],
}

impl Table {
    /// A table with the gates of the devices in a bit set, and no others.
    #[must_use]
    pub const fn of_devices(devices: u32) -> Self {
        let mut gates = [Gate::ABSENT; VECTORS];
        let mut device = 0;
        while device < MAX_DEVICES {
            if devices & 1 << device != 0 {
                gates[vector_of(device) as usize] = Gate::of_device(device);
            }
            device += 1;
        }
        Self { gates }
    }
}

const _: () = assert!(size_of::<Table>() == TABLE_LENGTH);
const _: () =
    assert!(FIRST_VECTOR >= 32 && FIRST_VECTOR as usize + (MAX_DEVICES as usize) < VECTORS);

/// Properties of all vectors and devices. Kani proves them; a test tries all of them.
#[cfg(any(test, kani))]
mod properties {
    use super::*;

    /// Each device has its own vector, which is not an exception of the CPU, and an entry point in
    /// the page of stubs.
    fn vectors_are_of_devices(vector: u8) {
        match device_of(vector.into()) {
            Some(device) => {
                assert!(device < MAX_DEVICES && vector >= 32 && vector_of(device) == vector);
                let entry = stub_of(device);
                assert!(
                    entry >= INTERRUPT_STUBS && entry + STUB_STRIDE <= INTERRUPT_STUBS + PAGE_SIZE
                );
                assert!(Gate::of_device(device).handler() == entry);
            }
            None => assert!((0..MAX_DEVICES).all(|device| vector_of(device) != vector)),
        }
    }

    #[cfg(kani)]
    #[kani::proof]
    #[kani::unwind(34)]
    fn all_vectors_are_of_devices() {
        vectors_are_of_devices(kani::any());
    }

    #[test]
    fn all_vectors() {
        (0..=u8::MAX).for_each(vectors_are_of_devices);
        assert_eq!(device_of(VECTORS + FIRST_VECTOR as usize), None);
    }
}
