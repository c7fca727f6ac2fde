//! The server's end of the channel. The server does not trust its contents: it copies each request
//! once and checks the copy, and reads and writes data only as bytes.

use crate::virtio::Memory;
use hartline_abi::volume::{
    ANSWERED, Answer, Channel as Shared, Request, SUBMITTED, Slot as SharedSlot, VOLUME_DATA,
    VOLUME_SLOTS,
};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use vm_memory::{ByteValued, Bytes, VolatileSlice};

/// A structure in the channel, copied as bytes.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw<T>(T);

// SAFETY: the structure consists of integers without padding (asserted below), so all its bytes are
// initialised, and any bytes are a valid value.
unsafe impl ByteValued for Raw<Request> {}
// SAFETY: as for `Request`.
unsafe impl ByteValued for Raw<Answer> {}

// The sums of the lengths of all fields.
const _: () = assert!(size_of::<Request>() == 2 * 4 + 6 * 8);
const _: () = assert!(size_of::<Answer>() == 7 * 8 + 5 * 8 + 10 * 4 + 4 * 8);

/// The server's end. It keeps the channel mapped, and clones are the same channel.
#[derive(Debug, Clone)]
pub struct Channel {
    memory: Memory,
    address: u64,
}

impl Channel {
    /// The channel at a guest-physical address in `memory`. `None` if the channel does not lie in
    /// the memory, or is misaligned.
    #[must_use]
    pub fn new(memory: Memory, address: u64) -> Option<Self> {
        let is_inside = memory.slice(address, size_of::<Shared>()).is_ok();
        let is_aligned = memory.atomic::<AtomicU32>(address).is_ok();
        (is_inside && is_aligned).then_some(Self { memory, address })
    }

    /// One of the [`VOLUME_SLOTS`] slots.
    pub(super) fn slot(&self, number: usize) -> Slot<'_> {
        assert!(number < VOLUME_SLOTS);
        Slot {
            channel: self,
            offset: offset_of!(Shared, slots) + number * size_of::<SharedSlot>(),
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
        self.guest_waits().swap(0, Ordering::SeqCst) == 1
    }

    fn server_waits(&self) -> &AtomicU32 {
        self.word(offset_of!(Shared, server_waits))
    }

    fn guest_waits(&self) -> &AtomicU32 {
        self.word(offset_of!(Shared, guest_waits))
    }

    /// The bytes at an offset in the channel.
    fn part(&self, offset: usize, length: usize) -> VolatileSlice<'_> {
        let part = self.memory.slice(self.address + offset as u64, length);
        part.expect("a part of the channel, which is in the memory")
    }

    /// The word at an offset in the channel, which both sides access as an atomic.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let word = self.memory.atomic(self.address + offset as u64);
        word.expect("a field of the channel, which is in the memory and aligned")
    }
}

/// A slot for one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a> {
    channel: &'a Channel,
    /// Offset of the slot in the channel.
    offset: usize,
}

impl<'a> Slot<'a> {
    /// Whether the guest waits for an answer.
    pub fn is_submitted(self) -> bool {
        self.state().load(Ordering::SeqCst) == SUBMITTED
    }

    /// The request. The guest may write it meanwhile: the result is a copy.
    pub fn request(self) -> Request {
        let part = self.part::<Request>(offset_of!(SharedSlot, request));
        let Raw(request) = part.read_obj(0).expect("the slice has this length");
        request
    }

    /// The data of the request.
    pub fn data(self) -> Data<'a> {
        Data {
            channel: self.channel,
            offset: self.offset + offset_of!(SharedSlot, data),
        }
    }

    /// Answers the request. The guest reads the answer after the state is set.
    pub fn answer(self, answer: Answer) {
        let part = self.part::<Answer>(offset_of!(SharedSlot, answer));
        let written = part.write_obj(Raw(answer), 0);
        written.expect("the slice has this length");
        self.state().store(ANSWERED, Ordering::SeqCst);
    }

    fn state(self) -> &'a AtomicU32 {
        let offset = self.offset + offset_of!(SharedSlot, state);
        self.channel.word(offset)
    }

    /// The field of type `T` at an offset in the slot.
    fn part<T>(self, offset: usize) -> VolatileSlice<'a> {
        self.channel.part(self.offset + offset, size_of::<T>())
    }
}

/// The data of a request: memory that the guest may change at any time.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    channel: &'a Channel,
    /// Offset of the data in the channel.
    offset: usize,
}

impl<'a> Data<'a> {
    /// The first `length` bytes, of at most [`VOLUME_DATA`].
    pub fn slice(self, length: usize) -> VolatileSlice<'a> {
        self.channel.part(self.offset, length.min(VOLUME_DATA))
    }

    /// A copy of `length` bytes from `offset`. `None` if the data is shorter.
    pub fn get(self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let part = self.slice(VOLUME_DATA).subslice(offset, length).ok()?;
        let mut bytes = vec![0; length];
        part.copy_to(&mut bytes);
        Some(bytes)
    }

    /// Stores bytes at the start, as many as fit. Returns their number.
    pub fn put(self, bytes: &[u8]) -> u64 {
        let length = bytes.len().min(VOLUME_DATA);
        self.slice(length).copy_from(&bytes[..length]);
        length as u64
    }
}

/// The guest's end.
#[cfg(test)]
pub(super) mod guest {
    use super::*;

    impl Channel {
        /// A channel in memory of its own.
        pub fn anonymous() -> Self {
            let memory = Memory::anonymous(size_of::<Shared>(), 0).unwrap();
            Self::new(memory, 0).unwrap()
        }

        /// Whether the server waits for a notification. Clears the flag.
        pub fn take_server_waits(&self) -> bool {
            self.server_waits().swap(0, Ordering::SeqCst) == 1
        }

        /// Asks for an interrupt for the next answer.
        pub fn enable_interrupt(&self) {
            self.guest_waits().store(1, Ordering::SeqCst);
        }
    }

    impl Slot<'_> {
        /// Submits a request.
        pub fn submit(self, request: Request) {
            let part = self.part::<Request>(offset_of!(SharedSlot, request));
            part.write_obj(Raw(request), 0).unwrap();
            self.state().store(SUBMITTED, Ordering::SeqCst);
        }

        /// The answer, if there is one.
        pub fn answered(self) -> Option<Answer> {
            let is_there = self.state().load(Ordering::SeqCst) == ANSWERED;
            is_there.then(|| {
                let part = self.part::<Answer>(offset_of!(SharedSlot, answer));
                let Raw(answer) = part.read_obj(0).unwrap();
                answer
            })
        }
    }

    #[test]
    fn channels_are_in_their_memory() {
        let memory = Memory::anonymous(size_of::<Shared>(), 4096).unwrap();
        for (address, is_inside) in [(4096, true), (4098, false), (0, false), (8192, false)] {
            let channel = Channel::new(memory.clone(), address);
            assert_eq!(channel.is_some(), is_inside, "{address}");
        }
        assert!(Channel::new(memory, u64::MAX - 3).is_none());
    }
}
