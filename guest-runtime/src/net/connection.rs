//! Connections: listening, connecting, accepting, sending, closing.

use super::address::{Address, Family};
use super::interfaces::LOOPBACK;
use super::ports::overlaps;
use super::queue::{Message, NOBODY};
use super::socket::{Listener, Ports, Socket, SocketId, State, Type};
use super::{Network, Route};
use crate::ids::FileId;
use crate::mm::UserSlice;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hartline_abi::vsock::CID_LOCAL;
use hartline_linux::errno::Errno;
use hartline_linux::socket::{SO_REUSEPORT, SOMAXCONN, Ucred};

/// The result of starting to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connecting {
    /// The connection is made.
    Done,
    /// The backlog of the listener is full, or the other host has not answered.
    Waits,
}

impl Network {
    /// Makes a socket accept connections.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`, `EADDRINUSE`.
    pub fn listen(&mut self, id: SocketId, backlog: i32, cred: Ucred) -> Result<(), Errno> {
        let socket = self.get(id)?;
        match (&socket.state, socket.family) {
            _ if socket.kind == Type::Datagram => return Err(Errno::EOPNOTSUPP),
            (State::Idle | State::Listening(_), Family::Unix | Family::Vsock) if !socket.bound => {
                return Err(Errno::EINVAL);
            }
            (State::Idle, Family::Unix | Family::Vsock) => {}
            (State::Idle, _) => {
                let any = Address::unbound(socket.family).socket_addr();
                self.bind_for_sending(id, any.ok_or(Errno::EINVAL)?.ip())?;
                self.check_listeners(id)?;
            }
            (State::Listening(_), _) => {}
            _ => return Err(Errno::EINVAL),
        }
        let socket = self.get_mut(id)?;
        let is_unix = socket.family == Family::Unix;
        // A negative backlog is a very large one; Linux accepts one connection more than the
        // backlog.
        let backlog = usize::try_from(backlog).unwrap_or(SOMAXCONN).min(SOMAXCONN);
        let backlog = backlog + 1;
        socket.credentials = cred;
        match &mut socket.state {
            State::Listening(listener) => listener.backlog = backlog,
            state => {
                *state = State::Listening(Listener {
                    backlog,
                    ..Listener::default()
                });
            }
        }
        if !is_unix {
            socket.read_closed = false;
        }
        Ok(())
    }

    /// Checks that no other listener has the port: `SO_REUSEADDR` does not let two sockets listen.
    fn check_listeners(&self, id: SocketId) -> Result<(), Errno> {
        let own = self.get(id)?;
        let address = own.local.socket_addr().ok_or(Errno::EINVAL)?;
        let others = self.at_port(own.ports(), address.port()).iter();
        let mut others = others.filter(|other| **other != id);
        let conflict = others.any(|other| {
            self.get(*other).is_ok_and(|other| {
                let theirs = other.local.socket_addr();
                let shares = own.options.is_on(SO_REUSEPORT) && other.options.is_on(SO_REUSEPORT);
                other.is_listening()
                    && !shares
                    && theirs
                        .is_some_and(|theirs| overlaps((own, address.ip()), (other, theirs.ip())))
            })
        });
        match conflict {
            true => Err(Errno::EADDRINUSE),
            false => Ok(()),
        }
    }

    /// Returns the listener for connections to an address that arrive at an interface. One that is
    /// bound to the interface or to the address comes first.
    pub(super) fn listener(&self, to: SocketAddr, interface: u32) -> Result<SocketId, Errno> {
        let mut best: Option<(u8, SocketId)> = None;
        for &id in self.at_port(Ports::Tcp, to.port()) {
            let socket = self.get(id)?;
            let Some(local) = socket.local.socket_addr() else {
                continue;
            };
            if !socket.is_listening()
                || !overlaps((socket, local.ip()), (socket, to.ip()))
                || !socket.options.receives_at(interface)
            {
                continue;
            }
            let is_exact = u8::from(!local.ip().is_unspecified());
            let rank = 2 * u8::from(socket.options.device != 0) + is_exact;
            if best.is_none_or(|(other, _)| rank > other) {
                best = Some((rank, id));
            }
        }
        best.map(|(_, id)| id).ok_or(Errno::ECONNREFUSED)
    }

