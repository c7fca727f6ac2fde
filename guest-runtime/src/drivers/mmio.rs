//! Device registers and initialization (virtio 1.3, section 3.1.1). The driver batches the accesses
//! of an initialization, or of a step that needs a result, into one host call: each single access
//! would leave the VM.

use super::queue::Queue;
use crate::arch::host::Host;
use crate::convert::low_u32;
use alloc::vec::Vec;
use core::arch::asm;
use core::mem;
use hartline_abi::call::RegisterAccess;
use hartline_abi::layout::{DEVICE_BASE, PAGE_SIZE};
use hartline_abi::virtio::{MAGIC, VERSION, feature, register, status};

/// The reason why a device cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// There is no device of this type.
    #[error("there is no such device")]
    Missing,
    /// The device lacks a required feature, or does not start.
    #[error("the device does not start")]
    Refused,
}

/// The expected value of a register that was read.
#[derive(Debug)]
struct Check {
    /// Index of the access in the batch.
    access: usize,
    is_right: fn(found: u32, wanted: u32) -> bool,
    wanted: u32,
    /// The error if the value is different.
    error: StartError,
}

/// A device that is being initialized. Accesses are batched until a result is needed.
#[derive(Debug)]
pub(super) struct Start {
    host: Host,
    number: u64,
    accesses: Vec<RegisterAccess>,
    checks: Vec<Check>,
}

impl Start {
    /// Resets device `number`, which must be of type `kind`.
    pub fn of(host: Host, number: u64, kind: u32) -> Start {
        let mut start = Start {
            host,
            number,
            accesses: Vec::new(),
            checks: Vec::new(),
        };
        for (offset, wanted) in [
            (register::MAGIC, MAGIC),
            (register::VERSION, VERSION),
            (register::DEVICE_ID, kind),
        ] {
            start.expect(offset, |found, wanted| found == wanted, wanted);
        }
        for check in &mut start.checks {
            check.error = StartError::Missing;
        }
        start.write(register::STATUS, 0);
        let seen = status::ACKNOWLEDGE | status::DRIVER;
        start.write(register::STATUS, seen);
        start
    }

    fn access(&mut self, offset: u64, is_write: bool, value: u32) -> usize {
        self.accesses.push(RegisterAccess {
            // The device number is small.
            offset: low_u32(self.number * PAGE_SIZE + offset),
            is_write,
            value,
        });
        self.accesses.len() - 1
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.access(offset, true, value);
    }

    /// Reads a register, and checks that its value is right.
    fn expect(&mut self, offset: u64, is_right: fn(u32, u32) -> bool, wanted: u32) {
        let access = self.access(offset, false, 0);
        self.checks.push(Check {
            access,
            is_right,
            wanted,
            error: StartError::Refused,
        });
    }

    /// Makes all batched accesses and checks the values that were read. Returns the values at these
    /// indices.
    fn read<const N: usize>(&mut self, indices: [usize; N]) -> Result<[u32; N], StartError> {
        let mut accesses = mem::take(&mut self.accesses);
        let made = self.host.access_registers(&mut accesses);
        made.map_err(|_| StartError::Refused)?;
        for check in self.checks.drain(..) {
            if !(check.is_right)(accesses[check.access].value, check.wanted) {
                return Err(check.error);
            }
        }
        Ok(indices.map(|index| accesses[index].value))
    }

    /// Reads 32-bit words of the configuration space.
    pub fn config<const N: usize>(&mut self, offsets: [u64; N]) -> Result<[u32; N], StartError> {
        let indices = offsets.map(|at| self.access(register::CONFIG + at, false, 0));
        self.read(indices)
    }

    /// Negotiates the features `needed`; the device must offer all of them.
    pub fn need(&mut self, needed: u64) {
        let features = needed | feature::VERSION_1 | feature::EVENT_INDEX;
        for select in 0..2 {
            self.write(register::DRIVER_FEATURES_SELECT, select);
            self.write(
                register::DRIVER_FEATURES,
                low_u32(features >> (32 * select)),
            );
        }
        let seen = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.write(register::STATUS, seen);
        // A device that does not offer one of them clears FEATURES_OK.
        let is_set = |found, wanted| found & wanted == wanted;
        self.expect(register::STATUS, is_set, status::FEATURES_OK);
    }

