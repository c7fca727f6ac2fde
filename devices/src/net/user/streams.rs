//! TCP: connections of the guest to hosts, and of hosts to forwarded ports. Each is a smoltcp
//! socket towards the guest, a socket of the host towards the other end, and the bytes and ends
//! of streams that go from one to the other.

use super::forward::{Forward, ForwardError, Listener};
use super::link::{Ends, Link};
use super::policy::Policy;
use super::{Events, GATEWAY, GUEST, Source};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket as Tcp, SocketBuffer, State};
use smoltcp::time::{Duration as TcpDuration, Instant};
use smoltcp::wire::IpEndpoint;
use socket2::{Domain, Socket, Type};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd;
use std::time::Duration;
use vmm_sys_util::epoll::EventSet;

/// Most connections. Those that are too many are not answered, so that the guest asks again.
const MOST: usize = 1024;
/// Length of the buffer of what goes to the guest, bytes: two of the largest segments. It is
/// taken from the host when it is used.
const SEND_BUFFER: usize = 128 << 10;
/// Length of the buffer of what comes from the guest, bytes. The window needs no scale, so that
/// its end never moves back: smoltcp ignores acknowledgements in segments behind it.
const RECEIVE_BUFFER: usize = u16::MAX as usize;
/// How long the guest has time to take a connection.
const PATIENCE: TcpDuration = TcpDuration::from_secs(60);
/// The first port of the gateway that a forwarded connection comes from.
const FIRST_PORT: u16 = 1024;
/// Connections that are taken from one port before others have their turn.
const BATCH: usize = 32;

/// The bytes that the guest sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromGuest {
    /// More may come.
    Open,
    /// No more will come; some may still be on their way.
    Ended,
    /// The other end was told so.
    Told,
}

