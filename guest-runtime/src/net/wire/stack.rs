//! smoltcp's interfaces, their addresses and routes, and the way out.

use super::frame::{self, Limits};
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

/// An interface for each version of IP: they share the link and nothing else. Packets come to that
/// of their version. smoltcp drops IPv6 packets that are longer than the interface's largest, even
/// if the device cuts them, and makes fragments of such IPv4 packets: so IPv6 has an interface
/// whose largest packet is the largest there is.
pub(super) struct Stack {
    ipv4: Half,
    ipv6: Half,
    pub transmit: Box<dyn Transmit>,
    pub sent: Sent,
    pub capabilities: Capabilities,
}

/// What is there for a version of IP.
struct Half {
    /// It has a buffer for fragments, and is too large for the stack.
    interface: Box<Interface>,
    /// What follows headers that it sends, in their order.
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
    /// Interfaces over `transmit`, with addresses as `settings` says. `seeds` are random.
    ///
    /// # Panics
    /// If the hardware address is that of a group.
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
            capabilities,
        };
        stack.configure(settings);
        // Switches are told of the groups of its addresses.
        stack.egress(IpVersion::Ipv6, &mut SocketSet::new(vec![]));
        stack.transmit.flush();
        stack
    }

    /// Gives the interfaces their addresses and routes.
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
                // There is room for four.
                interface.update_ip_addrs(|addresses| {
                    let _ = addresses.push(IpCidr::new(address, length));
                });
            }
        }
        // Room for two routes; one fails only if there is no room.
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

    /// The interface of a version.
    pub fn interface_mut(&mut self, version: IpVersion) -> &mut Interface {
        match version {
            IpVersion::Ipv4 => &mut self.ipv4.interface,
            IpVersion::Ipv6 => &mut self.ipv6.interface,
        }
    }

    /// What sockets that send to `to` are made with.
    pub fn context(&mut self, to: IpAddr) -> &mut Context {
        self.interface_mut(frame::version(to)).context()
    }

    /// What follows headers that are sent, in their order.
    pub fn tails(&mut self, version: IpVersion) -> &mut VecDeque<Tail> {
        match version {
            IpVersion::Ipv4 => &mut self.ipv4.tails,
            IpVersion::Ipv6 => &mut self.ipv6.tails,
        }
    }

    /// Whether an address is an interface's own.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.interface(frame::version(ip)).has_ip_addr(ip)
    }

    /// The addresses, and the lengths of their networks' prefixes.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        let both = [&self.ipv4, &self.ipv6];
        let addresses = both.into_iter().flat_map(|half| half.interface.ip_addrs());
        addresses.map(|cidr| (cidr.address().into(), cidr.prefix_len()))
    }

    /// The default gateways, of IPv4 and IPv6.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let defaults = [
            self.ipv4.interface.routes().get_default_ipv4_route(),
            self.ipv6.interface.routes().get_default_ipv6_route(),
        ];
        let defaults = defaults.into_iter().flatten();
        defaults.map(|route| route.via_router.into())
    }

    /// The address that packets to `to` come from; none if none can be sent there.
    pub fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let interface = self.interface(frame::version(to));
        let is_near = |cidr: &IpCidr| cidr.contains_addr(&to.into());
        let is_near = interface.ip_addrs().iter().any(is_near);
        let is_same = |gateway: IpAddr| gateway.is_ipv4() == to.is_ipv4();
        if !is_near && !self.gateways().any(is_same) {
            return None;
        }
        let source = IpAddr::from(interface.get_source_address(&to.into())?);
        (!source.is_unspecified()).then_some(source)
    }

    /// A version's interface, and its device, to which a packet may have come.
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
            capabilities: self.capabilities,
            version,
            limits,
        };
        (&mut half.interface, port)
    }

    /// Lets the sockets of a set see a packet.
    pub fn ingress(&mut self, frame: &[u8], sockets: &mut SocketSet<'static>) {
        let (interface, mut port) = self.parts(frame::version_of(frame), Some(frame));
        interface.poll_ingress_single(now(), &mut port, sockets);
    }

    /// The same for a segment over IPv6 that tells what the peer takes: smoltcp, which does not know
    /// what the link takes, sees no more than that. Result: the largest segment for the peer.
    pub fn ingress_first(&mut self, frame: &[u8], sockets: &mut SocketSet<'static>) -> u16 {
        let most = self.capabilities.segment6();
        let mut frame = frame.to_vec();
        let told = frame::limit_segments(&mut frame, most);
        self.ingress(&frame, sockets);
        told.unwrap_or(most)
    }

    /// Sends what the sockets of a set, all of one version, have to send. Result: packets sent.
    pub fn egress(&mut self, version: IpVersion, sockets: &mut SocketSet<'static>) -> u64 {
        let most = self.capabilities.segment6();
        self.egress_to(version, most, sockets)
    }

    /// The same for connections to a peer to whom segments over IPv6 have at most `most` bytes.
    pub fn egress_to(
        &mut self,
        version: IpVersion,
        most: u16,
        sockets: &mut SocketSet<'static>,
    ) -> u64 {
        /// More than fill the largest window.
        const MOST: usize = 4096;
        let before = self.sent.counted;
        for _ in 0..MOST {
            let last = self.sent.counted;
            let (interface, mut port) = self.parts(version, None);
            port.limits.peer = most;
            interface.poll_egress(now(), &mut port, sockets);
            if self.sent.counted == last {
                break;
            }
        }
        self.sent.counted - before
    }

    /// When a set is to be looked at again; microseconds since boot.
    pub fn next(&mut self, version: IpVersion, sockets: &SocketSet<'static>) -> Option<i64> {
        let at = self.interface_mut(version).poll_at(now(), sockets);
        at.map(|at| at.total_micros())
    }

    /// What was sent.
    pub fn traffic(&self) -> Traffic {
        self.sent.traffic
    }
}

/// An interface, made where it is not moved again: the stack has no room for several.
#[inline(never)]
fn new_interface(port: &mut Port<'_>, seed: u64) -> Box<Interface> {
    let mac = EthernetAddress(port.capabilities.mac);
    let mut config = Config::new(HardwareAddress::Ethernet(mac));
    config.random_seed = seed;
    Box::new(Interface::new(config, port, now()))
}

/// The modified EUI-64 of a hardware address (RFC 4291, appendix A).
fn interface_identifier(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