    /// Negotiates the features `needed`, and those of `wanted` that the device offers. Returns the
    /// negotiated features.
    pub fn negotiate(&mut self, wanted: u64, needed: u64) -> Result<u64, StartError> {
        let indices = [0, 1].map(|select| {
            self.write(register::DEVICE_FEATURES_SELECT, select);
            self.access(register::DEVICE_FEATURES, false, 0)
        });
        let [low, high] = self.read(indices)?.map(u64::from);
        let offered = high << 32 | low;
        if offered & needed != needed {
            return Err(StartError::Refused);
        }
        let features = needed | wanted & offered;
        self.need(features);
        Ok(features)
    }

    /// Sets the addresses of queue `number`.
    pub fn set_queue(&mut self, number: u16, queue: &Queue) {
        self.write(register::QUEUE_SELECT, number.into());
        let size = queue.size().into();
        self.expect(register::QUEUE_SIZE_MAX, |most, size| most >= size, size);
        self.write(register::QUEUE_SIZE, size);
        let registers = [
            register::QUEUE_DESCRIPTORS,
            register::QUEUE_AVAILABLE,
            register::QUEUE_USED,
        ];
        for (low, address) in registers.into_iter().zip(queue.addresses()) {
            self.write(low, low_u32(address));
            self.write(low + 4, low_u32(address >> 32));
        }
        self.write(register::QUEUE_READY, 1);
    }

    /// Starts the device, and notifies it of queues that already have buffers.
    pub fn finish(mut self, notified: &[u16]) -> Result<Registers, StartError> {
        let seen = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.write(register::STATUS, seen);
        let is_on = |found, wanted| found & (status::NEEDS_RESET | wanted) == wanted;
        self.expect(register::STATUS, is_on, status::DRIVER_OK);
        for queue in notified {
            self.write(register::QUEUE_NOTIFY, (*queue).into());
        }
        self.read([])?;
        Ok(Registers(DEVICE_BASE + self.number * PAGE_SIZE))
    }
}

/// The registers of a started device.
#[derive(Debug)]
pub(super) struct Registers(u64);

