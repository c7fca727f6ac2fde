//! The server's end of the channel. It trusts nothing in it: a request is copied once and
//! checked, and data only ever read or written as bytes.

use hartline_abi::volume::{
    ANSWERED, Answer, Channel as Shared, Place as SharedPlace, Request, SUBMITTED, VOLUME_DATA,
    VOLUME_PLACES,
};
use std::ptr::{NonNull, addr_of, addr_of_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// The data of a request: memory that the guest may change at any time.
#[derive(Debug, Clone, Copy)]
pub struct Data(NonNull<u8>);

impl Data {
    /// Start, for a system call; [`VOLUME_DATA`] bytes follow.
    pub fn pointer(self) -> NonNull<u8> {
        self.0
    }

    /// A copy of `length` bytes from `offset`; none if they are not all there.
    pub fn get(self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length)?;
        if end > VOLUME_DATA as u64 {
            return None;
        }
        let mut bytes = vec![0; length as usize];
        // SAFETY: inside the data, and a copy of bytes that may change is just other bytes.
        unsafe {
            let from = self.0.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        Some(bytes)
    }

    /// Stores bytes at the start, as many as fit. Result: how many.
    pub fn put(self, bytes: &[u8]) -> u64 {
        let length = bytes.len().min(VOLUME_DATA);
        // SAFETY: inside the data.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr(), length) };
        length as u64
    }
}

/// A place for one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(NonNull<SharedPlace>);

// SAFETY: memory shared with the guest, not bound to a thread.
unsafe impl Send for Place {}

impl Place {
    /// Whether the guest waits for an answer.
    pub fn is_submitted(self) -> bool {
        self.state().load(Ordering::SeqCst) == SUBMITTED
    }

    /// The request.
    pub fn request(self) -> Request {
        // SAFETY: inside the channel, and any bytes are a valid request.
        unsafe { addr_of!((*self.0.as_ptr()).request).read_volatile() }
    }

    /// Its data.
    pub fn data(self) -> Data {
        // SAFETY: a place inside the channel.
        Data(unsafe { NonNull::new_unchecked(addr_of_mut!((*self.0.as_ptr()).data).cast()) })
    }

    /// Answers the request.
    pub fn answer(self, answer: Answer) {
        // SAFETY: inside the channel.
        unsafe { addr_of_mut!((*self.0.as_ptr()).answer).write_volatile(answer) };
        self.state().store(ANSWERED, Ordering::SeqCst);
    }

    fn state(&self) -> &AtomicU32 {
        // SAFETY: mapped, aligned, and accessed only as an atomic.
        unsafe { &*addr_of!((*self.0.as_ptr()).state) }
    }
}

/// The server's end.
#[derive(Debug)]
pub struct Channel(NonNull<Shared>);

// SAFETY: the channel is memory shared with the guest, not bound to a thread.
unsafe impl Send for Channel {}

impl Channel {
    /// The channel at `shared`.
    ///
    /// # Safety
    /// The memory stays mapped and writable as long as the channel lives. Others may
    /// change it at any time.
    #[must_use]
    pub unsafe fn new(shared: NonNull<Shared>) -> Self {
        Self(shared)
    }

    /// The same channel.
    ///
    /// # Safety
    /// The result does not live longer than this one.
    pub(super) unsafe fn again(&self) -> Self {
        Self(self.0)
    }

    /// One of [`VOLUME_PLACES`] places.
    pub(super) fn place(&self, number: usize) -> Place {
        assert!(number < VOLUME_PLACES);
        // SAFETY: inside the channel, as was just checked.
        unsafe {
            let first: *mut SharedPlace = addr_of_mut!((*self.0.as_ptr()).places).cast();
            Place(NonNull::new_unchecked(first.add(number)))
        }
    }

    /// Asks for the doorbell.
    pub(super) fn announce_sleep(&self) {
        self.server_waits().store(1, Ordering::SeqCst);
    }

    /// Takes the wish for the doorbell back.
    pub(super) fn awake(&self) {
        self.server_waits().store(0, Ordering::SeqCst);
    }

    /// Whether the guest wants to be told of an answer, once.
    pub(super) fn take_guest_waits(&self) -> bool {
        // SAFETY: mapped, aligned, and accessed only as an atomic.
        let waits = unsafe { &*addr_of!((*self.0.as_ptr()).guest_waits) };
        waits.swap(0, Ordering::SeqCst) == 1
    }

    fn server_waits(&self) -> &AtomicU32 {
        // SAFETY: as `take_guest_waits`.
        unsafe { &*addr_of!((*self.0.as_ptr()).server_waits) }
    }
}
