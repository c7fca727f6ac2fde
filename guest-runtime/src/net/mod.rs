//! Sockets: Unix, TCP, UDP, ICMP and `AF_VSOCK` sockets, within this VM and to other hosts.
//!
//! If both ends of a connection are sockets of one VM, bytes go from the sender's memory into the
//! receiver's queue, without packets. [`Network::route`] decides where an address leads. Packets
//! leave the VM through [`wire`], or through [`vsock`] to the host.

pub mod address;
mod connection;
pub mod datagram;
mod ending;
pub mod errors;
pub mod groups;
mod icmp;
pub mod interfaces;
mod moved;
pub mod netlink;
pub mod options;
mod ports;
pub mod queue;
pub mod socket;
#[cfg(test)]
mod tests;
pub mod vsock;
pub mod wire;
mod wired;

use crate::ids::FileId;
use crate::ids::Ino;
use crate::wait::{ALL, READABLE, WRITABLE};
use address::{Address, Family};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use hartline_linux::errno::Errno;
use hartline_linux::socket::Ucred;
use queue::{Message, NOBODY, PacketInfo};
use socket::{Socket, SocketId, State, Type};
use vsock::Vsock;
use wire::Wire;

pub use connection::Connecting;
pub use ports::EPHEMERAL;

/// Most sockets of a VM.
const MAX_SOCKETS: usize = 1 << 16;

/// Where packets to an address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To a socket of this VM.
    Loopback {
        /// The source address, unless the sender is bound.
        source: IpAddr,
        /// The destination address; never the wildcard.
        to: IpAddr,
    },
    /// Out of the VM.
    Wire {
        /// The source address, unless the sender is bound.
        source: IpAddr,
    },
}

/// The result of receiving.
#[derive(Debug)]
pub struct Received {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Length of the message, bytes, which may be more than `bytes`.
    pub length: usize,
    /// Address of the sender.
    pub from: Address,
    /// Credentials of the sender.
    pub cred: Ucred,
    /// Descriptions that came with the message (`SCM_RIGHTS`); the receiver owns them now.
    pub rights: Vec<FileId>,
    /// The message is several datagrams of this length, bytes; the last may be shorter.
    pub segment: Option<u16>,
    /// How its packet arrived; none for a message that was no IP packet.
    pub packet: Option<PacketInfo>,
}

/// Resources of a closed socket that the caller must release.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Descriptions in messages that were not received.
    pub rights: Vec<FileId>,
    /// Inodes of socket files.
    pub files: Vec<Ino>,
}

/// All sockets of the VM.
#[derive(Debug, Default)]
pub struct Network {
    sockets: BTreeMap<SocketId, Socket>,
    last: u64,
    /// Sockets bound to each port, by [`Ports`].
    ports: [BTreeMap<u16, Vec<SocketId>>; 3],
    /// ICMP sockets.
    icmp: BTreeSet<SocketId>,
    /// The ephemeral port that was assigned last.
    last_port: u16,
    /// The addresses and routes that members of netlink groups know.
    announced: Option<netlink::Facts>,
    /// The memberships of all sockets in multicast groups.
    groups: Vec<groups::Membership>,
    names: BTreeMap<Box<[u8]>, SocketId>,
    files: BTreeMap<Ino, SocketId>,
    /// The network interface, if there is one.
    wire: Option<Box<Wire>>,
    /// `AF_VSOCK` sockets bound to each port.
    vsock_ports: BTreeMap<u32, Vec<SocketId>>,
    /// The `AF_VSOCK` port that was assigned last.
    last_vsock_port: u32,
    /// The virtio socket device, if there is one.
    vsock: Option<Box<Vsock>>,
}

