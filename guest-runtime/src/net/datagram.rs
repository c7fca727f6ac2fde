//! UDP and Unix datagrams.

use super::address::{Address, Family};
use super::interfaces::{ETHERNET, LOOPBACK, LOOPBACK_MTU};
use super::options::Options;
use super::queue::{IpFields, Message, NOBODY, PacketInfo};
use super::socket::{Corked, Ports, SocketId, State, Type};
use super::wire::udp_packet_length;
use super::{Network, Route};
use crate::ids::FileId;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::socket::Ucred;

/// What socket options and control messages say about packets to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Length of the datagrams that the bytes are cut into; 0: they are not cut.
    pub segment: u16,
    /// Source address, instead of the socket's.
    pub source: Option<IpAddr>,
    /// Hop limit, instead of the socket's.
    pub hops: Option<u8>,
    /// Type of service or traffic class, instead of the socket's.
    pub class: Option<u8>,
}

impl SendOptions {
    /// Returns the header fields of packets to `to`, of a socket with these options.
    pub(super) fn fields(&self, of: &Options, to: IpAddr) -> IpFields {
        IpFields {
            hops: self.hops.unwrap_or(of.hops(to)),
            class: self.class.unwrap_or(of.class(to.is_ipv4())),
        }
    }
}

impl Network {
    /// Gives a UDP socket a default destination. The socket then receives from that address only.
    ///
    /// # Errors
    /// `ENETUNREACH`, `EAGAIN` if no port is free.
    pub fn connect_udp(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let (local, to) = endpoints(self.route_from(id, to.ip())?, to);
        self.bind_for_sending(id, local)
            .map_err(|_| Errno::EAGAIN)?;
        let socket = self.get_mut(id)?;
        if let Address::Inet(address) = &mut socket.local
            && address.ip().is_unspecified()
        {
            *address = SocketAddr::new(local, address.port());
        }
        socket.remote = Address::Inet(to);
        socket.state = State::Connected;
        Ok(())
    }

    /// Gives a Unix datagram socket a default destination.
    ///
    /// # Errors
    /// `EPROTOTYPE`; `EPERM` if the destination is connected to another socket.
    pub fn connect_unix_datagram(&mut self, id: SocketId, to: SocketId) -> Result<(), Errno> {
        self.check_datagram_target(id, to)?;
        let remote = self.get(to)?.local.clone();
        let credentials = self.get(to)?.credentials;
        let socket = self.get_mut(id)?;
        socket.remote = remote;
        socket.peer = Some(to);
        socket.peer_credentials = credentials;
        socket.state = State::Connected;
        // The new destination may have room.
        self.touch_output(id);
        Ok(())
    }

