//! Sockets: Unix, TCP, UDP and `AF_VSOCK` sockets, within this VM and to other hosts.
//!
//! If both ends of a connection are sockets of one VM, bytes go from the sender's memory into the
//! receiver's queue, without packets. [`Network::route`] decides where an address leads. Packets
//! leave the VM through [`wire`], or through [`vsock`] to the host.

pub mod address;
mod connection;
mod datagram;
pub mod interfaces;
pub mod netlink;
pub mod options;
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
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::socket::{SO_REUSEADDR, SO_REUSEPORT, Ucred};
use queue::{Message, NOBODY};
use socket::{Socket, SocketId, State, Type};
use vsock::Vsock;
use wire::Wire;

pub use connection::Connecting;

/// Most sockets of a VM.
const MAX_SOCKETS: usize = 1 << 16;
/// Ports for sockets that ask for any port (`ip_local_port_range`).
pub const EPHEMERAL: core::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Ports below this one need the superuser.
const PRIVILEGED: u16 = 1024;

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
    pub who: Ucred,
    /// Descriptions that came with the message (`SCM_RIGHTS`); the receiver owns them now.
    pub rights: Vec<FileId>,
    /// The message is several datagrams of this length, bytes; the last may be shorter.
    pub segment: Option<u16>,
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
    /// Sockets bound to each port: TCP, then UDP.
    ports: [BTreeMap<u16, Vec<SocketId>>; 2],
    /// The ephemeral port that was assigned last.
    last_port: u16,
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
    pub fn pair(&mut self, kind: Type, who: Ucred) -> Result<[SocketId; 2], Errno> {
        let mut make = || {
            let socket = Socket {
                state: State::Connected,
                peer_credentials: who,
                ..Socket::new(Family::Unix, kind, who)
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

    fn port_table(&mut self, kind: Type) -> &mut BTreeMap<u16, Vec<SocketId>> {
        &mut self.ports[usize::from(kind == Type::Datagram)]
    }

    /// Returns the sockets bound to a port.
    fn at_port(&self, kind: Type, port: u16) -> &[SocketId] {
        let table = &self.ports[usize::from(kind == Type::Datagram)];
        table.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Binds an internet socket to an address and port; port 0 asks for a free one. Ports below
    /// 1024 are for `privileged` callers.
    ///
    /// # Errors
    /// `EINVAL` if it is bound, `EADDRNOTAVAIL`, `EADDRINUSE`, `EACCES`.
    pub fn bind_inet(
        &mut self,
        id: SocketId,
        to: SocketAddr,
        privileged: bool,
    ) -> Result<(), Errno> {
        let socket = self.get(id)?;
        let kind = socket.kind;
        if socket.bound {
            return Err(Errno::EINVAL);
        }
        if !to.ip().is_unspecified() && !self.has_address(to.ip()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let to = match to.port() {
            0 => SocketAddr::new(to.ip(), self.free_port(id, to.ip())?),
            port if port < PRIVILEGED && !privileged => return Err(Errno::EACCES),
            port if self.is_taken(id, to.ip(), port) => return Err(Errno::EADDRINUSE),
            _ => to,
        };
        self.port_table(kind).entry(to.port()).or_default().push(id);
        let socket = self.get_mut(id)?;
        socket.local = Address::Inet(to);
        socket.bound = true;
        Ok(())
    }

    /// Whether another socket prevents `id` from having an address.
    fn is_taken(&self, id: SocketId, ip: IpAddr, port: u16) -> bool {
        let Ok(own) = self.get(id) else {
            return false;
        };
        let others = self.at_port(own.kind, port).iter();
        others
            .filter_map(|other| self.get(*other).ok())
            .any(|other| {
                let both = |option| own.options.is_on(option) && other.options.is_on(option);
                let shares = both(SO_REUSEPORT)
                    || (both(SO_REUSEADDR) && !(other.is_listening() || own.is_listening()));
                let theirs = other.local.socket_addr().map(|address| address.ip());
                !shares && theirs.is_some_and(|theirs| overlaps((own, ip), (other, theirs)))
            })
    }

    /// Starts the ephemeral ports at an unpredictable port (RFC 6056). So peers do not mistake
    /// connections for old ones of an earlier VM with the same address.
    pub fn choose_first_port(&mut self, random: u64) {
        let offset = random % u64::from(EPHEMERAL.end() - EPHEMERAL.start());
        self.last_port = EPHEMERAL.start() + offset as u16;
    }

    fn free_port(&mut self, id: SocketId, ip: IpAddr) -> Result<u16, Errno> {
        for _ in EPHEMERAL {
            self.last_port = match self.last_port {
                port if EPHEMERAL.contains(&port) && port != *EPHEMERAL.end() => port + 1,
                _ => *EPHEMERAL.start(),
            };
            // A socket shares no port that it did not ask for.
            let kind = self.get(id)?.kind;
            if self.at_port(kind, self.last_port).is_empty()
                || !self.is_taken(id, ip, self.last_port)
            {
                return Ok(self.last_port);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Binds a socket to a free port of `ip`, if it is not bound.
    fn bind_for_sending(&mut self, id: SocketId, ip: IpAddr) -> Result<(), Errno> {
        match self.get(id)?.bound {
            true => Ok(()),
            false => self.bind_inet(id, SocketAddr::new(ip, 0), false),
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
            left.rights.append(&mut socket.queue.clear());
        }
        left
    }

    fn unbind(&mut self, id: SocketId, socket: &Socket) {
        match &socket.local {
            Address::Inet(address) if socket.bound => {
                let (kind, port) = (socket.kind, address.port());
                let table = self.port_table(kind);
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
            State::Disconnected => {}
            _ => return Err(Errno::EAGAIN),
        }
        Ok(Received {
            bytes: Vec::new(),
            length: 0,
            from: Address::Unnamed,
            who: NOBODY,
            rights: Vec::new(),
            segment: None,
        })
    }

    fn receive_bytes(&mut self, id: SocketId, most: usize, peek: bool) -> Result<Received, Errno> {
        let socket = self.get_mut(id)?;
        let mut bytes = alloc::vec![0; most.min(socket.queue.len())];
        let count = socket.queue.copy(&mut bytes);
        bytes.truncate(count);
        let front = socket.queue.front();
        let (from, who) = front.map_or((Address::Unnamed, NOBODY), |front| {
            (front.from.clone(), front.who)
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
            who,
            rights,
            segment: None,
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
            who: message.who,
            rights: Vec::new(),
            segment: message.segment,
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

/// Whether the addresses of two sockets with one port conflict.
fn overlaps((a, a_ip): (&Socket, IpAddr), (b, b_ip): (&Socket, IpAddr)) -> bool {
    /// Whether the socket has a wildcard address that covers the family of `other`.
    fn takes(socket: &Socket, ip: IpAddr, other: IpAddr) -> bool {
        ip.is_unspecified()
            && match ip {
                IpAddr::V4(_) => other.is_ipv4(),
                IpAddr::V6(_) => other.is_ipv6() || !socket.options.is_v6_only(),
            }
    }
    a_ip == b_ip || takes(a, a_ip, b_ip) || takes(b, b_ip, a_ip)
}
