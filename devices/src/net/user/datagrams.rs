//! UDP: a socket of the host for each port of the guest and each host that it sends to, which
//! takes only what comes from there; and forwarded ports.

use super::forward::{Forward, ForwardError, Listener};
use super::link::{Ends, Link};
use super::policy::Policy;
use super::{Events, GATEWAY, Source};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

/// Most hosts and ports that the guest sends to at the same time; then the one that was not
/// used for longest is forgotten.
const MOST: usize = 256;
/// Most peers of forwarded ports.
const MOST_PEERS: usize = 4096;
/// The first port of the gateway that stands for a peer.
const FIRST_PORT: u16 = 1024;
/// Datagrams that are taken from one socket before others have their turn.
const BATCH: usize = 32;
/// Longest datagram, bytes.
const LONGEST: usize = 65_535;

/// Datagrams between one port of the guest and one host.
#[derive(Debug)]
struct Session {
    ends: Ends,
    socket: UdpSocket,
    /// When it was used, counted.
    used: u64,
}

/// Who sent to a forwarded port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Peer {
    listener: usize,
    address: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Datagrams {
    policy: Policy,
    sessions: HashMap<u64, Session>,
    by_ends: HashMap<Ends, u64>,
    last: u64,
    clock: u64,
    listeners: Vec<Listener<UdpSocket>>,
    /// Peers, by the port of the gateway that stands for them.
    peers: HashMap<u16, Peer>,
    ports: HashMap<Peer, u16>,
    /// Those ports, the oldest first.
    ages: VecDeque<u16>,
    buffer: Vec<u8>,
}

impl Datagrams {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            sessions: HashMap::new(),
            by_ends: HashMap::new(),
            last: 0,
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
    /// It cannot be had.
    pub fn forward(&mut self, forward: &Forward, events: &Events) -> Result<(), ForwardError> {
        let source = Source::Forward(self.listeners.len() as u64);
        let listener = forward.listen(UdpSocket::bind, source, events)?;
        self.listeners.push(listener);
        Ok(())
    }

    /// The guest sends a datagram. As on a wire, it may be lost.
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

    /// A socket for the guest's port and a host; none if it may not send there.
    fn open(&mut self, ends: Ends, events: &Events) -> io::Result<Option<u64>> {
        let Some(to) = (self.policy)(ends.remote) else {
            return Ok(None);
        };
        if self.sessions.len() >= MOST {
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
        self.last += 1;
        let id = self.last;
        events.watch(socket.as_raw_fd(), Source::Datagrams(id))?;
        let session = Session {
            ends,
            socket,
            used: 0,
        };
        self.sessions.insert(id, session);
        self.by_ends.insert(ends, id);
        Ok(Some(id))
    }

    /// Something has come for a port of the guest. Result: whether there may be more.
    pub fn receive(&mut self, id: u64, link: &mut Link) -> bool {
        let Some(session) = self.sessions.get(&id) else {
            return false;
        };
        self.buffer.resize(LONGEST, 0);
        for _ in 0..BATCH {
            match session.socket.recv(&mut self.buffer) {
                Ok(length) => {
                    let (ends, payload) = (session.ends, &self.buffer[..length]);
                    link.datagram(ends.remote, ends.guest, payload);
                }
                Err(error) if is_last(&error) => return false,
                // Somebody on the way says that it was not delivered.
                Err(_) => {}
            }
        }
        true
    }

    /// Something has come to a forwarded port. Result: whether there may be more.
    pub fn receive_forward(&mut self, id: u64, link: &mut Link) -> bool {
        let Ok(listener) = usize::try_from(id) else {
            return false;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(LONGEST, 0);
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

    /// The port of the gateway that stands for a peer.
    fn port_for(&mut self, peer: Peer) -> u16 {
        if let Some(&port) = self.ports.get(&peer) {
            return port;
        }
        let port = if self.ages.len() < MOST_PEERS {
            FIRST_PORT + self.ages.len() as u16
        } else {
            // The oldest one's.
            let port = self.ages.pop_front().unwrap_or(FIRST_PORT);
            if let Some(old) = self.peers.remove(&port) {
                self.ports.remove(&old);
            }
            port
        };
        self.ages.push_back(port);
        self.peers.insert(port, peer);
        self.ports.insert(peer, port);
        port
    }
}

/// Whether nothing more comes from a socket now.
fn is_last(error: &io::Error) -> bool {
    // Errors of the network are told once each.
    let is_told = matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EINTR)
    );
    !is_told
}
