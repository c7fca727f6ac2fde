//! How a side that wants to sleep and a side that has something for it do not miss one
//! another, whatever the order of their steps. Each side stores its own word, then looks at
//! the other's, with a full fence between: at least one of them sees the other.
//!
//! The functions are generic over the atomic words, so that a model checker can run
//! them as they are (`tests/handshakes.rs`).

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

/// A word that two sides use at once.
pub trait Word {
    /// Its value.
    type Value: Copy + PartialEq;

    /// As that of the atomic types.
    fn load(&self, order: Ordering) -> Self::Value;
    /// As that of the atomic types.
    fn store(&self, value: Self::Value, order: Ordering);
    /// As that of the atomic types.
    fn fetch_or(&self, bits: Self::Value, order: Ordering) -> Self::Value;
    /// As that of the atomic types.
    fn fetch_and(&self, bits: Self::Value, order: Ordering) -> Self::Value;
    /// Orders what is before it and what is after it, loads after stores too.
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

/// Publishes the index `new` of a ring after `old`. Result: whether the other side asked to
/// be told, by an event index among those (virtio 1.3, section 2.7.10).
#[inline]
pub fn publish<W: Word<Value = u16>>(index: &W, event: &W, old: u16, new: u16) -> bool {
    // Who sees the index sees what is in the ring.
    index.store(new, Ordering::Release);
    W::fence();
    is_passed(event.load(Ordering::Relaxed), old, new)
}

/// Whether the index went past `event` on its way from `old` to `new`.
const fn is_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Asks to be told when the other side goes on from the index `seen`. Result: whether it
/// has already, so that it may not tell.
#[inline]
pub fn ask<W: Word<Value = u16>>(event: &W, index: &W, seen: u16) -> bool {
    event.store(seen, Ordering::Relaxed);
    W::fence();
    index.load(Ordering::Acquire) != seen
}

/// Counts the sleeper with the bits `me` among `sleepers`. Before it sleeps it has to look
/// whether there is something for it, and afterwards to [`rise`].
#[inline]
pub fn lie_down<W: Word<Value = u64>>(sleepers: &W, me: u64) {
    sleepers.fetch_or(me, Ordering::SeqCst);
    W::fence();
}

/// The sleeper does not sleep any more.
#[inline]
pub fn rise<W: Word<Value = u64>>(sleepers: &W, me: u64) {
    sleepers.fetch_and(!me, Ordering::SeqCst);
}

/// Notes the bits `what` in `pending`. Result: who sleeps, or is about to without having
/// looked; one of those that it concerns has to be woken.
#[inline]
pub fn raise<W: Word<Value = u64>>(pending: &W, what: u64, sleepers: &W) -> u64 {
    pending.fetch_or(what, Ordering::SeqCst);
    W::fence();
    sleepers.load(Ordering::SeqCst)
}

/// What holds of all indices. Kani proves it for all of them; a test tries distances around
/// the ends of the numbers.
#[cfg(any(test, kani))]
mod properties {
    use super::is_passed;

    /// The index passes the event exactly if that is one of the indices from the old one up to
    /// the one before the new one. They may begin again at 0.
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
