//! All connections of a socket device, and the order in which they send packets to the guest.

use super::backend::{Host, LISTENER};
use super::connection::{Command, Connection, Ends, Phase};
use super::stats::Counters;
use crate::epoll;
use crate::virtio::Buffers;
use crate::virtio::stats::count;
use hartline_abi::vsock::{CID_HOST, STREAM, VsockHeader, op};
use rustix::event::epoll::EventFlags;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Most connections that are accepted per call.
const BATCH: usize = 64;
/// Most connections: each has a descriptor and a buffer of the host.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// Most pending replies to packets without a connection. At this limit, the device takes no packets
/// from the guest.
const MAX_REPLIES: usize = 256;
/// First port of the host that represents one of its clients. The guest connects to ports below.
const FIRST_PORT: u32 = 1 << 30;

/// The connections of a device.
pub(super) struct Connections {
    host: Host,
    /// The guest's CID.
    cid: u64,
    /// By an id that is never reused.
    connections: HashMap<u64, Connection>,
    by_ends: HashMap<Ends, u64>,
    last_id: u64,
    last_port: u32,
    /// Connections with a packet for the guest, each of them once.
    pub(super) queued: VecDeque<u64>,
    /// Replies to packets without a connection.
    replies: VecDeque<VsockHeader>,
    /// Whether clients may be waiting to be accepted.
    accepts: bool,
    counters: Arc<Counters>,
}

impl Connections {
    /// No connections.
    pub fn new(host: Host, cid: u64, counters: Arc<Counters>) -> Self {
        Self {
            host,
            cid,
            connections: HashMap::new(),
            by_ends: HashMap::new(),
            last_id: LISTENER,
            last_port: FIRST_PORT,
            queued: VecDeque::new(),
            replies: VecDeque::new(),
            // Clients may have connected before the driver was ready.
            accepts: true,
            counters,
        }
    }

    /// The backend.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Closes all connections and returns the backend.
    pub fn into_host(self) -> Host {
        self.host
    }

    /// Whether packets of the guest can be handled: there is room for replies.
    pub fn has_room(&self) -> bool {
        self.replies.len() < MAX_REPLIES
    }

    /// Drops all replies to packets without a connection.
    pub fn clear_replies(&mut self) {
        self.replies.clear();
    }

    /// Whether a connection has bytes that the host has not taken.
    pub fn is_behind(&self) -> bool {
        self.connections.values().any(Connection::is_behind)
    }

    /// Whether there may be a packet for the guest.
    pub fn has_packets(&self) -> bool {
        !self.replies.is_empty() || !self.queued.is_empty()
    }

    /// Handles a packet of the guest.
    pub fn handle_packet(&mut self, header: &VsockHeader, data: &Buffers) {
        if header.src_cid != self.cid {
            // A forged sender gets no reply.
            return;
        }
        let ends = Ends {
            guest: header.src_port,
            host: header.dst_port,
        };
        let is_for_host = header.dst_cid == u64::from(CID_HOST) && header.kind == STREAM;
        let known = self.by_ends.get(&ends).filter(|_| is_for_host).copied();
        match known.and_then(|id| Some((id, self.connections.get_mut(&id)?))) {
            Some((id, connection)) => {
                connection.update_credit(header);
                match (header.op, &connection.phase) {
                    (op::RESET, phase) => {
                        if *phase == Phase::Requested {
                            count(&self.counters.refused, 1);
                        }
                        connection.end();
                    }
                    (op::RESPONSE, Phase::Requested) => {
                        connection.open();
                        count(&self.counters.connections, 1);
                    }
                    (op::DATA, Phase::Open) => connection.take(data),
                    (op::SHUTDOWN, Phase::Open) => connection.guest_shuts_down(header.flags),
                    (op::CREDIT_UPDATE, Phase::Open) => {}
                    (op::CREDIT_REQUEST, Phase::Open) => connection.request_credit_update(),
                    // A reset is sent or pending.
                    (_, Phase::Resetting | Phase::Over) => {}
                    _ => connection.reset(),
                }
                self.settle(id);
            }
            None if is_for_host && header.op == op::REQUEST => self.connect(ends, header),
            None if header.op == op::RESET => {}
            None => self.replies.push_back(header.answer(op::RESET)),
        }
    }

