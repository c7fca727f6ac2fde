//! TCP connections of the guest to hosts, and of hosts to forwarded ports. Each has a smoltcp socket
//! towards the guest and a socket of the host towards the other end. Bytes and ends of streams go
//! from one socket to the other.

use super::events::{Events, Source};
use super::forward::{Forward, ForwardError, Listener};
use super::gate::Gate;
use super::link::{Ends, Link};
use super::network::{GATEWAY, GUEST};
use super::policy::Policy;
use rustix::event::epoll::EventFlags;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket as Tcp, SocketBuffer, State};
use smoltcp::time::{Duration as TcpDuration, Instant};
use smoltcp::wire::IpEndpoint;
use socket2::{Domain, Socket, Type};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Most connections. A further SYN of the guest gets no answer, so the guest repeats it.
const MAX_STREAMS: usize = 1024;
/// Length of the buffer of bytes for the guest: two of the largest segments. The host allocates the
/// memory at first use.
const SEND_BUFFER: usize = 128 << 10;
/// Length of the buffer of bytes from the guest. The window needs no scale factor at this length, so
/// its end never moves back: smoltcp ignores acknowledgements in segments beyond the window.
const RECEIVE_BUFFER: usize = u16::MAX as usize;
/// Time within which the guest must accept a connection.
const CONNECT_TIMEOUT: TcpDuration = TcpDuration::from_secs(60);
/// First port of the gateway from which forwarded connections come.
const FIRST_PORT: u16 = 1024;
/// Most connections that are accepted at one port before others.
const BATCH: usize = 32;

/// The state of the stream from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromGuest {
    /// More bytes may come.
    Open,
    /// The guest has sent its last byte; the host may not have all of them yet.
    Ended,
    /// The socket of the host is shut down for writing.
    ShutDown,
}

