//! Routing netlink (netlink(7), rtnetlink(7)): requests about interfaces, addresses and routes. All
//! of them are read-only: the settings of the VM give addresses and routes.

use super::Network;
use super::address::Address;
use super::interfaces::{Interface, RouteEntry};
use super::queue::Message;
use super::socket::SocketId;
use alloc::vec::Vec;
use core::net::IpAddr;
use hartline_linux::errno::Errno;
use hartline_linux::if_::{ARPHRD_ETHER, ARPHRD_LOOPBACK, IF_OPER_UNKNOWN, IF_OPER_UP};
use hartline_linux::if_addr::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_CACHEINFO, IFA_F_PERMANENT, IFA_FLAGS, IFA_LABEL, IFA_LOCAL,
    IfaCacheinfo, Ifaddrmsg,
};
use hartline_linux::if_link::{
    IFLA_ADDRESS, IFLA_BROADCAST, IFLA_CARRIER, IFLA_GROUP, IFLA_IFNAME, IFLA_LINKMODE, IFLA_MTU,
    IFLA_OPERSTATE, IFLA_QDISC, IFLA_STATS, IFLA_STATS64, IFLA_TXQLEN, RtnlLinkStats64,
};
use hartline_linux::netlink::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_MIN_TYPE,
    Nlmsgerr, Nlmsghdr,
};
use hartline_linux::rtnetlink::{
    Ifinfomsg, RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTA_DST,
    RTA_GATEWAY, RTA_OIF, RTA_PREFSRC, RTA_TABLE, RTM_GETADDR, RTM_GETLINK, RTM_GETROUTE,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST, RTPROT_BOOT, RTPROT_KERNEL, Rtattr, Rtmsg,
};
use hartline_linux::socket::{AF_INET, AF_INET6, Ucred};
use zerocopy::{FromBytes, IntoBytes, transmute};

const HEADER: usize = size_of::<Nlmsghdr>();

/// The interfaces and routes that requests are answered from.
pub(super) struct Facts {
    pub interfaces: Vec<Interface>,
    pub routes: Vec<RouteEntry>,
}

/// A message under construction: the end sets the length in its header.
struct Builder<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    header: Nlmsghdr,
}

impl<'a> Builder<'a> {
    fn new(bytes: &'a mut Vec<u8>, header: Nlmsghdr, body: &[u8]) -> Builder<'a> {
        let start = bytes.len();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body);
        Builder {
            bytes,
            start,
            header,
        }
    }

    /// Adds an attribute.
    fn attribute(&mut self, kind: u16, data: &[u8]) {
        let head = Rtattr {
            rta_len: (size_of::<Rtattr>() + data.len()) as u16,
            rta_type: kind,
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, value.as_bytes());
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), b"\0"].concat());
    }

    fn ip(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        let message = &mut self.bytes[self.start..];
        self.header.nlmsg_len = message.len() as u32;
        // This never fails, because the message starts with its header.
        let _ = self.header.write_to_prefix(message);
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET as u8,
        IpAddr::V6(_) => AF_INET6 as u8,
    }
}

/// Whether a dump for the family `wanted` (0: all) includes this address.
fn is_wanted(wanted: u8, address: IpAddr) -> bool {
    wanted == 0 || wanted == family(address)
}

