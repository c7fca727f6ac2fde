//! The interrupt descriptor table that the vCPUs use. It belongs to the VMM and is in a read-only
//! slot. The runtime requests the gates of its devices' interrupts ([`hartline_abi::interrupt`]);
//! the VMM copies the allowed ones.

use crate::platform::{self, Mapping};
use hartline_abi::interrupt::{
    FIRST_VECTOR, Gate, MAX_DEVICES, TABLE_LENGTH, VECTORS, device_of, stub_of, vector_of,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A gate that the runtime requested and may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The table is not in private RAM, or not aligned.
    #[error("the guest's interrupt descriptor table is not in its memory")]
    Place,
    /// The vector is one of the processor's exceptions, or belongs to no device of this VM.
    #[error("the guest requested interrupt vector {0}, which belongs to none of its devices")]
    Vector(u8),
    /// The handler is not the entry point of a device, or the gate is of another kind.
    #[error(
        "the guest requested a gate of interrupt vector {vector} to {handler:#x}, which is not allowed"
    )]
    Gate {
        /// The vector.
        vector: u8,
        /// The requested handler.
        handler: u64,
    },
}

/// The bytes of a table with these gates, all others absent.
#[must_use]
pub(crate) fn encode(gates: &[(u8, Gate)]) -> Vec<u8> {
    let mut table = [Gate::ABSENT; VECTORS];
    for &(vector, gate) in gates {
        table[usize::from(vector)] = gate;
    }
    let words = table.iter().flat_map(|gate| [gate.low, gate.high]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Checks the gates of `table`. Result: the devices that get their gates, if the table requests
/// nothing else. `devices` is a set of bits.
///
/// # Errors
/// [`GateError`].
pub(crate) fn check(table: &[u8; TABLE_LENGTH], devices: u32) -> Result<u32, GateError> {
    let mut wanted = 0;
    for (number, bytes) in (0..=u8::MAX).zip(table.as_chunks::<16>().0) {
        let gate = decode(bytes);
        if !gate.is_present() {
            continue;
        }
        let device = device_of(number.into()).filter(|&device| devices & 1 << device != 0);
        let device = device.ok_or(GateError::Vector(number))?;
        // All other bits are fixed for a handler: type, privilege, stack, segment.
        if gate != Gate::of_device(device) {
            return Err(GateError::Gate {
                vector: number,
                handler: gate.handler(),
            });
        }
        wanted |= 1 << device;
    }
    Ok(wanted)
}

fn decode(bytes: &[u8; 16]) -> Gate {
    let (low, high) = bytes.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, &b| word << 8 | u64::from(b))
    };
    Gate {
        low: word(low),
        high: word(high),
    }
}

/// The table in use.
#[derive(Debug)]
pub(crate) struct ShadowIdt {
    slot: Arc<Mapping>,
    /// Offset of the table in the slot.
    offset: u64,
    /// Devices of this VM, a bit for each.
    devices: u32,
}

impl ShadowIdt {
    /// The table at `offset` of a slot, for a VM with these devices.
    pub fn new(slot: Arc<Mapping>, offset: u64, devices: u32) -> Self {
        Self {
            slot,
            offset,
            devices,
        }
    }

    /// Whether there are devices with vectors.
    pub fn has_devices(&self) -> bool {
        self.devices != 0
    }

    /// Makes the gates of the guest's table for devices present, and removes the gates of devices
    /// without one. Nothing changes if the table requests more.
    ///
    /// # Errors
    /// The gate that the guest may not have; or the slot is not writable for the VMM, which is a
    /// bug of the VMM.
    pub fn assign(
        &self,
        table: &[u8; TABLE_LENGTH],
    ) -> Result<Result<(), GateError>, platform::Error> {
        let wanted = match check(table, self.devices) {
            Ok(wanted) => wanted,
            Err(error) => return Ok(Err(error)),
        };
        for device in 0..MAX_DEVICES {
            let gate = match wanted & 1 << device {
                0 => Gate::ABSENT,
                _ => Gate::of_device(device),
            };
            self.store(vector_of(device), gate)?;
        }
        Ok(Ok(()))
    }

