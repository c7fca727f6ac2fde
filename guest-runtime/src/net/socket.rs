//! One socket.

use super::address::{Address, Family};
use super::options::{BUFFER, Options};
use super::queue::{NOBODY, Queue};
use super::vsock::Ends;
use super::wire::FlowId;
use crate::vfs::types::Ino;
use alloc::collections::VecDeque;
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IPPROTO_TCP, IPPROTO_UDP};
use hartline_linux::netlink::NETLINK_ROUTE;
use hartline_linux::socket::{SOCK_RAW, Ucred};

/// Number of a socket. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId(pub u64);

/// Type of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `SOCK_STREAM`
    Stream,
    /// `SOCK_DGRAM`
    Datagram,
    /// `SOCK_SEQPACKET`
    SeqPacket,
}

impl Type {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Type::Stream => 1,
            Type::Datagram => 2,
            Type::SeqPacket => 5,
        }
    }
}

/// Where a socket is in its life.
#[derive(Debug)]
pub enum State {
    /// Not connected.
    Idle,
    /// It waits for room in the backlog of this listener.
    Connecting(SocketId),
    /// It waits for the answer of the other end, which is not in this VM.
    Asking,
    /// It accepts connections.
    Listening(Listener),
    /// Connected, or with a default destination.
    Connected,
    /// It was connected; the other end is gone for good.
    Disconnected,
}

/// What a listening socket has.
#[derive(Debug, Default)]
pub struct Listener {
    /// Connections beyond this number wait outside.
    pub backlog: usize,
    /// Connections that nobody has accepted yet.
    pub accepted: VecDeque<SocketId>,
    /// Sockets that wait for room.
    pub waiting: VecDeque<SocketId>,
    /// Connections from outside that are being made.
    pub arriving: usize,
}

/// Size of the buffers of a TCP connection whose program set none, bytes: about what
/// Linux grows them to.
const TCP_BUFFER: i32 = 1 << 20;
/// What Linux tells of the buffers of such a connection: receive and send, bytes.
const TCP_TOLD: [i32; 2] = [131_072, 2_626_560];
/// Most messages that wait at a Unix datagram socket (`max_dgram_qlen`).
const UNIX_MESSAGES: usize = 10;

/// A socket.
#[derive(Debug)]
pub struct Socket {
    /// Its family.
    pub family: Family,
    /// Its type.
    pub kind: Type,
    /// It was asked for as `SOCK_RAW`, which netlink does not tell from `SOCK_DGRAM`.
    pub is_raw: bool,
    /// Its options.
    pub options: Options,
    /// Where it is in its life.
    pub state: State,
    /// Its own address.
    pub local: Address,
    /// It has a port or name of its own.
    pub bound: bool,
    /// The address of the other end.
    pub remote: Address,
    /// The other end, while there is one.
    pub peer: Option<SocketId>,
    /// The connection to another host, while there is one.
    pub flow: Option<FlowId>,
    /// The connection over the socket device, while there is one.
    pub channel: Option<Ends>,
    /// Who the other end is.
    pub peer_credentials: Ucred,
    /// Who made it, or connected it, or listens with it.
    pub credentials: Ucred,
    /// What it has received.
    pub queue: Queue,
    /// An error to report once.
    pub error: Option<Errno>,
    /// Nothing more will come: `shutdown`, or the end of the other side.
    pub read_closed: bool,
    /// Nothing more may be sent.
    pub write_closed: bool,
    /// `connect` returned `EINPROGRESS` and was not made again since.
    pub in_progress: bool,
    /// Its inode, once it has a descriptor.
    pub ino: Option<Ino>,
    /// The file that it is bound to.
    pub file: Option<Ino>,
    /// How often something came in, and how often room for sending came about.
    pub edges: [u32; 2],
}