/// `RTM_NEWLINK` of an interface.
fn link(bytes: &mut Vec<u8>, header: Nlmsghdr, interface: &Interface) {
    const TYPES: [u16; 2] = [ARPHRD_ETHER, ARPHRD_LOOPBACK];
    const QUEUE: u32 = 1000;
    const STATES: [u8; 2] = [IF_OPER_UP, IF_OPER_UNKNOWN];
    let is_loopback = usize::from(interface.is_loopback());
    let body = Ifinfomsg {
        ifi_family: 0,
        pad: 0,
        ifi_type: TYPES[is_loopback],
        ifi_index: interface.index,
        ifi_flags: interface.flags,
        ifi_change: 0,
    };
    let mut message = Builder::new(bytes, header, body.as_bytes());
    message.text(IFLA_IFNAME, interface.name);
    message.number(IFLA_TXQLEN, QUEUE);
    message.attribute(IFLA_OPERSTATE, &[STATES[is_loopback]]);
    message.attribute(IFLA_LINKMODE, &[0]); // Default.
    message.number(IFLA_MTU, interface.mtu);
    message.number(IFLA_GROUP, 0);
    message.attribute(IFLA_CARRIER, &[1]);
    message.text(IFLA_QDISC, "noqueue");
    message.attribute(IFLA_ADDRESS, &interface.mac);
    message.attribute(
        IFLA_BROADCAST,
        &[if interface.is_loopback() { 0 } else { 0xff }; 6],
    );
    let [received, sent] = interface.traffic;
    let counts = RtnlLinkStats64 {
        rx_packets: received.packets,
        tx_packets: sent.packets,
        rx_bytes: received.bytes,
        tx_bytes: sent.bytes,
        rx_errors: received.errors,
        tx_errors: sent.errors,
        // Errors of other kinds.
        ..RtnlLinkStats64::default()
    };
    message.attribute(IFLA_STATS64, counts.as_bytes());
    let wide: [u64; 25] = transmute!(counts);
    message.attribute(IFLA_STATS, wide.map(|count| count as u32)[..24].as_bytes());
}

/// `RTM_NEWADDR` of an address of an interface.
fn address(bytes: &mut Vec<u8>, header: Nlmsghdr, interface: &Interface, entry: (IpAddr, u8)) {
    let (ip, prefix) = entry;
    let scope = match ip {
        _ if interface.is_loopback() => RT_SCOPE_HOST,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => RT_SCOPE_LINK,
        _ => RT_SCOPE_UNIVERSE,
    };
    let body = Ifaddrmsg {
        ifa_family: family(ip),
        ifa_prefixlen: prefix,
        ifa_flags: IFA_F_PERMANENT,
        ifa_scope: scope,
        ifa_index: interface.index,
    };
    let mut message = Builder::new(bytes, header, body.as_bytes());
    message.ip(IFA_ADDRESS, ip);
    if ip.is_ipv4() {
        message.ip(IFA_LOCAL, ip);
        if let Some(broadcast) = interface.broadcast() {
            message.ip(IFA_BROADCAST, broadcast.into());
        }
        message.text(IFA_LABEL, interface.name);
    }
    message.number(IFA_FLAGS, IFA_F_PERMANENT.into());
    let valid = IfaCacheinfo {
        ifa_prefered: u32::MAX,
        ifa_valid: u32::MAX,
        cstamp: 0,
        tstamp: 0,
    };
    message.attribute(IFA_CACHEINFO, valid.as_bytes());
}

/// `RTM_NEWROUTE` of a route.
fn route(bytes: &mut Vec<u8>, header: Nlmsghdr, entry: &RouteEntry) {
    const MADE_BY: [u8; 2] = [RTPROT_KERNEL, RTPROT_BOOT];
    let (network, prefix) = entry.network;
    let scope = match entry.gateway {
        None if network.is_ipv4() => RT_SCOPE_LINK,
        _ => RT_SCOPE_UNIVERSE,
    };
    let made_by = MADE_BY[usize::from(entry.gateway.is_some())];
    let body = Rtmsg {
        rtm_family: family(network),
        rtm_dst_len: prefix,
        rtm_src_len: 0,
        rtm_tos: 0,
        rtm_table: RT_TABLE_MAIN,
        rtm_protocol: made_by,
        rtm_scope: scope,
        rtm_type: RTN_UNICAST,
        rtm_flags: 0,
    };
    let mut message = Builder::new(bytes, header, body.as_bytes());
    message.number(RTA_TABLE, RT_TABLE_MAIN.into());
    if prefix != 0 {
        message.ip(RTA_DST, network);
    }
    if let Some(gateway) = entry.gateway {
        message.ip(RTA_GATEWAY, gateway);
    }
    if let Some(source) = entry.source.filter(IpAddr::is_ipv4) {
        message.ip(RTA_PREFSRC, source);
    }
    message.number(RTA_OIF, entry.interface);
}