/// A connection.
struct Stream {
    ends: Ends,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    host: Socket,
    /// The guest's first packet, which is looked at when the host is connected.
    request: Option<Vec<u8>>,
    /// Whether there may be something to read from the host, and room for it there.
    readable: bool,
    writable: bool,
    /// The other end sends no more.
    host_ended: bool,
    /// What the guest sends.
    from_guest: FromGuest,
    timer: Option<Instant>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Streams {
    policy: Policy,
    streams: HashMap<u64, Stream>,
    by_ends: HashMap<Ends, u64>,
    last: u64,
    /// When to look at connections though nothing comes.
    timers: BTreeSet<(Instant, u64)>,
    listeners: Vec<Listener<TcpListener>>,
    /// Ports of the gateway that were used for forwarded connections, counted.
    last_port: u16,
}

impl Streams {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            streams: HashMap::new(),
            by_ends: HashMap::new(),
            last: 0,
            timers: BTreeSet::new(),
            listeners: Vec::new(),
            last_port: 0,
        }
    }

    /// Forwards a port of the host.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn forward(&mut self, forward: &Forward, events: &Events) -> Result<(), ForwardError> {
        let source = Source::Listener(self.listeners.len() as u64);
        // Sets SO_REUSEADDR, so that connections of before do not keep the port.
        let listener = forward.listen(TcpListener::bind, source, events)?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Looks at a packet of the guest.
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
            // It asks again.
            Some((_, stream)) if stream.request.is_some() => {}
            Some((id, stream)) => {
                link.ingress(packet, Some(&mut stream.sockets));
                self.settle(id, link);
            }
            None if is_first => {
                if self.streams.len() < MOST && self.open(ends, packet, events).is_err() {
                    link.ingress(packet, None);
                }
            }
            None => link.ingress(packet, None),
        }
    }

    /// Begins to connect to where the guest wants to.
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
        self.last += 1;
        let id = self.last;
        host.set_tcp_nodelay(true)?;
        events.watch(host.as_raw_fd(), Source::Stream(id))?;
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

    /// Takes connections to a forwarded port. Result: whether there may be more.
    pub fn accept(&mut self, id: u64, link: &mut Link, events: &Events) -> bool {
        for _ in 0..BATCH {
            let listener = usize::try_from(id).ok();
            let Some(listener) = listener.and_then(|id| self.listeners.get(id)) else {
                return false;
            };
            let guest = listener.guest;
            let host = match listener.socket.accept() {
                Ok((host, _)) => host,
                Err(error) => {
                    // One that was given up before it was taken says nothing about others.
                    return matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR));
                }
            };
            // One for which there is no room is closed.
            let _ = self.connect(Socket::from(host), guest, link, events);
        }
        true
    }

    /// Begins to connect to a port of the guest for a host.
    fn connect(
        &mut self,
        host: Socket,
        guest: u16,
        link: &mut Link,
        events: &Events,
    ) -> io::Result<()> {
        host.set_nonblocking(true)?;
        let ends = (self.streams.len() < MOST).then(|| self.new_ends(guest));
        let ends = ends.flatten().ok_or(io::ErrorKind::QuotaExceeded)?;
        let mut socket = new_socket();
        let (to, from) = ((GUEST, guest), IpEndpoint::from(ends.remote));
        let result = socket.connect(link.context(), to, from);
        result.map_err(io::Error::other)?;
        let id = self.add(ends, socket, host, None, events)?;
        self.settle(id, link);
        Ok(())
    }

    /// Ends of a connection from the gateway to a port of the guest.
    fn new_ends(&mut self, guest: u16) -> Option<Ends> {
        (0..=MOST).find_map(|_| {
            self.last_port = self.last_port.wrapping_add(1).max(FIRST_PORT);
            let remote = SocketAddrV4::new(GATEWAY, self.last_port);
            let ends = Ends { guest, remote };
            (!self.by_ends.contains_key(&ends)).then_some(ends)
        })
    }

    /// Something happened to a socket of the host.
    pub fn event(&mut self, id: u64, events: EventSet, link: &mut Link) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let failed = events.intersects(EventSet::ERROR | EventSet::HANG_UP);
        let ended = events.contains(EventSet::READ_HANG_UP);
        stream.readable |= failed || ended || events.contains(EventSet::IN);
        stream.writable |= failed || events.contains(EventSet::OUT);
        if stream.writable
            && let Some(request) = stream.request.take()
        {
            if !matches!(stream.host.take_error(), Ok(None)) {
                // The guest is refused as this process was.
                link.ingress(&request, None);
                return self.forget(id);
            }
            link.ingress(&request, Some(&mut stream.sockets));
        }
        self.settle(id, link);
    }

    /// Looks at the connections whose time has come.
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

    /// The time until a connection is to be looked at.
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        let &(at, _) = self.timers.first()?;
        Some(match at > now {
            true => (at - now).into(),
            false => Duration::ZERO,
        })
    }

    /// Moves what can be moved, and sees what has become of a connection.
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
        // A connection that was being made, and was not, listens again. What the guest sent
        // last may still be on its way.
        let is_over = matches!(state, State::Closed | State::Listen | State::TimeWait);
        if has_failed || is_over && !stream.socket().can_recv() {
            return self.forget(id);
        }
        if state == State::Established {
            // It may be paused for any time.
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
        if !stream.host_ended || stream.from_guest != FromGuest::Told {
            // It did not end as it should: the other end sees a reset too.
            let _ = stream.host.set_linger(Some(Duration::ZERO));
        }
    }
}

fn new_socket() -> Tcp<'static> {
    let buffer = |length| SocketBuffer::new(vec![0; length]);
    let mut socket = Tcp::new(buffer(RECEIVE_BUFFER), buffer(SEND_BUFFER));
    socket.set_nagle_enabled(false);
    // Acknowledgements cost the guest nothing that it would see.
    socket.set_ack_delay(None);
    socket.set_timeout(Some(PATIENCE));
    socket
}

/// What came of moving bytes once.
enum Moved {
    Some,
    /// There is no more, or no room, now.
    Blocked,
    /// The stream ends here.
    End,
}

/// How many bytes the host has moved, and what that came to.
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

    /// Moves bytes and ends of streams in both directions.
    ///
    /// # Errors
    /// The host's connection has ended.
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
            // Once is enough; what is still to be sent is sent before.
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
            self.from_guest = FromGuest::Told;
            self.host.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}
