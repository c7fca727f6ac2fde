//! The network outside this VM: packets, the TCP/IP stack (smoltcp), and the mapping from packets
//! to sockets.
//!
//! smoltcp visits all sockets of a set for each packet and in each poll. To keep that cost
//! independent of the number of connections, each connection has its own socket set (`Flow`). This
//! module matches packets to connections and passes a packet to one socket only. UDP datagrams go
//! directly to the sockets of [`Network`].

mod datagrams;
mod flow;
mod frame;
mod icmp;
mod link;
mod patience;
mod stack;
#[cfg(test)]
mod tests;
mod window;

pub use flow::FlowId;
pub(super) use frame::udp_packet_length;
pub(super) use icmp::{Icmp, checksum, is_intact, sum};
pub use link::{Capabilities, Packet, Receive, Transmit};
pub use patience::{Patience, Probes};

use super::Network;
use super::interfaces::{self, ETHERNET, Traffic};
use super::queue::{IpFields, NOBODY};
use crate::convert::low_u32;
use crate::ids::INTERFACES;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use datagrams::Datagrams;
use flow::Flow;
use frame::{Ends, Kind};
use hartline_abi::boot::NetSettings;
use hartline_linux::errno::Errno;
use hartline_linux::if_::{IFF_BROADCAST, IFF_LOWER_UP, IFF_RUNNING, IFF_UP};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::{IpCidr, IpVersion, Ipv4Address};
use stack::Stack;

/// Most packets that one poll processes before programs run.
const BATCH: usize = 256;

/// The network interface and the connections over it.
#[derive(Debug)]
pub struct Wire {
    stack: Stack,
    receive: Box<dyn Receive>,
    /// Connections by number, and their numbers by endpoints.
    flows: BTreeMap<FlowId, Flow>,
    ends: BTreeMap<Ends, FlowId>,
    last_flow: u64,
    /// When to process connections without a packet, microseconds since boot.
    timers: BTreeSet<(i64, FlowId)>,
    /// Connections with unsent data: the neighbour may be unresolved, or no buffer may be free.
    unsent: BTreeSet<FlowId>,
    datagrams: Datagrams,
    /// Received packets.
    received: Traffic,
    /// The DHCP client and its socket set.
    dhcp: Option<(SocketSet<'static>, SocketHandle)>,
    /// Name servers from DHCP that nothing has taken yet.
    name_servers: Option<Vec<Ipv4Address>>,
    /// The DHCP client has changed addresses or routes since the last question.
    is_changed: bool,
    /// When to process the DHCP client next, microseconds since boot.
    next_control: Option<i64>,
    /// Memory for the buffers of all connections, bytes.
    budget: usize,
}

fn now() -> Instant {
    #[cfg(not(test))]
    let time = crate::arch::clock::monotonic();
    #[cfg(test)]
    let time = tests::time();
    Instant::from_micros((time / 1000).cast_signed())
}

impl Wire {
    /// Creates the interface over these queues, with the addresses in `settings`. `seeds` are
    /// random. The buffers of connections may take `budget` bytes, more if there are many
    /// connections.
    ///
    /// # Panics
    /// If the hardware address is a multicast address.
    #[must_use]
    pub fn new(
        receive: Box<dyn Receive>,
        transmit: Box<dyn Transmit>,
        capabilities: Capabilities,
        settings: &NetSettings,
        seeds: [u64; 2],
        budget: usize,
    ) -> Wire {
        let wants_dhcp = settings.dhcp != 0;
        Wire {
            stack: Stack::new(transmit, capabilities, settings, seeds),
            receive,
            flows: BTreeMap::new(),
            ends: BTreeMap::new(),
            last_flow: 0,
            timers: BTreeSet::new(),
            unsent: BTreeSet::new(),
            datagrams: Datagrams::new(),
            received: Traffic::default(),
            dhcp: wants_dhcp.then(|| {
                let mut sockets = SocketSet::new(vec![]);
                let handle = sockets.add(dhcpv4::Socket::new());
                (sockets, handle)
            }),
            name_servers: None,
            is_changed: false,
            next_control: wants_dhcp.then_some(0),
            budget,
        }
    }

