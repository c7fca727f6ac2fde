//! Sockets with a peer on another host: their operations on [`Wire`], and its events.

use super::Network;
use super::address::Address;
use super::connection::Connecting;
use super::interfaces::LOOPBACK_MTU;
use super::queue::{IpFields, Message, NOBODY};
use super::socket::{Socket, SocketId, State, Type};
use super::wire::{FlowId, Patience, Wire};
use crate::mm::UserSlice;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IPPROTO_TCP, TCP_NODELAY};
use hartline_linux::tcp::TcpInfo;
use smoltcp::socket::tcp;

impl Network {
    /// Adds the network interface.
    pub fn set_wire(&mut self, wire: Wire) {
        self.wire = Some(Box::new(wire));
    }

    /// Processes received packets and expired timers.
    pub fn poll_wire(&mut self) {
        self.with_wire(Wire::poll);
        if self.wire.as_mut().is_some_and(|wire| wire.take_changed()) {
            self.announce_changes();
        }
    }

    /// Takes the name servers that DHCP has supplied since the last call.
    pub fn take_name_servers(&mut self) -> Option<Vec<Ipv4Addr>> {
        let servers = self.wire.as_mut()?.take_name_servers()?;
        (!servers.is_empty()).then_some(servers)
    }

    /// Calls `act` with the wire and the sockets; without a wire it does nothing.
    pub(super) fn with_wire<T>(
        &mut self,
        act: impl FnOnce(&mut Wire, &mut Self) -> T,
    ) -> Option<T> {
        let mut wire = self.wire.take()?;
        let result = act(&mut wire, self);
        self.wire = Some(wire);
        Some(result)
    }

    /// Starts to connect to another host.
    pub(super) fn connect_wire(
        &mut self,
        id: SocketId,
        to: SocketAddr,
    ) -> Result<Connecting, Errno> {
        let socket = self.get_mut(id)?;
        let from = socket.local.socket_addr().ok_or(Errno::EINVAL)?;
        if to.port() == 0 {
            return Err(Errno::ECONNREFUSED);
        }
        let wanted = [0, 1].map(|which| socket.wanted_buffer(which));
        // A packet with a loopback source address cannot leave the VM.
        if from.ip().is_loopback() {
            return Err(Errno::EINVAL);
        }
        let patience = self.patience(id);
        let socket = self.get_mut(id)?;
        socket.state = State::Asking;
        (socket.read_closed, socket.write_closed) = (false, false);
        let flow = self
            .with_wire(|wire, net| wire.connect(id, (from, to), wanted, patience, net))
            .ok_or(Errno::ENETUNREACH)?;
        let socket = self.get_mut(id)?;
        match flow {
            // The connection may already have failed.
            Ok(flow) if matches!(socket.state, State::Asking) => socket.flow = Some(flow),
            Ok(_) => {}
            Err(error) => {
                socket.state = State::Idle;
                return Err(error);
            }
        }
        Ok(Connecting::Waits)
    }

    /// Returns the limits of a socket for a silent peer.
    pub(super) fn patience(&self, id: SocketId) -> Patience {
        let socket = self.get(id);
        socket.map_or_else(|_| Patience::default(), |socket| socket.options.patience())
    }

    /// Returns what `TCP_INFO` shows of a TCP socket.
    ///
    /// # Errors
    /// `EBADF` if it is closed.
    pub fn tcp_info(&self, id: SocketId) -> Result<TcpInfo, Errno> {
        let socket = self.get(id)?;
        let mtu = match (socket.flow, &self.wire) {
            (Some(_), Some(wire)) => wire.mtu(),
            _ => LOOPBACK_MTU,
        };
        Ok(socket.tcp_info(mtu))
    }

    /// Returns the type of service or traffic class of the packets of a socket.
    pub(super) fn class(&self, id: SocketId, is_ipv4: bool) -> u8 {
        self.get(id)
            .map_or(0, |socket| socket.options.class(is_ipv4))
    }

    /// Applies changed options of a socket to its connection.
    pub fn options_changed(&mut self, id: SocketId) {
        let Ok(Some(flow)) = self.get(id).map(|socket| socket.flow) else {
            return;
        };
        self.with_wire(|wire, net| wire.options_changed(flow, id, net));
    }

    /// Sends bytes of a stream to another host.
    pub(super) fn send_wire(
        &mut self,
        id: SocketId,
        flow: FlowId,
        bytes: UserSlice<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.get(id)?;
        let (family, kind) = (socket.family, socket.kind);
        let quick = socket
            .options
            .number(IPPROTO_TCP, TCP_NODELAY, family, kind)?;
        self.with_wire(|wire, net| wire.send(flow, bytes, quick != 0, net))
            .unwrap_or(Err(Errno::EPIPE))
    }

