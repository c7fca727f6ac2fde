//! One socket.

use super::address::{Address, Family};
use super::datagram::SendOptions;
use super::errors::Report;
use super::groups::Membership;
use super::options::{BUFFER, Options};
use super::queue::{NOBODY, Queue};
use super::vsock::Ends;
use super::wire::FlowId;
use crate::convert::low_u32;
use crate::ids::Ino;
use crate::wait::WaitQueue;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP};
use hartline_linux::netlink::NETLINK_ROUTE;
use hartline_linux::socket::{SOCK_RAW, Ucred};
use hartline_linux::tcp::{
    TCP_CLOSE, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT2, TCP_LISTEN, TCP_SYN_SENT, TcpInfo,
};

/// A socket number. Numbers are not reused.
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
    /// Returns the number of the type (`SOCK_*`).
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Type::Stream => 1,
            Type::Datagram => 2,
            Type::SeqPacket => 5,
        }
    }
}

/// A space of port numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// The ports of TCP.
    Tcp,
    /// The ports of UDP.
    Udp,
    /// The identifiers of ICMP echo sockets.
    Icmp,
}

/// The connection state of a socket.
#[derive(Debug)]
pub enum State {
    /// Not connected.
    Idle,
    /// Waits for room in the backlog of this listener.
    Connecting(SocketId),
    /// Waits for the answer of a peer outside this VM.
    Asking,
    /// Accepts connections.
    Listening(Listener),
    /// Connected, or with a default destination.
    Connected,
    /// Was connected; the peer is closed.
    Disconnected,
}

/// The state of a listening socket.
#[derive(Debug, Default)]
pub struct Listener {
    /// Most connections in the backlog; further sockets wait.
    pub backlog: usize,
    /// Connections that are not accepted yet.
    pub accepted: VecDeque<SocketId>,
    /// Sockets that wait for room in the backlog.
    pub waiting: VecDeque<SocketId>,
    /// Connections from other hosts that are not established yet.
    pub arriving: usize,
}

/// Default size of the buffers of a TCP connection, bytes: about the size that Linux grows them to.
const TCP_BUFFER: i32 = 1 << 20;
/// Sizes that `SO_RCVBUF` and `SO_SNDBUF` return for such a connection on Linux, bytes.
const TCP_TOLD: [i32; 2] = [131_072, 2_626_560];
/// Most messages in the queue of a Unix datagram socket (`max_dgram_qlen`).
const UNIX_MESSAGES: usize = 10;

/// A UDP datagram that is not complete (`MSG_MORE`, `UDP_CORK`).
#[derive(Debug)]
pub struct Corked {
    /// Its bytes so far.
    pub bytes: Vec<u8>,
    /// Its destination.
    pub to: SocketAddr,
    /// The options of its first part.
    pub options: SendOptions,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    /// The address family.
    pub family: Family,
    /// The type.
    pub kind: Type,
    /// The program asked for `SOCK_RAW`, which netlink treats as `SOCK_DGRAM`.
    pub is_raw: bool,
    /// The protocol is ICMP, or ICMPv6 by the family, and `kind` is [`Type::Datagram`].
    pub is_icmp: bool,
    /// The options.
    pub options: Options,
    /// The connection state.
    pub state: State,
    /// The local address.
    pub local: Address,
    /// Whether the socket is bound to a port or name.
    pub bound: bool,
    /// The address of the peer.
    pub remote: Address,
    /// The peer in this VM, while there is one.
    pub peer: Option<SocketId>,
    /// The connection to another host, while there is one.
    pub flow: Option<FlowId>,
    /// The connection over the socket device, while there is one.
    pub channel: Option<Ends>,
    /// Credentials of the peer.
    pub peer_credentials: Ucred,
    /// Credentials of the process that created the socket, connected it or listens with it.
    pub credentials: Ucred,
    /// The receive queue.
    pub queue: Queue,
    /// The UDP datagram that is not complete.
    pub corked: Option<Corked>,
    /// Errors about datagrams that it sent (`IP_RECVERR`).
    pub errors: VecDeque<Report>,
    /// The pending error, which is reported once.
    pub error: Option<Errno>,
    /// Nothing more will be received: after `shutdown`, or when the peer has ended its side.
    pub read_closed: bool,
    /// Nothing more may be sent.
    pub write_closed: bool,
    /// `connect` returned `EINPROGRESS` and was not called again since.
    pub in_progress: bool,
    /// The inode, once the socket has a descriptor.
    pub ino: Option<Ino>,
    /// The multicast groups that the socket is a member of.
    pub groups: Vec<Membership>,
    /// The socket file that the socket is bound to.
    pub file: Option<Ino>,
    /// The parties that wait for the socket.
    pub waiters: WaitQueue,
    /// Unix datagram sockets that found no room in the receive queue since the last receive.
    pub senders: RefCell<BTreeSet<SocketId>>,
}

impl Socket {
    /// Returns a socket that is neither bound nor connected.
    // Much code, in many places.
    #[inline(never)]
    #[must_use]
    pub fn new(family: Family, kind: Type, credentials: Ucred) -> Socket {
        Socket {
            family,
            kind,
            is_raw: false,
            is_icmp: false,
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
            corked: None,
            errors: VecDeque::new(),
            error: None,
            read_closed: false,
            write_closed: false,
            in_progress: false,
            ino: None,
            groups: Vec::new(),
            file: None,
            waiters: WaitQueue::default(),
            senders: RefCell::default(),
        }
    }

