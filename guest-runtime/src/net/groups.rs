//! Multicast groups: the memberships of sockets, and datagrams to groups.

use super::interfaces::{ETHERNET, LOOPBACK};
use super::queue::PacketInfo;
use super::socket::{Ports, Socket, SocketId};
use super::{Network, Route};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::in_::{IP_MULTICAST_ALL, IP_MULTICAST_LOOP, IPPROTO_IP, IPPROTO_IPV6};
use hartline_linux::in6::{IPV6_MULTICAST_ALL, IPV6_MULTICAST_LOOP};
use hartline_linux::socket::Ucred;

/// Most groups of IPv4 that a socket is a member of (`igmp_max_memberships`).
const MOST: usize = 20;
/// Most groups of IPv6, which Linux limits by memory.
const MOST6: usize = 1024;

/// A membership: the group, and the index of the interface.
pub type Membership = (IpAddr, u32);

impl Network {
    /// Whether there is an interface with this index.
    #[must_use]
    pub fn has_interface(&self, index: u32) -> bool {
        index == LOOPBACK || index == ETHERNET && self.wire.is_some()
    }

    /// Makes a socket a member of a group at the interface with this index; 0: the interface to
    /// which a route leads.
    ///
    /// # Errors
    /// `EINVAL` if the address is no group, `EPROTO` for a TCP socket, `ENODEV`, `EADDRINUSE`,
    /// `ENOBUFS`.
    pub fn join_group(&mut self, id: SocketId, group: IpAddr, index: u32) -> Result<(), Errno> {
        if self.get(id)?.is_tcp() {
            return Err(Errno::EPROTO);
        }
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let index = if index == 0 { ETHERNET } else { index };
        if !self.has_interface(index) {
            return Err(Errno::ENODEV);
        }
        let membership = (group, index);
        let own = &self.get(id)?.groups;
        if own.contains(&membership) {
            return Err(Errno::EADDRINUSE);
        }
        let same = own.iter().filter(|own| own.0.is_ipv4() == group.is_ipv4());
        if same.count() >= if group.is_ipv4() { MOST } else { MOST6 } {
            return Err(Errno::ENOBUFS);
        }
        if index == ETHERNET && !self.groups.contains(&membership) {
            let joined = self.wire.as_mut().is_some_and(|wire| wire.join(group));
            joined.then_some(()).ok_or(Errno::ENOBUFS)?;
        }
        self.groups.push(membership);
        self.get_mut(id)?.groups.push(membership);
        Ok(())
    }

