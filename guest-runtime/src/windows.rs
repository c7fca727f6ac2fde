//! Windows: where translation images are mapped, and which load bias each of them has.
//!
//! Translated code reads the load bias of its file from the page before its image. All
//! processes see the same page, so a window has one bias as long as any process may run code
//! in it. Every [`Image`](crate::images::Image) therefore holds a [`Lease`] of its window,
//! and a window gets another bias only when nobody holds one. The count goes with the images
//! wherever they are moved: while processes are switched, some images are in no list.

use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_abi::layout::IMAGE_WINDOWS;

/// An image file in guest-physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Address of its first byte.
    pub gpa: u64,
    /// Length, bytes.
    pub length: u64,
}

/// The right to run code in a window, with the bias that it has.
#[derive(Debug, Clone, Default)]
pub struct Lease(Rc<()>);

impl Lease {
    fn is_held_elsewhere(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

#[derive(Debug)]
struct Window {
    /// The image that is mapped; `None` if mapping failed half-way.
    slot: Option<Slot>,
    bias: u64,
    lease: Lease,
}

/// All windows that were mapped so far.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: Vec<Window>,
}

impl Windows {
    /// A window that has the image in `slot` mapped and can have `bias`.
    pub fn find(&self, slot: Slot, bias: u64) -> Option<u64> {
        let suits = |window: &Window| {
            window.slot == Some(slot) && (window.bias == bias || !window.lease.is_held_elsewhere())
        };
        self.windows.iter().position(suits).map(|n| n as u64)
    }

    /// As [`find`](Self::find), but another window than one in use, as long as there are
    /// many: `None` asks for a new one.
    pub fn find_other(&self, slot: Slot, bias: u64) -> Option<u64> {
        let is_free =
            |window: &Window| window.slot == Some(slot) && !window.lease.is_held_elsewhere();
        let free = self.windows.iter().position(is_free).map(|n| n as u64);
        match (self.windows.len() as u64) < IMAGE_WINDOWS / 2 {
            true => free,
            false => free.or_else(|| self.find(slot, bias)),
        }
    }

    /// The number of a new window, which is unusable until [`complete`](Self::complete).
    /// `None` if there are no more.
    pub fn begin(&mut self) -> Option<u64> {
        let number = self.windows.len() as u64;
        if number == IMAGE_WINDOWS {
            return None;
        }
        self.windows.push(Window {
            slot: None,
            bias: 0,
            lease: Lease::default(),
        });
        Some(number)
    }

    /// The image in `slot` is mapped in window `number`.
    pub fn complete(&mut self, number: u64, slot: Slot) {
        self.windows[number as usize].slot = Some(slot);
    }

    /// Gives window `number`, which [`find`](Self::find) or [`begin`](Self::begin) gave, the
    /// bias `bias`. It keeps that as long as the lease or a copy of it exists.
    pub fn lease(&mut self, number: u64, bias: u64) -> Lease {
        let window = &mut self.windows[number as usize];
        window.bias = bias;
        window.lease.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot {
        gpa: 0x20_0000,
        length: 0x1000,
    };

    fn with_window(bias: u64) -> (Windows, Lease) {
        let mut windows = Windows::default();
        let number = windows.begin().unwrap();
        assert_eq!(windows.find(SLOT, bias), None);
        windows.complete(number, SLOT);
        let lease = windows.lease(number, bias);
        (windows, lease)
    }

    #[test]
    fn the_bias_stays_while_anyone_holds_a_lease() {
        let (windows, lease) = with_window(0x1000);
        // Wherever the process's images are: even if they are in no list of processes.
        let elsewhere = lease.clone();
        drop(lease);
        assert_eq!(windows.find(SLOT, 0x2000), None);
        assert_eq!(windows.find(SLOT, 0x1000), Some(0));
        drop(elsewhere);
        assert_eq!(windows.find(SLOT, 0x2000), Some(0));
    }

    #[test]
    fn another_image_needs_another_window() {
        let (mut windows, _lease) = with_window(0x1000);
        let newer = Slot {
            gpa: 0x40_0000,
            ..SLOT
        };
        assert_eq!(windows.find(newer, 0x1000), None);
        for number in 1..IMAGE_WINDOWS {
            assert_eq!(windows.begin(), Some(number));
        }
        assert_eq!(windows.begin(), None);
    }
}
