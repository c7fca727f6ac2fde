//! TCP connections beyond this VM: a smoltcp socket each, what it belongs to, and how its
//! life shows at the socket of the program.

use super::frame::{self, Ends, Segment, acknowledgement, as_acknowledgement};
use super::patience::{Patience, Step, Vigil};
use super::window::Window;
use super::{Arrival, Stack, Wire, now, remove};
use crate::net::Network;
use crate::net::socket::SocketId;
use alloc::vec;
use core::fmt;
use hartline_linux::errno::Errno;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Duration;
use smoltcp::wire::IpVersion;

/// Number of a connection. Numbers are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This socket's.
    Socket(SocketId),
    /// It came to this listening socket and is not established yet.
    Listener(SocketId),
    /// The program has closed it; what is left to send is sent.
    Nobody,
}

/// Smallest and largest buffer, bytes.
const BUFFER: (usize, usize) = (16 << 10, 256 << 10);
/// Most connections: each has two of the smallest buffers.
const MOST: usize = 1 << 16;
/// How long connecting is tried: as Linux with `tcp_syn_retries`.
const CONNECT_TIME: Duration = Duration::from_secs(127);
/// How long a connection that the program has closed may take to end (`tcp_fin_timeout`).
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// A connection.
pub(super) struct Flow {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    owner: Owner,
    pub ends: Ends,
    /// When to look at it.
    pub timer: Option<i64>,
    /// The state in which it was seen last.
    state: State,
    /// The program could not send all it wanted.
    full: bool,
    window: Window,
    vigil: Vigil,
    /// Over IPv6: the largest segment for the peer, bytes of data and of options.
    most: u16,
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
    /// Lets the socket see a segment that is for it.
    pub fn ingress(&mut self, stack: &mut Stack, frame: &[u8], segment: &Segment) {
        let state = self.socket().state();
        // Its SYN waits for the peer's address, so this is no answer. smoltcp counts on having
        // told a window, and panics.
        if state == State::SynSent && !self.window.is_told() {
            return;
        }
        if matches!(state, State::Listen | State::SynSent | State::SynReceived) {
            self.window.see(segment);
        }
        stack.sent.told = None;
        let time = now().total_micros();
        if self.vigil.hear(time) {
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
        self.note_window(stack);
    }

    /// Does what has to be done about a peer that is silent.
    fn watch_peer(&mut self) {
        let time = now().total_micros();
        // Before that, and without a program, there are other limits.
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

    /// Sends what there is to send. Result: packets sent.
    fn egress(&mut self, stack: &mut Stack) -> u64 {
        stack.sent.told = None;
        let sent = stack.egress_to(self.version(), self.most, &mut self.sockets);
        self.note_window(stack);
        sent
    }

    fn version(&self) -> IpVersion {
        frame::version(self.ends.local.ip())
    }

    /// What was sent just now was this connection's.
    fn note_window(&mut self, stack: &mut Stack) {
        if let Some(told) = stack.sent.told.take() {
            self.window.tell(told);
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// The state that it is in, also if nobody was told yet.
    fn present_state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.handle).state()
    }

    /// Whether it only waits for late packets: a new connection may take its place.
    pub fn is_over(&self) -> bool {
        self.present_state() == State::TimeWait
    }

    /// What is to be done about a segment that asks for a connection between the same ends.
    fn asked_again(&self, segment: &Segment) -> Again {
        match self.present_state() {
            State::Listen | State::SynSent | State::SynReceived => Again::Same,
            State::Closed => Again::Late,
            // As Linux, which has no time stamps to go by either.
            State::TimeWait if self.window.is_new(segment.sequence) => Again::Other,
            _ => Again::Doubtful,
        }
    }

    /// Tells the peer which segments are expected. If it does not know of this connection, it
    /// resets it, and may ask again (RFC 5961, section 4.2). smoltcp does that when what was
    /// never sent is acknowledged, and drops what acknowledges nothing.
    fn challenge(&mut self, stack: &mut Stack, frame: &[u8]) {
        let never = self.window.never_sent();
        if let Some(frame) = never.and_then(|number| as_acknowledgement(frame, number)) {
            stack.ingress(&frame, &mut self.sockets);
        }
    }

    /// Whether it has something to send, or is about to.
    fn has_unsent(&mut self) -> bool {
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

/// What a segment is that asks for a connection where there is one.
enum Again {
    /// It is about that one.
    Same,
    /// That one has ended, and the program was not told yet.
    Late,
    /// It is about another one, since that one is over.
    Other,
    /// It is late, or the peer has forgotten that one.
    Doubtful,
}

/// Size of each of two buffers of a connection beside `others`, which may take `budget` bytes
/// together, and of which the program wants so many.
fn buffer_size(budget: usize, others: usize, wanted: Option<usize>) -> usize {
    let share = budget / 2 / (others + 1);
    let most = share.clamp(BUFFER.0, BUFFER.1);
    wanted.map_or(most, |wanted| wanted.clamp(BUFFER.0, most))
}

/// How a connection ended.
fn failure(before: State, by_peer: bool) -> Option<Errno> {
    match before {
        State::LastAck | State::TimeWait | State::Closing | State::Closed | State::Listen => None,
        State::SynSent if by_peer => Some(Errno::ECONNREFUSED),
        _ if by_peer => Some(Errno::ECONNRESET),
        _ => Some(Errno::ETIMEDOUT),
    }
}

impl Wire {
    fn add(&mut self, socket: Socket<'static>, owner: Owner, ends: Ends) -> FlowId {
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
        };
        self.flows.insert(id, flow);
        self.ends.insert(ends, id);
        id
    }

    /// A TCP socket of smoltcp, with buffers as large as `wanted` (receive and send), if there
    /// is room.
    fn new_socket(&self, wanted: [Option<usize>; 2]) -> Socket<'static> {
        let [receive, send] =
            wanted.map(|wanted| buffer_size(self.budget, self.flows.len(), wanted));
        let mut socket = Socket::new(
            SocketBuffer::new(vec![0; receive]),
            SocketBuffer::new(vec![0; send]),
        );
        // smoltcp has CUBIC only with the standard library.
        socket.set_congestion_control(CongestionControl::Reno);
        socket
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if there is a connection with these ends, `ENOBUFS`.
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
        let flow = self.add(socket, Owner::Socket(id), ends);
        self.settle(flow, net);
        self.flush();
        Ok(flow)
    }

    /// A packet asks for a connection to `ends.local`.
    pub(super) fn arrival(&mut self, ends: Ends, net: &mut Network) -> Arrival {
        let Ok(listener) = net.listener(ends.local) else {
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
        Arrival::Flow(self.add(socket, owner, ends))
    }

    /// A packet asks for a connection where there is one. Result: whether that is for the one
    /// that is there, or that has been made room for another one; otherwise it was answered.
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
            Again::Other if net.listener(flow.ends.local).is_ok() => self.replace(id, net),
            Again::Other | Again::Doubtful => {
                flow.challenge(&mut self.stack, frame);
                return false;
            }
        }
        true
    }

    /// A connection that is over makes room for another one.
    fn replace(&mut self, id: FlowId, net: &mut Network) {
        if let Some(Owner::Socket(socket)) = self.flows.get(&id).map(|flow| flow.owner) {
            net.wire_closed(socket, None);
        }
        self.forget(id);
    }

    /// Moves what came to the socket of the program, sends what is to be sent, and tells the
    /// program what has changed.
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

    /// Moves what came into the queue of the program's socket.
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
            // Data for a program that has closed: it is told.
            Owner::Nobody => socket.abort(),
            Owner::Listener(_) => {}
        }
        let taken = queued.saturating_sub(socket.recv_queue());
        flow.window.take(taken);
    }

    /// Tells the program what a change of state means.
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
                        // Data may have come with the last step.
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
        // A connection that was being made to a listener, and was not, listens again.
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

    /// Tells the program that it can send again.
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

    /// Takes over bytes to send; the result is how many. `quick`: small segments do not wait
    /// for one another.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EPIPE`.
    pub(in crate::net) fn send(
        &mut self,
        id: FlowId,
        bytes: &[u8],
        quick: bool,
        net: &mut Network,
    ) -> Result<usize, Errno> {
        let flow = self.flows.get_mut(&id).ok_or(Errno::EPIPE)?;
        let socket = flow.socket();
        socket.set_nagle_enabled(!quick);
        let count = socket.send_slice(bytes).map_err(|_| Errno::EPIPE)?;
        flow.full |= count < bytes.len();
        if count > 0 {
            self.settle(id, net);
            self.flush();
        }
        match count {
            0 if !bytes.is_empty() => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    /// Whether a program that polls is told that it can send.
    #[must_use]
    pub(in crate::net) fn can_send(&self, id: FlowId) -> bool {
        let flow = self.flows.get(&id);
        flow.is_some_and(|flow| has_room(flow.sockets.get::<Socket<'_>>(flow.handle)))
    }

    /// The program has taken bytes out of the queue of its socket.
    pub(in crate::net) fn refill(&mut self, id: FlowId, net: &mut Network) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow.socket().can_recv() {
            self.settle(id, net);
            self.flush();
        }
    }

    /// The program has other patience with the peer.
    pub(in crate::net) fn set_patience(&mut self, id: FlowId, patience: Patience) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.vigil.patience = patience;
            if flow.vigil.stop() {
                flow.socket().set_keep_alive(None);
            }
            self.set_timer(id);
        }
    }

    /// Nothing more will be sent.
    pub(in crate::net) fn finish(&mut self, id: FlowId, net: &mut Network) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.socket().close();
            self.settle(id, net);
            self.flush();
        }
    }

    /// The program has closed the socket; with `reset` what is under way is dropped.
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

    /// A listening socket is closed: connections that are being made to it are refused.
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

/// A third of the send buffer is free, as Linux wants it.
fn has_room(socket: &Socket<'_>) -> bool {
    let capacity = socket.send_capacity();
    (capacity - socket.send_queue()) * 3 >= capacity
}