/// Returns the interface that an `RTM_GETLINK` request without a dump asks for.
fn find<'f>(body: &[u8], facts: &'f Facts) -> Result<&'f Interface, Errno> {
    let body = Ifinfomsg::read_from_prefix(body);
    let (message, mut attributes) = body.map_err(|_| Errno::EINVAL)?;
    let mut name = None;
    while let Ok((head, _)) = Rtattr::read_from_prefix(attributes) {
        let length = usize::from(head.rta_len);
        let Some(data) = attributes.get(size_of::<Rtattr>()..length) else {
            break;
        };
        if head.rta_type == IFLA_IFNAME {
            name = data.split(|&byte| byte == 0).next();
        }
        let next = length.next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or(&[]);
    }
    let mut interfaces = facts.interfaces.iter();
    let found = match (message.ifi_index, name) {
        (0, None) => return Err(Errno::EINVAL),
        (0, Some(name)) => interfaces.find(|interface| interface.name.as_bytes() == name),
        (index, _) => interfaces.find(|interface| interface.index == index),
    };
    found.ok_or(Errno::ENODEV)
}

/// Appends the answer to a request. Returns whether the answer is a dump, which needs `NLMSG_DONE`.
fn serve(
    bytes: &mut Vec<u8>,
    request: Nlmsghdr,
    body: &[u8],
    port: u32,
    facts: &Facts,
) -> Result<bool, Errno> {
    let &wanted = body.first().ok_or(Errno::EINVAL)?;
    let is_dump = request.nlmsg_flags & NLM_F_DUMP != 0;
    let header = |kind| Nlmsghdr {
        nlmsg_len: 0,
        nlmsg_type: kind,
        nlmsg_flags: if is_dump { NLM_F_MULTI } else { 0 },
        nlmsg_seq: request.nlmsg_seq,
        nlmsg_pid: port,
    };
    match request.nlmsg_type {
        RTM_GETLINK if is_dump => {
            for interface in &facts.interfaces {
                link(bytes, header(RTM_NEWLINK), interface);
            }
        }
        RTM_GETLINK => link(bytes, header(RTM_NEWLINK), find(body, facts)?),
        RTM_GETADDR if is_dump => {
            for interface in &facts.interfaces {
                let addresses = interface.addresses.iter();
                for &entry in addresses.filter(|(ip, _)| is_wanted(wanted, *ip)) {
                    address(bytes, header(RTM_NEWADDR), interface, entry);
                }
            }
        }
        RTM_GETROUTE if is_dump => {
            let routes = facts.routes.iter();
            for entry in routes.filter(|entry| is_wanted(wanted, entry.network.0)) {
                route(bytes, header(RTM_NEWROUTE), entry);
            }
        }
        // Types come in fours: new, delete, get, set.
        kind if kind & 3 != 2 => return Err(Errno::EPERM),
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(is_dump)
}

/// Returns the answers to the requests in `bytes`, for the socket with this port. Each answer is a
/// datagram.
pub(super) fn answer(bytes: &[u8], port: u32, facts: &Facts) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let mut rest = bytes;
    while let Ok((request, _)) = Nlmsghdr::read_from_prefix(rest) {
        let length = request.nlmsg_len as usize;
        let Some(body) = rest.get(HEADER..length) else {
            break;
        };
        let whole = &rest[..length];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        let header = |kind, flags| Nlmsghdr {
            nlmsg_len: 0,
            nlmsg_type: kind,
            nlmsg_flags: flags,
            nlmsg_seq: request.nlmsg_seq,
            nlmsg_pid: port,
        };
        let mut bytes = Vec::new();
        let result = match request.nlmsg_type {
            _ if request.nlmsg_flags & NLM_F_REQUEST == 0 => continue,
            ..NLMSG_MIN_TYPE => Ok(false),
            _ => serve(&mut bytes, request, body, port, facts),
        };
        match result {
            Ok(true) => {
                let end = header(NLMSG_DONE, NLM_F_MULTI);
                drop(Builder::new(&mut bytes, end, &[0; 4]));
            }
            Ok(false) if request.nlmsg_flags & NLM_F_ACK == 0 => {}
            // `struct nlmsgerr`: of a request that failed all of it comes back.
            Ok(false) => {
                let body = Nlmsgerr {
                    error: 0,
                    msg: request,
                };
                let header = header(NLMSG_ERROR, 0);
                drop(Builder::new(&mut bytes, header, body.as_bytes()));
            }
            Err(error) => {
                let number = -(error.number() as i32);
                let body = [number.as_bytes(), whole].concat();
                bytes.clear();
                drop(Builder::new(&mut bytes, header(NLMSG_ERROR, 0), &body));
            }
        }
        if !bytes.is_empty() {
            answers.push(bytes);
        }
    }
    answers
}