    /// Ends the membership of a socket in a group, at the interface with this index; 0: at any.
    ///
    /// # Errors
    /// `EPROTO` for a TCP socket, `EADDRNOTAVAIL` if it is no member.
    pub fn leave_group(&mut self, id: SocketId, group: IpAddr, index: u32) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        if socket.is_tcp() {
            return Err(Errno::EPROTO);
        }
        let is_meant = |own: &Membership| own.0 == group && (index == 0 || own.1 == index);
        let found = socket.groups.iter().position(is_meant);
        let membership = socket.groups.remove(found.ok_or(Errno::EADDRNOTAVAIL)?);
        self.left_group(membership);
        Ok(())
    }

    /// Ends all memberships of a closed socket.
    pub(super) fn leave_groups(&mut self, socket: &Socket) {
        for &membership in &socket.groups {
            self.left_group(membership);
        }
    }

    /// Records the end of a membership.
    fn left_group(&mut self, membership: Membership) {
        let found = self.groups.iter().position(|other| *other == membership);
        if let Some(found) = found {
            self.groups.swap_remove(found);
        }
        if let ((group, ETHERNET), Some(wire)) = (membership, self.wire.as_mut())
            && !self.groups.contains(&membership)
        {
            wire.leave(group);
        }
    }

    /// Returns where packets of a socket to `to` go: as [`route`](Self::route), but by its options
    /// about interfaces too.
    ///
    /// # Errors
    /// `ENETUNREACH` if no route leads there.
    pub(super) fn route_from(&self, id: SocketId, to: IpAddr) -> Result<Route, Errno> {
        let options = &self.get(id)?.options;
        if options.device != 0 && !self.has_interface(options.device) {
            return Err(Errno::ENODEV);
        }
        if !to.is_multicast() {
            let route = self.route(to)?;
            let is_elsewhere = match route {
                Route::Wire { .. } => options.device == LOOPBACK,
                Route::Loopback { to, .. } => options.device == ETHERNET && to.is_loopback(),
            };
            return match is_elsewhere {
                true => Err(Errno::ENETUNREACH),
                false => Ok(route),
            };
        }
        let (index, source) = options.multicast_interface(to.is_ipv4());
        let index = match options.device {
            0 => index,
            device => device,
        };
        if index == LOOPBACK {
            if to.is_ipv6() {
                // As on Linux, that interface has no route to groups of IPv6.
                return Err(Errno::ENETUNREACH);
            }
            let source = source.unwrap_or(Ipv4Addr::LOCALHOST.into());
            return Ok(Route::Loopback { source, to });
        }
        let wire = self.wire.as_ref().ok_or(Errno::ENETUNREACH)?;
        let source = source.or_else(|| match index == ETHERNET || to.is_ipv6() {
            // No route is needed. As on Linux, there is always one to groups of IPv6.
            true => wire.source_to_group(to),
            false => wire.source(to),
        });
        Ok(Route::Wire {
            source: source.ok_or(Errno::ENETUNREACH)?,
        })
    }

    /// Sends a datagram to a group, or several in one piece.
    pub(super) fn send_to_group(
        &mut self,
        id: SocketId,
        (from, to): (SocketAddr, SocketAddr),
        (bytes, segment): (&[u8], Option<u16>),
        packet: PacketInfo,
        cred: Ucred,
    ) -> Result<usize, Errno> {
        let loops = match to.is_ipv4() {
            true => (IPPROTO_IP, IP_MULTICAST_LOOP),
            false => (IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
        };
        let loops = self.get(id)?.options.is_not_off(loops);
        // Packets without hops stay in this VM.
        if packet.interface != LOOPBACK && packet.fields.hops > 0 {
            self.send_udp_wire((from, to), bytes, segment, packet.fields)?;
        }
        if loops || packet.interface == LOOPBACK {
            self.deliver_to_group((to, from), (bytes, segment), packet, cred);
        }
        Ok(bytes.len())
    }

    /// Delivers a datagram that arrived for a group, or several in one piece, to all sockets that
    /// receive it.
    pub(super) fn deliver_to_group(
        &mut self,
        (to, from): (SocketAddr, SocketAddr),
        (bytes, segment): (&[u8], Option<u16>),
        packet: PacketInfo,
        cred: Ucred,
    ) {
        let membership = (to.ip(), packet.interface);
        // The VM itself is a member of the groups of all hosts.
        let all: [IpAddr; 2] = [
            Ipv4Addr::new(224, 0, 0, 1).into(),
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
        ];
        if !self.groups.contains(&membership) && !all.contains(&to.ip()) {
            return;
        }
        let sockets = self.at_port(Ports::Udp, to.port()).iter().copied();
        let takes = |id: &SocketId| {
            self.get(*id)
                .is_ok_and(|socket| socket.takes_group(to, from, packet.interface))
        };
        let receivers: Vec<SocketId> = sockets.filter(takes).collect();
        for id in receivers {
            // The socket exists.
            let _ = self.take_datagrams(id, bytes, segment, (from, packet), cred);
        }
    }
}

impl Socket {
    /// Whether a UDP socket at this port receives datagrams to a group that arrive at an interface.
    fn takes_group(&self, to: SocketAddr, from: SocketAddr, interface: u32) -> bool {
        let is_local = match self.local.socket_addr().map(|local| local.ip()) {
            Some(ip) if ip == to.ip() => true,
            Some(IpAddr::V4(ip)) => ip.is_unspecified() && to.is_ipv4(),
            Some(IpAddr::V6(ip)) => {
                ip.is_unspecified() && !(to.is_ipv4() && self.options.is_v6_only())
            }
            None => false,
        };
        let is_peer = match (self.is_connected(), self.remote.socket_addr()) {
            (true, Some(remote)) => remote == from,
            (true, None) => false,
            _ => true,
        };
        let all = match to.is_ipv4() {
            true => (IPPROTO_IP, IP_MULTICAST_ALL),
            false => (IPPROTO_IPV6, IPV6_MULTICAST_ALL),
        };
        let wants = self.groups.contains(&(to.ip(), interface)) || self.options.is_not_off(all);
        is_local && is_peer && wants && !self.read_closed && self.options.receives_at(interface)
    }
}