/// A connection.
struct Stream {
    ends: Ends,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    host: Socket,
    /// The guest's SYN, which is handled when the host's socket is connected.
    request: Option<Vec<u8>>,
    /// Whether the host's socket may be readable and writable.
    readable: bool,
    writable: bool,
    /// Whether the host's end sends no more.
    host_ended: bool,
    from_guest: FromGuest,
    /// Time of the entry in [`Streams::timers`].
    timer: Option<Instant>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

/// The TCP connections of a network.
#[derive(Debug)]
pub(super) struct Streams {
    policy: Policy,
    streams: HashMap<u64, Stream>,
    by_ends: HashMap<Ends, u64>,
    last_id: u64,
    /// Times at which connections need a call of [`settle`](Self::settle) without an event.
    timers: BTreeSet<(Instant, u64)>,
    listeners: Vec<Listener<TcpListener>>,
    /// Lets connections to the listeners in.
    gate: Option<Arc<Gate>>,
    /// The connection that the gate has let in.
    visitor: Option<u64>,
    /// The gateway's port of the last forwarded connection.
    last_port: u16,
}

impl Streams {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            streams: HashMap::new(),
            by_ends: HashMap::new(),
            last_id: 0,
            timers: BTreeSet::new(),
            listeners: Vec::new(),
            gate: None,
            visitor: None,
            last_port: 0,
        }
    }

    /// Forwards a port of the host.
    ///
    /// # Errors
    /// The port is not available.
    pub fn forward(&mut self, forward: &Forward, events: &Events) -> Result<(), ForwardError> {
        let source = Source::Listener(self.listeners.len() as u64);
        // `bind` sets SO_REUSEADDR, so connections of an earlier process do not block the port.
        let listener = forward.listen(TcpListener::bind, source, events)?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Lets connections to these listeners, each for a port of the guest, in through a gate.
    ///
    /// # Errors
    /// The host's.
    pub fn guard(
        &mut self,
        listeners: Vec<Listener<TcpListener>>,
        gate: Arc<Gate>,
        events: &Events,
    ) -> io::Result<()> {
        events.add(&*gate, Source::Gate)?;
        for (listener, id) in listeners.iter().zip(0..) {
            listener.socket.set_nonblocking(true)?;
            events.add(&listener.socket, Source::Listener(id))?;
        }
        (self.listeners, self.gate) = (listeners, Some(gate));
        Ok(())
    }

    /// Handles a packet of the guest.
    pub fn take(
        &mut self,
        ends: Ends,
        is_first: bool,
        packet: &[u8],
        link: &mut Link,
        events: &Events,
    ) {
        let known = self.by_ends.get(&ends).copied();
        match known.and_then(|id| Some((id, self.streams.get_mut(&id)?))) {
            // The guest repeats its SYN.
            Some((_, stream)) if stream.request.is_some() => {}
            Some((id, stream)) => {
                link.ingress(packet, Some(&mut stream.sockets));
                self.settle(id, link);
            }
            None if is_first => {
                if self.streams.len() < MAX_STREAMS && self.open(ends, packet, events).is_err() {
                    link.ingress(packet, None);
                }
            }
            None => link.ingress(packet, None),
        }
    }

    /// Starts to connect to the destination of a SYN.
    fn open(&mut self, ends: Ends, packet: &[u8], events: &Events) -> io::Result<()> {
        let to = (self.policy)(ends.remote).ok_or(io::ErrorKind::PermissionDenied)?;
        let host = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        host.set_nonblocking(true)?;
        match host.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let mut socket = new_socket();
        let end = IpEndpoint::from(ends.remote);
        socket.listen(end).map_err(io::Error::other)?;
        self.add(ends, socket, host, Some(packet.to_vec()), events)?;
        Ok(())
    }

    fn add(
        &mut self,
        ends: Ends,
        socket: Tcp<'static>,
        host: Socket,
        request: Option<Vec<u8>>,
        events: &Events,
    ) -> io::Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        host.set_tcp_nodelay(true)?;
        events.add(&host, Source::Stream(id))?;
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let stream = Stream {
            ends,
            sockets,
            handle,
            host,
            request,
            readable: false,
            writable: false,
            host_ended: false,
            from_guest: FromGuest::Open,
            timer: None,
        };
        self.streams.insert(id, stream);
        self.by_ends.insert(ends, id);
        Ok(id)
    }

    /// Accepts the connection that the gate lets in, if there is one.
    pub fn admit(&mut self, link: &mut Link, events: &Events) {
        let Some(gate) = &self.gate else { return };
        let gate = Arc::clone(gate);
        let Some((host, guest)) = gate.admit(&self.listeners) else {
            return;
        };
        match self.connect(host, guest, link, events) {
            // Otherwise it has ended already.
            Ok(id) if self.streams.contains_key(&id) => self.visitor = Some(id),
            _ => gate.end(),
        }
    }

    /// Whether a host has not got all that the guest has sent to it.
    pub fn owe_hosts(&self) -> bool {
        self.streams.values().any(Stream::owes_host)
    }

    /// Leaves all connections to the host's kernel, as the end of a program does.
    pub fn leave(&mut self) {
        self.streams.clear();
        self.by_ends.clear();
        self.timers.clear();
    }

    /// Ends all connections.
    pub fn forget_guest(&mut self) {
        let all: Vec<u64> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|id| self.forget(id));
    }

    /// Accepts connections to a forwarded port. Returns whether there may be more.
    pub fn accept(&mut self, id: u64, link: &mut Link, events: &Events) -> bool {
        if self.gate.is_some() {
            self.admit(link, events);
            return false;
        }
        for _ in 0..BATCH {
            let listener = usize::try_from(id).ok();
            let Some(listener) = listener.and_then(|id| self.listeners.get(id)) else {
                return false;
            };
            let guest = listener.guest;
            let host = match listener.socket.accept() {
                Ok((host, _)) => host,
                Err(error) => {
                    // A connection that was aborted before `accept` says nothing about others.
                    return matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR));
                }
            };
            // If there is no room for the connection, it is closed.
            let _ = self.connect(Socket::from(host), guest, link, events);
        }
        true
    }

    /// Starts to connect a host to a port of the guest. Returns the number of the connection.
    fn connect(
        &mut self,
        host: Socket,
        guest: u16,
        link: &mut Link,
        events: &Events,
    ) -> io::Result<u64> {
        host.set_nonblocking(true)?;
        let ends = (self.streams.len() < MAX_STREAMS).then(|| self.new_ends(guest));
        let ends = ends.flatten().ok_or(io::ErrorKind::QuotaExceeded)?;
        let mut socket = new_socket();
        let (to, from) = ((GUEST, guest), IpEndpoint::from(ends.remote));
        let result = socket.connect(link.context(), to, from);
        result.map_err(io::Error::other)?;
        let id = self.add(ends, socket, host, None, events)?;
        self.settle(id, link);
        Ok(id)
    }

    /// Unused ends of a connection from the gateway to a port of the guest.
    fn new_ends(&mut self, guest: u16) -> Option<Ends> {
        (0..=MAX_STREAMS).find_map(|_| {
            self.last_port = self.last_port.wrapping_add(1).max(FIRST_PORT);
            let remote = SocketAddrV4::new(GATEWAY, self.last_port);
            let ends = Ends { guest, remote };
            (!self.by_ends.contains_key(&ends)).then_some(ends)
        })
    }

    /// Handles an event of a host socket.
    pub fn handle_event(&mut self, id: u64, events: EventFlags, link: &mut Link) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let failed = events.intersects(EventFlags::ERR | EventFlags::HUP);
        let ended = events.contains(EventFlags::RDHUP);
        stream.readable |= failed || ended || events.contains(EventFlags::IN);
        stream.writable |= failed || events.contains(EventFlags::OUT);
        if stream.writable
            && let Some(request) = stream.request.take()
        {
            if !matches!(stream.host.take_error(), Ok(None)) {
                // The host refused the connection, so the guest is refused too.
                link.ingress(&request, None);
                return self.forget(id);
            }
            link.ingress(&request, Some(&mut stream.sockets));
        }
        self.settle(id, link);
    }

    /// Handles the timers that have expired.
    pub fn run_timers(&mut self, link: &mut Link) {
        let now = link.now();
        while link.has_room()
            && let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.timer = None;
            }
            self.settle(id, link);
        }
    }

    /// The time until the next timer expires.
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        let &(at, _) = self.timers.first()?;
        Some(match at > now {
            true => (at - now).into(),
            false => Duration::ZERO,
        })
    }

    /// Moves bytes in both directions, removes a connection that has ended, and sets its timer.
    fn settle(&mut self, id: u64, link: &mut Link) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.request.is_some() {
            return;
        }
        let has_failed = stream.exchange().is_err();
        if has_failed {
            stream.socket().abort();
        }
        link.egress(&mut stream.sockets);
        let state = stream.socket().state();
        // After a failed handshake the socket listens again. The host may not have the guest's last
        // bytes yet.
        let is_over = matches!(state, State::Closed | State::Listen | State::TimeWait);
        if has_failed || is_over && !stream.socket().can_recv() {
            return self.forget(id);
        }
        if state == State::Established {
            // An established connection may be idle for any time.
            stream.socket().set_timeout(None);
        }
        let next = link.next(&stream.sockets);
        if stream.timer != next {
            if let Some(at) = stream.timer {
                self.timers.remove(&(at, id));
            }
            if let Some(at) = next {
                self.timers.insert((at, id));
            }
            stream.timer = next;
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        self.by_ends.remove(&stream.ends);
        if let Some(at) = stream.timer {
            self.timers.remove(&(at, id));
        }
        if !stream.host_ended || stream.from_guest != FromGuest::ShutDown {
            // Abnormal end: with a linger time of 0 the other end receives a reset too.
            let _ = stream.host.set_linger(Some(Duration::ZERO));
        }
        drop(stream);
        if self.visitor.take_if(|visitor| *visitor == id).is_some()
            && let Some(gate) = &self.gate
        {
            gate.end();
        }
    }
}

