//! UDP. Each pair of a port of the guest and a remote host has a connected socket of the host, which
//! accepts datagrams only from there. Forwarded ports have separate sockets.

use super::events::{Events, Source};
use super::forward::{Forward, ForwardError, Listener};
use super::link::{Ends, Link};
use super::network::GATEWAY;
use super::policy::Policy;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};

/// Most sessions. A new one then replaces the least recently used one.
const MAX_SESSIONS: usize = 256;
/// Most peers of forwarded ports. A new one then replaces the oldest one.
const MAX_PEERS: u16 = 4096;
/// First port of the gateway that represents a peer.
const FIRST_PORT: u16 = 1024;
/// Most datagrams that are taken from one socket before the others.
const BATCH: usize = 32;
/// Largest datagram, bytes.
const MAX_LENGTH: usize = 65_535;

/// Datagrams between one port of the guest and one host.
#[derive(Debug)]
struct Session {
    ends: Ends,
    socket: UdpSocket,
    /// Time of the last use, counted in datagrams of the guest.
    used: u64,
}

/// A host that sent to a forwarded port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Peer {
    listener: usize,
    address: SocketAddr,
}

/// The UDP sockets of a network.
#[derive(Debug)]
pub(super) struct Datagrams {
    policy: Policy,
    sessions: HashMap<u64, Session>,
    by_ends: HashMap<Ends, u64>,
    last_id: u64,
    clock: u64,
    listeners: Vec<Listener<UdpSocket>>,
    /// Peers, by the port of the gateway that represents them.
    peers: HashMap<u16, Peer>,
    ports: HashMap<Peer, u16>,
    /// The gateway's ports of peers, the oldest first.
    ages: VecDeque<u16>,
    buffer: Vec<u8>,
}

impl Datagrams {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            sessions: HashMap::new(),
            by_ends: HashMap::new(),
            last_id: 0,
            clock: 0,
            listeners: Vec::new(),
            peers: HashMap::new(),
            ports: HashMap::new(),
            ages: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    /// Forwards a port of the host.
    ///
    /// # Errors
    /// The port is not available.
    pub fn forward(&mut self, forward: &Forward, events: &Events) -> Result<(), ForwardError> {
        let source = Source::Forward(self.listeners.len() as u64);
        let listener = forward.listen(UdpSocket::bind, source, events)?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Closes the sockets of the guest.
    pub fn forget_guest(&mut self) {
        self.sessions.clear();
        self.by_ends.clear();
        self.peers.clear();
        self.ports.clear();
        self.ages.clear();
    }

    /// Sends a datagram of the guest. As on a wire, it may be lost.
    pub fn take(&mut self, ends: Ends, payload: &[u8], events: &Events) {
        if *ends.remote.ip() == GATEWAY {
            let peer = self.peers.get(&ends.remote.port());
            let listener = peer.and_then(|peer| self.listeners.get(peer.listener));
            if let (Some(peer), Some(listener)) = (peer, listener)
                && listener.guest == ends.guest
            {
                let _ = listener.socket.send_to(payload, peer.address);
            }
            return;
        }
        let known = self.by_ends.get(&ends).copied();
        let Some(id) = known.or_else(|| self.open(ends, events).ok()?) else {
            return;
        };
        self.clock += 1;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.used = self.clock;
            let _ = session.socket.send(payload);
        }
    }

    /// Opens a socket for the guest's port and a host. Returns the id of the session; `None` if the
    /// policy forbids the destination.
    fn open(&mut self, ends: Ends, events: &Events) -> io::Result<Option<u64>> {
        let Some(to) = (self.policy)(ends.remote) else {
            return Ok(None);
        };
        if self.sessions.len() >= MAX_SESSIONS {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some((&id, _)) = oldest
                && let Some(session) = self.sessions.remove(&id)
            {
                self.by_ends.remove(&session.ends);
            }
        }
        let from = match to {
            SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        self.last_id += 1;
        let id = self.last_id;
        events.add(&socket, Source::Datagrams(id))?;
        let session = Session {
            ends,
            socket,
            used: 0,
        };
        self.sessions.insert(id, session);
        self.by_ends.insert(ends, id);
        Ok(Some(id))
    }

    /// Receives datagrams for a port of the guest. Returns whether there may be more.
    pub fn receive(&mut self, id: u64, link: &mut Link) -> bool {
        let Some(session) = self.sessions.get(&id) else {
            return false;
        };
        self.buffer.resize(MAX_LENGTH, 0);
        for _ in 0..BATCH {
            match session.socket.recv(&mut self.buffer) {
                Ok(length) => {
                    let (ends, payload) = (session.ends, &self.buffer[..length]);
                    link.datagram(ends.remote, ends.guest, payload);
                }
                Err(error) if is_last(&error) => return false,
                // A router or the host reports that a datagram was not delivered.
                Err(_) => {}
            }
        }
        true
    }

    /// Receives datagrams at a forwarded port. Returns whether there may be more.
    pub fn receive_forward(&mut self, id: u64, link: &mut Link) -> bool {
        let Ok(listener) = usize::try_from(id) else {
            return false;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(MAX_LENGTH, 0);
        let mut left = BATCH;
        while left > 0
            && let Some(Listener { socket, guest }) = self.listeners.get(listener)
        {
            let guest = *guest;
            left -= 1;
            match socket.recv_from(&mut buffer) {
                Ok((length, address)) => {
                    let port = self.port_for(Peer { listener, address });
                    let from = SocketAddrV4::new(GATEWAY, port);
                    link.datagram(from, guest, &buffer[..length]);
                }
                Err(error) if is_last(&error) => {
                    self.buffer = buffer;
                    return false;
                }
                Err(_) => {}
            }
        }
        self.buffer = buffer;
        true
    }

    /// The port of the gateway that represents a peer.
    fn port_for(&mut self, peer: Peer) -> u16 {
        if let Some(&port) = self.ports.get(&peer) {
            return port;
        }
        let port = match u16::try_from(self.ages.len()) {
            Ok(known) if known < MAX_PEERS => FIRST_PORT + known,
            _ => {
                // Replaces the oldest peer.
                let port = self.ages.pop_front().unwrap_or(FIRST_PORT);
                if let Some(old) = self.peers.remove(&port) {
                    self.ports.remove(&old);
                }
                port
            }
        };
        self.ages.push_back(port);
        self.peers.insert(port, peer);
        self.ports.insert(peer, port);
        port
    }
}

/// Whether a socket has nothing more now.
fn is_last(error: &io::Error) -> bool {
    // The socket reports each error of the network once. Datagrams may follow.
    let is_network_error = matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EINTR)
    );
    !is_network_error
}