impl Network {
    /// Binds a netlink socket to a port; 0 asks for any. Groups receive no notifications.
    ///
    /// # Errors
    /// `EINVAL` if the socket has another port, `EADDRINUSE`, `EOPNOTSUPP` with groups.
    pub fn bind_netlink(&mut self, id: SocketId, port: u32, groups: u32) -> Result<(), Errno> {
        /// The first port, counted downwards, that is not a process number.
        const FIRST_FREE: u32 = 0u32.wrapping_sub(4097);
        if groups != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let socket = self.get(id)?;
        if let (true, Address::Netlink(own, _)) = (socket.bound, &socket.local) {
            return match port == 0 || port == *own {
                true => Ok(()),
                false => Err(Errno::EINVAL),
            };
        }
        let process = socket.credentials.pid;
        let is_taken = |port: u32| {
            let mut sockets = self.iter();
            sockets.any(|other| other.bound && other.local == Address::Netlink(port, 0))
        };
        let port = match port {
            0 if !is_taken(process) => process,
            0 => {
                let free = (0..FIRST_FREE).map(|n| FIRST_FREE - n);
                let mut free = free.skip_while(|port| is_taken(*port));
                free.next().ok_or(Errno::EADDRINUSE)?
            }
            port if is_taken(port) => return Err(Errno::EADDRINUSE),
            port => port,
        };
        let socket = self.get_mut(id)?;
        socket.local = Address::Netlink(port, 0);
        socket.bound = true;
        Ok(())
    }

    /// Sends requests to the kernel, and puts its answers into the socket's queue.
    ///
    /// # Errors
    /// `ECONNREFUSED` for a destination other than the kernel, `EADDRINUSE`.
    pub fn send_netlink(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<Address>,
    ) -> Result<usize, Errno> {
        match to {
            None | Some(Address::Netlink(0, 0)) => {}
            Some(_) => return Err(Errno::ECONNREFUSED),
        }
        self.bind_netlink(id, 0, 0)?;
        let port = match self.get(id)?.local {
            Address::Netlink(port, _) => port,
            _ => return Err(Errno::EINVAL),
        };
        let facts = Facts {
            interfaces: self.interfaces(),
            routes: self.routes(),
        };
        let answers = answer(bytes, port, &facts);
        let socket = self.get_mut(id)?;
        for bytes in answers {
            // As on Linux, a socket with a full queue loses answers.
            if !socket.has_room_for(bytes.len()) {
                socket.error = Some(Errno::ENOBUFS);
                break;
            }
            socket.queue.push(Message {
                bytes,
                read: 0,
                from: Address::Netlink(0, 0),
                who: Ucred {
                    pid: 0,
                    uid: 0,
                    gid: 0,
                },
                rights: Vec::new(),
                segment: None,
            });
        }
        match socket.error {
            Some(_) => self.touch_all(id),
            None => self.touch_input(id),
        }
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use hartline_linux::if_::IFF_BROADCAST;

    fn facts() -> Facts {
        let net = Network::default();
        let mut interfaces = net.interfaces();
        interfaces.push(Interface {
            index: 2,
            name: "eth0",
            flags: IFF_BROADCAST,
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 1500,
            addresses: vec![("10.0.2.15".parse().unwrap(), 24)],
            ..interfaces[0].clone()
        });
        Facts {
            interfaces,
            routes: vec![RouteEntry {
                network: ("0.0.0.0".parse().unwrap(), 0),
                gateway: Some("10.0.2.2".parse().unwrap()),
                source: None,
                interface: 2,
            }],
        }
    }

    fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let header = Nlmsghdr {
            nlmsg_len: (HEADER + body.len()) as u32,
            nlmsg_type: kind,
            nlmsg_flags: flags | NLM_F_REQUEST,
            nlmsg_seq: 77,
            nlmsg_pid: 0,
        };
        [header.as_bytes(), body].concat()
    }