impl Network {
    /// Returns where packets to an address go; the wildcard is this VM.
    ///
    /// # Errors
    /// `ENETUNREACH` if no route leads there.
    pub fn route(&self, to: IpAddr) -> Result<Route, Errno> {
        let loopback = |source: IpAddr, to| Ok(Route::Loopback { source, to });
        let (local4, local6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        match to {
            // All of 127.0.0.0/8 is local; the source address is 127.0.0.1.
            IpAddr::V4(ip) if ip.is_loopback() => loopback(local4, to),
            IpAddr::V4(ip) if ip.is_unspecified() => loopback(local4, local4),
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => loopback(local6, local6),
            _ if self.has_address(to) => loopback(to, to),
            _ => match self.wire.as_ref().and_then(|wire| wire.source(to)) {
                Some(source) => Ok(Route::Wire { source }),
                None => Err(Errno::ENETUNREACH),
            },
        }
    }

    /// Whether an interface has this address.
    fn has_address(&self, ip: IpAddr) -> bool {
        let wire = self.wire.as_ref();
        ip.is_loopback() || wire.is_some_and(|wire| wire.has_address(ip))
    }

    /// Whether there is a device that may receive packets.
    #[must_use]
    pub fn has_device(&self) -> bool {
        self.wire.is_some() || self.vsock.is_some()
    }

    /// Whether a device has received packets.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.is_pending())
            || self.vsock.as_ref().is_some_and(|vsock| vsock.is_pending())
    }

