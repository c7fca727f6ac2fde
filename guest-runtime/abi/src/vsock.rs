//! Virtio socket devices (virtio 1.3, section 5.10): the header of packets, and the credit
//! accounting at both ends of a stream.

/// Queue of packets to the guest.
pub const VSOCK_RECEIVE: u16 = 0;
/// Queue of packets from the guest.
pub const VSOCK_TRANSMIT: u16 = 1;
/// Queue of events; the device sends none.
pub const VSOCK_EVENT: u16 = 2;

/// The CID that stands for any CID (`VMADDR_CID_ANY`).
pub const CID_ANY: u32 = u32::MAX;
/// CID of the VM itself (`VMADDR_CID_LOCAL`).
pub const CID_LOCAL: u32 = 1;
/// CID of the host (`VMADDR_CID_HOST`).
pub const CID_HOST: u32 = 2;
/// The first CID that a VM may have; the last one is before [`CID_ANY`].
pub const FIRST_CID: u32 = 3;

/// Socket type: a stream of bytes.
pub const STREAM: u16 = 1;

/// Operations of packets ([`VsockHeader::op`]).
pub mod op {
    /// Requests a connection.
    pub const REQUEST: u16 = 1;
    /// Accepts a connection.
    pub const RESPONSE: u16 = 2;
    /// There is no connection, or the connection ends.
    pub const RESET: u16 = 3;
    /// The sender will not receive, or not send any more ([`super::shutdown`]).
    pub const SHUTDOWN: u16 = 4;
    /// Carries bytes of the stream.
    pub const DATA: u16 = 5;
    /// Reports the sender's credit.
    pub const CREDIT_UPDATE: u16 = 6;
    /// Requests a [`CREDIT_UPDATE`].
    pub const CREDIT_REQUEST: u16 = 7;
}

/// Flags of [`op::SHUTDOWN`].
pub mod shutdown {
    /// The sender receives no more.
    pub const RECEIVE: u32 = 1;
    /// The sender sends no more.
    pub const SEND: u32 = 2;
    /// Both flags.
    pub const BOTH: u32 = RECEIVE | SEND;
}

/// The header of each packet (section 5.10.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VsockHeader {
    /// CID of the sender. The upper halves of CIDs are 0.
    pub src_cid: u64,
    /// CID of the receiver.
    pub dst_cid: u64,
    /// Port of the sender.
    pub src_port: u32,
    /// Port of the receiver.
    pub dst_port: u32,
    /// Number of bytes that follow.
    pub length: u32,
    /// [`STREAM`].
    pub kind: u16,
    /// One of [`op`].
    pub op: u16,
    /// Flags of `op`.
    pub flags: u32,
    /// Length of the sender's buffer for the stream, bytes.
    pub buffer: u32,
    /// Bytes that the sender has removed from that buffer, modulo 2³².
    pub forwarded: u32,
}

impl VsockHeader {
    /// Length, bytes.
    pub const LENGTH: usize = 44;

    /// Encodes the header for memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.src_cid.to_le_bytes());
        put(8, &self.dst_cid.to_le_bytes());
        put(16, &self.src_port.to_le_bytes());
        put(20, &self.dst_port.to_le_bytes());
        put(24, &self.length.to_le_bytes());
        put(28, &self.kind.to_le_bytes());
        put(30, &self.op.to_le_bytes());
        put(32, &self.flags.to_le_bytes());
        put(36, &self.buffer.to_le_bytes());
        put(40, &self.forwarded.to_le_bytes());
        bytes
    }

    /// Decodes a header from memory.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        /// The `N` bytes at `at`, which must be within `bytes`.
        fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            let mut field = [0; N];
            field.copy_from_slice(&bytes[at..at + N]);
            field
        }
        Self {
            src_cid: u64::from_le_bytes(field(bytes, 0)),
            dst_cid: u64::from_le_bytes(field(bytes, 8)),
            src_port: u32::from_le_bytes(field(bytes, 16)),
            dst_port: u32::from_le_bytes(field(bytes, 20)),
            length: u32::from_le_bytes(field(bytes, 24)),
            kind: u16::from_le_bytes(field(bytes, 28)),
            op: u16::from_le_bytes(field(bytes, 30)),
            flags: u32::from_le_bytes(field(bytes, 32)),
            buffer: u32::from_le_bytes(field(bytes, 36)),
            forwarded: u32::from_le_bytes(field(bytes, 40)),
        }
    }

    /// A packet back to the sender, without data.
    #[must_use]
    pub fn answer(&self, op: u16) -> Self {
        Self {
            src_cid: self.dst_cid,
            dst_cid: self.src_cid,
            src_port: self.dst_port,
            dst_port: self.src_port,
            kind: self.kind,
            op,
            ..Self::default()
        }
    }
}

/// Credit accounting at one end of a stream (section 5.10.6.3): how much it may send, and how much
/// it has room for. Values of the peer are not trusted: whatever they are, this end sends at most
/// what they allow, and accepts at most what it has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Length of the local buffer, bytes.
    buffer: u32,
    /// Bytes that were received, that have left the buffer, and that were last reported as such;
    /// modulo 2³².
    received: u32,
    forwarded: u32,
    told: u32,
    /// Values that the peer has reported last.
    peer_buffer: u32,
    peer_forwarded: u32,
    /// Number of bytes sent, modulo 2³².
    sent: u32,
}

/// The peer has sent more than there was room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun;

/// A number of bytes as the counters have it, which wrap.
fn modulo(bytes: usize) -> u32 {
    (bytes as u64 & 0xffff_ffff) as u32
}

