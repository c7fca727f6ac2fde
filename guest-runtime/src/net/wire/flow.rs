//! TCP connections to other hosts: each has a smoltcp socket, an owner, and the rules by which its
//! state changes the program's socket.

use super::frame::{self, Classes, Ends, Segment, acknowledgement, as_acknowledgement};
use super::patience::{Patience, Step, Vigil};
use super::window::Window;
use super::{Arrival, Stack, Wire, now, remove};
use crate::mm::UserSlice;
use crate::net::Network;
use crate::net::interfaces::ETHERNET;
use crate::net::socket::SocketId;
use alloc::vec;
use core::fmt;
use hartline_linux::errno::Errno;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Duration;
use smoltcp::wire::IpVersion;

/// A connection number. Numbers are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This socket owns the connection.
    Socket(SocketId),
    /// The connection is being established for this listening socket.
    Listener(SocketId),
    /// The program has closed the socket; the remaining data is still sent.
    Nobody,
}

/// Smallest and largest size of a buffer, bytes.
const BUFFER: (usize, usize) = (16 << 10, 256 << 10);
/// Most connections. Each has at least two buffers of the smallest size.
const MOST: usize = 1 << 16;
/// Time limit of connecting: Linux's, with the default of `tcp_syn_retries`.
const CONNECT_TIME: Duration = Duration::from_secs(127);
/// Time limit for the end of a connection that the program has closed (`tcp_fin_timeout`).
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// A TCP connection.
pub(super) struct Flow {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    owner: Owner,
    pub ends: Ends,
    /// When to process the connection next, microseconds since boot.
    pub timer: Option<i64>,
    /// The TCP state that the program was last informed of.
    state: State,
    /// The program may wait for room in the send buffer.
    full: bool,
    window: Window,
    vigil: Vigil,
    /// Largest segment for the peer over IPv6: bytes of data and of options.
    most: u16,
    /// Type of service or traffic class of the packets.
    class: u8,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("owner", &self.owner)
            .field("ends", &self.ends)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Flow {
    /// Passes a segment to the socket.
    pub fn ingress(&mut self, stack: &mut Stack, frame: &[u8], segment: &Segment) {
        let state = self.socket().state();
        // Without a sent SYN (the neighbour is unresolved) this is no answer to it. smoltcp assumes
        // that a window was advertised, and would panic.
        if state == State::SynSent && !self.window.is_told() {
            return;
        }
        if matches!(state, State::Listen | State::SynSent | State::SynReceived) {
            self.window.see(segment);
        }
        stack.sent.advertised = None;
        stack.classes.packet = self.class;
        let time = now().total_micros();
        if self.vigil.received(time) {
            self.socket().set_keep_alive(None);
        }
        let unacknowledged = self.socket().send_queue();
        let queued = self.socket().recv_queue();
        let again = self.window.accepts_at(segment, queued);
        if let Some(frame) = again.and_then(|sequence| acknowledgement(frame, sequence)) {
            stack.ingress(&frame, &mut self.sockets);
        }
        let begins = segment.is_syn && matches!(state, State::Listen | State::SynSent);
        match begins && self.version() == IpVersion::Ipv6 {
            true => self.most = stack.ingress_first(frame, &mut self.sockets),
            false => stack.ingress(frame, &mut self.sockets),
        }
        if self.socket().send_queue() < unacknowledged {
            self.vigil.acknowledged(time);
        }
        stack.classes = Classes::default();
        self.note_window(stack);
    }

    /// Probes a silent peer, or gives the connection up.
    fn watch_peer(&mut self) {
        let time = now().total_micros();
        // Connecting, and a connection that its program has closed, have other time limits.
        let is_open = matches!(self.owner, Owner::Socket(_)) && self.state != State::SynSent;
        let owes = is_open && self.has_unsent();
        self.vigil.see(owes, time);
        match self.vigil.due(time).filter(|_| is_open) {
            Some(Step::Probe(interval)) => {
                let interval = Duration::from_micros(interval.cast_unsigned());
                self.socket().set_keep_alive(Some(interval));
            }
            Some(Step::GiveUp) => self.socket().abort(),
            None => {}
        }
    }

    /// Sends pending data. Returns the number of packets sent.
    fn egress(&mut self, stack: &mut Stack) -> u64 {
        stack.sent.advertised = None;
        stack.classes.packet = self.class;
        let sent = stack.egress_to(self.version(), self.most, &mut self.sockets);
        stack.classes = Classes::default();
        self.note_window(stack);
        sent
    }

    fn version(&self) -> IpVersion {
        frame::version(self.ends.local.ip())
    }

    /// Records the window that this connection just advertised.
    fn note_window(&mut self, stack: &mut Stack) {
        if let Some(advertised) = stack.sent.advertised.take() {
            self.window.advertise(advertised);
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Returns the current TCP state, which the program may not know yet.
    fn present_state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.handle).state()
    }

    /// Whether the connection is in TIME-WAIT, so that a new connection may replace it.
    pub fn is_over(&self) -> bool {
        self.present_state() == State::TimeWait
    }

    /// Classifies a SYN between the endpoints of this connection.
    fn asked_again(&self, segment: &Segment) -> Again {
        match self.present_state() {
            State::Listen | State::SynSent | State::SynReceived => Again::Same,
            State::Closed => Again::Late,
            // Linux does the same for a connection without time stamps.
            State::TimeWait if self.window.is_new(segment.sequence) => Again::Other,
            _ => Again::Doubtful,
        }
    }

    /// Sends a challenge ACK (RFC 5961, section 4.2). A peer that does not know the connection
    /// resets it, and may connect again. smoltcp sends a challenge ACK for an acknowledgement of
    /// bytes never sent, and drops a segment without an acknowledgement.
    fn challenge(&mut self, stack: &mut Stack, frame: &[u8]) {
        let never = self.window.never_sent();
        if let Some(frame) = never.and_then(|number| as_acknowledgement(frame, number)) {
            stack.ingress(&frame, &mut self.sockets);
        }
    }

    /// Whether the connection has something to send, or is about to.
    pub(super) fn has_unsent(&mut self) -> bool {
        let socket = self.socket();
        socket.send_queue() > 0
            || matches!(
                socket.state(),
                State::SynSent
                    | State::SynReceived
                    | State::FinWait1
                    | State::LastAck
                    | State::Closing
            )
    }
}

/// The meaning of a SYN for an existing connection.
enum Again {
    /// The SYN belongs to the existing connection.
    Same,
    /// The connection has ended, and the program was not informed yet.
    Late,
    /// The SYN is for a new connection, because the existing one is over.
    Other,
    /// The SYN is late, or the peer has forgotten the connection.
    Doubtful,
}

/// Returns the size of each of the two buffers of a connection, bytes. All connections share
/// `budget` bytes; there are `others` besides this one. The program asks for `wanted` bytes.
fn buffer_size(budget: usize, others: usize, wanted: Option<usize>) -> usize {
    let share = budget / 2 / (others + 1);
    let most = share.clamp(BUFFER.0, BUFFER.1);
    wanted.map_or(most, |wanted| wanted.clamp(BUFFER.0, most))
}

/// Returns the error of a connection that ended in state `before`.
fn failure(before: State, by_peer: bool) -> Option<Errno> {
    match before {
        State::LastAck | State::TimeWait | State::Closing | State::Closed | State::Listen => None,
        State::SynSent if by_peer => Some(Errno::ECONNREFUSED),
        _ if by_peer => Some(Errno::ECONNRESET),
        _ => Some(Errno::ETIMEDOUT),
    }
}

impl Wire {
    fn add(&mut self, socket: Socket<'static>, owner: Owner, ends: Ends, class: u8) -> FlowId {
        self.last_flow += 1;
        let id = FlowId(self.last_flow);
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        let flow = Flow {
            sockets,
            handle,
            owner,
            ends,
            timer: None,
            state: State::Closed,
            full: false,
            window: Window::default(),
            vigil: Vigil::default(),
            most: self.stack.capabilities.segment6(),
            class,
        };
        self.flows.insert(id, flow);
        self.ends.insert(ends, id);
        id
    }

