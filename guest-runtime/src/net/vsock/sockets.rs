//! `AF_VSOCK` sockets: their ports, and the events of the device's connections.

use super::{Ends, Vsock};
use crate::mm::UserSlice;
use crate::net::Network;
use crate::net::address::Address;
use crate::net::connection::Connecting;
use crate::net::ports::PRIVILEGED;
use crate::net::queue::{Message, NOBODY};
use crate::net::socket::{Socket, SocketId, State, Type};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_abi::vsock::{CID_ANY, CID_HOST, CID_LOCAL, shutdown};
use hartline_linux::errno::Errno;
use hartline_linux::socket::Ucred;
use hartline_linux::vm_sockets::VMADDR_PORT_ANY;

/// Where a CID leads.
enum Route {
    /// To a socket of this VM.
    Local,
    /// Out of the VM.
    Device,
}

impl Network {
    /// Adds the socket device.
    pub fn set_vsock(&mut self, vsock: Vsock) {
        self.vsock = Some(Box::new(vsock));
    }

    /// Returns the CID of this VM: the device's, or `VMADDR_CID_LOCAL` without a device.
    #[must_use]
    pub fn cid(&self) -> u32 {
        self.vsock.as_ref().map_or(CID_LOCAL, |vsock| vsock.cid())
    }

    /// Calls `act` with the device and the sockets; without a device it does nothing.
    pub(in crate::net) fn with_vsock<T>(
        &mut self,
        act: impl FnOnce(&mut Vsock, &mut Self) -> T,
    ) -> Option<T> {
        let mut vsock = self.vsock.take()?;
        let result = act(&mut vsock, self);
        self.vsock = Some(vsock);
        Some(result)
    }

    fn vsock_route(&self, cid: u32) -> Result<Route, Errno> {
        match &self.vsock {
            _ if cid == CID_LOCAL => Ok(Route::Local),
            Some(vsock) if cid == vsock.cid() => Ok(Route::Local),
            Some(_) => Ok(Route::Device),
            None if cid == CID_HOST => Ok(Route::Local),
            None => Err(Errno::ENODEV),
        }
    }

    /// Binds a socket to a port; [`VMADDR_PORT_ANY`] asks for a free one.
    ///
    /// # Errors
    /// `EINVAL` if it is bound, `EADDRNOTAVAIL`, `EADDRINUSE`, `EACCES`.
    pub fn bind_vsock(
        &mut self,
        id: SocketId,
        (cid, port): (u32, u32),
        privileged: bool,
    ) -> Result<(), Errno> {
        if self.get(id)?.bound {
            return Err(Errno::EINVAL);
        }
        if ![CID_ANY, CID_LOCAL, self.cid()].contains(&cid) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let port = match port {
            VMADDR_PORT_ANY => self.free_vsock_port(),
            port if port < PRIVILEGED.into() && !privileged => return Err(Errno::EACCES),
            port if self.is_vsock_taken(cid, port) => return Err(Errno::EADDRINUSE),
            port => port,
        };
        self.vsock_ports.entry(port).or_default().push(id);
        let socket = self.get_mut(id)?;
        socket.local = Address::Vsock(cid, port);
        socket.bound = true;
        Ok(())
    }

