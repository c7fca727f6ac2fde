//! The error queues of sockets (`IP_RECVERR` of ip(7)): ICMP errors about datagrams that a socket
//! sent.

use super::Network;
use super::address::Address;
use super::socket::SocketId;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use hartline_linux::errno::Errno;
use hartline_linux::errqueue::{SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, SockExtendedErr};
use hartline_linux::icmp::{
    ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH,
};
use hartline_linux::in_::{IP_RECVERR, IPPROTO_IP, IPPROTO_IPV6};
use hartline_linux::in6::IPV6_RECVERR;
use zerocopy::IntoBytes;

/// Most bytes of a datagram that a report keeps, as many as an ICMP error quotes at least.
const QUOTED: usize = 548;
/// Most reports of a socket.
const MOST: usize = 256;

/// An error about a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The start of the datagram.
    pub bytes: Vec<u8>,
    /// Its destination.
    pub to: SocketAddr,
    /// The host that reports the error.
    pub offender: IpAddr,
}

impl Report {
    /// The level and the type of the control message with the error.
    #[must_use]
    pub fn kind(&self) -> (i32, i32) {
        match self.to.is_ipv4() {
            true => (IPPROTO_IP, IP_RECVERR),
            false => (IPPROTO_IPV6, IPV6_RECVERR),
        }
    }

    /// The data of that control message: a `struct sock_extended_err` and the offender's address.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        let is_ipv4 = self.to.is_ipv4();
        let (ee_origin, ee_type, ee_code) = match is_ipv4 {
            true => (SO_EE_ORIGIN_ICMP, ICMP_DEST_UNREACH, ICMP_PORT_UNREACH),
            false => (SO_EE_ORIGIN_ICMP6, ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH),
        };
        let error = SockExtendedErr {
            ee_errno: Errno::ECONNREFUSED.number().into(),
            ee_origin,
            ee_type,
            ee_code,
            ee_pad: 0,
            ee_info: 0,
            ee_data: 0,
        };
        let family = match is_ipv4 {
            true => super::address::Family::Inet,
            false => super::address::Family::Inet6,
        };
        let offender = Address::inet(self.offender, 0).encode(family);
        [error.as_bytes(), &offender].concat()
    }
}

impl Network {
    /// Reports to a UDP socket that a datagram found no receiver. As on Linux, connected
    /// sockets receive it, and those that asked for errors.
    pub(super) fn refuse_datagram(
        &mut self,
        id: SocketId,
        (to, offender): (SocketAddr, IpAddr),
        bytes: &[u8],
    ) {
        let Ok(socket) = self.get_mut(id) else {
            return;
        };
        let wants_report = socket.options.wants_errors(to.is_ipv4());
        if wants_report && socket.errors.len() < MOST {
            socket.errors.push_back(Report {
                bytes: bytes[..bytes.len().min(QUOTED)].to_vec(),
                to,
                offender,
            });
        }
        if wants_report || socket.is_connected() {
            // The socket exists.
            let _ = self.set_error(id, Errno::ECONNREFUSED);
        }
    }

    /// Takes the first report out of the error queue of a socket. The pending error is that of the
    /// next one.
    ///
    /// # Errors
    /// `EAGAIN` if there is none; `EBADF`.
    pub fn take_report(&mut self, id: SocketId) -> Result<Report, Errno> {
        let socket = self.get_mut(id)?;
        let report = socket.errors.pop_front().ok_or(Errno::EAGAIN)?;
        socket.error = (!socket.errors.is_empty()).then_some(Errno::ECONNREFUSED);
        Ok(report)
    }

    /// Empties the error queue of a socket that asks for no errors any more.
    pub fn drop_unwanted_reports(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id) {
            let options = &socket.options;
            (socket.errors).retain(|report| options.wants_errors(report.to.is_ipv4()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::Family;
    use super::super::queue::NOBODY;
    use super::super::socket::{Socket, Type};
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn reports_are_kept_in_order_and_the_last_takes_the_error() {
        let mut net = Network::default();
        let socket = Socket::new(Family::Inet, Type::Datagram, NOBODY);
        let id = net.add(socket).unwrap();
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        net.refuse_datagram(id, (to, to.ip()), b"unwanted");
        assert_eq!(net.get(id).unwrap().error, None);
        let wants = |net: &mut Network, on| {
            let options = &mut net.get_mut(id).unwrap().options;
            let key = (IPPROTO_IP, IP_RECVERR);
            (options.set_number(key, on, Family::Inet, Type::Datagram)).unwrap();
        };
        wants(&mut net, 1);
        net.refuse_datagram(id, (to, to.ip()), &[7; 1000]);
        net.refuse_datagram(id, (to, to.ip()), b"second");
        let first = net.take_report(id).unwrap();
        assert_eq!(first.bytes, [7; QUOTED]);
        assert_eq!(first.data().len(), 32);
        assert_eq!(net.get(id).unwrap().error, Some(Errno::ECONNREFUSED));
        assert_eq!(net.take_report(id).unwrap().bytes, b"second");
        assert_eq!(net.get(id).unwrap().error, None);
        assert_eq!(net.take_report(id), Err(Errno::EAGAIN));
        for _ in 0..=MOST {
            net.refuse_datagram(id, (to, to.ip()), b"");
        }
        assert_eq!(net.get(id).unwrap().errors.len(), MOST);
        wants(&mut net, 0);
        net.drop_unwanted_reports(id);
        assert_eq!(net.take_report(id), Err(Errno::EAGAIN));
    }
}