    /// Creates a smoltcp socket with buffers of the sizes `wanted` (receive and send), as far as
    /// the budget allows.
    fn new_socket(&self, wanted: [Option<usize>; 2]) -> Socket<'static> {
        let [receive, send] =
            wanted.map(|wanted| buffer_size(self.budget, self.flows.len(), wanted));
        let mut socket = Socket::new(
            SocketBuffer::new(vec![0; receive]),
            SocketBuffer::new(vec![0; send]),
        );
        // smoltcp has CUBIC only with `std`.
        socket.set_congestion_control(CongestionControl::Reno);
        socket
    }

    /// Starts to connect.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if a connection with these endpoints exists, `ENOBUFS`.
    pub(in crate::net) fn connect(
        &mut self,
        id: SocketId,
        ends: (core::net::SocketAddr, core::net::SocketAddr),
        wanted: [Option<usize>; 2],
        patience: Patience,
        net: &mut Network,
    ) -> Result<FlowId, Errno> {
        let ends = Ends {
            local: ends.0,
            remote: ends.1,
        };
        if let Some(&old) = self.ends.get(&ends) {
            if !self.flows.get(&old).is_some_and(Flow::is_over) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            self.replace(old, net);
        }
        if self.flows.len() >= MOST {
            return Err(Errno::ENOBUFS);
        }
        let mut socket = self.new_socket(wanted);
        let time = patience.limit.map(|limit| limit.cast_unsigned());
        let time = time.map_or(CONNECT_TIME, Duration::from_micros);
        socket.set_timeout(Some(time));
        let context = self.stack.context(ends.remote.ip());
        socket
            .connect(context, ends.remote, ends.local)
            .map_err(|_| Errno::EADDRNOTAVAIL)?;
        let class = net.class(id, ends.local.is_ipv4());
        let flow = self.add(socket, Owner::Socket(id), ends, class);
        self.settle(flow, net);
        self.flush();
        Ok(flow)
    }