    /// Connects a TCP socket.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `ENETUNREACH`, `EISCONN`, `EALREADY`, `EADDRNOTAVAIL`.
    pub fn connect_inet(
        &mut self,
        id: SocketId,
        to: SocketAddr,
        cred: Ucred,
    ) -> Result<Connecting, Errno> {
        self.check_idle(id)?;
        if to.ip().is_multicast() {
            return Err(Errno::ENETUNREACH);
        }
        let route = self.route_from(id, to.ip())?;
        if let Some(local) = self.get(id)?.local.socket_addr()
            && local.is_ipv4() != to.is_ipv4()
            && self.get(id)?.bound
            && !local.ip().is_unspecified()
        {
            return Err(Errno::EINVAL);
        }
        let (source, to) = match route {
            Route::Loopback { source, to: ip } => (source, SocketAddr::new(ip, to.port())),
            Route::Wire { source } => (source, to),
        };
        self.bind_for_sending(id, source)
            .map_err(|_| Errno::EADDRNOTAVAIL)?;
        let socket = self.get_mut(id)?;
        socket.remote = Address::Inet(to);
        if let Address::Inet(address) = &mut socket.local
            && address.ip().is_unspecified()
        {
            *address = SocketAddr::new(source, address.port());
        }
        if let Route::Wire { .. } = route {
            return self.connect_wire(id, to);
        }
        let listener = self.listener(to, LOOPBACK)?;
        self.join(id, listener, cred)
    }

    /// Connects a Unix stream or sequential-packet socket to the socket `to`.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `EPROTOTYPE`, `EISCONN`.
    pub fn connect_unix(
        &mut self,
        id: SocketId,
        to: SocketId,
        cred: Ucred,
    ) -> Result<Connecting, Errno> {
        self.check_idle(id)?;
        let target = self.get(to)?;
        if target.kind != self.get(id)?.kind {
            return Err(Errno::EPROTOTYPE);
        }
        if !target.is_listening() || target.read_closed {
            return Err(Errno::ECONNREFUSED);
        }
        self.join(id, to, cred)
    }

    /// Checks that a socket may connect now. The error of its last attempt is reported first.
    pub(super) fn check_idle(&mut self, id: SocketId) -> Result<(), Errno> {
        match &self.get(id)?.state {
            State::Idle | State::Disconnected => self.take_error(id),
            State::Connecting(_) | State::Asking => Err(Errno::EALREADY),
            State::Connected => Err(Errno::EISCONN),
            State::Listening(_) if self.get(id)?.family == Family::Unix => Err(Errno::EINVAL),
            State::Listening(_) => Err(Errno::EISCONN),
        }
    }

    /// Puts a connection into the backlog of a listener, or makes `id` wait for room.
    pub(super) fn join(
        &mut self,
        id: SocketId,
        listener: SocketId,
        cred: Ucred,
    ) -> Result<Connecting, Errno> {
        let socket = self.get_mut(id)?;
        socket.credentials = cred;
        let (from, to) = (socket.local.clone(), socket.remote.clone());
        let server = self.get_mut(listener)?;
        let State::Listening(state) = &mut server.state else {
            return Err(Errno::ECONNREFUSED);
        };
        if state.accepted.len() >= state.backlog {
            state.waiting.push_back(id);
            self.get_mut(id)?.state = State::Connecting(listener);
            return Ok(Connecting::Waits);
        }
        let mut accepted = Socket::new(server.family, server.kind, server.credentials);
        accepted.options = server.options.clone();
        accepted.local = match &to {
            Address::Inet(_) | Address::Vsock(..) => to,
            _ => server.local.clone(),
        };
        accepted.remote = match from {
            Address::Vsock(_, port) => Address::Vsock(CID_LOCAL, port),
            from => from,
        };
        accepted.state = State::Connected;
        accepted.peer = Some(id);
        accepted.peer_credentials = cred;
        let (server_credentials, server_address) = (server.credentials, server.local.clone());
        let accepted = self.add(accepted)?;
        if let State::Listening(state) = &mut self.get_mut(listener)?.state {
            state.accepted.push_back(accepted);
        }
        let socket = self.get_mut(id)?;
        socket.state = State::Connected;
        socket.peer = Some(accepted);
        socket.peer_credentials = server_credentials;
        if socket.family == Family::Unix {
            socket.remote = server_address;
        }
        (socket.read_closed, socket.write_closed) = (false, false);
        self.touch_input(listener);
        self.touch_output(id);
        Ok(Connecting::Done)
    }