impl Registers {
    /// Notifies the device of a queue. This leaves the VM.
    pub fn notify(&self, queue: u16) {
        // Plain `mov`, because KVM must emulate the instruction.
        // SAFETY: the VMM mapped the page, and nothing is behind it but registers.
        unsafe {
            asm!("mov dword ptr [{}], {:e}", in(reg) self.0 + register::QUEUE_NOTIFY,
                in(reg) u32::from(queue), options(nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::to_usize;
    use core::ptr::NonNull;
    use hartline_abi::boot::Shared;
    use hartline_abi::call::Operation;
    use hartline_abi::port;
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::vec::Vec;

    const KIND: u32 = 77;
    const NUMBER: u64 = 3;

    /// A simulated device that offers some features.
    struct Device {
        shared: *mut Shared,
        offered: u64,
        features: u64,
        select: u32,
        status: u32,
        /// Largest queue size.
        most: u32,
        notifications: Vec<u32>,
        calls: usize,
    }

    std::thread_local! {
        static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
    }

    impl Device {
        fn read(&self, offset: u64) -> u32 {
            match offset {
                register::MAGIC => MAGIC,
                register::VERSION => VERSION,
                register::DEVICE_ID => KIND,
                register::DEVICE_FEATURES => low_u32(self.offered >> (32 * self.select)),
                register::QUEUE_SIZE_MAX => self.most,
                register::STATUS => self.status,
                offset => low_u32(offset),
            }
        }

        fn write(&mut self, offset: u64, value: u32) {
            match offset {
                register::DEVICE_FEATURES_SELECT | register::DRIVER_FEATURES_SELECT => {
                    self.select = value;
                }
                register::DRIVER_FEATURES => {
                    self.features |= u64::from(value) << (32 * self.select);
                }
                register::STATUS => {
                    let agrees = self.features & !self.offered == 0;
                    let refused = if agrees { 0 } else { status::FEATURES_OK };
                    self.status = value & !refused;
                }
                register::QUEUE_NOTIFY => self.notifications.push(value),
                _ => {}
            }
        }
    }

    fn vm_exit(port: u16) {
        assert_eq!(port, port::CALL);
        DEVICE.with_borrow_mut(|device| {
            let device = device.as_mut().expect("made");
            // SAFETY: leaked by `start`; no other reference to the mailbox is alive.
            let call = unsafe { &mut (*device.shared).call };
            assert_eq!(call.operation, Operation::Registers as u32);
            device.calls += 1;
            let (records, _) = call.data.as_chunks_mut();
            for record in &mut records[..to_usize(call.args[0])] {
                let mut access = RegisterAccess::from_bytes(*record);
                let offset = u64::from(access.offset) - NUMBER * PAGE_SIZE;
                match access.is_write {
                    true => device.write(offset, access.value),
                    false => access.value = device.read(offset),
                }
                *record = access.to_bytes();
            }
            call.result = 0;
        });
    }

    fn device<T>(look: impl FnOnce(&mut Device) -> T) -> T {
        DEVICE.with_borrow_mut(|device| look(device.as_mut().expect("made")))
    }

    /// Starts to initialize a device with these features and this largest queue size.
    fn start(kind: u32, offered: u64, most: u32) -> Start {
        // SAFETY: all-zero bytes are a valid `Shared`, which has integers only.
        let shared = Box::leak(unsafe { Box::<Shared>::new_zeroed().assume_init() });
        let shared = NonNull::from(shared);
        DEVICE.set(Some(Device {
            shared: shared.as_ptr(),
            offered: offered | feature::VERSION_1 | feature::EVENT_INDEX,
            features: 0,
            select: 0,
            status: 0,
            most,
            notifications: Vec::new(),
            calls: 0,
        }));
        // SAFETY: leaked; only this thread uses it.
        Start::of(unsafe { Host::new(shared, vm_exit) }, NUMBER, kind)
    }

    #[test]
    fn all_that_needs_no_answer_is_one_call() {
        let mut started = start(KIND, feature::IN_ORDER, 8);
        started.need(feature::IN_ORDER);
        started.set_queue(0, &Queue::new(8, 64, false));
        assert!(started.finish(&[0, 5]).is_ok());
        device(|device| {
            assert_eq!((device.calls, &device.notifications[..]), (1, &[0, 5][..]));
            assert_ne!(device.status & status::DRIVER_OK, 0);
        });
    }

    #[test]
    fn features_are_agreed_on() {
        let mut started = start(KIND, 1 << 40 | 1 << 3, 8);
        assert_eq!(
            started.negotiate(1 << 40 | 1 << 7, 1 << 3),
            Ok(1 << 40 | 1 << 3)
        );
        let words = [0, 8].map(|at| low_u32(register::CONFIG + at));
        assert_eq!(started.config([0, 8]), Ok(words));
        device(|device| assert_eq!(device.calls, 2));
        let lacks = start(KIND, 0, 8).negotiate(0, 1 << 3);
        assert_eq!(lacks, Err(StartError::Refused));
    }

    #[test]
    fn wrong_devices_are_refused() {
        let other = start(KIND + 1, 0, 8).finish(&[]);
        assert_eq!(other.err(), Some(StartError::Missing));
        let mut lacks = start(KIND, 0, 8);
        lacks.need(feature::IN_ORDER);
        assert_eq!(lacks.finish(&[]).err(), Some(StartError::Refused));
        let mut small = start(KIND, 0, 4);
        small.need(0);
        small.set_queue(0, &Queue::new(8, 64, false));
        assert_eq!(small.finish(&[]).err(), Some(StartError::Refused));
    }
}
