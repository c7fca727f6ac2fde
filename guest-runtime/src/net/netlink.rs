//! Routing netlink (netlink(7), rtnetlink(7)): requests about interfaces, addresses and routes. All
//! of them are read-only: the settings of the VM give addresses and routes.

use super::Network;
use super::address::{AF_INET, AF_INET6, Address};
use super::interfaces::{Interface, RouteEntry};
use super::queue::{Message, Ucred};
use super::socket::SocketId;
use crate::errno::Errno;
use alloc::vec::Vec;
use core::net::IpAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `NETLINK_ROUTE`
pub const ROUTE: i32 = 0;

/// `struct nlmsghdr`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
struct Header {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

const HEADER: usize = size_of::<Header>();
const _: () = assert!(HEADER == 16);

/// `NLM_F_*`
mod flag {
    pub const REQUEST: u16 = 1;
    pub const MULTI: u16 = 2;
    pub const ACK: u16 = 4;
    pub const DUMP: u16 = 0x300;
}

/// Types of messages.
mod kind {
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    /// Lower types are control messages of netlink itself.
    pub const FIRST: u16 = 16;
    pub const NEW_LINK: u16 = 16;
    pub const GET_LINK: u16 = 18;
    pub const NEW_ADDRESS: u16 = 20;
    pub const GET_ADDRESS: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const GET_ROUTE: u16 = 26;
}

/// Scopes of addresses and routes (`RT_SCOPE_*`).
mod scope {
    pub const UNIVERSE: u8 = 0;
    pub const LINK: u8 = 253;
    pub const HOST: u8 = 254;
}

/// The interfaces and routes that requests are answered from.
pub(super) struct Facts {
    pub interfaces: Vec<Interface>,
    pub routes: Vec<RouteEntry>,
}

/// A message under construction: the end sets the length in its header.
struct Builder<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Builder<'a> {
    fn new(bytes: &'a mut Vec<u8>, header: Header, body: &[u8]) -> Builder<'a> {
        let start = bytes.len();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body);
        Builder { bytes, start }
    }

    /// Adds an attribute.
    fn attribute(&mut self, kind: u16, data: &[u8]) {
        let length = 4 + data.len();
        self.bytes.extend_from_slice(&(length as u16).to_le_bytes());
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_le_bytes());
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
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
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
fn link(bytes: &mut Vec<u8>, header: Header, interface: &Interface) {
    /// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK`
    const TYPES: [u16; 2] = [1, 772];
    const QUEUE: u32 = 1000;
    /// `IF_OPER_UP` (Ethernet) and `IF_OPER_UNKNOWN` (loopback).
    const STATES: [u8; 2] = [6, 0];
    let is_loopback = usize::from(interface.is_loopback());
    // `struct ifinfomsg`
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&TYPES[is_loopback].to_le_bytes());
    body[4..8].copy_from_slice(&interface.index.to_le_bytes());
    body[8..12].copy_from_slice(&interface.flags.to_le_bytes());
    let mut message = Builder::new(bytes, header, &body);
    message.text(3, interface.name);
    message.number(13, QUEUE);
    message.attribute(16, &[STATES[is_loopback]]);
    message.attribute(17, &[0]); // IFLA_LINKMODE: default
    message.number(4, interface.mtu);
    message.number(27, 0); // IFLA_GROUP
    message.attribute(33, &[1]); // IFLA_CARRIER
    message.text(6, "noqueue");
    message.attribute(1, &interface.mac);
    message.attribute(2, &[if interface.is_loopback() { 0 } else { 0xff }; 6]);
    // `struct rtnl_link_stats64` and its 32-bit form; the rest are other error counters.
    let [received, sent] = interface.traffic;
    let counts = [
        [received.packets, sent.packets],
        [received.bytes, sent.bytes],
        [received.errors, sent.errors],
    ];
    let mut wide = [0; 25];
    wide[..6].copy_from_slice(counts.as_flattened());
    message.attribute(23, wide.as_bytes());
    message.attribute(7, wide.map(|count| count as u32)[..24].as_bytes());
}

/// `RTM_NEWADDR` of an address of an interface.
fn address(bytes: &mut Vec<u8>, header: Header, interface: &Interface, entry: (IpAddr, u8)) {
    /// `IFA_F_PERMANENT`
    const PERMANENT: u8 = 0x80;
    let (ip, prefix) = entry;
    let scope = match ip {
        _ if interface.is_loopback() => scope::HOST,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => scope::LINK,
        _ => scope::UNIVERSE,
    };
    // `struct ifaddrmsg`
    let mut body = [family(ip), prefix, PERMANENT, scope, 0, 0, 0, 0];
    body[4..].copy_from_slice(&interface.index.to_le_bytes());
    let mut message = Builder::new(bytes, header, &body);
    message.ip(1, ip);
    if ip.is_ipv4() {
        message.ip(2, ip);
        if let Some(broadcast) = interface.broadcast() {
            message.ip(4, broadcast.into());
        }
        message.text(3, interface.name);
    }
    message.number(8, PERMANENT.into());
    // `struct ifa_cacheinfo`: valid forever.
    message.attribute(6, [u32::MAX, u32::MAX, 0, 0].as_bytes());
}