    /// Stops waiting for room in a backlog.
    pub fn cancel_connecting(&mut self, id: SocketId) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        if let State::Connecting(listener) = socket.state {
            socket.state = State::Idle;
            if let Ok(listener) = self.get_mut(listener)
                && let State::Listening(listener) = &mut listener.state
            {
                listener.waiting.retain(|waiting| *waiting != id);
            }
        }
    }

    /// Refuses a socket that waits for room in the backlog of a closed listener.
    pub(super) fn refuse(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id) {
            socket.state = State::Idle;
            socket.error = Some(Errno::ECONNREFUSED);
            self.touch_all(id);
        }
    }

    /// Takes a connection out of the backlog.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, `EINVAL` if the socket does not listen, `EOPNOTSUPP`.
    pub fn accept(&mut self, id: SocketId) -> Result<SocketId, Errno> {
        let socket = self.get_mut(id)?;
        let (kind, closed) = (socket.kind, socket.read_closed);
        let State::Listening(listener) = &mut socket.state else {
            return Err(match kind {
                Type::Datagram => Errno::EOPNOTSUPP,
                _ => Errno::EINVAL,
            });
        };
        let accepted = listener.accepted.pop_front();
        if accepted.is_some() {
            self.let_in(id);
        }
        match accepted {
            Some(accepted) => Ok(accepted),
            None if closed => Err(Errno::EINVAL),
            None => Err(Errno::EAGAIN),
        }
    }

    /// Puts the first socket that waits for room in a backlog there: one has become free.
    #[inline(never)]
    pub(super) fn let_in(&mut self, id: SocketId) {
        if let Ok(Socket {
            state: State::Listening(listener),
            ..
        }) = self.get_mut(id)
            && let Some(waiting) = listener.waiting.pop_front()
        {
            let cred = self.get(waiting).map_or(NOBODY, |s| s.credentials);
            if self.join(waiting, id, cred).is_err() {
                self.refuse(waiting);
            }
        }
    }

    /// Ends one or both directions: bit 0 of `how` is receiving, bit 1 is sending.
    ///
    /// # Errors
    /// `ENOTCONN`, `EOPNOTSUPP`.
    pub fn shutdown(&mut self, id: SocketId, how: u32) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        if socket.family == Family::Netlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_vsock = socket.family == Family::Vsock;
        if is_vsock && !matches!(socket.state, State::Connected | State::Disconnected) {
            return Err(Errno::ENOTCONN);
        }
        let listens = socket.is_listening();
        let connected = socket.is_connected() || socket.remote != Address::Unnamed;
        let is_idle = !connected && !listens && socket.family != Family::Unix;
        let (is_tcp, peer, channel) = (socket.is_tcp(), socket.peer, socket.channel);
        let tells_both = is_vsock || socket.family == Family::Unix;
        let flow = socket.flow.filter(|_| how & 2 != 0);
        socket.read_closed |= how & 1 != 0;
        socket.write_closed |= how & 2 != 0;
        let ends_datagrams = socket.kind == Type::Datagram;
        if listens && is_tcp && how & 1 != 0 {
            let waiting = match &mut socket.state {
                State::Listening(listener) => core::mem::take(&mut listener.waiting),
                _ => return Ok(()),
            };
            socket.state = State::Idle;
            socket.read_closed = false;
            waiting.into_iter().for_each(|waiting| self.refuse(waiting));
        }
        self.touch_all(id);
        self.release_senders(self.get(id)?);
        if let Some(flow) = flow {
            self.with_wire(|wire, net| wire.finish(flow, net));
        }
        if let Some(ends) = channel {
            // Bits 0 and 1 of `how` are the flags of the device's shutdown packets.
            self.finish_vsock(ends, how);
        }
        if let Some(peer) = peer
            && !ends_datagrams
            && let Ok(other) = self.get_mut(peer)
        {
            other.read_closed |= how & 2 != 0;
            other.write_closed |= tells_both && how & 1 != 0;
            self.touch_all(peer);
        }
        // Linux records the shutdown although it returns the error.
        match is_idle {
            true => Err(Errno::ENOTCONN),
            false => Ok(()),
        }
    }

    /// Tells the peer of a closed socket that its end is gone.
    pub(super) fn leave_peer(&mut self, id: SocketId, socket: &Socket) {
        let Some(peer) = socket.peer else {
            return;
        };
        let unread = !socket.queue.is_empty();
        let reset = socket.is_tcp() && (unread || socket.options.linger == (true, 0));
        let Ok(other) = self.get_mut(peer) else {
            return;
        };
        if other.peer != Some(id) || socket.kind == Type::Datagram && socket.family != Family::Unix
        {
            return;
        }
        other.peer = None;
        if socket.kind == Type::Datagram {
            other.state = State::Disconnected;
            self.touch_all(peer);
            return;
        }
        other.read_closed = true;
        if reset || (socket.family == Family::Unix && unread) {
            other.error = Some(Errno::ECONNRESET);
        }
        if reset || !other.is_tcp() {
            other.state = State::Disconnected;
            other.write_closed = true;
        }
        self.touch_all(peer);
    }

    /// Sends bytes over a connection; returns how many the other end took.
    ///
    /// # Errors
    /// `EAGAIN` if the other end takes none now, `EPIPE`, `ENOTCONN`, a pending error.
    pub fn send<'a>(
        &mut self,
        id: SocketId,
        bytes: impl Into<UserSlice<'a>>,
        rights: &[FileId],
        cred: Ucred,
    ) -> Result<usize, Errno> {
        let bytes = bytes.into();
        self.check_sending(id)?;
        let socket = self.get(id)?;
        match socket.state {
            State::Connected => {}
            State::Connecting(_) | State::Asking => return Err(Errno::EAGAIN),
            State::Idle | State::Listening(_) if !socket.is_tcp() => return Err(Errno::ENOTCONN),
            _ => return Err(Errno::EPIPE),
        }
        if let Some(flow) = socket.flow {
            return self.send_wire(id, flow, bytes);
        }
        if let Some(ends) = socket.channel {
            return self.send_vsock(ends, bytes);
        }
        let Some(peer) = socket.peer else {
            return self.send_after_close(id, bytes.len());
        };
        let (has_messages, from) = (socket.has_messages(), socket.local.clone());
        if has_messages && bytes.len() > socket.message_limit() {
            return Err(Errno::EMSGSIZE);
        }
        let (socket, other) = (self.get(id)?, self.get(peer)?);
        let count = match has_messages {
            true if other.has_room_for(bytes.len()) => bytes.len(),
            true => return Err(Errno::EAGAIN),
            false => other.room_from(socket).min(bytes.len()),
        };
        if count == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        if !has_messages && bytes.is_empty() {
            return Ok(0);
        }
        let mut copy = Vec::new();
        copy.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        bytes.first(count).append_to(&mut copy);
        let message = Message {
            bytes: copy,
            read: 0,
            from,
            cred,
            rights: rights.to_vec(),
            segment: None,
            packet: None,
        };
        let other = self.get_mut(peer)?;
        match has_messages {
            true => other.queue.push(message),
            false => other.queue.append(message),
        }
        self.touch_input(peer);
        Ok(count)
    }

    /// Sends to a TCP peer that is closed: the peer answers the first segment with a reset, so the
    /// connection is broken from then on.
    fn send_after_close(&mut self, id: SocketId, count: usize) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        if !socket.is_tcp() {
            return Err(Errno::EPIPE);
        }
        socket.error = Some(Errno::EPIPE);
        socket.write_closed = true;
        socket.state = State::Disconnected;
        self.touch_all(id);
        Ok(count)
    }
}
