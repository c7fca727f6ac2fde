//! The receive queue of a socket.

use super::address::Address;
use crate::ids::FileId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use hartline_linux::socket::Ucred;

/// Cost of a message besides its bytes, so that empty messages count too.
const OVERHEAD: usize = 512;
/// Longest message that parts of a stream are merged into, bytes.
const MERGED: usize = 64 << 10;

/// Nobody known, as the sender of something.
pub const NOBODY: Ucred = Ucred {
    pid: 0,
    uid: u32::MAX,
    gid: u32::MAX,
};

/// A message, or a part of a stream.
#[derive(Debug)]
pub struct Message {
    /// The bytes of the message.
    pub bytes: Vec<u8>,
    /// Number of bytes that have been read.
    pub read: usize,
    /// Address of the sender.
    pub from: Address,
    /// Credentials of the sender.
    pub cred: Ucred,
    /// Descriptions that come with the first byte (`SCM_RIGHTS`).
    pub rights: Vec<FileId>,
    /// The message is several datagrams of this length, bytes; the last may be shorter.
    pub segment: Option<u16>,
    /// How its packet arrived; none for a message that was no IP packet.
    pub packet: Option<PacketInfo>,
}

/// The fields of an IP header that a sender chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpFields {
    /// Hop limit.
    pub hops: u8,
    /// Type of service of IPv4, traffic class of IPv6.
    pub class: u8,
}

impl Default for IpFields {
    fn default() -> Self {
        Self { hops: 64, class: 0 }
    }
}

/// How a packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketInfo {
    /// Destination address.
    pub to: IpAddr,
    /// Index of the interface.
    pub interface: u32,
    /// Fields of its IP header.
    pub fields: IpFields,
}

impl Message {
    /// Returns the bytes that have not been read.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }
}

/// A queue of messages.
#[derive(Debug, Default)]
pub struct Queue {
    messages: VecDeque<Message>,
    /// Unread bytes, and the overhead of datagrams.
    used: usize,
    /// Number of unread bytes.
    length: usize,
}

impl Queue {
    /// Returns the number of unread bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the queue has no message, not even an empty one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// Returns the size that counts against the receive buffer, bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the message that is read next.
    #[must_use]
    pub fn front(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// Appends a message with its boundaries.
    pub fn push(&mut self, message: Message) {
        self.length += message.bytes.len();
        self.used += message.bytes.len() + OVERHEAD;
        self.messages.push_back(message);
    }

    /// Appends a part of a stream, which may be merged into the last message.
    pub fn append(&mut self, message: Message) {
        self.length += message.bytes.len();
        self.used += message.bytes.len();
        if let Some(last) = self.messages.back_mut()
            && message.rights.is_empty()
            && last.rights.is_empty()
            && last.cred == message.cred
            && last.bytes.len() + message.bytes.len() <= MERGED
        {
            last.bytes.extend_from_slice(&message.bytes);
            return;
        }
        self.messages.push_back(message);
    }

    /// Removes the first message.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.length -= message.bytes.len();
        self.used -= message.bytes.len() + OVERHEAD;
        Some(message)
    }

    /// Copies the bytes that one read of a stream returns: bytes of one sender, up to the end of a
    /// message with descriptions.
    pub fn copy(&self, to: &mut [u8]) -> usize {
        let mut done = 0;
        let cred = self.front().map(|message| message.cred);
        for message in &self.messages {
            if Some(message.cred) != cred {
                break;
            }
            let from = message.rest();
            let n = from.len().min(to.len() - done);
            to[done..done + n].copy_from_slice(&from[..n]);
            done += n;
            if done == to.len() || !message.rights.is_empty() {
                break;
            }
        }
        done
    }

    /// Drops `count` bytes of a stream; returns the descriptions that came with them.
    pub fn consume(&mut self, count: usize) -> Vec<FileId> {
        let mut left = count;
        let mut rights = Vec::new();
        while let Some(message) = self.messages.front_mut() {
            if left > 0 {
                rights.append(&mut message.rights);
            }
            let n = left.min(message.bytes.len() - message.read);
            message.read += n;
            left -= n;
            if message.read < message.bytes.len() {
                break;
            }
            self.messages.pop_front();
            if left == 0 {
                break;
            }
        }
        self.length -= count - left;
        self.used -= count - left;
        rights
    }

    /// Empties the queue; returns the descriptions in its messages.
    pub fn clear(&mut self) -> Vec<FileId> {
        (self.length, self.used) = (0, 0);
        let messages = core::mem::take(&mut self.messages);
        messages.into_iter().flat_map(|m| m.rights).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn piece(bytes: &[u8], rights: Vec<FileId>) -> Message {
        Message {
            bytes: bytes.to_vec(),
            read: 0,
            from: Address::Unnamed,
            cred: NOBODY,
            rights,
            segment: None,
            packet: None,
        }
    }

    #[test]
    fn a_stream_stops_after_descriptions() {
        let mut queue = Queue::default();
        queue.append(piece(b"abc", vec![]));
        queue.append(piece(b"def", vec![]));
        queue.append(piece(b"ghi", vec![FileId(7)]));
        queue.append(piece(b"jkl", vec![]));
        let mut to = [0; 20];
        assert_eq!(queue.copy(&mut to[..4]), 4);
        assert_eq!(queue.copy(&mut to), 9);
        assert_eq!(&to[..9], b"abcdefghi");
        assert_eq!(queue.consume(4), vec![]);
        assert_eq!(queue.consume(5), vec![FileId(7)]);
        assert_eq!(queue.copy(&mut to), 3);
        assert_eq!(&to[..3], b"jkl");
        assert_eq!((queue.len(), queue.used()), (3, 3));
        assert_eq!(queue.consume(3), vec![]);
        assert!(queue.is_empty());
    }

    #[test]
    fn messages_keep_their_boundaries() {
        let mut queue = Queue::default();
        queue.push(piece(b"", vec![]));
        queue.push(piece(b"two", vec![FileId(1)]));
        assert_eq!((queue.count(), queue.len()), (2, 3));
        assert_eq!(queue.pop().unwrap().bytes, b"");
        assert_eq!(queue.clear(), vec![FileId(1)]);
        assert_eq!((queue.used(), queue.pop().is_none()), (0, true));
    }
}