impl Credit {
    /// The account of an end with a buffer of this length, before the first packet of the peer.
    #[must_use]
    pub fn new(buffer: u32) -> Self {
        Self {
            buffer,
            received: 0,
            forwarded: 0,
            told: 0,
            peer_buffer: 0,
            peer_forwarded: 0,
            sent: 0,
        }
    }

    /// Number of bytes that may be sent now.
    #[must_use]
    pub fn room(&self) -> usize {
        let under_way = self.sent.wrapping_sub(self.peer_forwarded);
        self.peer_buffer.saturating_sub(under_way) as usize
    }

    /// Records that bytes were sent, at most [`room`](Self::room).
    pub fn send(&mut self, bytes: usize) {
        self.sent = self.sent.wrapping_add(modulo(bytes));
    }

    /// Records the peer's credit from the header of a packet.
    pub fn update(&mut self, header: &VsockHeader) {
        self.peer_buffer = header.buffer;
        self.peer_forwarded = header.forwarded;
    }

    /// Records that bytes were received.
    ///
    /// # Errors
    /// [`Overrun`] if they do not fit the buffer.
    pub fn receive(&mut self, bytes: usize) -> Result<(), Overrun> {
        let used = self.received.wrapping_sub(self.forwarded);
        let free = self.buffer.saturating_sub(used) as usize;
        if bytes > free {
            return Err(Overrun);
        }
        self.received = self.received.wrapping_add(modulo(bytes));
        Ok(())
    }

    /// Records that bytes have left the buffer.
    pub fn forward(&mut self, bytes: usize) {
        self.forwarded = self.forwarded.wrapping_add(modulo(bytes));
    }

    /// Changes the length of the buffer. Bytes in the buffer stay.
    pub fn resize(&mut self, buffer: u32) {
        self.buffer = buffer;
    }

    /// Whether enough bytes have left the buffer to send a credit update without data, since the
    /// peer may wait for room. A reader that empties the buffer reaches this limit before the peer
    /// runs out of credit.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.forwarded.wrapping_sub(self.told) >= (self.buffer / 4).max(1)
    }

    /// Writes the local credit to the header of a packet.
    pub fn stamp(&mut self, header: &mut VsockHeader) {
        self.told = self.forwarded;
        header.buffer = self.buffer;
        header.forwarded = self.forwarded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a packet from one end to the other.
    fn pass(from: &mut Credit, to: &mut Credit) {
        let mut header = VsockHeader::default();
        from.stamp(&mut header);
        to.update(&header);
    }

    #[test]
    fn headers_survive_the_way() {
        let header = VsockHeader {
            src_cid: 3,
            dst_cid: 2,
            src_port: 0x1122_3344,
            dst_port: 7,
            length: 9,
            kind: STREAM,
            op: op::DATA,
            flags: 1,
            buffer: 65_536,
            forwarded: u32::MAX,
        };
        let bytes = header.to_bytes();
        assert_eq!(VsockHeader::from_bytes(&bytes), header);
        assert_eq!(bytes[24..32], [9, 0, 0, 0, 1, 0, 5, 0]);
        let answer = header.answer(op::RESET);
        assert_eq!((answer.src_cid, answer.dst_port), (2, 0x1122_3344));
        assert_eq!((answer.op, answer.length), (op::RESET, 0));
    }

    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let (mut a, mut b) = (Credit::new(0), Credit::new(1000));
        assert_eq!(a.room(), 0, "nothing was told yet");
        pass(&mut b, &mut a);
        // Transfer enough bytes for the counters to wrap.
        let mut sent = 0u64;
        let step = |a: &mut Credit, b: &mut Credit, bytes: usize| {
            a.send(bytes);
            b.receive(bytes)
        };
        (a.sent, a.peer_forwarded) = (u32::MAX - 2500, u32::MAX - 2500);
        (b.received, b.forwarded, b.told) = (a.sent, a.sent, a.sent);
        while sent < 10_000 {
            assert_eq!(a.room(), 1000);
            assert_eq!(step(&mut a, &mut b, 700), Ok(()));
            assert_eq!((a.room(), b.is_news()), (300, false));
            b.forward(249);
            assert!(!b.is_news());
            b.forward(1);
            assert!(b.is_news());
            pass(&mut b, &mut a);
            assert_eq!((a.room(), b.is_news()), (550, false));
            b.forward(450);
            pass(&mut b, &mut a);
            sent += 700;
        }
        assert_eq!(step(&mut a, &mut b, 1000), Ok(()));
        assert_eq!(a.room(), 0);
        assert_eq!(b.receive(1), Err(Overrun));
        assert_eq!(b.receive(0), Ok(()));
    }

    #[test]
    fn lies_give_nothing() {
        let mut credit = Credit::new(100);
        let mut room = |buffer, forwarded| {
            credit.update(&VsockHeader {
                buffer,
                forwarded,
                ..VsockHeader::default()
            });
            credit.room()
        };
        // The peer reports more bytes than were sent.
        assert_eq!(room(1000, 1), 0);
        assert_eq!(room(1000, 0), 1000);
        assert_eq!(room(u32::MAX, 0), u32::MAX as usize);
        // The buffer becomes smaller than its contents.
        assert_eq!(credit.receive(100), Ok(()));
        credit.resize(10);
        assert_eq!(credit.receive(1), Err(Overrun));
        credit.forward(91);
        assert_eq!(credit.receive(1), Ok(()));
    }
}