    /// Whether other hosts have acknowledged all that was sent to them, and the device has taken all packets. Without
    /// `datagrams`, those whose neighbour has not answered do not count.
    pub(super) fn is_delivered(&mut self, datagrams: bool) -> bool {
        (!datagrams || self.datagrams.are_sent())
            && !self.flows.values_mut().any(Flow::has_unsent)
            && self.stack.transmit.is_idle()
    }

    /// Frees the memory that the device accesses.
    ///
    /// # Safety
    /// The device is gone, and this is only dropped from now on.
    pub(super) unsafe fn free(&mut self) {
        // SAFETY: as this function's.
        unsafe {
            self.receive.free();
            self.stack.transmit.free();
        }
    }

    /// Whether the interface has this address.
    #[must_use]
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.stack.has_address(ip)
    }

    /// Returns the source address of packets to `to`; none if there is no route.
    #[must_use]
    pub fn source(&self, to: IpAddr) -> Option<IpAddr> {
        self.stack.source(to)
    }

    /// Returns the source address of packets to a multicast group; none if the interface has no
    /// address.
    #[must_use]
    pub fn source_to_group(&self, group: IpAddr) -> Option<IpAddr> {
        self.stack.source_to_group(group)
    }

    /// Returns the largest IP packet, bytes.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.stack.capabilities.mtu
    }

    /// Returns the interface as programs see it.
    #[must_use]
    pub fn interface(&self) -> interfaces::Interface {
        interfaces::Interface {
            index: ETHERNET,
            name: INTERFACES[1],
            flags: IFF_UP | IFF_BROADCAST | IFF_RUNNING | IFF_LOWER_UP,
            mac: self.stack.capabilities.mac,
            mtu: low_u32(self.stack.capabilities.mtu as u64),
            addresses: self.stack.addresses().collect(),
            traffic: [self.received, self.stack.traffic()],
        }
    }

    /// Makes the interface a member of a multicast group, and announces that. Returns whether there
    /// was room.
    pub(super) fn join(&mut self, group: IpAddr) -> bool {
        let interface = self.stack.interface_mut(frame::version(group));
        let joined = interface.join_multicast_group(group).is_ok();
        self.announce_groups(group);
        joined
    }

    /// Ends the membership of the interface in a multicast group.
    pub(super) fn leave(&mut self, group: IpAddr) {
        let interface = self.stack.interface_mut(frame::version(group));
        // The interface is a member of the group.
        let _ = interface.leave_multicast_group(group);
        self.announce_groups(group);
    }

    /// Sends the reports of memberships that changed.
    fn announce_groups(&mut self, group: IpAddr) {
        let version = frame::version(group);
        self.stack.egress(version, &mut SocketSet::new(vec![]));
        self.flush();
    }

    /// Takes the name servers that DHCP has supplied since the last call.
    pub fn take_name_servers(&mut self) -> Option<Vec<Ipv4Address>> {
        self.name_servers.take()
    }

    /// Whether the DHCP client has changed addresses or routes since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.is_changed)
    }

    /// Returns the default gateways of IPv4 and IPv6.
    #[must_use]
    pub fn gateways(&self) -> Vec<IpAddr> {
        self.stack.gateways().collect()
    }

    /// Whether packets were received.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.receive.is_pending()
    }

    /// Returns when to poll without an interrupt, ns of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        let flows = self.timers.first().map(|&(at, _)| at);
        let first = flows.into_iter().chain(self.next_control).min()?;
        Some(u64::try_from(first).unwrap_or(0).saturating_mul(1000))
    }

    /// Processes received packets and expired timers, and sends pending packets.
    pub(super) fn poll(&mut self, net: &mut Network) {
        self.receive.begin();
        let mut touched = Vec::new();
        let mut left = BATCH;
        loop {
            while left > 0
                && let Some(packet) = self.receive.next()
            {
                self.received.add(packet.length);
                self.take_packet(&packet, net, &mut touched);
                self.receive.release(packet);
                left -= 1;
            }
            if !self.receive.rest() || left == 0 {
                break;
            }
        }
        let time = now().total_micros();
        while let Some(&(at, id)) = self.timers.first()
            && at <= time
        {
            self.timers.pop_first();
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.timer = None;
            }
            touched.push(id);
        }
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            self.settle(id, net);
        }
        if self.next_control.is_some_and(|at| at <= time) {
            self.serve_dhcp();
        }
        self.datagrams.egress(&mut self.stack);
        self.flush();
    }

    /// Sends a datagram, or several of `segment` bytes each; the last may be shorter.
    ///
    /// # Errors
    /// `EINVAL` if the interface cannot send from `from`, `EMSGSIZE`.
    pub(super) fn send_datagram(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        payload: &[u8],
        segment: Option<u16>,
        fields: IpFields,
    ) -> Result<usize, Errno> {
        if from.is_ipv4() != to.is_ipv4() || !self.has_address(from.ip()) {
            return Err(Errno::EINVAL);
        }
        // smoltcp does not fragment IPv6 packets.
        let length = segment.map_or(payload.len(), usize::from);
        let length = frame::udp_packet_length(to.ip(), length);
        if to.is_ipv6() && length > self.stack.capabilities.mtu {
            return Err(Errno::EMSGSIZE);
        }
        let ends = Ends {
            local: from,
            remote: to,
        };
        match segment {
            Some(size) => {
                (self.datagrams).send_several(&mut self.stack, ends, (payload, size), fields);
            }
            None => self.datagrams.send(&mut self.stack, ends, payload, fields),
        }
        self.flush();
        Ok(payload.len())
    }

    /// Sends an ICMP message.
    ///
    /// # Errors
    /// `EINVAL` if the interface cannot send from its source address, `EMSGSIZE`.
    pub(super) fn send_icmp(&mut self, message: &Icmp<'_>) -> Result<(), Errno> {
        if message.from.is_ipv4() != message.to.is_ipv4() || !self.has_address(message.from) {
            return Err(Errno::EINVAL);
        }
        // smoltcp does not fragment IPv6 packets.
        let length = icmp::packet_length(message);
        if message.to.is_ipv6() && length > self.stack.capabilities.mtu {
            return Err(Errno::EMSGSIZE);
        }
        self.datagrams.send_icmp(&mut self.stack, message);
        self.flush();
        Ok(())
    }

    /// Delivers the ICMP message in a frame to sockets.
    fn take_icmp(&self, frame: &[u8], net: &mut Network) {
        if let Some(message) = icmp::parse(frame)
            && (self.has_address(message.to) || frame::is_group(message.to))
        {
            net.deliver_icmp(&message, ETHERNET, NOBODY);
        }
    }

    /// Notifies the device of sent packets.
    fn flush(&mut self) {
        self.stack.transmit.flush();
        if !self.unsent.is_empty() && !self.stack.transmit.has_room() {
            self.stack.transmit.want_room();
        }
    }

    /// Processes a received packet.
    fn take_packet(&mut self, packet: &Packet, net: &mut Network, touched: &mut Vec<FlowId>) {
        let frame = self.receive.bytes(packet);
        match frame::classify(frame, packet.is_verified) {
            Kind::Bad => self.received.errors += 1,
            // A packet with a segment length must be UDP and longer than one datagram.
            kind if !kind.can_be(packet.segment) => self.received.errors += 1,
            Kind::Tcp {
                ends,
                is_first,
                segment,
            } => {
                if is_first && let Some(&id) = self.ends.get(&ends) {
                    let frame = frame.to_vec();
                    if !self.asked_again(id, &frame, &segment, net) {
                        touched.push(id);
                        return;
                    }
                }
                let id = match self.ends.get(&ends).copied() {
                    None if is_first && self.has_address(ends.local.ip()) => {
                        match self.arrival(ends, net) {
                            Arrival::Flow(id) => Some(id),
                            Arrival::Nobody => None,
                            // As on Linux, the peer retransmits its SYN.
                            Arrival::NoRoom => return,
                        }
                    }
                    id => id,
                };
                let frame = self.receive.bytes(packet);
                match id.and_then(|id| Some((id, self.flows.get_mut(&id)?))) {
                    Some((id, flow)) => {
                        flow.ingress(&mut self.stack, frame, &segment);
                        touched.push(id);
                    }
                    None => self.stack.ingress(frame, &mut SocketSet::new(vec![])),
                }
            }
            Kind::Udp { ends, payload } => {
                let is_own = self.has_address(ends.local.ip()) || frame::is_group(ends.local.ip());
                let fields = frame::fields(frame.get(link::ETHERNET..).unwrap_or_default());
                let (from, to) = (ends.remote, ends.local);
                if is_own && net.deliver_udp((to, from), payload, packet.segment, fields) {
                    return;
                }
                match &mut self.dhcp {
                    Some((sockets, _)) if ends.local.port() == DHCP_CLIENT => {
                        self.stack.ingress(frame, sockets);
                        self.serve_dhcp();
                    }
                    // smoltcp answers that the port is unreachable.
                    _ => self.stack.ingress(frame, &mut SocketSet::new(vec![])),
                }
            }
            Kind::Fragment => {
                if let Some(packet) = self.datagrams.fragment(&mut self.stack, frame) {
                    if let Some((ends, payload)) = frame::datagram(&packet) {
                        let fields = frame::fields(&packet);
                        net.deliver_udp((ends.local, ends.remote), payload, None, fields);
                    } else if let Some(message) = icmp::parse_ipv4(&packet) {
                        net.deliver_icmp(&message, ETHERNET, NOBODY);
                    }
                }
            }
            Kind::Neighbour => {
                self.take_icmp(frame, net);
                let mut nobody = SocketSet::new(vec![]);
                self.stack.ingress(frame, &mut nobody);
                // The packet may be a query for multicast groups, which smoltcp answers in a later
                // poll.
                self.stack.egress(frame::version_of(frame), &mut nobody);
                touched.extend(self.unsent.iter());
            }
            Kind::Other => {
                self.take_icmp(frame, net);
                self.stack.ingress(frame, &mut SocketSet::new(vec![]));
            }
        }
    }

    /// Processes the DHCP client, and applies its new configuration.
    fn serve_dhcp(&mut self) {
        let Some((sockets, handle)) = &mut self.dhcp else {
            return;
        };
        self.stack.egress(IpVersion::Ipv4, sockets);
        let event = sockets.get_mut::<dhcpv4::Socket<'_>>(*handle).poll();
        self.is_changed |= event.is_some();
        let interface = self.stack.interface_mut(IpVersion::Ipv4);
        match event {
            Some(dhcpv4::Event::Configured(config)) => {
                self.name_servers = Some(config.dns_servers.iter().copied().collect());
                interface.update_ip_addrs(|addresses| {
                    addresses.clear();
                    // The list has room for four addresses.
                    let _ = addresses.push(IpCidr::Ipv4(config.address));
                });
                interface.routes_mut().remove_default_ipv4_route();
                if let Some(router) = config.router {
                    // The previous route has just been removed.
                    let _ = interface.routes_mut().add_default_ipv4_route(router);
                }
            }
            Some(dhcpv4::Event::Deconfigured) => {
                interface.update_ip_addrs(|addresses| addresses.clear());
                interface.routes_mut().remove_default_ipv4_route();
            }
            None => {}
        }
        self.next_control = self.stack.next(IpVersion::Ipv4, sockets);
    }
}

/// UDP port of DHCP clients.
const DHCP_CLIENT: u16 = 68;

/// The result of a SYN for a new connection.
enum Arrival {
    /// The connection is being established.
    Flow(FlowId),
    /// No socket listens.
    Nobody,
    /// The backlog of the listener is full.
    NoRoom,
}

/// Removes a connection from all tables.
fn remove(
    flows: &mut BTreeMap<FlowId, Flow>,
    ends: &mut BTreeMap<Ends, FlowId>,
    timers: &mut BTreeSet<(i64, FlowId)>,
    id: FlowId,
) {
    let Some(flow) = flows.remove(&id) else {
        return;
    };
    ends.remove(&flow.ends);
    if let Some(at) = flow.timer {
        timers.remove(&(at, id));
    }
}