    /// Handles a SYN to `ends.local`.
    pub(super) fn arrival(&mut self, ends: Ends, net: &mut Network) -> Arrival {
        let Ok(listener) = net.listener(ends.local, ETHERNET) else {
            return Arrival::Nobody;
        };
        let Some(wanted) = net.arrive(listener) else {
            return Arrival::NoRoom;
        };
        let mut socket = self.new_socket(wanted);
        if self.flows.len() >= MOST || socket.listen(ends.local).is_err() {
            net.arrived(listener);
            return Arrival::NoRoom;
        }
        socket.set_timeout(Some(CLOSE_TIME));
        let owner = Owner::Listener(listener);
        let class = net.class(listener, ends.local.is_ipv4());
        Arrival::Flow(self.add(socket, owner, ends, class))
    }

    /// Handles a SYN for an existing connection. Returns whether the caller passes the SYN on: to
    /// the existing connection, or to a new one if the old one was removed. Otherwise it is
    /// answered.
    pub(super) fn asked_again(
        &mut self,
        id: FlowId,
        frame: &[u8],
        segment: &Segment,
        net: &mut Network,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else {
            return true;
        };
        match flow.asked_again(segment) {
            Again::Same => {}
            Again::Late => self.settle(id, net),
            Again::Other if net.listener(flow.ends.local, ETHERNET).is_ok() => {
                self.replace(id, net)
            }
            Again::Other | Again::Doubtful => {
                flow.challenge(&mut self.stack, frame);
                return false;
            }
        }
        true
    }