    /// Connects the guest to a port of the host.
    fn connect(&mut self, ends: Ends, request: &VsockHeader) {
        let result = match self.connections.len() < MAX_CONNECTIONS {
            true => self.host.connect(ends.host),
            false => Err(io::ErrorKind::QuotaExceeded.into()),
        };
        let connection = result.map(|stream| Connection::from_guest(stream, ends, request));
        match connection.and_then(|connection| self.add(connection)) {
            Ok(id) => {
                self.by_ends.insert(ends, id);
                count(&self.counters.connections, 1);
                self.settle(id);
            }
            Err(_) => {
                count(&self.counters.refused, 1);
                self.replies.push_back(request.answer(op::RESET));
            }
        }
    }

    fn add(&mut self, connection: Connection) -> io::Result<u64> {
        self.last_id += 1;
        self.host.add(connection.stream(), self.last_id)?;
        self.connections.insert(self.last_id, connection);
        Ok(self.last_id)
    }

    /// Accepts clients. Returns whether there were any.
    fn accept(&mut self) -> bool {
        for done in 0..BATCH {
            match self.host.accept() {
                Ok(stream) => self.add_client(stream),
                Err(error) => {
                    // A client that was aborted before `accept` says nothing about others.
                    self.accepts =
                        matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR));
                    return done > 0;
                }
            }
        }
        true
    }

    fn add_client(&mut self, stream: UnixStream) {
        // If there is no room for the connection, it is closed.
        if self.connections.len() < MAX_CONNECTIONS
            && let Ok(id) = self.add(Connection::from_host(stream))
        {
            self.read_command(id);
        }
    }

    /// Reads which port a client wants.
    fn read_command(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        match connection.read_command() {
            Command::Unfinished => {}
            Command::Connect(guest) => {
                // There are more ports than connections, so the loop ends.
                let ends = loop {
                    self.last_port = self.last_port.wrapping_add(1).max(FIRST_PORT);
                    let host = self.last_port;
                    let ends = Ends { guest, host };
                    if !self.by_ends.contains_key(&ends) {
                        break ends;
                    }
                };
                self.by_ends.insert(ends, id);
                connection.ends = ends;
                connection.phase = Phase::Requesting;
            }
            Command::Bad => connection.end(),
        }
        self.settle(id);
    }

    /// Handles events of the host's sockets, for which it waits up to `timeout`. Returns whether
    /// there were any.
    pub fn poll(&mut self, timeout: Duration) -> bool {
        let mut buffer = epoll::buffer();
        // Fails only if the epoll descriptor is invalid.
        let Ok(events) = self.host.events(timeout, &mut buffer) else {
            return false;
        };
        for event in events {
            self.handle_event(event.data.u64(), event.flags);
        }
        let accepted = self.accepts && self.accept();
        accepted || !events.is_empty()
    }

    fn handle_event(&mut self, id: u64, events: EventFlags) {
        if id == LISTENER {
            self.accepts = true;
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.handle_event(events);
        match connection.phase {
            Phase::Command(_) => self.read_command(id),
            _ => self.settle(id),
        }
    }

    /// Removes a connection that has ended. Queues a connection with a packet for the guest.
    fn settle(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.phase == Phase::Over {
            let ends = connection.ends;
            if connection.is_queued {
                // Otherwise the queue would grow with each connection if the guest adds no buffers.
                self.queued.retain(|&other| other != id);
            }
            self.connections.remove(&id);
            // A waiting client may get the descriptor.
            self.accepts = true;
            if self.by_ends.get(&ends) == Some(&id) {
                self.by_ends.remove(&ends);
            }
        } else if !connection.is_queued && connection.has_packet() {
            connection.is_queued = true;
            self.queued.push_back(id);
        }
    }

    /// The header of the next packet for the guest, whose bytes go into `room`. `None` if the next
    /// connection has no packet after all.
    pub fn next_packet(&mut self, room: &Buffers) -> Option<VsockHeader> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply);
        }
        let id = self.queued.pop_front()?;
        let connection = self.connections.get_mut(&id)?;
        connection.is_queued = false;
        let packet = connection.next_packet(room);
        let header = packet.map(|(op, flags, length)| {
            let mut header = VsockHeader {
                src_cid: CID_HOST.into(),
                dst_cid: self.cid,
                src_port: connection.ends.host,
                dst_port: connection.ends.guest,
                length,
                kind: STREAM,
                op,
                flags,
                ..VsockHeader::default()
            };
            connection.set_credit(&mut header);
            header
        });
        self.settle(id);
        header
    }
}