/// `RTM_NEWROUTE` of a route.
fn route(bytes: &mut Vec<u8>, header: Header, entry: &RouteEntry) {
    const MAIN_TABLE: u8 = 254;
    /// `RTPROT_KERNEL` and `RTPROT_BOOT`
    const MADE_BY: [u8; 2] = [2, 3];
    const UNICAST: u8 = 1;
    let (network, prefix) = entry.network;
    let scope = match entry.gateway {
        None if network.is_ipv4() => scope::LINK,
        _ => scope::UNIVERSE,
    };
    let made_by = MADE_BY[usize::from(entry.gateway.is_some())];
    // `struct rtmsg`
    let body = [
        family(network),
        prefix,
        0,
        0,
        MAIN_TABLE,
        made_by,
        scope,
        UNICAST,
        0,
        0,
        0,
        0,
    ];
    let mut message = Builder::new(bytes, header, &body);
    message.number(15, MAIN_TABLE.into());
    if prefix != 0 {
        message.ip(1, network);
    }
    if let Some(gateway) = entry.gateway {
        message.ip(5, gateway);
    }
    if let Some(source) = entry.source.filter(IpAddr::is_ipv4) {
        message.ip(7, source);
    }
    message.number(4, entry.interface);
}

/// Returns the interface that an `RTM_GETLINK` request without a dump asks for.
fn find<'f>(body: &[u8], facts: &'f Facts) -> Result<&'f Interface, Errno> {
    const BODY: usize = 16;
    const NAME: u16 = 3;
    let body = body.get(..).filter(|body| body.len() >= BODY);
    let (fixed, mut attributes) = body.ok_or(Errno::EINVAL)?.split_at(BODY);
    let number = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let index = u32::from(number(4)) | u32::from(number(6)) << 16;
    let mut name = None;
    while let [l0, l1, k0, k1, ..] = *attributes {
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let Some(data) = attributes.get(4..length) else {
            break;
        };
        if u16::from_le_bytes([k0, k1]) == NAME {
            name = data.split(|&byte| byte == 0).next();
        }
        let next = length.next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or(&[]);
    }
    let mut interfaces = facts.interfaces.iter();
    let found = match (index, name) {
        (0, None) => return Err(Errno::EINVAL),
        (0, Some(name)) => interfaces.find(|interface| interface.name.as_bytes() == name),
        (index, _) => interfaces.find(|interface| interface.index == index),
    };
    found.ok_or(Errno::ENODEV)
}