    /// Removes a connection in TIME-WAIT, so that a new one can replace it.
    fn replace(&mut self, id: FlowId, net: &mut Network) {
        if let Some(Owner::Socket(socket)) = self.flows.get(&id).map(|flow| flow.owner) {
            net.wire_closed(socket, None);
        }
        self.forget(id);
    }

    /// Moves received data to the program's socket, sends pending data, and reports state changes
    /// to the program.
    pub(super) fn settle(&mut self, id: FlowId, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let before = flow.state;
        let arrived = flow.socket().state();
        flow.watch_peer();
        self.take_in(id, net);
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let sent = flow.egress(&mut self.stack);
        let state = flow.socket().state();
        let blocked = sent == 0 && flow.has_unsent();
        flow.state = state;
        match blocked {
            true => self.unsent.insert(id),
            false => self.unsent.remove(&id),
        };
        if state != before {
            let by_peer = arrived == State::Closed;
            self.changed(id, before, by_peer, net);
        }
        self.tell_room(id, net);
        self.set_timer(id);
    }

    /// Moves received data into the queue of the program's socket.
    fn take_in(&mut self, id: FlowId, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let owner = flow.owner;
        let socket = flow.socket();
        if !socket.can_recv() {
            return;
        }
        let queued = socket.recv_queue();
        match owner {
            Owner::Socket(id) => net.take_in(id, socket),
            // The program has closed the socket, so received data resets the connection.
            Owner::Nobody => socket.abort(),
            Owner::Listener(_) => {}
        }
        let taken = queued.saturating_sub(socket.recv_queue());
        flow.window.take(taken);
    }

    /// Reports a state change to the program.
    fn changed(&mut self, id: FlowId, before: State, by_peer: bool, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let (state, owner, ends) = (flow.state, flow.owner, flow.ends);
        let was_open = !matches!(before, State::SynSent | State::SynReceived | State::Listen);
        let is_open = !matches!(
            state,
            State::SynSent | State::SynReceived | State::Listen | State::Closed
        );
        let began = is_open && (!was_open || before == State::Closed);
        match owner {
            Owner::Socket(socket) => {
                if began {
                    flow.socket().set_timeout(None);
                    flow.vigil.patience = net.patience(socket);
                    net.wire_connected(socket);
                }
                if matches!(
                    state,
                    State::CloseWait | State::LastAck | State::Closing | State::TimeWait
                ) {
                    net.wire_ended(socket);
                }
            }
            Owner::Listener(listener) if began => {
                net.arrived(listener);
                flow.socket().set_timeout(None);
                match net.wire_accepted(listener, id, ends.local, ends.remote) {
                    Some(socket) => {
                        flow.owner = Owner::Socket(socket);
                        flow.vigil.patience = net.patience(socket);
                        // The last segment may have carried data too.
                        flow.state = State::Established;
                        return self.settle(id, net);
                    }
                    None => {
                        flow.owner = Owner::Nobody;
                        flow.socket().abort();
                        return self.settle(id, net);
                    }
                }
            }
            Owner::Listener(_) | Owner::Nobody => {}
        }
        // smoltcp returns to LISTEN if a connection to a listener fails.
        if matches!(state, State::Closed | State::Listen) {
            match owner {
                Owner::Socket(socket) => net.wire_closed(socket, failure(before, by_peer)),
                Owner::Listener(listener) => net.arrived(listener),
                Owner::Nobody => {}
            }
            self.forget(id);
        }
    }

    fn forget(&mut self, id: FlowId) {
        self.unsent.remove(&id);
        remove(&mut self.flows, &mut self.ends, &mut self.timers, id);
    }

    /// Reports new room in the send buffer to the program.
    fn tell_room(&mut self, id: FlowId, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Owner::Socket(socket) = flow.owner else {
            return;
        };
        if flow.full && has_room(flow.socket()) {
            flow.full = false;
            net.touch_output(socket);
        }
    }

