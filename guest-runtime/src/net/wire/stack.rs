//! smoltcp's interfaces, their addresses and routes, and their access to the link.

use super::frame::{self, Classes, Limits};
use super::link::{Capabilities, Port, Sent, Tail, Transmit};
use super::now;
use crate::net::interfaces::Traffic;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::net::IpAddr;
use hartline_abi::boot::NetSettings;
use smoltcp::iface::{Config, Context, Interface, SocketSet};
use smoltcp::wire::{
    EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpVersion, Ipv4Address, Ipv6Address,
};

/// The interfaces for IPv4 and IPv6, which share the link only. Each processes the packets of its
/// version. smoltcp drops IPv6 packets above the interface's MTU, even if the device segments them,
/// but fragments such IPv4 packets. So the IPv6 interface has the largest possible MTU.
pub(super) struct Stack {
    ipv4: Half,
    ipv6: Half,
    pub transmit: Box<dyn Transmit>,
    pub sent: Sent,
    /// The types of service or traffic classes of the packets that are sent now.
    pub classes: Classes,
    pub capabilities: Capabilities,
}

/// The interface of one version of IP.
struct Half {
    /// Boxed: the interface contains a fragment buffer, which is too large for the stack.
    interface: Box<Interface>,
    /// Payloads for headers that the interface sends, in their order.
    tails: VecDeque<Tail>,
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stack")
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// Creates interfaces over `transmit`, with the addresses in `settings`. `seeds` are random.
    ///
    /// # Panics
    /// If the hardware address is a multicast address.
    pub fn new(
        mut transmit: Box<dyn Transmit>,
        capabilities: Capabilities,
        settings: &NetSettings,
        seeds: [u64; 2],
    ) -> Stack {
        let mut sent = Sent::default();
        let mut half = |version, seed| {
            let mut tails = VecDeque::new();
            let mut port = Port {
                frame: None,
                transmit: &mut *transmit,
                sent: &mut sent,
                tails: &mut tails,
                classes: Classes::default(),
                capabilities,
                version,
                limits: Limits::of(capabilities.segment6()),
            };
            let interface = new_interface(&mut port, seed);
            Half { interface, tails }
        };
        let mut stack = Stack {
            ipv4: half(IpVersion::Ipv4, seeds[0]),
            ipv6: half(IpVersion::Ipv6, seeds[1]),
            transmit,
            sent,
            classes: Classes::default(),
            capabilities,
        };
        stack.configure(settings);
        // Announce the multicast groups of the addresses to switches.
        stack.egress(IpVersion::Ipv6, &mut SocketSet::new(vec![]));
        stack.transmit.flush();
        stack
    }

    /// Sets the addresses and routes of the interfaces.
    fn configure(&mut self, settings: &NetSettings) {
        let [length4, length6] = settings.prefixes.map(|length| length.min(128) as u8);
        let identifier = u128::from(interface_identifier(self.capabilities.mac));
        let link_local = Ipv6Address::from_bits(0xfe80 << 112 | identifier);
        let own4 = Ipv4Address::from(settings.ipv4);
        let own6 = Ipv6Address::from(settings.ipv6);
        let wanted: [(IpAddress, u8); 3] = [
            (own4.into(), length4.min(32)),
            (own6.into(), length6),
            (link_local.into(), 64),
        ];
        for (address, length) in wanted {
            if address.is_unicast() {
                let interface = self.interface_mut(address.version());
                // The list has room for four addresses.
                interface.update_ip_addrs(|addresses| {
                    let _ = addresses.push(IpCidr::new(address, length));
                });
            }
        }
        // The table has room for two routes; adding fails only if it is full.
        let gateway4 = Ipv4Address::from(settings.gateway4);
        if !gateway4.is_unspecified() {
            let routes = self.ipv4.interface.routes_mut();
            let _ = routes.add_default_ipv4_route(gateway4);
        }
        let gateway6 = Ipv6Address::from(settings.gateway6);
        if !gateway6.is_unspecified() {
            let routes = self.ipv6.interface.routes_mut();
            let _ = routes.add_default_ipv6_route(gateway6);
        }
    }

    fn interface(&self, version: IpVersion) -> &Interface {
        match version {
            IpVersion::Ipv4 => &self.ipv4.interface,
            IpVersion::Ipv6 => &self.ipv6.interface,
        }
    }

    /// Returns the interface of a version of IP.
    pub fn interface_mut(&mut self, version: IpVersion) -> &mut Interface {
        match version {
            IpVersion::Ipv4 => &mut self.ipv4.interface,
            IpVersion::Ipv6 => &mut self.ipv6.interface,
        }
    }

    /// Returns the smoltcp context for sockets that send to `to`.
    pub fn context(&mut self, to: IpAddr) -> &mut Context {
        self.interface_mut(frame::version(to)).context()
    }

    /// Returns the payloads for headers that are sent, in their order.
    pub fn tails(&mut self, version: IpVersion) -> &mut VecDeque<Tail> {
        match version {
            IpVersion::Ipv4 => &mut self.ipv4.tails,
            IpVersion::Ipv6 => &mut self.ipv6.tails,
        }
    }