    /// Whether this is an internet socket.
    #[must_use]
    pub fn is_inet(&self) -> bool {
        matches!(self.family, Family::Inet | Family::Inet6)
    }

    /// Whether this is a TCP socket.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.is_inet() && self.kind == Type::Stream
    }

    /// Returns the type that `SO_TYPE` reports.
    #[must_use]
    pub fn told_type(&self) -> u32 {
        match self.is_raw {
            true => SOCK_RAW,
            false => self.kind.number(),
        }
    }

    /// Returns what `TCP_INFO` shows of a TCP socket, whose packets have at most `mtu` bytes.
    #[must_use]
    pub fn tcp_info(&self, mtu: usize) -> TcpInfo {
        let headers = match self.remote.socket_addr() {
            Some(remote) if remote.is_ipv6() => 60,
            _ => 40,
        };
        let state = self.tcp_state();
        let mut info = TcpInfo {
            tcpi_state: state,
            ..TcpInfo::default()
        };
        match &self.state {
            State::Listening(listener) => {
                info.tcpi_unacked = low_u32(listener.accepted.len() as u64);
                // The backlog has room for one more.
                info.tcpi_sacked = low_u32(listener.backlog.saturating_sub(1) as u64);
            }
            State::Connected => {
                let segment = low_u32(mtu.saturating_sub(headers) as u64);
                info.tcpi_pmtu = low_u32(mtu as u64);
                info.tcpi_advmss = segment;
                info.tcpi_snd_mss = segment;
                info.tcpi_rcv_mss = segment;
            }
            _ => {}
        }
        info
    }

    /// Returns the space of the socket's port.
    #[must_use]
    pub fn ports(&self) -> Ports {
        match self.kind {
            _ if self.is_icmp => Ports::Icmp,
            Type::Datagram => Ports::Udp,
            _ => Ports::Tcp,
        }
    }

    /// Whether messages keep their boundaries.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.kind != Type::Stream
    }

    /// Returns the protocol that `SO_PROTOCOL` reports.
    #[must_use]
    pub fn protocol(&self) -> i32 {
        match (self.family, self.kind) {
            (Family::Unix | Family::Vsock, _) => 0,
            (Family::Netlink, _) => NETLINK_ROUTE,
            (Family::Inet, _) if self.is_icmp => IPPROTO_ICMP,
            (_, _) if self.is_icmp => IPPROTO_ICMPV6,
            (_, Type::Datagram) => IPPROTO_UDP,
            _ => IPPROTO_TCP,
        }
    }

    /// Whether the socket is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Whether the socket listens.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        matches!(self.state, State::Listening(_))
    }

    /// Returns the state of a TCP socket as Linux numbers it (`TCP_ESTABLISHED` and so on).
    #[must_use]
    pub fn tcp_state(&self) -> u8 {
        match self.state {
            State::Listening(_) => TCP_LISTEN,
            State::Connecting(_) | State::Asking => TCP_SYN_SENT,
            State::Connected => match (self.read_closed, self.write_closed) {
                (false, false) => TCP_ESTABLISHED,
                (false, true) => TCP_FIN_WAIT2,
                (true, false) => TCP_CLOSE_WAIT,
                (true, true) => TCP_CLOSE,
            },
            State::Idle | State::Disconnected => TCP_CLOSE,
        }
    }

    /// Returns the size that `SO_RCVBUF` (0) or `SO_SNDBUF` (1) reports, bytes.
    #[must_use]
    pub fn told_buffer(&self, which: usize) -> i32 {
        let default = match self.is_tcp() {
            true => TCP_TOLD[which],
            false => BUFFER,
        };
        self.options.buffer(which, default)
    }

    /// Returns the size of the receive (0) or send (1) buffer that the program set, bytes.
    #[must_use]
    pub fn wanted_buffer(&self, which: usize) -> Option<usize> {
        let wanted = self.options.buffer(which, -1);
        usize::try_from(wanted).ok()
    }

    /// Returns how many bytes of a stream the socket can take from another host.
    #[must_use]
    pub fn room_from_wire(&self) -> usize {
        /// The buffer of the TCP connection holds as much again.
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

    /// Returns the largest message that the socket may send, bytes.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        /// A UDP datagram with its header and an IPv4 header has at most 65,535 bytes.
        const UDP: usize = 65_507;
        match self.family {
            Family::Unix | Family::Netlink => self.buffer(1).saturating_sub(32),
            _ => UDP,
        }
    }

    /// Returns how many bytes of a stream the socket can take from `sender`.
    #[must_use]
    pub fn room_from(&self, sender: &Socket) -> usize {
        let capacity = self.buffer(0).max(sender.buffer(1));
        capacity.saturating_sub(self.queue.used())
    }

    /// Whether the socket can take a message of `length` bytes.
    #[must_use]
    pub fn has_room_for(&self, length: usize) -> bool {
        match self.family {
            Family::Unix if self.kind == Type::Datagram => self.queue.count() <= UNIX_MESSAGES,
            _ => self.queue.is_empty() || self.queue.used() + length <= self.buffer(0),
        }
    }

    /// Whether poll reports that the socket can send to `peer`: a third of the buffer is free.
    #[must_use]
    pub fn can_send_to(&self, peer: &Socket) -> bool {
        match self.has_messages() {
            true => peer.has_room_for(1),
            false => peer.room_from(self) * 3 >= peer.buffer(0).max(self.buffer(1)),
        }
    }
}
