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
    ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, ICMP_HOST_ANO, ICMP_HOST_ISOLATED, ICMP_HOST_UNKNOWN,
    ICMP_NET_ANO, ICMP_NET_UNKNOWN, ICMP_NET_UNR_TOS, ICMP_NET_UNREACH, ICMP_PARAMETERPROB,
    ICMP_PKT_FILTERED, ICMP_PORT_UNREACH, ICMP_PREC_CUTOFF, ICMP_PROT_UNREACH, ICMP_SR_FAILED,
    ICMP_TIME_EXCEEDED, ICMPV6_ADM_PROHIBITED, ICMPV6_DEST_UNREACH, ICMPV6_NOROUTE,
    ICMPV6_PARAMPROB, ICMPV6_PKT_TOOBIG, ICMPV6_POLICY_FAIL, ICMPV6_PORT_UNREACH,
    ICMPV6_REJECT_ROUTE, ICMPV6_TIME_EXCEED,
};
use hartline_linux::in_::{IP_RECVERR, IPPROTO_IP, IPPROTO_IPV6};
use hartline_linux::in6::IPV6_RECVERR;
use zerocopy::IntoBytes;

/// Most bytes of a datagram that a report keeps, as many as an ICMP error quotes at least.
const QUOTED: usize = 548;
/// Most reports of a socket.
const MOST: usize = 256;

/// The reason why a packet did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    /// The error of socket calls.
    error: Errno,
    /// Connected sockets have the error even if they did not ask for errors.
    is_fatal: bool,
    /// Type and code of the ICMP message.
    kind: (u8, u8),
    /// Largest packet that can pass, bytes; 0 if that was not the reason.
    mtu: u32,
}

impl Reason {
    /// The reason that an ICMP message reports; none if it reports no error.
    pub(super) fn of(message: &[u8], is_ipv4: bool) -> Option<Self> {
        let header: [u8; 8] = *message.first_chunk()?;
        let [kind, code, _, _, _, _, high, low] = header;
        let (error, is_fatal) = match is_ipv4 {
            true => error_of(kind, code)?,
            false => error_of_v6(kind, code)?,
        };
        let is_mtu = error == Errno::EMSGSIZE;
        let mtu = u32::from_be_bytes([header[4], header[5], high, low]);
        // IPv4 has two unused bytes there.
        let mtu = if is_ipv4 { mtu & 0xffff } else { mtu };
        Some(Self {
            error,
            is_fatal,
            kind: (kind, code),
            mtu: if is_mtu { mtu } else { 0 },
        })
    }

    /// No socket has the port.
    fn no_receiver(is_ipv4: bool) -> Self {
        Self {
            error: Errno::ECONNREFUSED,
            is_fatal: true,
            kind: match is_ipv4 {
                true => (ICMP_DEST_UNREACH, ICMP_PORT_UNREACH),
                false => (ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH),
            },
            mtu: 0,
        }
    }
}

/// The error of an ICMP message, and whether it is fatal (`icmp_err_convert` of Linux).
fn error_of(kind: u8, code: u8) -> Option<(Errno, bool)> {
    Some(match (kind, code) {
        (ICMP_TIME_EXCEEDED, _) => (Errno::EHOSTUNREACH, false),
        (ICMP_PARAMETERPROB, _) => (Errno::EPROTO, true),
        (ICMP_DEST_UNREACH, ICMP_NET_UNREACH | ICMP_NET_UNR_TOS) => (Errno::ENETUNREACH, false),
        (ICMP_DEST_UNREACH, ICMP_PROT_UNREACH) => (Errno::ENOPROTOOPT, true),
        (ICMP_DEST_UNREACH, ICMP_PORT_UNREACH) => (Errno::ECONNREFUSED, true),
        (ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED) => (Errno::EMSGSIZE, true),
        (ICMP_DEST_UNREACH, ICMP_SR_FAILED) => (Errno::EOPNOTSUPP, false),
        (ICMP_DEST_UNREACH, ICMP_NET_UNKNOWN | ICMP_NET_ANO) => (Errno::ENETUNREACH, true),
        (ICMP_DEST_UNREACH, ICMP_HOST_UNKNOWN) => (Errno::EHOSTDOWN, true),
        (ICMP_DEST_UNREACH, ICMP_HOST_ISOLATED) => (Errno::ENONET, true),
        (ICMP_DEST_UNREACH, ICMP_HOST_ANO | ICMP_PKT_FILTERED..=ICMP_PREC_CUTOFF) => {
            (Errno::EHOSTUNREACH, true)
        }
        (ICMP_DEST_UNREACH, _) => (Errno::EHOSTUNREACH, false),
        _ => return None,
    })
}

