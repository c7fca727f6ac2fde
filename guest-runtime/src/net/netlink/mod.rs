//! Routing netlink (netlink(7), rtnetlink(7)): requests about interfaces, addresses and routes. All
//! of them are read-only: the settings of the VM give addresses and routes. Multicast groups receive
//! the addresses and routes that DHCP changes.

mod sockets;
#[cfg(test)]
mod tests;

use super::interfaces::{Interface, RouteEntry};
use crate::convert::{low_u8, low_u16, low_u32};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
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
    Ifinfomsg, RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_LOCAL, RT_TABLE_MAIN,
    RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_PREFSRC, RTA_TABLE, RTM_DELADDR, RTM_DELROUTE, RTM_GETADDR,
    RTM_GETLINK, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTN_LOCAL, RTN_UNICAST,
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTPROT_BOOT,
    RTPROT_KERNEL, Rtattr, Rtmsg,
};
use hartline_linux::socket::{AF_INET, AF_INET6};
use zerocopy::{FromBytes, IntoBytes, transmute};

const HEADER: usize = size_of::<Nlmsghdr>();

/// The interfaces and routes that requests are answered from.
#[derive(Debug)]
pub(super) struct Facts {
    interfaces: Vec<Interface>,
    /// The routes of the main table, then of the local table.
    routes: Vec<RouteEntry>,
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
            rta_len: low_u16((size_of::<Rtattr>() + data.len()) as u64),
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
        self.header.nlmsg_len = low_u32(message.len() as u64);
        // This never fails, because the message starts with its header.
        let _ = self.header.write_to_prefix(message);
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => low_u8(AF_INET.into()),
        IpAddr::V6(_) => low_u8(AF_INET6.into()),
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
    message.attribute(IFLA_STATS, wide.map(low_u32)[..24].as_bytes());
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
    let scope = match (entry.gateway, entry.kind) {
        (None, RTN_LOCAL) if network.is_ipv4() => RT_SCOPE_HOST,
        (None, _) if network.is_ipv4() => RT_SCOPE_LINK,
        _ => RT_SCOPE_UNIVERSE,
    };
    let table = table_of(entry);
    let made_by = MADE_BY[usize::from(entry.gateway.is_some())];
    let body = Rtmsg {
        rtm_family: family(network),
        rtm_dst_len: prefix,
        rtm_src_len: 0,
        rtm_tos: 0,
        rtm_table: table,
        rtm_protocol: made_by,
        rtm_scope: scope,
        rtm_type: entry.kind,
        rtm_flags: 0,
    };
    let mut message = Builder::new(bytes, header, body.as_bytes());
    message.number(RTA_TABLE, table.into());
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

/// The table of a route.
fn table_of(entry: &RouteEntry) -> u8 {
    match entry.kind {
        RTN_UNICAST => RT_TABLE_MAIN,
        _ => RT_TABLE_LOCAL,
    }
}

/// The messages about the differences between two states, each with its multicast group.
fn changes(before: &Facts, after: &Facts) -> Vec<(u32, Vec<u8>)> {
    const ADDRESSES: [u32; 2] = [RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR];
    const ROUTES: [u32; 2] = [RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE];
    let mut messages = Vec::new();
    let mut add = |kind, groups: [u32; 2], ip: IpAddr, write: &dyn Fn(&mut Vec<u8>, Nlmsghdr)| {
        let mut bytes = Vec::new();
        let header = Nlmsghdr {
            nlmsg_len: 0,
            nlmsg_type: kind,
            nlmsg_flags: 0,
            nlmsg_seq: 0,
            nlmsg_pid: 0,
        };
        write(&mut bytes, header);
        messages.push((groups[usize::from(ip.is_ipv6())], bytes));
    };
    let steps = [
        (RTM_DELADDR, RTM_DELROUTE, before, after),
        (RTM_NEWADDR, RTM_NEWROUTE, after, before),
    ];
    for (of_address, of_route, these, others) in steps {
        for interface in &these.interfaces {
            let mut same = others.interfaces.iter();
            let same = same.find(|other| other.index == interface.index);
            for &entry in &interface.addresses {
                if !same.is_some_and(|same| same.addresses.contains(&entry)) {
                    add(of_address, ADDRESSES, entry.0, &|bytes, header| {
                        address(bytes, header, interface, entry);
                    });
                }
            }
        }
        for entry in these
            .routes
            .iter()
            .filter(|entry| !others.routes.contains(entry))
        {
            add(of_route, ROUTES, entry.network.0, &|bytes, header| {
                route(bytes, header, entry);
            });
        }
    }
    messages
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
    (facts, is_strict): (&Facts, bool),
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
                let addresses = interface.addresses.iter().copied();
                let addresses = addresses.chain(second_address(body, facts));
                for entry in addresses.filter(|(ip, _)| is_wanted(wanted, *ip)) {
                    address(bytes, header(RTM_NEWADDR), interface, entry);
                }
            }
        }
        RTM_GETROUTE if is_dump => {
            let table = match Rtmsg::read_from_prefix(body) {
                Ok((message, _)) if is_strict => message.rtm_table,
                _ => 0,
            };
            let routes = facts.routes.iter();
            let routes = routes.filter(|entry| table == 0 || table == table_of(entry));
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

/// A second address of the loopback interface, for requests of the C library without a network. The
/// library sends a `struct rtgenmsg`, `ip` a longer one. All of 127.0.0.0/8 is local; with one address
/// only, getaddrinfo(3) with `AI_ADDRCONFIG` does not find 127.0.0.1.
fn second_address(body: &[u8], facts: &Facts) -> Option<(IpAddr, u8)> {
    let is_alone = facts.interfaces.len() == 1;
    let second = Ipv4Addr::new(127, 0, 0, 2);
    (is_alone && body.len() < size_of::<Ifaddrmsg>()).then_some((second.into(), 8))
}

/// Returns the answers to the requests in `bytes`, for the socket with this port. Each answer is a
/// datagram. Lists have the routes of all tables, unless `is_strict` (`NETLINK_GET_STRICT_CHK`).
pub(super) fn answer(bytes: &[u8], port: u32, facts: (&Facts, bool)) -> Vec<Vec<u8>> {
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
