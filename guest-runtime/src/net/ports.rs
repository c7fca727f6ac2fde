//! Ports of internet sockets: binding, and which sockets have a port.

use super::Network;
use super::address::Address;
use super::socket::{Ports, Socket, SocketId, State};
use crate::convert::low_u16;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::socket::{SO_REUSEADDR, SO_REUSEPORT};

/// Ports for sockets that ask for any port (`ip_local_port_range`).
pub const EPHEMERAL: core::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Ports below this one need the superuser.
pub(super) const PRIVILEGED: u16 = 1024;

impl Network {
    pub(super) fn port_table(&mut self, ports: Ports) -> &mut BTreeMap<u16, Vec<SocketId>> {
        &mut self.ports[ports as usize]
    }

    /// Returns the sockets bound to a port.
    pub(super) fn at_port(&self, ports: Ports, port: u16) -> &[SocketId] {
        let table = &self.ports[ports as usize];
        table.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Whether programs only wait for answers of other hosts, such as a name server: no socket listens, and there is one
    /// of a client.
    pub fn awaits_answers(&self) -> bool {
        let is_client = |socket: &Socket| match (&socket.state, &socket.local, &socket.remote) {
            (State::Asking, ..) => true,
            (State::Connected, _, Address::Inet(remote)) => {
                socket.peer.is_none() && !remote.ip().is_loopback()
            }
            // Some resolvers do not connect their socket.
            (State::Idle, Address::Inet(local), _) => EPHEMERAL.contains(&local.port()),
            _ => false,
        };
        let mut sockets = self.sockets.values();
        sockets.clone().any(is_client)
            && !sockets.any(|socket| matches!(socket.state, State::Listening(_)))
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
        let (ports, is_raw) = (socket.ports(), socket.is_raw);
        if socket.bound {
            return Err(Errno::EINVAL);
        }
        let is_group = to.ip().is_multicast() && ports == Ports::Udp;
        if !to.ip().is_unspecified() && !is_group && !self.has_address(to.ip()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if is_raw {
            // The port of a raw socket shows its protocol.
            let socket = self.get_mut(id)?;
            let port = socket.local.socket_addr().map_or(0, |local| local.port());
            socket.local = Address::inet(to.ip(), port);
            return Ok(());
        }
        let to = match to.port() {
            0 => SocketAddr::new(to.ip(), self.free_port(id, to.ip())?),
            port if port < PRIVILEGED && !privileged && ports != Ports::Icmp => {
                return Err(Errno::EACCES);
            }
            port if self.is_taken(id, to.ip(), port) => return Err(Errno::EADDRINUSE),
            _ => to,
        };
        self.port_table(ports)
            .entry(to.port())
            .or_default()
            .push(id);
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
        let others = self.at_port(own.ports(), port).iter();
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
        self.last_port = EPHEMERAL.start() + low_u16(offset);
    }

    fn free_port(&mut self, id: SocketId, ip: IpAddr) -> Result<u16, Errno> {
        for _ in EPHEMERAL {
            self.last_port = match self.last_port {
                port if EPHEMERAL.contains(&port) && port != *EPHEMERAL.end() => port + 1,
                _ => *EPHEMERAL.start(),
            };
            // A socket shares no port that it did not ask for.
            let ports = self.get(id)?.ports();
            if self.at_port(ports, self.last_port).is_empty()
                || !self.is_taken(id, ip, self.last_port)
            {
                return Ok(self.last_port);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Binds a socket to a free port of `ip`, if it is not bound.
    pub(super) fn bind_for_sending(&mut self, id: SocketId, ip: IpAddr) -> Result<(), Errno> {
        match self.get(id)?.bound {
            true => Ok(()),
            false => self.bind_inet(id, SocketAddr::new(ip, 0), false),
        }
    }
}

/// Whether the addresses of two sockets with one port conflict.
pub(super) fn overlaps((a, a_ip): (&Socket, IpAddr), (b, b_ip): (&Socket, IpAddr)) -> bool {
    /// Whether the socket has a wildcard address that covers the family of `other`.
    fn takes(socket: &Socket, ip: IpAddr, other: IpAddr) -> bool {
        ip.is_unspecified()
            && match ip {
                IpAddr::V4(_) => other.is_ipv4(),
                IpAddr::V6(_) => other.is_ipv6() || !socket.options.is_v6_only(),
            }
    }
    let [device, other] = [a, b].map(|socket| socket.options.device);
    let shares_device = device == 0 || other == 0 || device == other;
    shares_device && (a_ip == b_ip || takes(a, a_ip, b_ip) || takes(b, b_ip, a_ip))
}