fn new_socket() -> Tcp<'static> {
    let buffer = |length| SocketBuffer::new(vec![0; length]);
    let mut socket = Tcp::new(buffer(RECEIVE_BUFFER), buffer(SEND_BUFFER));
    socket.set_nagle_enabled(false);
    // Immediate acknowledgements cost little: they do not leave this host.
    socket.set_ack_delay(None);
    socket.set_timeout(Some(CONNECT_TIMEOUT));
    socket
}

/// Result of moving bytes once.
enum Moved {
    Some,
    /// The host's socket would block.
    Blocked,
    /// The stream ends here.
    End,
}

/// The number of bytes that the host has moved, and the result.
fn moved(result: io::Result<usize>) -> (usize, io::Result<Moved>) {
    match result {
        Ok(0) => (0, Ok(Moved::End)),
        Ok(count) => (count, Ok(Moved::Some)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, Ok(Moved::Blocked)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, Ok(Moved::Some)),
        Err(error) => (0, Err(error)),
    }
}

impl Stream {
    fn socket(&mut self) -> &mut Tcp<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Whether bytes of the guest wait for the host's socket.
    fn owes_host(&self) -> bool {
        self.sockets.get::<Tcp<'_>>(self.handle).can_recv()
    }

    /// Moves bytes and ends of streams in both directions.
    ///
    /// # Errors
    /// The host's connection has failed.
    fn exchange(&mut self) -> io::Result<()> {
        self.take_from_host()?;
        self.give_to_host()
    }

    fn take_from_host(&mut self) -> io::Result<()> {
        while self.readable && !self.host_ended && self.socket().can_send() {
            let socket = self.sockets.get_mut::<Tcp<'_>>(self.handle);
            let host = &mut self.host;
            let result = socket.send(|room| moved(host.read(room)));
            match result.map_err(io::Error::other)?? {
                Moved::Some => {}
                Moved::Blocked => self.readable = false,
                Moved::End => self.host_ended = true,
            }
        }
        if self.host_ended {
            // Further calls have no effect. smoltcp sends the pending bytes before the FIN.
            self.socket().close();
        }
        Ok(())
    }

    fn give_to_host(&mut self) -> io::Result<()> {
        while self.writable && self.socket().can_recv() {
            let socket = self.sockets.get_mut::<Tcp<'_>>(self.handle);
            let host = &mut self.host;
            let result = socket.recv(|bytes| moved(host.write(bytes)));
            match result.map_err(io::Error::other)?? {
                Moved::Some => {}
                Moved::Blocked | Moved::End => self.writable = false,
            }
        }
        let socket = self.socket();
        let has_ended = matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        let is_empty = !socket.can_recv();
        if has_ended && self.from_guest == FromGuest::Open {
            self.from_guest = FromGuest::Ended;
        }
        if is_empty && self.from_guest == FromGuest::Ended {
            self.from_guest = FromGuest::ShutDown;
            self.host.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}