    /// Whether an interface has this address.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.interface(frame::version(ip)).has_ip_addr(ip)
    }

    /// Iterates over the addresses and their prefix lengths.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        let both = [&self.ipv4, &self.ipv6];
        let addresses = both.into_iter().flat_map(|half| half.interface.ip_addrs());
        addresses.map(|cidr| (cidr.address().into(), cidr.prefix_len()))
    }

    /// Iterates over the default gateways of IPv4 and IPv6.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let defaults = [
            self.ipv4.interface.routes().get_default_ipv4_route(),
            self.ipv6.interface.routes().get_default_ipv6_route(),
        ];
        let defaults = defaults.into_iter().flatten();
        defaults.map(|route| route.via_router.into())
    }

    /// Returns the source address of packets to `to`; none if there is no route.
    pub fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let interface = self.interface(frame::version(to));
        let is_near = |cidr: &IpCidr| cidr.contains_addr(&to.into());
        let is_near = interface.ip_addrs().iter().any(is_near);
        let is_same = |gateway: IpAddr| gateway.is_ipv4() == to.is_ipv4();
        if !is_near && !self.gateways().any(is_same) {
            return None;
        }
        self.source_to_group(to)
    }

    /// As [`source`](Self::source), also without a route.
    pub fn source_to_group(&self, to: IpAddr) -> Option<IpAddr> {
        let interface = self.interface(frame::version(to));
        let source = IpAddr::from(interface.get_source_address(&to.into())?);
        (!source.is_unspecified()).then_some(source)
    }

    /// Returns the interface of a version, and its device with the received `frame`, if any.
    fn parts<'a>(
        &'a mut self,
        version: IpVersion,
        frame: Option<&'a [u8]>,
    ) -> (&'a mut Interface, Port<'a>) {
        let half = match version {
            IpVersion::Ipv4 => &mut self.ipv4,
            IpVersion::Ipv6 => &mut self.ipv6,
        };
        let limits = Limits::of(self.capabilities.segment6());
        let port = Port {
            frame,
            transmit: &mut *self.transmit,
            sent: &mut self.sent,
            tails: &mut half.tails,
            classes: self.classes,
            capabilities: self.capabilities,
            version,
            limits,
        };
        (&mut half.interface, port)
    }

    /// Passes a packet to the sockets of a set.
    pub fn ingress(&mut self, frame: &[u8], sockets: &mut SocketSet<'static>) {
        let (interface, mut port) = self.parts(frame::version_of(frame), Some(frame));
        interface.poll_ingress_single(now(), &mut port, sockets);
    }

    /// Passes the peer's TCP SYN over IPv6 to the sockets of a set. Its MSS option is limited to
    /// the link, which smoltcp does not know. Returns the largest segment for the peer.
    pub fn ingress_first(&mut self, frame: &[u8], sockets: &mut SocketSet<'static>) -> u16 {
        let most = self.capabilities.segment6();
        let mut frame = frame.to_vec();
        let mss = frame::limit_segments(&mut frame, most);
        self.ingress(&frame, sockets);
        mss.unwrap_or(most)
    }

    /// Sends pending data of a set, whose sockets have one version. Returns the number of packets
    /// sent.
    pub fn egress(&mut self, version: IpVersion, sockets: &mut SocketSet<'static>) -> u64 {
        let most = self.capabilities.segment6();
        self.egress_to(version, most, sockets)
    }

    /// As `egress`, for connections to a peer that takes segments of at most `most` bytes over
    /// IPv6.
    pub fn egress_to(
        &mut self,
        version: IpVersion,
        most: u16,
        sockets: &mut SocketSet<'static>,
    ) -> u64 {
        /// More packets than the largest window holds.
        const MOST: usize = 4096;
        let before = self.sent.counted;
        for _ in 0..MOST {
            if !self.step(version, most, sockets) {
                break;
            }
        }
        self.sent.counted - before
    }

    /// Sends one packet of each socket of a set, which have one version. Returns whether any was
    /// sent.
    pub fn egress_step(&mut self, version: IpVersion, sockets: &mut SocketSet<'static>) -> bool {
        let most = self.capabilities.segment6();
        self.step(version, most, sockets)
    }

    fn step(&mut self, version: IpVersion, most: u16, sockets: &mut SocketSet<'static>) -> bool {
        let last = self.sent.counted;
        let (interface, mut port) = self.parts(version, None);
        port.limits.peer = most;
        interface.poll_egress(now(), &mut port, sockets);
        self.sent.counted != last
    }

    /// Returns when to process a set again, microseconds since boot.
    pub fn next(&mut self, version: IpVersion, sockets: &SocketSet<'static>) -> Option<i64> {
        let at = self.interface_mut(version).poll_at(now(), sockets);
        at.map(|at| at.total_micros())
    }

    /// Returns the statistics of sent packets.
    pub fn traffic(&self) -> Traffic {
        self.sent.traffic
    }
}

/// Creates an interface on the heap, because the stack has no room for several.
#[inline(never)]
fn new_interface(port: &mut Port<'_>, seed: u64) -> Box<Interface> {
    let mac = EthernetAddress(port.capabilities.mac);
    let mut config = Config::new(HardwareAddress::Ethernet(mac));
    config.random_seed = seed;
    Box::new(Interface::new(config, port, now()))
}

/// Returns the modified EUI-64 of a hardware address (RFC 4291, appendix A).
fn interface_identifier(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
