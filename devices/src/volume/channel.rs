//! The server's end of the channel. The server does not trust its contents: it copies each request
//! once and checks the copy, and reads and writes data only as bytes.

use hartline_abi::volume::{
    ANSWERED, Answer, Channel as Shared, Place as SharedSlot, Request, SUBMITTED, VOLUME_DATA,
    VOLUME_PLACES,
};
use std::ptr::{NonNull, addr_of, addr_of_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use vm_memory::VolatileSlice;

/// The data of a request: memory that the guest may change at any time.
#[derive(Debug, Clone, Copy)]
pub struct Data(NonNull<u8>);

impl Data {
    /// The first `length` bytes, of at most [`VOLUME_DATA`].
    pub fn slice(&self, length: usize) -> VolatileSlice<'_> {
        // SAFETY: the data has VOLUME_DATA bytes. They are in the channel, which is mapped for
        // reading and writing as long as anything serves its requests. The guest may change them at
        // any time, which a volatile slice allows.
        unsafe { VolatileSlice::new(self.0.as_ptr(), length.min(VOLUME_DATA)) }
    }

    /// A copy of `length` bytes from `offset`. `None` if the data is shorter.
    pub fn get(self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length)?;
        if end > VOLUME_DATA as u64 {
            return None;
        }
        let mut bytes = vec![0; length as usize];
        let all = self.slice(VOLUME_DATA);
        all.offset(offset as usize).ok()?.copy_to(&mut bytes);
        Some(bytes)
    }

    /// Stores bytes at the start, as many as fit. Returns their number.
    pub fn put(self, bytes: &[u8]) -> u64 {
        let length = bytes.len().min(VOLUME_DATA);
        self.slice(length).copy_from(&bytes[..length]);
        length as u64
    }
}

/// A slot for one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(NonNull<SharedSlot>);

// SAFETY: the slot is memory that is shared with the guest and not bound to a thread. All accesses
// are atomic, volatile or copies.
unsafe impl Send for Slot {}

impl Slot {
    /// Whether the guest waits for an answer.
    pub fn is_submitted(self) -> bool {
        self.state().load(Ordering::SeqCst) == SUBMITTED
    }

    /// The request.
    pub fn request(self) -> Request {
        // SAFETY: the slot is in the channel, which is mapped as long as it is served, and aligned.
        // The read is volatile because the guest may write meanwhile. Any bytes are a valid request.
        unsafe { addr_of!((*self.0.as_ptr()).request).read_volatile() }
    }

    /// The data of the request.
    pub fn data(self) -> Data {
        // SAFETY: the slot is in the channel, which is mapped as long as it is served, so the address
        // of its field is inside a mapping and not null.
        Data(unsafe { NonNull::new_unchecked(addr_of_mut!((*self.0.as_ptr()).data).cast()) })
    }

    /// Answers the request.
    pub fn answer(self, answer: Answer) {
        // SAFETY: the slot is in the channel, which is mapped for writing as long as it is served, and
        // aligned. Only the server writes answers; the guest reads one after the state is set.
        unsafe { addr_of_mut!((*self.0.as_ptr()).answer).write_volatile(answer) };
        self.state().store(ANSWERED, Ordering::SeqCst);
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: the field is aligned and in the channel, which is mapped as long as it is served.
        // The guest's code and this process access it only as an atomic.
        unsafe { &*addr_of!((*self.0.as_ptr()).state) }
    }
}

/// The server's end.
#[derive(Debug)]
pub struct Channel(NonNull<Shared>);

// SAFETY: the channel is memory that is shared with the guest and not bound to a thread. All accesses
// are atomic, volatile or copies.
unsafe impl Send for Channel {}

impl Channel {
    /// The channel at `shared`.
    ///
    /// # Safety
    /// The memory stays mapped and writable as long as the channel lives. The guest may change it at
    /// any time.
    #[must_use]
    pub unsafe fn new(shared: NonNull<Shared>) -> Self {
        Self(shared)
    }

    /// Another handle of the same channel.
    ///
    /// # Safety
    /// The result does not outlive this value.
    pub(super) unsafe fn alias(&self) -> Self {
        Self(self.0)
    }

    /// One of the [`VOLUME_PLACES`] slots.
    pub(super) fn slot(&self, number: usize) -> Slot {
        assert!(number < VOLUME_PLACES);
        // SAFETY: `number` is below the number of slots, so the address is in the channel and not
        // null.
        unsafe {
            let first: *mut SharedSlot = addr_of_mut!((*self.0.as_ptr()).places).cast();
            Slot(NonNull::new_unchecked(first.add(number)))
        }
    }

    /// Asks the guest to notify the server of requests.
    pub(super) fn enable_notification(&self) {
        self.server_waits().store(1, Ordering::SeqCst);
    }

    /// Tells the guest that it need not notify the server.
    pub(super) fn disable_notification(&self) {
        self.server_waits().store(0, Ordering::SeqCst);
    }

    /// Whether the guest waits for an answer. Clears the flag.
    pub(super) fn take_guest_waits(&self) -> bool {
        // SAFETY: the field is aligned and in the channel, which is mapped as long as it is served.
        // The guest's code and this process access it only as an atomic.
        let waits = unsafe { &*addr_of!((*self.0.as_ptr()).guest_waits) };
        waits.swap(0, Ordering::SeqCst) == 1
    }

    fn server_waits(&self) -> &AtomicU32 {
        // SAFETY: as in `take_guest_waits`.
        unsafe { &*addr_of!((*self.0.as_ptr()).server_waits) }
    }
}