impl Socket {
    /// A socket that is neither bound nor connected.
    #[must_use]
    pub fn new(family: Family, kind: Type, credentials: Ucred) -> Socket {
        Socket {
            family,
            kind,
            is_raw: false,
            options: Options::default(),
            state: State::Idle,
            local: Address::unbound(family),
            bound: false,
            remote: Address::Unnamed,
            peer: None,
            flow: None,
            channel: None,
            peer_credentials: NOBODY,
            credentials,
            queue: Queue::default(),
            error: None,
            read_closed: false,
            write_closed: false,
            in_progress: false,
            ino: None,
            file: None,
            edges: [0; 2],
        }
    }

    /// Whether it is an internet socket.
    #[must_use]
    pub fn is_inet(&self) -> bool {
        matches!(self.family, Family::Inet | Family::Inet6)
    }

    /// Whether it is a TCP socket.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.is_inet() && self.kind == Type::Stream
    }

    /// Its type, as `SO_TYPE` tells.
    #[must_use]
    pub fn told_type(&self) -> u32 {
        match self.is_raw {
            true => SOCK_RAW,
            false => self.kind.number(),
        }
    }

    /// Whether messages keep their boundaries.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.kind != Type::Stream
    }

    /// Its protocol, as `SO_PROTOCOL` tells.
    #[must_use]
    pub fn protocol(&self) -> i32 {
        match (self.family, self.kind) {
            (Family::Unix | Family::Vsock, _) => 0,
            (Family::Netlink, _) => NETLINK_ROUTE,
            (_, Type::Datagram) => IPPROTO_UDP,
            _ => IPPROTO_TCP,
        }
    }

    /// Whether both ends belong together.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Whether it listens.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        matches!(self.state, State::Listening(_))
    }

    /// Size of a buffer as a program is told: receive (0) or send (1), bytes.
    #[must_use]
    pub fn told_buffer(&self, which: usize) -> i32 {
        let default = match self.is_tcp() {
            true => TCP_TOLD[which],
            false => BUFFER,
        };
        self.options.buffer(which, default)
    }

    /// Size of a buffer that the program wants: receive (0) or send (1), bytes.
    #[must_use]
    pub fn wanted_buffer(&self, which: usize) -> Option<usize> {
        let wanted = self.options.buffer(which, -1);
        usize::try_from(wanted).ok()
    }

    /// Bytes of a stream that it can take in from another host.
    #[must_use]
    pub fn room_from_wire(&self) -> usize {
        /// As much again is in the buffer of the connection.
        const MOST: usize = 256 << 10;
        self.buffer(0).min(MOST).saturating_sub(self.queue.used())
    }

    fn buffer(&self, which: usize) -> usize {
        let default = match self.family {
            Family::Vsock => return self.options.vsock.buffer() as usize,
            _ if self.is_tcp() => TCP_BUFFER,
            _ => BUFFER,
        };
        usize::try_from(self.options.buffer(which, default)).unwrap_or(0)
    }

    /// Largest message that it may send, bytes.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        /// A UDP datagram and its header fit 16 bits, with the IP header for IPv4.
        const UDP: usize = 65_507;
        match self.family {
            Family::Unix | Family::Netlink => self.buffer(1).saturating_sub(32),
            _ => UDP,
        }
    }

    /// Bytes of a stream that it can take in from `sender`.
    #[must_use]
    pub fn room_from(&self, sender: &Socket) -> usize {
        let capacity = self.buffer(0).max(sender.buffer(1));
        capacity.saturating_sub(self.queue.used())
    }

    /// Whether it can take in a message of `length` bytes.
    #[must_use]
    pub fn has_room_for(&self, length: usize) -> bool {
        match self.family {
            Family::Unix if self.kind == Type::Datagram => self.queue.count() <= UNIX_MESSAGES,
            _ => self.queue.is_empty() || self.queue.used() + length <= self.buffer(0),
        }
    }

    /// Whether a program that polls is told that it can send to `peer`: a third of the
    /// buffer is free.
    #[must_use]
    pub fn can_send_to(&self, peer: &Socket) -> bool {
        match self.has_messages() {
            true => peer.has_room_for(1),
            false => peer.room_from(self) * 3 >= peer.buffer(0).max(self.buffer(1)),
        }
    }
}