    fn set_timer(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let watch = flow.vigil.next().map(|(at, _)| at);
        let next = self
            .stack
            .next(flow.version(), &flow.sockets)
            .into_iter()
            .chain(watch)
            .min();
        if flow.timer != next {
            if let Some(at) = flow.timer {
                self.timers.remove(&(at, id));
            }
            if let Some(at) = next {
                self.timers.insert((at, id));
            }
            flow.timer = next;
        }
    }

    /// Buffers bytes to send; returns how many. `quick` disables Nagle's algorithm.
    ///
    /// # Errors
    /// `EAGAIN` if the buffer is full, `EPIPE`.
    pub(in crate::net) fn send(
        &mut self,
        id: FlowId,
        bytes: UserSlice<'_>,
        quick: bool,
        net: &mut Network,
    ) -> Result<usize, Errno> {
        let flow = self.flows.get_mut(&id).ok_or(Errno::EPIPE)?;
        let socket = flow.socket();
        socket.set_nagle_enabled(!quick);
        let mut count = 0;
        loop {
            let rest = bytes.skip(count);
            let copy = |room: &mut [u8]| {
                let length = room.len().min(rest.len());
                rest.first(length).copy_to(&mut room[..length]);
                (length, length)
            };
            // The free part of the buffer may be in two pieces.
            match socket.send(copy).map_err(|_| Errno::EPIPE)? {
                0 => break,
                copied => count += copied,
            }
        }
        // Also if all bytes fit: `poll` then reports no room either.
        let is_full = count < bytes.len() || !has_room(socket);
        flow.full |= is_full;
        if count > 0 {
            self.settle(id, net);
            self.flush();
        }
        match count {
            0 if !bytes.is_empty() => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    /// Whether poll reports that the program can send.
    #[must_use]
    pub(in crate::net) fn can_send(&self, id: FlowId) -> bool {
        let flow = self.flows.get(&id);
        flow.is_some_and(|flow| has_room(flow.sockets.get::<Socket<'_>>(flow.handle)))
    }

    /// Refills the queue of a socket after the program has read from it.
    pub(in crate::net) fn refill(&mut self, id: FlowId, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow.socket().can_recv() {
            self.settle(id, net);
            self.flush();
        }
    }

    /// Applies changed options of the socket: the limits for a silent peer, and the type of service.
    pub(in crate::net) fn options_changed(&mut self, id: FlowId, socket: SocketId, net: &Network) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.class = net.class(socket, flow.ends.local.is_ipv4());
            flow.vigil.patience = net.patience(socket);
            if flow.vigil.stop() {
                flow.socket().set_keep_alive(None);
            }
            self.set_timer(id);
        }
    }

    /// Closes the sending side.
    pub(in crate::net) fn finish(&mut self, id: FlowId, net: &mut Network) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.socket().close();
            self.settle(id, net);
            self.flush();
        }
    }

    /// Handles the close of the program's socket; `reset` drops unsent data.
    pub(in crate::net) fn close(&mut self, id: FlowId, reset: bool, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.owner = Owner::Nobody;
        flow.vigil.patience = Patience::default();
        let socket = flow.socket();
        if reset || socket.can_recv() {
            socket.abort();
        } else {
            socket.close();
            socket.set_timeout(Some(CLOSE_TIME));
        }
        self.settle(id, net);
        self.flush();
    }

    /// Handles the close of a listening socket: connections that are being established are reset.
    pub(in crate::net) fn close_listener(&mut self, id: SocketId, net: &mut Network) {
        let arriving = self.flows.iter();
        let arriving: alloc::vec::Vec<FlowId> = arriving
            .filter(|(_, flow)| flow.owner == Owner::Listener(id))
            .map(|(id, _)| *id)
            .collect();
        for id in arriving {
            self.close(id, true, net);
        }
    }
}

/// Whether a third of the send buffer is free, the limit that Linux uses.
fn has_room(socket: &Socket<'_>) -> bool {
    let capacity = socket.send_capacity();
    (capacity - socket.send_queue()) * 3 >= capacity
}