    /// Returns the sockets bound to a port, and their CIDs.
    fn at_vsock_port(&self, port: u32) -> impl Iterator<Item = (SocketId, u32)> {
        let ids = self.vsock_ports.get(&port).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|&id| match self.get(id).ok()?.local {
            Address::Vsock(cid, _) => Some((id, cid)),
            _ => None,
        })
    }

    fn is_vsock_taken(&self, cid: u32, port: u32) -> bool {
        let is_same = |other| other == cid || other == CID_ANY || cid == CID_ANY;
        self.at_vsock_port(port).any(|(_, other)| is_same(other))
    }

    /// Returns a free port, which exists because there are more ports than sockets.
    fn free_vsock_port(&mut self) -> u32 {
        loop {
            self.last_vsock_port = match self.last_vsock_port.wrapping_add(1) {
                port if port < PRIVILEGED.into() || port == VMADDR_PORT_ANY => PRIVILEGED.into(),
                port => port,
            };
            if !self.vsock_ports.contains_key(&self.last_vsock_port) {
                return self.last_vsock_port;
            }
        }
    }

    /// Removes a closed socket from its port.
    pub(in crate::net) fn unbind_vsock(&mut self, id: SocketId, port: u32) {
        if let Some(list) = self.vsock_ports.get_mut(&port) {
            list.retain(|other| *other != id);
            if list.is_empty() {
                self.vsock_ports.remove(&port);
            }
        }
    }

    /// Returns the listener for connections to an address, if it has room for one more.
    fn vsock_listener(&self, cid: u32, port: u32) -> Option<SocketId> {
        let mut at_port = self.at_vsock_port(port);
        let (id, _) = at_port.find(|&(id, own)| {
            (own == cid || own == CID_ANY) && self.get(id).is_ok_and(Socket::is_listening)
        })?;
        match &self.get(id).ok()?.state {
            State::Listening(listener) if listener.accepted.len() < listener.backlog => Some(id),
            _ => None,
        }
    }

    /// Connects a socket. The time limit of `connect` starts at `now`, ns of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// `ECONNRESET` if no socket listens there or its backlog is full, `ENODEV`, `EISCONN`,
    /// `EALREADY`,
    /// `EINVAL`.
    pub fn connect_vsock(
        &mut self,
        id: SocketId,
        (cid, port): (u32, u32),
        cred: Ucred,
        now: u64,
    ) -> Result<Connecting, Errno> {
        if self.get(id)?.is_listening() {
            return Err(Errno::EINVAL);
        }
        self.check_idle(id)?;
        let route = self.vsock_route(cid)?;
        let socket = self.get_mut(id)?;
        socket.remote = Address::Vsock(cid, port);
        (socket.read_closed, socket.write_closed) = (false, false);
        if !socket.bound {
            self.bind_vsock(id, (CID_ANY, VMADDR_PORT_ANY), false)?;
        }
        if let Route::Local = route {
            let listener = self.vsock_listener(cid, port).ok_or(Errno::ECONNRESET)?;
            return self.join(id, listener, cred);
        }
        let socket = self.get_mut(id)?;
        let Address::Vsock(_, own) = socket.local else {
            return Err(Errno::EINVAL);
        };
        let ends = Ends {
            port: own,
            peer: (cid, port),
        };
        let buffer = socket.options.vsock.buffer();
        let deadline = now.saturating_add(socket.options.vsock.timeout);
        self.with_vsock(|vsock, _| vsock.connect(id, ends, buffer, deadline))
            .unwrap_or(Err(Errno::ENODEV))?;
        let socket = self.get_mut(id)?;
        socket.state = State::Asking;
        socket.channel = Some(ends);
        Ok(Connecting::Waits)
    }

    /// Sends bytes to the host.
    pub(in crate::net) fn send_vsock(
        &mut self,
        ends: Ends,
        bytes: UserSlice<'_>,
    ) -> Result<usize, Errno> {
        self.with_vsock(|vsock, _| vsock.send(ends, bytes))
            .unwrap_or(Err(Errno::EPIPE))
    }

    /// Whether there is room for bytes to the host.
    pub(in crate::net) fn can_send_vsock(&self, ends: Ends) -> bool {
        (self.vsock.as_ref()).is_some_and(|vsock| vsock.can_send(ends))
    }

    /// Records that the program has read this many bytes from the host.
    pub(in crate::net) fn forward_vsock(&mut self, ends: Ends, bytes: usize) {
        self.with_vsock(|vsock, _| vsock.forward(ends, bytes));
    }

    /// Tells the device that the program has changed the size of a socket's buffer.
    pub fn resize_vsock(&mut self, id: SocketId) {
        if let Ok(socket) = self.get(id)
            && let Some(ends) = socket.channel
        {
            let buffer = socket.options.vsock.buffer();
            self.with_vsock(|vsock, _| vsock.resize(ends, buffer));
        }
    }

    /// Shuts down receiving or sending of a connection to the host.
    pub(in crate::net) fn finish_vsock(&mut self, ends: Ends, flags: u32) {
        self.with_vsock(|vsock, _| vsock.finish(ends, flags));
    }

    /// Closes the device's connection of a closed socket.
    pub(in crate::net) fn leave_vsock(&mut self, socket: &Socket) {
        if let Some(ends) = socket.channel {
            self.with_vsock(|vsock, net| vsock.close(ends, net));
        }
    }

    /// Accepts a connection from the host. Returns the new socket and the length of its buffer;
    /// none if no socket listens on the port or its backlog is full.
    pub(super) fn vsock_accepted(&mut self, ends: Ends, cid: u32) -> Option<(SocketId, u32)> {
        let id = self.vsock_listener(cid, ends.port)?;
        let server = self.get(id).ok()?;
        let mut accepted = Socket::new(server.family, Type::Stream, server.credentials);
        accepted.options = server.options.clone();
        accepted.local = Address::Vsock(cid, ends.port);
        accepted.remote = Address::Vsock(ends.peer.0, ends.peer.1);
        accepted.state = State::Connected;
        accepted.channel = Some(ends);
        let buffer = accepted.options.vsock.buffer();
        let accepted = self.add(accepted).ok()?;
        if let State::Listening(listener) = &mut self.get_mut(id).ok()?.state {
            listener.accepted.push_back(accepted);
        }
        self.touch_input(id);
        Some((accepted, buffer))
    }

    /// Connects a socket whose request the host has accepted.
    pub(super) fn vsock_connected(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id) {
            socket.state = State::Connected;
            self.touch_output(id);
        }
    }

    /// Puts bytes from the host into the queue of a socket.
    pub(super) fn vsock_received(&mut self, id: SocketId, bytes: Vec<u8>) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        socket.queue.append(Message {
            bytes,
            read: 0,
            from: Address::Unnamed,
            cred: NOBODY,
            rights: Vec::new(),
            segment: None,
            packet: None,
        });
        self.touch_input(id);
    }

    /// Records that the host will not send, or not receive any more.
    pub(super) fn vsock_ended(&mut self, id: SocketId, flags: u32) {
        if let Ok(socket) = self.get_mut(id) {
            socket.read_closed |= flags & shutdown::SEND != 0;
            socket.write_closed |= flags & shutdown::RECEIVE != 0;
            self.touch_all(id);
        }
    }

    /// Disconnects a socket whose connection failed or has ended.
    pub(super) fn vsock_closed(&mut self, id: SocketId, error: Option<Errno>) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        socket.channel = None;
        if let State::Asking = socket.state {
            socket.state = State::Idle;
        } else {
            socket.state = State::Disconnected;
            (socket.read_closed, socket.write_closed) = (true, true);
        }
        socket.error = error.or(socket.error);
        self.touch_all(id);
    }
}