/// Appends the answer to a request. Returns whether the answer is a dump, which needs `NLMSG_DONE`.
fn serve(
    bytes: &mut Vec<u8>,
    request: Header,
    body: &[u8],
    port: u32,
    facts: &Facts,
) -> Result<bool, Errno> {
    let &wanted = body.first().ok_or(Errno::EINVAL)?;
    let is_dump = request.flags & flag::DUMP != 0;
    let header = |kind| Header {
        length: 0,
        kind,
        flags: if is_dump { flag::MULTI } else { 0 },
        sequence: request.sequence,
        port,
    };
    match request.kind {
        kind::GET_LINK if is_dump => {
            for interface in &facts.interfaces {
                link(bytes, header(kind::NEW_LINK), interface);
            }
        }
        kind::GET_LINK => link(bytes, header(kind::NEW_LINK), find(body, facts)?),
        kind::GET_ADDRESS if is_dump => {
            for interface in &facts.interfaces {
                let addresses = interface.addresses.iter();
                for &entry in addresses.filter(|(ip, _)| is_wanted(wanted, *ip)) {
                    address(bytes, header(kind::NEW_ADDRESS), interface, entry);
                }
            }
        }
        kind::GET_ROUTE if is_dump => {
            let routes = facts.routes.iter();
            for entry in routes.filter(|entry| is_wanted(wanted, entry.network.0)) {
                route(bytes, header(kind::NEW_ROUTE), entry);
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
    while let Ok((request, _)) = Header::read_from_prefix(rest) {
        let length = request.length as usize;
        let Some(body) = rest.get(HEADER..length) else {
            break;
        };
        let whole = &rest[..length];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        let header = |kind, flags| Header {
            length: 0,
            kind,
            flags,
            sequence: request.sequence,
            port,
        };
        let mut bytes = Vec::new();
        let result = match request.kind {
            _ if request.flags & flag::REQUEST == 0 => continue,
            ..kind::FIRST => Ok(false),
            _ => serve(&mut bytes, request, body, port, facts),
        };
        match result {
            Ok(true) => {
                let end = header(kind::DONE, flag::MULTI);
                drop(Builder::new(&mut bytes, end, &[0; 4]));
            }
            Ok(false) if request.flags & flag::ACK == 0 => {}
            // `struct nlmsgerr`: a failed request is returned whole.
            Ok(false) => {
                let body = [&[0; 4], &whole[..HEADER]].concat();
                drop(Builder::new(&mut bytes, header(kind::ERROR, 0), &body));
            }
            Err(error) => {
                let number = -(error.number() as i32);
                let body = [&number.to_le_bytes(), whole].concat();
                bytes.clear();
                drop(Builder::new(&mut bytes, header(kind::ERROR, 0), &body));
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
        self.touch_input(id);
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn facts() -> Facts {
        let net = Network::default();
        let mut interfaces = net.interfaces();
        interfaces.push(Interface {
            index: 2,
            name: "eth0",
            flags: super::super::interfaces::flag::BROADCAST,
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
        let header = Header {
            length: (HEADER + body.len()) as u32,
            kind,
            flags: flags | flag::REQUEST,
            sequence: 77,
            port: 0,
        };
        [header.as_bytes(), body].concat()
    }

    /// Returns the types of the messages in one datagram, and checks their headers.
    fn kinds(bytes: &[u8]) -> Vec<u16> {
        let mut rest = bytes;
        let mut kinds = vec![];
        while let Ok((header, _)) = Header::read_from_prefix(rest) {
            assert_eq!((header.sequence, header.port), (77, 5));
            kinds.push(header.kind);
            rest = &rest[header.length as usize..];
        }
        assert!(rest.is_empty());
        kinds
    }

    #[test]
    fn dumps_end_with_done_and_can_be_for_one_family() {
        let ask = |kind, family| {
            let answers = answer(&request(kind, flag::DUMP, &[family]), 5, &facts());
            assert_eq!(answers.len(), 1);
            kinds(&answers[0])
        };
        assert_eq!(ask(kind::GET_LINK, 0), [16, 16, 3]);
        // Two of the loopback interface, which is alone here, and its IPv6 one.
        assert_eq!(ask(kind::GET_ADDRESS, 0), [20, 20, 20, 20, 3]);
        assert_eq!(ask(kind::GET_ADDRESS, AF_INET6 as u8), [20, 3]);
        assert_eq!(ask(kind::GET_ROUTE, AF_INET as u8), [24, 3]);
        assert_eq!(ask(kind::GET_ROUTE, AF_INET6 as u8), [3]);
    }

    fn error(answers: &[Vec<u8>]) -> i32 {
        assert_eq!(kinds(&answers[0]), [kind::ERROR]);
        i32::from_le_bytes(*answers[0][HEADER..].first_chunk().unwrap())
    }

    #[test]
    fn one_interface_is_found_by_number_or_name() {
        let mut body = [0; 16];
        body[4] = 2;
        let found = answer(&request(kind::GET_LINK, 0, &body), 5, &facts());
        assert_eq!(kinds(&found[0]), [kind::NEW_LINK]);
        assert!(found[0].windows(5).any(|name| name == b"eth0\0"));
        body[4] = 0;
        let named = [&body[..], &[7, 0, 3, 0], b"lo\0\0"].concat();
        let found = answer(&request(kind::GET_LINK, flag::ACK, &named), 5, &facts());
        assert_eq!(kinds(&found[0]), [kind::NEW_LINK, kind::ERROR]);
        body[4] = 9;
        let missing = answer(&request(kind::GET_LINK, 0, &body), 5, &facts());
        assert_eq!(error(&missing), -(Errno::ENODEV.number() as i32));
    }

    #[test]
    fn what_is_wrong_or_not_allowed_is_answered_with_an_error() {
        let ask = |kind, body: &[u8]| error(&answer(&request(kind, 0, body), 5, &facts()));
        let number = |error: Errno| -(error.number() as i32);
        assert_eq!(ask(kind::GET_LINK, &[]), number(Errno::EINVAL));
        assert_eq!(ask(kind::GET_LINK, &[0; 15]), number(Errno::EINVAL));
        assert_eq!(ask(kind::NEW_LINK, &[0; 16]), number(Errno::EPERM));
        assert_eq!(ask(30, &[0; 16]), number(Errno::EOPNOTSUPP));
    }

    #[test]
    fn no_bytes_do_harm() {
        let whole = request(
            kind::GET_LINK,
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
