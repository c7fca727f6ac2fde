//! The handshake between a side that wants to sleep and a side that has work for it, without lost
//! wake-ups. Each side stores its own word and then loads the other side's, with a full fence in
//! between: at least one of them sees the other's store.
//!
//! The functions are generic over the atomic words, so that a model checker can run the same code
//! (`tests/handshakes.rs`).

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

/// A word that two sides access concurrently.
pub trait Word {
    /// Type of the word's value.
    type Value: Copy + PartialEq;

    /// As the method of the atomic types.
    fn load(&self, order: Ordering) -> Self::Value;
    /// As the method of the atomic types.
    fn store(&self, value: Self::Value, order: Ordering);
    /// As the method of the atomic types.
    fn fetch_or(&self, bits: Self::Value, order: Ordering) -> Self::Value;
    /// As the method of the atomic types.
    fn fetch_and(&self, bits: Self::Value, order: Ordering) -> Self::Value;
    /// A full fence: orders earlier accesses before later ones, also stores before loads.
    fn fence();
}

macro_rules! words {
    ($($atomic:ident => $value:ident),*) => {$(
        impl Word for $atomic {
            type Value = $value;

            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }

            #[inline]
            fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.fetch_or(bits, order)
            }

            #[inline]
            fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.fetch_and(bits, order)
            }

            #[inline]
            fn fence() {
                fence(Ordering::SeqCst);
            }
        }
    )*};
}

words!(AtomicU16 => u16, AtomicU64 => u64);

/// Publishes the ring index `new` after `old`. Returns whether the other side asked for a
/// notification at one of these indices (virtio 1.3, section 2.7.10).
#[inline]
pub fn publish<W: Word<Value = u16>>(index: &W, event: &W, old: u16, new: u16) -> bool {
    // A side that sees the index also sees the contents of the ring.
    index.store(new, Ordering::Release);
    W::fence();
    is_passed(event.load(Ordering::Relaxed), old, new)
}

/// Whether the index passed `event` when it moved from `old` to `new`.
const fn is_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Asks for a notification when the other side moves on from the index `seen`. Returns whether it
/// has already moved, so that no notification may come.
#[inline]
pub fn ask<W: Word<Value = u16>>(event: &W, index: &W, seen: u16) -> bool {
    event.store(seen, Ordering::Relaxed);
    W::fence();
    index.load(Ordering::Acquire) != seen
}

/// Adds the bits `me` to `sleepers`. The sleeper must then check for work before it sleeps, and
/// call [`end_sleep`] afterwards.
#[inline]
pub fn begin_sleep<W: Word<Value = u64>>(sleepers: &W, me: u64) {
    sleepers.fetch_or(me, Ordering::SeqCst);
    W::fence();
}

/// Removes the bits `me` from `sleepers` when the sleeper is awake.
#[inline]
pub fn end_sleep<W: Word<Value = u64>>(sleepers: &W, me: u64) {
    sleepers.fetch_and(!me, Ordering::SeqCst);
}

/// Sets the bits `what` in `pending`. Returns the sleepers, including those that have not checked
/// for work yet. One of the sleepers that `what` concerns must be woken.
#[inline]
pub fn raise<W: Word<Value = u64>>(pending: &W, what: u64, sleepers: &W) -> u64 {
    pending.fetch_or(what, Ordering::SeqCst);
    W::fence();
    sleepers.load(Ordering::SeqCst)
}

/// Clears the bits `what` in `pending`. Returns whether one of them was set: the caller must then do the work of all
/// that has [raised](raise) them so far. One operation looks and clears: an interrupt between a look and a later
/// clearing would be lost.
#[inline]
pub fn take<W: Word<Value = u64>>(pending: &W, what: u64) -> bool {
    // Mostly there is nothing to clear, and the line of the cache stays shared.
    pending.load(Ordering::Relaxed) & what != 0
        && pending.fetch_and(!what, Ordering::SeqCst) & what != 0
}

/// Properties of all indices. Kani proves them; a test tries distances around the limits of the
/// numbers.
#[cfg(any(test, kani))]
mod properties {
    use super::is_passed;

    /// The index passes the event exactly if the event is one of the indices from the old one up
    /// to, and without, the new one. Indices wrap around.
    fn passes(event: u16, old: u16, count: u16) {
        let new = old.wrapping_add(count);
        assert_eq!(is_passed(event, old, new), event.wrapping_sub(old) < count);
    }

    #[cfg(kani)]
    #[kani::proof]
    fn an_event_is_passed_once() {
        passes(kani::any(), kani::any(), kani::any());
    }

    #[test]
    fn all_events() {
        for old in [0, 1, 255, 0x7fff, 0x8000, u16::MAX - 1, u16::MAX] {
            for count in [0, 1, 2, 256, 0x7fff, 0x8000, u16::MAX] {
                (0..=u16::MAX).for_each(|event| passes(event, old, count));
            }
        }
    }
}
