//! The used ring of a queue whose buffers become used several at a time (virtio 1.3, section
//! 2.7.8): the driver sees all of them or none. `virtio_queue` publishes each of them on its own.

use super::{DeviceError, Guest, Memory};
use hartline_abi::handshake;
use std::sync::atomic::{AtomicU16, Ordering};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, VolatileMemory};

/// Offset of `idx` in a ring, bytes. The elements follow it.
const INDEX: u64 = 2;
const ELEMENTS: u64 = 4;
/// Length of a `struct virtq_used_elem`, bytes.
const USED_ELEMENT: u64 = 8;
/// Length of an element of the available ring, bytes. `used_event` follows the last one.
const AVAILABLE_ELEMENT: u64 = 2;

/// The device's state of the used ring of a queue. The queue's own `add_used` and
/// `needs_notification` must not be called.
#[derive(Debug)]
pub(crate) struct UsedRing {
    /// The index at the last decision whether to notify the driver.
    decided: u16,
}

impl UsedRing {
    /// The state of a queue that was not used yet.
    pub fn new(queue: &Queue) -> Self {
        Self {
            decided: queue.next_used(),
        }
    }

    /// Puts chains into the ring together, each with the number of bytes that were written to it.
    ///
    /// # Errors
    /// [`DeviceError::Ring`]: a head is not below the queue's size, or the ring is not in RAM.
    pub fn add_used(
        &mut self,
        queue: &mut Queue,
        memory: &Memory,
        used: impl IntoIterator<Item = (u16, u32)>,
    ) -> Result<(), DeviceError> {
        let mut index = queue.next_used();
        for (head, length) in used {
            if head >= queue.size() {
                return Err(DeviceError::Ring);
            }
            let at = element_at(queue.used_ring(), index, queue.size())?;
            let element = u64::from(head) | u64::from(length) << 32;
            let written = memory.map().write_obj(element.to_le(), at);
            written.map_err(ring)?;
            index = index.wrapping_add(1);
        }
        queue.set_next_used(index);
        // A driver that sees the index also sees the elements and the contents of the buffers.
        let at = address(queue.used_ring(), INDEX)?;
        let stored = memory.map().store(index.to_le(), at, Ordering::Release);
        stored.map_err(ring)
    }

    /// Interrupts the guest if the driver wants a notification of one of the chains that were
    /// added since the last call. Returns whether the guest was interrupted.
    ///
    /// # Errors
    /// [`DeviceError::Ring`]: the rings are not in RAM.
    pub fn notify_used(
        &mut self,
        queue: &Queue,
        memory: &Memory,
        guest: &dyn Guest,
    ) -> Result<bool, DeviceError> {
        let new = queue.next_used();
        let old = std::mem::replace(&mut self.decided, new);
        let used_event = ELEMENTS + AVAILABLE_ELEMENT * u64::from(queue.size());
        let index = address(queue.used_ring(), INDEX)?;
        let event = address(queue.avail_ring(), used_event)?;
        let [index, event] = [index, event].map(|at| memory.map().get_slice(at, size_of::<u16>()));
        let (index, event) = (index.map_err(ring)?, event.map_err(ring)?);
        let index = index.get_atomic_ref::<AtomicU16>(0).map_err(ring)?;
        let event = event.get_atomic_ref::<AtomicU16>(0).map_err(ring)?;
        // The index is already stored. Here its order with the load of the event matters.
        let is_wanted = handshake::publish(index, event, old, new);
        let is_wanted = old != new && (is_wanted || !queue.event_idx_enabled());
        if is_wanted {
            guest.interrupt();
        }
        Ok(is_wanted)
    }
}

/// The address of the element at an index of a used ring with `size` elements.
fn element_at(ring: u64, index: u16, size: u16) -> Result<GuestAddress, DeviceError> {
    let slot = index.checked_rem(size).ok_or(DeviceError::Ring)?;
    address(ring, ELEMENTS + USED_ELEMENT * u64::from(slot))
}

fn ring<E>(_: E) -> DeviceError {
    DeviceError::Ring
}

/// The address at an offset of a ring, which may begin at the end of the address space.
fn address(ring: u64, offset: u64) -> Result<GuestAddress, DeviceError> {
    let at = ring.checked_add(offset).ok_or(DeviceError::Ring)?;
    Ok(GuestAddress(at))
}

/// Properties of all rings. Kani proves them for all rings; tests try all indices of all sizes at
/// the ends of the address space.
#[cfg(any(test, kani))]
mod properties {
    use super::*;
    use crate::virtio::MAX_QUEUE_SIZE;