    /// Removes the default destination.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn disconnect(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        socket.remote = Address::Unnamed;
        socket.peer = None;
        socket.state = State::Idle;
        self.touch_output(id);
        Ok(())
    }

    fn check_datagram_target(&self, id: SocketId, to: SocketId) -> Result<(), Errno> {
        let target = self.get(to).map_err(|_| Errno::ECONNREFUSED)?;
        if target.kind != Type::Datagram {
            return Err(Errno::EPROTOTYPE);
        }
        match target.peer {
            Some(peer) if peer != id => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Sends a datagram to a Unix socket, or to the default destination.
    ///
    /// # Errors
    /// `EAGAIN` if the receiver's queue is full, `ENOTCONN`, `ECONNREFUSED`, `EMSGSIZE`, `EPIPE`.
    pub fn send_unix(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketId>,
        rights: &[FileId],
        cred: Ucred,
    ) -> Result<usize, Errno> {
        self.check_sending(id)?;
        let socket = self.get(id)?;
        let to = match (to, socket.peer, &socket.state) {
            (Some(to), ..) | (None, Some(to), _) => to,
            (None, None, State::Disconnected) => {
                // The socket is not connected from now on.
                self.get_mut(id)?.state = State::Idle;
                return Err(Errno::ECONNREFUSED);
            }
            _ => return Err(Errno::ENOTCONN),
        };
        if bytes.len() > socket.message_limit() {
            return Err(Errno::EMSGSIZE);
        }
        self.check_datagram_target(id, to)?;
        let from = socket.local.clone();
        let target = self.get_mut(to)?;
        if target.read_closed {
            return Err(Errno::EPIPE);
        }
        if !target.has_room_for(bytes.len()) {
            target.senders.get_mut().insert(id);
            return Err(Errno::EAGAIN);
        }
        target.queue.push(Message {
            bytes: bytes.to_vec(),
            read: 0,
            from,
            cred,
            rights: rights.to_vec(),
            segment: None,
            packet: None,
        });
        self.touch_input(to);
        Ok(bytes.len())
    }

    /// As [`send_udp`](Self::send_udp), for a part of a datagram if `more` follows (`MSG_MORE`,
    /// `UDP_CORK`), or for its last part. The first part decides on the destination.
    ///
    /// # Errors
    /// As [`send_udp`](Self::send_udp).
    pub fn send_udp_part(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddr>,
        (options, more): (SendOptions, bool),
        cred: Ucred,
    ) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        let more = more || socket.options.is_corked();
        let mut corked = match socket.corked.take() {
            None if !more => return self.send_udp(id, bytes, to, options, cred),
            None => {
                let remote = socket.remote.socket_addr();
                Corked {
                    bytes: Vec::new(),
                    to: to.or(remote).ok_or(Errno::EDESTADDRREQ)?,
                    options,
                }
            }
            Some(corked) => corked,
        };
        if corked.bytes.len() + bytes.len() > socket.message_limit() {
            return Err(Errno::EMSGSIZE);
        }
        let room = corked.bytes.try_reserve(bytes.len());
        room.map_err(|_| Errno::ENOBUFS)?;
        corked.bytes.extend_from_slice(bytes);
        socket.corked = Some(corked);
        if !more {
            self.send_corked(id, cred)?;
        }
        Ok(bytes.len())
    }

    /// Sends the UDP datagram that was not complete, if there is one.
    ///
    /// # Errors
    /// As [`send_udp`](Self::send_udp).
    pub fn send_corked(&mut self, id: SocketId, cred: Ucred) -> Result<(), Errno> {
        let Some(corked) = self.get_mut(id)?.corked.take() else {
            return Ok(());
        };
        let Corked { bytes, to, options } = corked;
        self.send_udp(id, &bytes, Some(to), options, cred)
            .map(|_| ())
    }

    /// Sends a UDP datagram to an address, or to the default destination. A datagram without a
    /// receiver is lost. If `options` cut `bytes` into datagrams, the last one may be shorter.
    ///
    /// # Errors
    /// `EDESTADDRREQ`, `ENETUNREACH`, `EMSGSIZE`; `EINVAL` for too many datagrams; `ECONNREFUSED`
    /// if an earlier datagram had no receiver; the errors of a foreign source address.
    pub fn send_udp(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddr>,
        options: SendOptions,
        cred: Ucred,
    ) -> Result<usize, Errno> {
        self.check_sending(id)?;
        let socket = self.get(id)?;
        let remote = socket.remote.socket_addr();
        let to = to.or(remote).ok_or(Errno::EDESTADDRREQ)?;
        if to.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if bytes.len() > socket.message_limit() {
            return Err(Errno::EMSGSIZE);
        }
        let route = self.route_from(id, to.ip())?;
        let (source, to) = endpoints(route, to);
        let segment = self.check_segment(options.segment, bytes.len(), to.ip(), &route)?;
        self.bind_for_sending(id, unbound(self.get(id)?.family))?;
        let socket = self.get(id)?;
        let local = socket.local.socket_addr().ok_or(Errno::EINVAL)?;
        let fields = options.fields(&socket.options, to.ip());
        let from = match options.source {
            Some(wanted) => self.check_source(wanted, to.ip())?,
            None if local.ip().is_unspecified() => source,
            None => local.ip(),
        };
        let from = SocketAddr::new(from, local.port());
        let interface = match route {
            Route::Loopback { .. } => LOOPBACK,
            Route::Wire { .. } => ETHERNET,
        };
        let packet = PacketInfo {
            to: to.ip(),
            interface,
            fields,
        };
        if to.ip().is_multicast() {
            return self.send_to_group(id, (from, to), (bytes, segment), packet, cred);
        }
        if let Route::Wire { .. } = route {
            return self.send_udp_wire((from, to), bytes, segment, fields);
        }
        match self.receiver(to, from, Some(LOOPBACK)) {
            Some(receiver) => {
                self.take_datagrams(receiver, bytes, segment, (from, packet), cred)?;
            }
            None => {
                let first = segment.map_or(bytes.len(), usize::from).min(bytes.len());
                self.refuse_datagram(id, to, &bytes[..first]);
            }
        }
        Ok(bytes.len())
    }

    /// Checks the source address that a program wants for packets to `to`; returns it.
    ///
    /// # Errors
    /// `ENETUNREACH` for IPv4 and `EINVAL` for IPv6, unless an interface has it.
    pub(super) fn check_source(&self, wanted: IpAddr, to: IpAddr) -> Result<IpAddr, Errno> {
        match wanted.is_ipv4() == to.is_ipv4() && self.has_address(wanted) {
            true => Ok(wanted),
            false if to.is_ipv4() => Err(Errno::ENETUNREACH),
            false => Err(Errno::EINVAL),
        }
    }

    /// Returns the length of the datagrams that `length` bytes are cut into; none if they are one
    /// datagram.
    fn check_segment(
        &self,
        segment: u16,
        length: usize,
        to: IpAddr,
        route: &Route,
    ) -> Result<Option<u16>, Errno> {
        /// Most datagrams of one call (`UDP_MAX_SEGMENTS`).
        const MOST: usize = 128;
        let size = usize::from(segment);
        let mtu = match (route, &self.wire) {
            (Route::Wire { .. }, Some(wire)) => wire.mtu(),
            _ => LOOPBACK_MTU,
        };
        match segment {
            0 => Ok(None),
            _ if udp_packet_length(to, length.min(size)) > mtu => Err(Errno::EMSGSIZE),
            _ if length > size * MOST => Err(Errno::EINVAL),
            _ => Ok((length > size).then_some(segment)),
        }
    }

    /// Delivers a datagram from another host, or several in one piece. Returns whether there was a
    /// receiver.
    pub(super) fn deliver_udp(
        &mut self,
        (to, from): (SocketAddr, SocketAddr),
        bytes: &[u8],
        segment: Option<u16>,
        fields: IpFields,
    ) -> bool {
        let packet = PacketInfo {
            to: to.ip(),
            interface: ETHERNET,
            fields,
        };
        if to.ip().is_multicast() {
            self.deliver_to_group((to, from), (bytes, segment), packet, NOBODY);
            return true;
        }
        let Some(receiver) = self.receiver(to, from, Some(ETHERNET)) else {
            return false;
        };
        let is_closed = self.get(receiver).is_ok_and(|target| target.read_closed);
        is_closed
            || self
                .take_datagrams(receiver, bytes, segment, (from, packet), NOBODY)
                .is_ok()
    }

    /// Puts a datagram, or several in one piece, into the queue of a socket. Datagrams without room
    /// are dropped.
    pub(super) fn take_datagrams(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        segment: Option<u16>,
        (from, packet): (SocketAddr, PacketInfo),
        cred: Ucred,
    ) -> Result<(), Errno> {
        let target = self.get_mut(id)?;
        let takes_several = target.options.takes_several();
        let mut came = false;
        let mut take = |bytes: &[u8], segment| {
            if target.has_room_for(bytes.len()) {
                target.queue.push(Message {
                    bytes: bytes.to_vec(),
                    read: 0,
                    from: Address::Inet(from),
                    cred,
                    rights: Vec::new(),
                    segment,
                    packet: Some(packet),
                });
                came = true;
            }
        };
        match segment {
            Some(size) if !takes_several => {
                let pieces = bytes.chunks(usize::from(size).max(1));
                pieces.for_each(|piece| take(piece, None));
            }
            _ => take(bytes, segment),
        }
        if came {
            self.touch_input(id);
        }
        Ok(())
    }

    /// Returns the UDP socket that receives a datagram from an interface: the one with the most
    /// specific match.
    pub(super) fn receiver(
        &self,
        to: SocketAddr,
        from: SocketAddr,
        interface: Option<u32>,
    ) -> Option<SocketId> {
        let rank = |id: &SocketId| {
            let socket = self.get(*id).ok()?;
            if interface.is_some_and(|interface| !socket.options.receives_at(interface)) {
                return None;
            }
            let of_device = if socket.options.device == 0 { 0 } else { 4 };
            let local = socket.local.socket_addr()?.ip();
            let exact = match local {
                ip if ip == to.ip() => 1,
                IpAddr::V4(ip) if ip.is_unspecified() && to.is_ipv4() => 0,
                IpAddr::V6(ip) if ip.is_unspecified() => {
                    if to.is_ipv4() && socket.options.is_v6_only() {
                        return None;
                    }
                    0
                }
                _ => return None,
            };
            match (socket.is_connected(), socket.remote.socket_addr()) {
                (true, Some(remote)) if remote == from => Some(of_device + exact + 2),
                (true, _) => None,
                _ => Some(of_device + exact),
            }
        };
        let sockets = self.at_port(Ports::Udp, to.port()).iter();
        let best = sockets.filter_map(|id| Some((rank(id)?, *id))).max();
        best.map(|(_, id)| id)
    }
}

/// Returns the source address of packets to `to`, and `to` with the wildcard resolved.
fn endpoints(route: Route, to: SocketAddr) -> (IpAddr, SocketAddr) {
    match route {
        Route::Loopback { source, to: ip } => (source, SocketAddr::new(ip, to.port())),
        Route::Wire { source } => (source, to),
    }
}

pub(super) fn unbound(family: Family) -> IpAddr {
    let address = Address::unbound(family).socket_addr();
    address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip())
}
