//! A hostile guest of virtio devices: its RAM, and a driver that starts a device.

#![allow(dead_code, reason = "each target uses a part")]

use hartline_abi::console::{CONTROL_TRANSMIT, MAX_PORTS, console_feature, queues};
use hartline_abi::virtio::{device, feature, net_feature, register, status};
use hartline_devices::virtio::mmio::Transport;
use hartline_devices::virtio::{DeviceError, Guest, Memory};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The address of the guest's RAM, and its length.
pub const BASE: u64 = 1 << 32;
pub const LENGTH: usize = 64 << 10;
/// The most queues of a device, which the console has. A network device with two queue pairs and
/// its control queue has fewer.
pub const QUEUES: u64 = queues(MAX_PORTS as u16) as u64;
/// Bits of the first byte of an input that select a network device with two queue pairs, if the bit
/// for the block and other devices is not set too.
pub const SEVERAL: u8 = 1 | 2;
/// The bit that offers `VIRTIO_NET_F_MRG_RXBUF`.
const MERGES: u8 = 0x10;
/// The bytes before and after the RAM, which must not change.
const CANARY: u8 = 0xa5;

#[derive(Debug, Clone, Copy)]
#[repr(align(4096))]
struct Page {
    _bytes: [u8; 4096],
}

const PAGE: Page = Page {
    _bytes: [CANARY; 4096],
};

/// The guest's RAM, between two guard pages that are not the guest's.
#[derive(Debug)]
pub struct Ram {
    pages: Arc<Mutex<Vec<Page>>>,
    base: NonNull<u8>,
}

// SAFETY: the memory belongs to no thread, and is accessed by its address only.
unsafe impl Sync for Ram {}
// SAFETY: as above.
unsafe impl Send for Ram {}

impl Ram {
    /// Makes RAM that begins with `contents`, truncated or padded with zeros.
    pub fn new(contents: &[u8]) -> Self {
        let pages = Arc::new(Mutex::new(vec![PAGE; LENGTH / size_of::<Page>() + 2]));
        let base = NonNull::from(&mut pages.lock().expect("pages")[1]).cast();
        let ram = Self { pages, base };
        ram.fill(contents);
        ram
    }

    /// Replaces the contents. No device may use the RAM meanwhile.
    pub fn fill(&self, contents: &[u8]) {
        let count = contents.len().min(LENGTH);
        // SAFETY: the writes stay inside the pages.
        unsafe {
            self.base.as_ptr().write_bytes(0, LENGTH);
            self.base
                .as_ptr()
                .copy_from_nonoverlapping(contents.as_ptr(), count);
        }
    }

    /// Returns the memory for devices.
    pub fn memory(&self) -> Memory {
        let owner = Arc::clone(&self.pages);
        // SAFETY: the vector is not changed while the memory, which owns a share of it, exists.
        unsafe { Memory::new(self.base, LENGTH, BASE, owner) }.expect("small")
    }

    /// Returns the addresses of the RAM in this process.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + LENGTH
    }

    /// Returns the location of the 16-bit word at an offset; `None` if it is outside the RAM or
    /// unaligned.
    pub fn word(&self, offset: usize) -> Option<NonNull<u16>> {
        let word = self.base.as_ptr().wrapping_add(offset).cast::<u16>();
        let is_word = offset + size_of::<u16>() <= LENGTH && word.is_aligned();
        is_word.then(|| NonNull::new(word)).flatten()
    }

    /// Checks that the guard pages have not changed.
    pub fn check(&self) {
        let before = self.base.as_ptr().wrapping_sub(size_of::<Page>());
        let behind = self.base.as_ptr().wrapping_add(LENGTH);
        for page in [before, behind] {
            // SAFETY: the guard pages beside the RAM are allocated, and no device may write there.
            let page = unsafe { std::slice::from_raw_parts(page, size_of::<Page>()) };
            assert!(page.iter().all(|&byte| byte == CANARY));
        }
    }
}

/// Records that a device has stopped.
#[derive(Debug, Default)]
pub struct Watcher {
    pub failed: AtomicBool,
}

impl Guest for Watcher {
    fn interrupt(&self) {}

    fn fail(&self, _: DeviceError) {
        self.failed.store(true, Ordering::SeqCst);
    }
}

pub fn read(transport: &Transport, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    transport.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Starts the device as a driver does, with small rings at the start of RAM.
pub fn begin(transport: &mut Transport, kind: u8) {
    let is_console = read(transport, register::DEVICE_ID) == device::CONSOLE;
    let mut write = |offset, value: u64| transport.write(offset, &(value as u32).to_le_bytes());
    write(register::STATUS, 3);
    let features = feature::VERSION_1
        | if kind & 4 != 0 {
            feature::EVENT_INDEX
        } else {
            0
        }
        | if kind & (SEVERAL | 8) == SEVERAL {
            net_feature::CONTROL_QUEUE | net_feature::MULTIQUEUE
        } else {
            0
        }
        | if kind & (MERGES | 9) == MERGES | 1 {
            net_feature::MERGEABLE
        } else {
            0
        }
        | if is_console {
            console_feature::MULTIPORT
        } else {
            0
        };
    for half in 0..2 {
        write(register::DRIVER_FEATURES_SELECT, half);
        write(register::DRIVER_FEATURES, features >> (32 * half));
    }
    write(register::STATUS, 3 | u64::from(status::FEATURES_OK));
    for queue in 0..QUEUES {
        write(register::QUEUE_SELECT, queue);
        write(register::QUEUE_SIZE, 8);
        let at = BASE + queue * 0x200;
        for (place, address) in [
            (register::QUEUE_DESCRIPTORS, at),
            (register::QUEUE_AVAILABLE, at + 0x80),
            (register::QUEUE_USED, at + 0x100),
        ] {
            write(place, address);
            write(place + 4, address >> 32);
        }
        write(register::QUEUE_READY, 1);
    }
    let all = 3 | status::FEATURES_OK | status::DRIVER_OK;
    write(register::STATUS, all.into());
    write(register::QUEUE_NOTIFY, 0);
    // The control queues of a network device and of the console are processed when this returns.
    write(register::QUEUE_NOTIFY, 4);
    write(register::QUEUE_NOTIFY, CONTROL_TRANSMIT.into());
}