    /// Elements lie in the ring one behind the other and wrap at its end, also where the index
    /// wraps. A ring that does not fit the address space has no elements.
    fn elements_follow(ring: u64, index: u16, order: u32) {
        let size = 1u16 << order;
        let end = ELEMENTS + USED_ELEMENT * u64::from(size);
        let Ok(at) = element_at(ring, index, size) else {
            assert!(ring.checked_add(end).is_none());
            return;
        };
        let offset = at.0 - ring;
        assert!(offset >= ELEMENTS && offset + USED_ELEMENT <= end);
        if let Ok(next) = element_at(ring, index.wrapping_add(1), size) {
            let follows = next.0.wrapping_sub(at.0) == USED_ELEMENT;
            let wraps = offset + USED_ELEMENT == end && next.0 - ring == ELEMENTS;
            assert!(follows || wraps);
        }
    }

    /// The binary logarithm of the largest queue size.
    const MOST: u32 = MAX_QUEUE_SIZE.ilog2();

    #[cfg(kani)]
    #[kani::proof]
    fn used_elements_follow() {
        let order: u32 = kani::any();
        kani::assume(order <= MOST);
        elements_follow(kani::any(), kani::any(), order);
    }

    #[test]
    fn elements_of_all_rings() {
        let ends = (0..USED_ELEMENT + ELEMENTS + 1).map(|distance| u64::MAX - distance);
        for ring in [0, 1 << 32].into_iter().chain(ends) {
            for order in 0..=MOST {
                (0..=u16::MAX).for_each(|index| elements_follow(ring, index, order));
            }
        }
        assert_eq!(element_at(0, 5, 0), Err(DeviceError::Ring));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::tests::{AVAILABLE, SIZE, USED, memory, queue};
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug, Default)]
    struct Counter(AtomicUsize);

    impl Guest for Counter {
        fn interrupt(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn fail(&self, error: DeviceError) {
            panic!("{error}");
        }
    }

    #[test]
    fn several_chains_become_used_at_once() {
        let memory = memory();
        let guest = Counter::default();
        let mut queue = queue(&memory, &[], 0);
        queue.set_event_idx(true);
        // The ring and the indices wrap.
        queue.set_next_used(u16::MAX - 2);
        let mut used = UsedRing::new(&queue);
        let wants = |index: u16| {
            let event = GuestAddress(AVAILABLE + 4 + 2 * u64::from(SIZE));
            memory.map().write_obj(index, event).unwrap();
        };
        wants(1);
        let all = [(3, 100), (5, 20), (0, 7), (1, 8)];
        used.add_used(&mut queue, &memory, all).unwrap();
        let index: u16 = memory.map().read_obj(GuestAddress(USED + 2)).unwrap();
        assert_eq!(index, 1);
        for (slot, (head, length)) in [5u64, 6, 7, 0].into_iter().zip(all) {
            let at = GuestAddress(USED + 4 + 8 * slot);
            let element: [u32; 2] = memory.map().read_obj(at).unwrap();
            assert_eq!(element, [u32::from(head), length]);
        }
        // One notification for all of them, and none twice.
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(false));
        used.add_used(&mut queue, &memory, [(2, 1), (4, 1), (6, 1)])
            .unwrap();
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(true));
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(false));
        wants(6);
        used.add_used(&mut queue, &memory, [(2, 1), (4, 1)])
            .unwrap();
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(false));
        used.add_used(&mut queue, &memory, [(6, 1)]).unwrap();
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(true));
        // Without VIRTIO_RING_F_EVENT_IDX the driver is always notified.
        queue.set_event_idx(false);
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(false));
        used.add_used(&mut queue, &memory, [(6, 1)]).unwrap();
        assert_eq!(used.notify_used(&queue, &memory, &guest), Ok(true));
        assert_eq!(guest.0.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn bad_heads_and_rings_are_errors() {
        let memory = memory();
        let mut queue = queue(&memory, &[], 0);
        let mut used = UsedRing::new(&queue);
        let head = queue.size();
        let result = used.add_used(&mut queue, &memory, [(0, 1), (head, 1)]);
        assert_eq!(result, Err(DeviceError::Ring));
        let index: u16 = memory.map().read_obj(GuestAddress(USED + 2)).unwrap();
        assert_eq!(index, 0);
        queue.set_used_ring_address(Some(0), Some(u32::MAX));
        let result = used.add_used(&mut queue, &memory, [(0, 1)]);
        assert_eq!(result, Err(DeviceError::Ring));
        let guest = Counter::default();
        let result = used.notify_used(&queue, &memory, &guest);
        assert_eq!(result, Err(DeviceError::Ring));
    }
}