/// As [`error_of`], for ICMPv6 (`icmpv6_err_convert` of Linux).
fn error_of_v6(kind: u8, code: u8) -> Option<(Errno, bool)> {
    Some(match (kind, code) {
        (ICMPV6_PKT_TOOBIG, _) => (Errno::EMSGSIZE, true),
        (ICMPV6_PARAMPROB, _) => (Errno::EPROTO, true),
        (ICMPV6_TIME_EXCEED, _) => (Errno::EHOSTUNREACH, false),
        (ICMPV6_DEST_UNREACH, ICMPV6_NOROUTE) => (Errno::ENETUNREACH, false),
        (ICMPV6_DEST_UNREACH, ICMPV6_PORT_UNREACH) => (Errno::ECONNREFUSED, true),
        (ICMPV6_DEST_UNREACH, ICMPV6_ADM_PROHIBITED | ICMPV6_POLICY_FAIL | ICMPV6_REJECT_ROUTE) => {
            (Errno::EACCES, true)
        }
        (ICMPV6_DEST_UNREACH, _) => (Errno::EHOSTUNREACH, false),
        _ => return None,
    })
}

/// An error about a datagram or an echo request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The start of the datagram.
    pub bytes: Vec<u8>,
    /// Its destination.
    pub to: SocketAddr,
    /// The host that reports the error.
    pub offender: IpAddr,
    reason: Reason,
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
        let (ee_type, ee_code) = self.reason.kind;
        let error = SockExtendedErr {
            ee_errno: self.reason.error.number().into(),
            ee_origin: match is_ipv4 {
                true => SO_EE_ORIGIN_ICMP,
                false => SO_EE_ORIGIN_ICMP6,
            },
            ee_type,
            ee_code,
            ee_pad: 0,
            ee_info: self.reason.mtu,
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
    /// Reports to a UDP socket that a datagram within this VM found no receiver.
    pub(super) fn refuse_datagram(&mut self, id: SocketId, to: SocketAddr, bytes: &[u8]) {
        let reason = Reason::no_receiver(to.is_ipv4());
        self.report_error(id, (to, to.ip()), bytes, reason);
    }

    /// Reports to a socket that a datagram or echo request to `to` did not arrive. As on Linux,
    /// sockets that asked for errors receive it, and connected ones if it is fatal.
    pub(super) fn report_error(
        &mut self,
        id: SocketId,
        (to, offender): (SocketAddr, IpAddr),
        bytes: &[u8],
        reason: Reason,
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
                reason,
            });
        }
        if wants_report || reason.is_fatal && socket.is_connected() {
            // The socket exists.
            let _ = self.set_error(id, reason.error);
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
        socket.error = socket.errors.front().map(|next| next.reason.error);
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
        net.refuse_datagram(id, to, b"unwanted");
        assert_eq!(net.get(id).unwrap().error, None);
        let wants = |net: &mut Network, on| {
            let options = &mut net.get_mut(id).unwrap().options;
            let key = (IPPROTO_IP, IP_RECVERR);
            (options.set_number(key, on, Family::Inet, Type::Datagram)).unwrap();
        };
        wants(&mut net, 1);
        net.refuse_datagram(id, to, &[7; 1000]);
        net.refuse_datagram(id, to, b"second");
        let first = net.take_report(id).unwrap();
        assert_eq!(first.bytes, [7; QUOTED]);
        assert_eq!(first.data().len(), 32);
        assert_eq!(net.get(id).unwrap().error, Some(Errno::ECONNREFUSED));
        assert_eq!(net.take_report(id).unwrap().bytes, b"second");
        assert_eq!(net.get(id).unwrap().error, None);
        assert_eq!(net.take_report(id), Err(Errno::EAGAIN));
        for _ in 0..=MOST {
            net.refuse_datagram(id, to, b"");
        }
        assert_eq!(net.get(id).unwrap().errors.len(), MOST);
        wants(&mut net, 0);
        net.drop_unwanted_reports(id);
        assert_eq!(net.take_report(id), Err(Errno::EAGAIN));
    }

    #[test]
    fn messages_become_errors_of_linux() {
        let of = |kind, code, is_ipv4| {
            let reason = Reason::of(&[kind, code, 0, 0, 1, 2, 5, 0xdc, 9], is_ipv4)?;
            Some((reason.error, reason.is_fatal, reason.mtu))
        };
        let unreachable = Some((Errno::EHOSTUNREACH, false, 0));
        assert_eq!(of(ICMP_TIME_EXCEEDED, 0, true), unreachable);
        assert_eq!(of(ICMP_DEST_UNREACH, 1, true), unreachable);
        let filtered = Some((Errno::EHOSTUNREACH, true, 0));
        assert_eq!(of(ICMP_DEST_UNREACH, 14, true), filtered);
        let too_long = Some((Errno::EMSGSIZE, true, 1500));
        assert_eq!(of(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, true), too_long);
        let too_long = Some((Errno::EMSGSIZE, true, 0x0102_05dc));
        assert_eq!(of(ICMPV6_PKT_TOOBIG, 0, false), too_long);
        assert_eq!(of(ICMPV6_TIME_EXCEED, 0, false), unreachable);
        let refused = Some((Errno::ECONNREFUSED, true, 0));
        assert_eq!(of(ICMPV6_DEST_UNREACH, 4, false), refused);
        // Echoes are no errors, and neither are parts of messages.
        assert_eq!(of(0, 0, true), None);
        assert_eq!(of(128, 0, false), None);
        assert_eq!(Reason::of(&[3, 3, 0, 0, 0, 0, 0], true), None);
    }
}