    /// Sends a datagram to another host, or several of `segment` bytes each; the last may be
    /// shorter.
    pub(super) fn send_udp_wire(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        bytes: &[u8],
        segment: Option<u16>,
        fields: IpFields,
    ) -> Result<usize, Errno> {
        self.with_wire(|wire, _| wire.send_datagram((from, to), bytes, segment, fields))
            .unwrap_or(Err(Errno::ENETUNREACH))
    }

    /// Closes the connection of a closed socket; `reset` ends it at once.
    pub(super) fn leave_wire(&mut self, socket: &Socket, reset: bool) {
        let reset = reset || !socket.queue.is_empty() || socket.options.linger == (true, 0);
        if let Some(flow) = socket.flow {
            self.with_wire(|wire, net| wire.close(flow, reset, net));
        }
    }

    /// Whether poll reports that the socket `id` can send. If a Unix datagram socket cannot, the
    /// next receive at its destination wakes it.
    #[must_use]
    pub fn can_send(&self, id: SocketId) -> bool {
        let Ok(socket) = self.get(id) else {
            return false;
        };
        let peer = socket.peer.map(|peer| self.get(peer));
        match (peer, socket.flow, socket.channel) {
            (Some(Ok(peer)), ..) => {
                let can = socket.can_send_to(peer);
                if !can && socket.kind == Type::Datagram {
                    peer.senders.borrow_mut().insert(id);
                }
                can
            }
            (_, _, Some(ends)) => self.can_send_vsock(ends),
            (_, Some(flow), _) => match socket.state {
                State::Asking => false,
                _ => self.wire.as_ref().is_some_and(|wire| wire.can_send(flow)),
            },
            _ => !matches!(socket.state, State::Connecting(_) | State::Asking),
        }
    }

    /// Moves received bytes into the queue of a socket, as far as there is room.
    pub(super) fn take_in(&mut self, id: SocketId, from: &mut tcp::Socket<'_>) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        let mut came = false;
        while from.can_recv() {
            let room = socket.room_from_wire();
            if room == 0 {
                break;
            }
            let Ok(bytes) = from.recv(|bytes| {
                let count = bytes.len().min(room);
                (count, bytes[..count].to_vec())
            }) else {
                break;
            };
            socket.queue.append(Message {
                bytes,
                read: 0,
                from: socket.remote.clone(),
                cred: NOBODY,
                rights: Vec::new(),
                segment: None,
                packet: None,
            });
            came = true;
        }
        if came {
            self.touch_input(id);
        }
    }

    /// Adds a connection that is being established to a listener. Returns the buffer sizes of the
    /// listener; none if its backlog is full.
    pub(super) fn arrive(&mut self, id: SocketId) -> Option<[Option<usize>; 2]> {
        let socket = self.get_mut(id).ok()?;
        let wanted = [0, 1].map(|which| socket.wanted_buffer(which));
        let State::Listening(listener) = &mut socket.state else {
            return None;
        };
        if listener.accepted.len() + listener.arriving >= listener.backlog {
            return None;
        }
        listener.arriving += 1;
        Some(wanted)
    }

    /// Records that a connection of a listener is established, or has failed.
    pub(super) fn arrived(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id)
            && let State::Listening(listener) = &mut socket.state
        {
            listener.arriving = listener.arriving.saturating_sub(1);
        }
    }

    /// Puts a connection into the backlog of a listener. Returns its socket; none if the listener
    /// is closed.
    pub(super) fn wire_accepted(
        &mut self,
        id: SocketId,
        flow: FlowId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<SocketId> {
        let server = self.get(id).ok()?;
        if !server.is_listening() {
            return None;
        }
        let mut accepted = Socket::new(server.family, Type::Stream, server.credentials);
        accepted.options = server.options.clone();
        accepted.local = Address::Inet(local);
        accepted.remote = Address::Inet(remote);
        accepted.state = State::Connected;
        accepted.flow = Some(flow);
        let accepted = self.add(accepted).ok()?;
        if let Ok(server) = self.get_mut(id)
            && let State::Listening(listener) = &mut server.state
        {
            listener.accepted.push_back(accepted);
        }
        self.touch_input(id);
        Some(accepted)
    }

    /// Marks a socket as connected when the peer has answered.
    pub(super) fn wire_connected(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id)
            && matches!(socket.state, State::Asking)
        {
            socket.state = State::Connected;
            self.touch_output(id);
        }
    }

    /// Records that the peer sends no more.
    pub(super) fn wire_ended(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id) {
            socket.read_closed = true;
            self.touch_all(id);
        }
    }

    /// Disconnects a socket after its connection failed or ended.
    pub(super) fn wire_closed(&mut self, id: SocketId, error: Option<Errno>) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        socket.flow = None;
        if matches!(socket.state, State::Asking) {
            socket.state = State::Idle;
        } else {
            socket.state = State::Disconnected;
            (socket.read_closed, socket.write_closed) = (true, true);
        }
        socket.error = error.or(socket.error);
        self.touch_all(id);
    }
}