    /// Stores a gate. Other vCPUs may use it at the same time, so it is only present while it is
    /// complete.
    fn store(&self, vector: u8, gate: Gate) -> Result<(), platform::Error> {
        let at = self.offset + u64::from(vector) * size_of::<Gate>() as u64;
        let (low, high) = (self.slot.atomic_u64(at)?, self.slot.atomic_u64(at + 8)?);
        if gate.is_present() {
            high.store(gate.high, Ordering::SeqCst);
            low.store(gate.low, Ordering::SeqCst);
        } else {
            low.store(gate.low, Ordering::SeqCst);
            high.store(gate.high, Ordering::SeqCst);
        }
        Ok(())
    }
}

const _: () = assert!(VECTORS == u8::MAX as usize + 1);
const _: () = assert!(stub_of(MAX_DEVICES - 1) > stub_of(0) && FIRST_VECTOR >= 32);

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices 0 and 3.
    const DEVICES: u32 = 0b1001;

    fn table(gates: &[(u8, Gate)]) -> [u8; TABLE_LENGTH] {
        encode(gates).try_into().unwrap()
    }

    #[test]
    fn gates_of_devices_are_copied_and_taken_away() {
        let slot = Arc::new(Mapping::anonymous("slot", 8192).unwrap());
        let idt = ShadowIdt::new(Arc::clone(&slot), 4096, DEVICES);
        let words = |vector: u8| {
            let at = 4096 + u64::from(vector) * 16;
            [at, at + 8].map(|at| slot.atomic_u64(at).unwrap().load(Ordering::SeqCst))
        };
        let gate = Gate::of_device(3);
        idt.assign(&table(&[(vector_of(3), gate)]))
            .unwrap()
            .unwrap();
        assert_eq!(words(vector_of(3)), [gate.low, gate.high]);
        assert_eq!(words(vector_of(0)), [Gate::ABSENT.low, 0]);
        let bad = table(&[(vector_of(0), Gate::of_device(0)), (3, gate)]);
        assert_eq!(idt.assign(&bad).unwrap(), Err(GateError::Vector(3)));
        assert_eq!(
            words(vector_of(0)),
            [Gate::ABSENT.low, 0],
            "nothing changed"
        );
        idt.assign(&table(&[])).unwrap().unwrap();
        assert_eq!(words(vector_of(3)), [Gate::ABSENT.low, 0]);
    }

    #[test]
    fn other_gates_are_refused() {
        let (vector, handler) = (vector_of(0), stub_of(0));
        let gate = Gate::of_device(0);
        let stubs = hartline_abi::layout::SUPERVISOR_BASE + 0x2000;
        let bad = [
            ("the VMM's stubs", Gate::interrupt(stubs, 0, 1)),
            ("inside a stub", Gate::interrupt(handler + 1, 0, 1)),
            ("another device's", Gate::of_device(3)),
            ("program memory", Gate::interrupt(0x1_0000, 0, 1)),
            ("for CPL 3", Gate::interrupt(handler, 3, 1)),
            ("no stack", Gate::interrupt(handler, 0, 0)),
            ("another stack", Gate::interrupt(handler, 0, 2)),
            (
                "a trap gate",
                Gate {
                    low: gate.low | 1 << 40,
                    ..gate
                },
            ),
            (
                "a code segment of CPL 3",
                Gate {
                    low: gate.low | 0x23 << 16,
                    ..gate
                },
            ),
            (
                "reserved bits",
                Gate {
                    high: gate.high | 1 << 32,
                    ..gate
                },
            ),
        ];
        for (what, gate) in bad {
            let handler = gate.handler();
            let refused = Err(GateError::Gate { vector, handler });
            assert_eq!(check(&table(&[(vector, gate)]), DEVICES), refused, "{what}");
        }
        for vector in [0, 2, 14, 31, 32, vector_of(1), vector_of(31), 0x60, 255] {
            let asked = table(&[(vector, gate)]);
            assert_eq!(check(&asked, DEVICES), Err(GateError::Vector(vector)));
        }
        assert_eq!(
            check(&table(&[(vector, gate)]), 0),
            Err(GateError::Vector(vector))
        );
        assert_eq!(check(&table(&[(vector, gate)]), DEVICES), Ok(1));
    }
}