    /// Returns when to poll the devices without an interrupt, ns of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        let wire = self.wire.as_ref().and_then(|wire| wire.next_time());
        let vsock = self.vsock.as_ref().and_then(|vsock| vsock.next_time());
        wire.into_iter().chain(vsock).min()
    }

    /// Processes received packets and expired timers; `now` is in ns of `CLOCK_MONOTONIC`.
    pub fn poll_devices(&mut self, now: u64) {
        self.poll_wire();
        self.with_vsock(|vsock, net| vsock.poll(now, net));
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn add(&mut self, socket: Socket) -> Result<SocketId, Errno> {
        if self.sockets.len() >= MAX_SOCKETS {
            return Err(Errno::ENFILE);
        }
        self.last += 1;
        let id = SocketId(self.last);
        if socket.is_icmp {
            self.icmp.insert(id);
        }
        self.sockets.insert(id, socket);
        Ok(id)
    }

    /// Returns a socket.
    ///
    /// # Errors
    /// `EBADF` if it is closed.
    pub fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        self.sockets.get(&id).ok_or(Errno::EBADF)
    }

    /// Returns a socket, mutably.
    ///
    /// # Errors
    /// `EBADF` if it is closed.
    pub fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Iterates over all sockets in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.values()
    }

    /// Creates two connected Unix sockets (`socketpair`).
    ///
    /// # Errors
    /// `ENFILE` if there are too many sockets.
    pub fn pair(&mut self, kind: Type, cred: Ucred) -> Result<[SocketId; 2], Errno> {
        let mut make = || {
            let socket = Socket {
                state: State::Connected,
                peer_credentials: cred,
                ..Socket::new(Family::Unix, kind, cred)
            };
            self.add(socket)
        };
        let (first, second) = (make()?, make()?);
        self.get_mut(first)?.peer = Some(second);
        self.get_mut(second)?.peer = Some(first);
        Ok([first, second])
    }

    /// Wakes a party that waits for input of a socket: it received something.
    fn touch_input(&self, id: SocketId) {
        if let Some(socket) = self.sockets.get(&id) {
            socket.waiters.wake(READABLE);
        }
    }

    /// Wakes the parties that wait to send through a socket: there is room, or it is connected.
    fn touch_output(&self, id: SocketId) {
        if let Some(socket) = self.sockets.get(&id) {
            socket.waiters.wake_all(WRITABLE);
        }
    }

    /// Wakes all parties that wait for a socket: it has an error, or one side has ended.
    fn touch_all(&self, id: SocketId) {
        if let Some(socket) = self.sockets.get(&id) {
            socket.waiters.wake_all(ALL);
        }
    }

    /// Sets the pending error of a socket.
    ///
    /// # Errors
    /// `EBADF` if the socket is closed.
    pub fn set_error(&mut self, id: SocketId, error: Errno) -> Result<(), Errno> {
        self.get_mut(id)?.error = Some(error);
        self.touch_all(id);
        Ok(())
    }

    /// Wakes the senders of datagrams that found no room in the queue of a socket.
    fn release_senders(&self, socket: &Socket) {
        for sender in socket.senders.take() {
            self.touch_output(sender);
        }
    }

    /// Sets the size of the receive (0) or send (1) buffer of a socket, bytes. The socket and its
    /// peer may have room for sending then.
    ///
    /// # Errors
    /// `EBADF` if the socket is closed.
    pub fn set_buffer(&mut self, id: SocketId, which: usize, bytes: i32) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        socket.options.set_buffer(which, bytes);
        let peer = socket.peer;
        self.touch_output(id);
        peer.into_iter().for_each(|peer| self.touch_output(peer));
        Ok(())
    }

    /// Takes the pending error of a socket, so that it is reported once.
    ///
    /// # Errors
    /// The pending error.
    fn take_error(&mut self, id: SocketId) -> Result<(), Errno> {
        match self.get_mut(id)?.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Checks that a socket may send.
    ///
    /// # Errors
    /// The pending error, or `EPIPE`.
    fn check_sending(&mut self, id: SocketId) -> Result<(), Errno> {
        self.take_error(id)?;
        match self.get(id)?.write_closed {
            true => Err(Errno::EPIPE),
            false => Ok(()),
        }
    }

    /// Binds a Unix socket to an abstract name; an empty name asks for a free one.
    ///
    /// # Errors
    /// `EINVAL` if it is bound, `EADDRINUSE`.
    pub fn bind_abstract(&mut self, id: SocketId, name: &[u8]) -> Result<(), Errno> {
        if self.get(id)?.bound {
            return Err(Errno::EINVAL);
        }
        if self.names.contains_key(name) {
            return Err(Errno::EADDRINUSE);
        }
        self.names.insert(name.into(), id);
        let socket = self.get_mut(id)?;
        socket.local = Address::Abstract(name.into());
        socket.bound = true;
        Ok(())
    }

    /// Returns an unused abstract name for a Unix socket.
    #[must_use]
    pub fn free_name(&mut self) -> Vec<u8> {
        loop {
            self.last += 1;
            let name = alloc::format!("{:05x}", self.last & 0xf_ffff).into_bytes();
            if !self.names.contains_key(name.as_slice()) {
                return name;
            }
        }
    }

    /// Binds a Unix socket to the socket file `ino`. The caller retains the inode until
    /// [`Leftovers`] contains it.
    ///
    /// # Errors
    /// `EINVAL` if it is bound.
    pub fn bind_file(&mut self, id: SocketId, path: &[u8], ino: Ino) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        if socket.bound {
            return Err(Errno::EINVAL);
        }
        socket.local = Address::Path(path.into());
        socket.bound = true;
        socket.file = Some(ino);
        self.files.insert(ino, id);
        Ok(())
    }

    /// Returns the Unix socket with an abstract name.
    ///
    /// # Errors
    /// `ECONNREFUSED` if no socket has this name.
    pub fn find_abstract(&self, name: &[u8]) -> Result<SocketId, Errno> {
        self.names.get(name).copied().ok_or(Errno::ECONNREFUSED)
    }

    /// Returns the Unix socket that is bound to a socket file.
    ///
    /// # Errors
    /// `ECONNREFUSED` if no socket is bound to the file.
    pub fn find_file(&self, ino: Ino) -> Result<SocketId, Errno> {
        self.files.get(&ino).copied().ok_or(Errno::ECONNREFUSED)
    }

    /// Closes a socket and the connections in its backlog.
    pub fn close(&mut self, id: SocketId) -> Leftovers {
        let mut left = Leftovers::default();
        let (first, mut closing) = (id, Vec::from([id]));
        while let Some(id) = closing.pop() {
            let Some(mut socket) = self.sockets.remove(&id) else {
                continue;
            };
            self.unbind(id, &socket);
            self.icmp.remove(&id);
            left.files.extend(socket.file);
            if let State::Listening(listener) = &mut socket.state {
                closing.extend(listener.accepted.drain(..));
                for waiting in core::mem::take(&mut listener.waiting) {
                    self.refuse(waiting);
                }
                self.with_wire(|wire, net| wire.close_listener(id, net));
            }
            self.leave_peer(id, &socket);
            self.release_senders(&socket);
            // Connections that were not accepted are reset.
            self.leave_wire(&socket, id != first);
            self.leave_vsock(&socket);
            self.leave_groups(&socket);
            left.rights.append(&mut socket.queue.clear());
        }
        left
    }

    fn unbind(&mut self, id: SocketId, socket: &Socket) {
        match &socket.local {
            Address::Inet(address) if socket.bound => {
                let (ports, port) = (socket.ports(), address.port());
                let table = self.port_table(ports);
                if let Some(list) = table.get_mut(&port) {
                    list.retain(|other| *other != id);
                    if list.is_empty() {
                        table.remove(&port);
                    }
                }
            }
            Address::Vsock(_, port) if socket.bound => self.unbind_vsock(id, *port),
            Address::Abstract(name) if self.names.get(name) == Some(&id) => {
                self.names.remove(name);
            }
            _ => {}
        }
        if let Some(ino) = socket.file {
            self.files.remove(&ino);
        }
    }

    /// Takes bytes of a stream, or a message, out of the queue of a socket. With `peek` they stay
    /// in the queue.
    ///
    /// # Errors
    /// `EAGAIN` if there are none yet, `ENOTCONN`, a pending error.
    pub fn receive(&mut self, id: SocketId, most: usize, peek: bool) -> Result<Received, Errno> {
        let socket = self.get(id)?;
        if socket.queue.is_empty() {
            return self.receive_nothing(id);
        }
        let (flow, channel) = (socket.flow, socket.channel);
        let received = match socket.has_messages() {
            true => self.receive_message(id, most, peek),
            false => self.receive_bytes(id, most, peek),
        };
        if let (Ok(received), false) = (&received, peek) {
            if let Some(flow) = flow {
                self.with_wire(|wire, net| wire.refill(flow, net));
            }
            if let Some(ends) = channel {
                self.forward_vsock(ends, received.bytes.len());
            }
        }
        received
    }

    /// Returns the result of receiving from an empty queue.
    fn receive_nothing(&mut self, id: SocketId) -> Result<Received, Errno> {
        // A connection that broke after an orderly end of the peer still reports end of file.
        if self.get(id)?.error != Some(Errno::EPIPE) {
            self.take_error(id)?;
        }
        let socket = self.get(id)?;
        match &socket.state {
            _ if socket.read_closed => {}
            State::Idle | State::Listening(_) if socket.kind != Type::Datagram => {
                return Err(match socket.family {
                    Family::Unix => Errno::EINVAL,
                    _ => Errno::ENOTCONN,
                });
            }
            // A socket for datagrams may still receive some from others.
            State::Disconnected if socket.kind != Type::Datagram => {}
            _ => return Err(Errno::EAGAIN),
        }
        Ok(Received {
            bytes: Vec::new(),
            length: 0,
            from: Address::Unnamed,
            cred: NOBODY,
            rights: Vec::new(),
            segment: None,
            packet: None,
        })
    }

    fn receive_bytes(&mut self, id: SocketId, most: usize, peek: bool) -> Result<Received, Errno> {
        let socket = self.get_mut(id)?;
        let mut bytes = alloc::vec![0; most.min(socket.queue.len())];
        let count = socket.queue.copy(&mut bytes);
        bytes.truncate(count);
        let front = socket.queue.front();
        let (from, cred) = front.map_or((Address::Unnamed, NOBODY), |front| {
            (front.from.clone(), front.cred)
        });
        let rights = match peek {
            true => Vec::new(),
            false => socket.queue.consume(count),
        };
        let peer = socket.peer;
        if !peek
            && count > 0
            && let Some(peer) = peer
        {
            self.touch_output(peer);
        }
        Ok(Received {
            length: count,
            bytes,
            from,
            cred,
            rights,
            segment: None,
            packet: None,
        })
    }

    fn receive_message(
        &mut self,
        id: SocketId,
        most: usize,
        peek: bool,
    ) -> Result<Received, Errno> {
        let socket = self.get_mut(id)?;
        let received = |message: &Message| Received {
            bytes: message.bytes[..most.min(message.bytes.len())].to_vec(),
            length: message.bytes.len(),
            from: message.from.clone(),
            cred: message.cred,
            rights: Vec::new(),
            segment: message.segment,
            packet: message.packet,
        };
        if peek {
            // The message stays for the next receiver.
            socket.waiters.pass_on(READABLE);
            return socket.queue.front().map(received).ok_or(Errno::EAGAIN);
        }
        let message = socket.queue.pop().ok_or(Errno::EAGAIN)?;
        let mut received = received(&message);
        received.rights = message.rights;
        let socket = self.get(id)?;
        self.release_senders(socket);
        if let Some(peer) = socket.peer {
            self.touch_output(peer);
        }
        if !socket.queue.is_empty() {
            // One receiver is woken at a time.
            socket.waiters.pass_on(READABLE);
        }
        Ok(received)
    }
}
