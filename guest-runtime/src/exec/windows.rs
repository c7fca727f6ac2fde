//! Windows: the mappings of translation images, and the load bias of each.
//!
//! Translated code reads the load bias of its file from the page before its image. All processes
//! see the same page, so a window has one bias while any process may run code in it. Every
//! [`Image`](crate::exec::images::Image) therefore has a [`Lease`] of its window, and a window changes
//! its bias only when there is no lease. The count follows the images wherever they are: during a
//! process switch, some images are in no list.

use crate::convert::to_usize;
use crate::exec::detours::Detours;
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

/// The right to run code in a window with its current bias, or in the slot for translations of code
/// that programs made.
#[derive(Debug, Clone, Default)]
pub struct Lease(Rc<()>);

impl Lease {
    /// Whether there are copies of this lease.
    pub(crate) fn is_held_elsewhere(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

#[derive(Debug)]
struct Window {
    /// The mapped image; `None` if mapping failed.
    slot: Option<Slot>,
    bias: u64,
    lease: Lease,
    /// Only processes with the same detours use the window.
    detours: Option<Detours>,
}

/// All windows that were ever mapped.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    windows: Vec<Window>,
}

impl Windows {
    /// A window in which the image in `slot` is mapped and which can have `bias`.
    pub fn find(&self, slot: Slot, bias: u64) -> Option<u64> {
        let suits = |window: &Window| {
            window.detours.is_none()
                && window.slot == Some(slot)
                && (window.bias == bias || !window.lease.is_held_elsewhere())
        };
        self.windows.iter().position(suits).map(|n| n as u64)
    }

    /// As [`find`](Self::find), but prefers a window without a lease. `None` asks for a new window,
    /// while there are many left.
    pub fn find_other(&self, slot: Slot, bias: u64) -> Option<u64> {
        let is_free = |window: &Window| {
            window.detours.is_none()
                && window.slot == Some(slot)
                && !window.lease.is_held_elsewhere()
        };
        let free = self.windows.iter().position(is_free).map(|n| n as u64);
        match (self.windows.len() as u64) < IMAGE_WINDOWS / 2 {
            true => free,
            false => free.or_else(|| self.find(slot, bias)),
        }
    }

    /// A window with detours in which the image in `slot` is mapped, and which no process uses.
    pub fn find_with_detours(&self, slot: Slot) -> Option<u64> {
        let suits = |window: &Window| {
            window.detours.is_some()
                && window.slot == Some(slot)
                && !window.lease.is_held_elsewhere()
        };
        self.windows.iter().position(suits).map(|n| n as u64)
    }

    /// The detours of window `number`, which has them from now on.
    pub fn detours(&mut self, number: u64) -> &mut Detours {
        let window = &mut self.windows[to_usize(number)];
        window.detours.get_or_insert_default()
    }

    /// Makes window `number` unusable, because its contents are not known.
    pub fn give_up(&mut self, number: u64) {
        self.windows[to_usize(number)].slot = None;
    }

    /// Reserves a new window, which is unusable until [`complete`](Self::complete). `None` if there
    /// are no more windows.
    pub fn begin(&mut self) -> Option<u64> {
        let number = self.windows.len() as u64;
        if number == IMAGE_WINDOWS {
            return None;
        }
        self.windows.push(Window {
            slot: None,
            bias: 0,
            lease: Lease::default(),
            detours: None,
        });
        Some(number)
    }

    /// Records that the image in `slot` is mapped in window `number`.
    pub fn complete(&mut self, number: u64, slot: Slot) {
        self.windows[to_usize(number)].slot = Some(slot);
    }

    /// Makes all windows so far unusable: other memory than before is mapped there.
    pub fn retire(&mut self) {
        for window in &mut self.windows {
            window.slot = None;
        }
    }

    /// Sets the bias of window `number`, from [`find`](Self::find) or [`begin`](Self::begin). The
    /// bias does not change while the lease or a copy of it exists.
    pub fn lease(&mut self, number: u64, bias: u64) -> Lease {
        let window = &mut self.windows[to_usize(number)];
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
        // The lease counts wherever the image is, even if it is in no list.
        let elsewhere = lease.clone();
        drop(lease);
        assert_eq!(windows.find(SLOT, 0x2000), None);
        assert_eq!(windows.find(SLOT, 0x1000), Some(0));
        drop(elsewhere);
        assert_eq!(windows.find(SLOT, 0x2000), Some(0));
    }

    #[test]
    fn windows_with_detours_are_used_for_nothing_else() {
        let (mut windows, lease) = with_window(0x1000);
        windows.detours(0);
        drop(lease);
        assert_eq!(windows.find(SLOT, 0x1000), None);
        assert_eq!(windows.find_other(SLOT, 0x1000), None);
        assert_eq!(windows.find_with_detours(SLOT), Some(0));
        let lease = windows.lease(0, 0x1000);
        assert_eq!(windows.find_with_detours(SLOT), None, "a process uses it");
        drop(lease);
        windows.give_up(0);
        assert_eq!(windows.find_with_detours(SLOT), None);
    }

    #[test]
    fn retired_windows_are_not_used_again() {
        let (mut windows, lease) = with_window(0x1000);
        drop(lease);
        windows.retire();
        assert_eq!(windows.find(SLOT, 0x1000), None);
        assert_eq!(windows.begin(), Some(1));
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