    /// Returns the types of the messages in one datagram, and checks their headers.
    fn kinds(bytes: &[u8]) -> Vec<u16> {
        let mut rest = bytes;
        let mut kinds = vec![];
        while let Ok((header, _)) = Nlmsghdr::read_from_prefix(rest) {
            assert_eq!((header.nlmsg_seq, header.nlmsg_pid), (77, 5));
            kinds.push(header.nlmsg_type);
            rest = &rest[header.nlmsg_len as usize..];
        }
        assert!(rest.is_empty());
        kinds
    }

    #[test]
    fn dumps_end_with_done_and_can_be_for_one_family() {
        let ask = |kind, family| {
            let answers = answer(&request(kind, NLM_F_DUMP, &[family]), 5, &facts());
            assert_eq!(answers.len(), 1);
            kinds(&answers[0])
        };
        assert_eq!(ask(RTM_GETLINK, 0), [16, 16, 3]);
        // Two of the loopback interface, which is alone here, and its IPv6 one.
        assert_eq!(ask(RTM_GETADDR, 0), [20, 20, 20, 20, 3]);
        assert_eq!(ask(RTM_GETADDR, AF_INET6 as u8), [20, 3]);
        assert_eq!(ask(RTM_GETROUTE, AF_INET as u8), [24, 3]);
        assert_eq!(ask(RTM_GETROUTE, AF_INET6 as u8), [3]);
    }

    fn error(answers: &[Vec<u8>]) -> i32 {
        assert_eq!(kinds(&answers[0]), [NLMSG_ERROR]);
        i32::from_le_bytes(*answers[0][HEADER..].first_chunk().unwrap())
    }

    #[test]
    fn one_interface_is_found_by_number_or_name() {
        let mut body = [0; 16];
        body[4] = 2;
        let found = answer(&request(RTM_GETLINK, 0, &body), 5, &facts());
        assert_eq!(kinds(&found[0]), [RTM_NEWLINK]);
        assert!(found[0].windows(5).any(|name| name == b"eth0\0"));
        body[4] = 0;
        let named = [&body[..], &[7, 0, 3, 0], b"lo\0\0"].concat();
        let found = answer(&request(RTM_GETLINK, NLM_F_ACK, &named), 5, &facts());
        assert_eq!(kinds(&found[0]), [RTM_NEWLINK, NLMSG_ERROR]);
        body[4] = 9;
        let missing = answer(&request(RTM_GETLINK, 0, &body), 5, &facts());
        assert_eq!(error(&missing), -(Errno::ENODEV.number() as i32));
    }

    #[test]
    fn what_is_wrong_or_not_allowed_is_answered_with_an_error() {
        let ask = |kind, body: &[u8]| error(&answer(&request(kind, 0, body), 5, &facts()));
        let number = |error: Errno| -(error.number() as i32);
        assert_eq!(ask(RTM_GETLINK, &[]), number(Errno::EINVAL));
        assert_eq!(ask(RTM_GETLINK, &[0; 15]), number(Errno::EINVAL));
        assert_eq!(ask(RTM_NEWLINK, &[0; 16]), number(Errno::EPERM));
        assert_eq!(ask(30, &[0; 16]), number(Errno::EOPNOTSUPP));
    }

    #[test]
    fn no_bytes_do_harm() {
        let whole = request(
            RTM_GETLINK,
            0,
            &[&[0; 16][..], &[9, 0, 3, 0, b'x']].concat(),
        );
        for at in 0..whole.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                answer(&bytes, 5, &facts());
                answer(&bytes[..at], 5, &facts());
            }
        }
    }
}
