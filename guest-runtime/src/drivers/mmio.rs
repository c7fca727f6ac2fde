//! Registers of a device, and the steps of its start (virtio 1.3, section 3.1.1).

use super::queue::Queue;
use core::arch::asm;
use hartline_abi::layout::{DEVICE_BASE, PAGE_SIZE};
use hartline_abi::virtio::{MAGIC, VERSION, feature, register, status};

/// Why a device does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// There is none of this type.
    #[error("there is no such device")]
    Missing,
    /// It lacks what the driver needs, or does not start.
    #[error("the device does not start")]
    Refused,
}

/// Registers of one device. Each access leaves the VM.
#[derive(Debug)]
pub(super) struct Registers(u64);

impl Registers {
    /// Those of device `number`, if it is of type `kind`. The device is reset.
    pub fn find(number: u64, kind: u32) -> Result<Registers, StartError> {
        let registers = Registers(DEVICE_BASE + number * PAGE_SIZE);
        let is_there = registers.read(register::MAGIC) == MAGIC
            && registers.read(register::VERSION) == VERSION
            && registers.read(register::DEVICE_ID) == kind;
        if !is_there {
            return Err(StartError::Missing);
        }
        registers.write(register::STATUS, 0);
        let seen = status::ACKNOWLEDGE | status::DRIVER;
        registers.write(register::STATUS, seen);
        Ok(registers)
    }

    pub fn read(&self, offset: u64) -> u32 {
        let value;
        // A plain move, since KVM emulates the instruction.
        // SAFETY: the VMM mapped the page, and nothing is behind it but registers.
        unsafe {
            asm!("mov {:e}, dword ptr [{}]", out(reg) value, in(reg) self.0 + offset,
                options(nostack, preserves_flags));
        }
        value
    }

    pub fn write(&self, offset: u64, value: u32) {
        // SAFETY: as in `read`.
        unsafe {
            asm!("mov dword ptr [{}], {:e}", in(reg) self.0 + offset, in(reg) value,
                options(nostack, preserves_flags));
        }
    }

    /// Agrees on those of the features `wanted` that the device has, which must be all of
    /// `needed`. The result is what was agreed on.
    pub fn negotiate(&self, wanted: u64, needed: u64) -> Result<u64, StartError> {
        let wanted = wanted | needed | feature::VERSION_1 | feature::EVENT_INDEX;
        let mut features = 0;
        for select in 0..2 {
            self.write(register::DEVICE_FEATURES_SELECT, select);
            features |= u64::from(self.read(register::DEVICE_FEATURES)) << (32 * select);
        }
        features &= wanted;
        for select in 0..2 {
            self.write(register::DRIVER_FEATURES_SELECT, select);
            self.write(
                register::DRIVER_FEATURES,
                (features >> (32 * select)) as u32,
            );
        }
        let seen = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.write(register::STATUS, seen);
        let has = |bits: u64| features & bits == bits;
        let agreed = self.read(register::STATUS) & status::FEATURES_OK != 0;
        match agreed && has(needed | feature::VERSION_1 | feature::EVENT_INDEX) {
            true => Ok(features),
            false => Err(StartError::Refused),
        }
    }

    /// Tells the device where queue `number` is.
    pub fn set_queue(&self, number: u16, queue: &Queue) -> Result<(), StartError> {
        self.write(register::QUEUE_SELECT, number.into());
        if self.read(register::QUEUE_SIZE_MAX) < queue.size().into() {
            return Err(StartError::Refused);
        }
        self.write(register::QUEUE_SIZE, queue.size().into());
        let places = [
            register::QUEUE_DESCRIPTORS,
            register::QUEUE_AVAILABLE,
            register::QUEUE_USED,
        ];
        for (place, address) in places.into_iter().zip(queue.addresses()) {
            self.write(place, address as u32);
            self.write(place + 4, (address >> 32) as u32);
        }
        self.write(register::QUEUE_READY, 1);
        Ok(())
    }

    /// Starts the device.
    pub fn start(&self) -> Result<(), StartError> {
        let seen = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.write(register::STATUS, seen);
        match self.read(register::STATUS) & (status::NEEDS_RESET | status::DRIVER_OK) {
            status::DRIVER_OK => Ok(()),
            _ => Err(StartError::Refused),
        }
    }
}
