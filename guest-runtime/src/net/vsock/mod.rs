//! Stream sockets between this VM and its host (virtio 1.3, section 5.10), and `AF_VSOCK` sockets
//! within the VM, as in vsock(7).
//!
//! Received bytes go into the queue of the socket at once, and count as forwarded when the program
//! has read them. Sent bytes are copied into the device's buffers as far as the peer has room; this
//! module buffers none.

mod sockets;
#[cfg(test)]
mod tests;

use super::Network;
use super::socket::SocketId;
use crate::convert::low_u32;
use crate::mm::UserSlice;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt::Debug;
use hartline_abi::vsock::{Credit, STREAM, VsockHeader, op, shutdown};
use hartline_linux::errno::Errno;

/// Most packets that one poll processes before programs run.
const BATCH: usize = 256;

/// The device: sends packets to the host and receives packets from it.
pub trait Channel: Debug {
    /// Whether packets were received, or room that a sender waits for is available.
    fn is_pending(&self) -> bool;

    /// Begins a batch of received packets: the device need not interrupt for later ones.
    fn begin(&mut self);

    /// Whether the device has lost all connections since the last call.
    fn was_reset(&mut self) -> bool;

    /// Takes the next packet and its bytes.
    fn next(&mut self) -> Option<(VsockHeader, Vec<u8>)>;

    /// Ends a batch: the next packet is to interrupt. Returns whether one has arrived meanwhile.
    fn rest(&mut self) -> bool;

    /// Whether there is room for a packet. If not, the device interrupts when there is room.
    fn has_room(&mut self) -> bool;

    /// Returns the largest number of bytes in a packet.
    fn most(&self) -> usize;

    /// Sends a packet of at most [`most`](Self::most) bytes. Returns whether there was room.
    fn send(&mut self, header: &VsockHeader, bytes: UserSlice<'_>) -> bool;
}

/// The endpoints of a connection; this VM has one CID only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Local port.
    pub port: u32,
    /// CID and port of the peer.
    pub peer: (u32, u32),
}

/// A connection over the device.
#[derive(Debug)]
struct Connection {
    /// None once the socket is closed: the connection waits for the peer's reset.
    socket: Option<SocketId>,
    /// Whether the connection is established.
    is_open: bool,
    credit: Credit,
    /// Directions that this end has shut down ([`shutdown`]), and that the peer has.
    ended: u32,
    peer_ended: u32,
    /// When the connection is given up if the peer does not answer, ns of `CLOCK_MONOTONIC`.
    deadline: Option<u64>,
}

/// The device and the connections over it.
#[derive(Debug)]
pub struct Vsock {
    channel: Box<dyn Channel>,
    /// CID of this VM.
    cid: u32,
    connections: BTreeMap<Ends, Connection>,
    deadlines: BTreeSet<(u64, Ends)>,
    /// Packets without bytes that wait for room. They are few: while packets cannot be sent, the
    /// host soon has no room for its own packets.
    waiting: VecDeque<VsockHeader>,
    /// Connections with bytes to send that found no room in the device.
    blocked: BTreeSet<Ends>,
}

impl Vsock {
    /// Returns the device of a VM with this CID.
    #[must_use]
    pub fn new(channel: Box<dyn Channel>, cid: u32) -> Self {
        Self {
            channel,
            cid,
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting: VecDeque::new(),
            blocked: BTreeSet::new(),
        }
    }

    /// Returns the CID of this VM.
    #[must_use]
    pub fn cid(&self) -> u32 {
        self.cid
    }

    /// Whether the device has something to process.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.channel.is_pending()
    }

    /// Returns when the next connection without an answer is given up, ns of `CLOCK_MONOTONIC`.
    pub(super) fn next_time(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Processes received packets and expired deadlines; `now` is in ns of `CLOCK_MONOTONIC`.
    pub(super) fn poll(&mut self, now: u64, net: &mut Network) {
        self.channel.begin();
        let mut left = BATCH;
        loop {
            if self.channel.was_reset() {
                self.forget_all(net);
            }
            while left > 0
                && let Some((header, bytes)) = self.channel.next()
            {
                self.take(&header, bytes, net);
                left -= 1;
            }
            if !self.channel.rest() || left == 0 {
                break;
            }
        }
        while let Some(&(at, ends)) = self.deadlines.first()
            && at <= now
        {
            self.reset(ends, Some(Errno::ETIMEDOUT), net);
        }
        while let Some(header) = self.waiting.front()
            && self.channel.send(header, (&[]).into())
        {
            self.waiting.pop_front();
        }
        if self.channel.has_room() {
            for ends in core::mem::take(&mut self.blocked) {
                let socket = self.connections.get(&ends).and_then(|c| c.socket);
                socket.into_iter().for_each(|id| net.touch_output(id));
            }
        }
    }

    /// Sends a packet without bytes, now or when there is room.
    fn send_control(&mut self, header: VsockHeader) {
        if !self.waiting.is_empty() || !self.channel.send(&header, (&[]).into()) {
            self.waiting.push_back(header);
        }
    }

    /// Sends a packet without bytes to the peer of a connection.
    fn tell_peer(&mut self, ends: Ends, op: u16, flags: u32) {
        let mut header = self.header(ends, op);
        header.flags = flags;
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.stamp(&mut header);
        }
        self.send_control(header);
    }

    fn header(&self, ends: Ends, op: u16) -> VsockHeader {
        VsockHeader {
            src_cid: self.cid.into(),
            dst_cid: ends.peer.0.into(),
            src_port: ends.port,
            dst_port: ends.peer.1,
            kind: STREAM,
            op,
            ..VsockHeader::default()
        }
    }

    /// Processes a received packet.
    fn take(&mut self, header: &VsockHeader, bytes: Vec<u8>, net: &mut Network) {
        let is_ours = header.kind == STREAM && header.dst_cid == self.cid.into();
        let peer = u32::try_from(header.src_cid).ok().filter(|_| is_ours);
        let ends = peer.map(|cid| Ends {
            port: header.dst_port,
            peer: (cid, header.src_port),
        });
        match ends.and_then(|ends| Some((ends, self.connections.get_mut(&ends)?))) {
            Some((ends, connection)) => {
                let had_room = connection.credit.room() > 0;
                connection.credit.update(header);
                if !had_room && let (1.., Some(id)) = (connection.credit.room(), connection.socket)
                {
                    net.touch_output(id);
                }
                self.take_known(ends, header, bytes, net);
            }
            None => match (ends, header.op) {
                // A packet that is too short has operation 0 and is ignored.
                (_, op::RESET | 0) => {}
                (Some(ends), op::REQUEST) if self.agree(ends, header, net) => {
                    self.tell_peer(ends, op::RESPONSE, 0);
                }
                _ => self.send_control(header.answer(op::RESET)),
            },
        }
    }

    /// Processes a received packet of a connection.
    fn take_known(&mut self, ends: Ends, header: &VsockHeader, bytes: Vec<u8>, net: &mut Network) {
        let Some(connection) = self.connections.get_mut(&ends) else {
            return;
        };
        match (header.op, connection.is_open) {
            (op::RESPONSE, false) => {
                connection.is_open = true;
                let deadline = connection.deadline.take();
                let socket = connection.socket;
                self.deadlines
                    .retain(|&(at, other)| Some(at) != deadline || other != ends);
                socket.into_iter().for_each(|id| net.vsock_connected(id));
            }
            (op::RESET, false) => self.forget(ends, Some(Errno::ECONNRESET), net),
            (op::RESET, true) => self.forget(ends, None, net),
            (_, false) => self.reset(ends, Some(Errno::EPROTO), net),
            (op::DATA, true) if connection.credit.receive(bytes.len()).is_ok() => {
                let socket = connection.socket;
                match socket.filter(|_| connection.ended & shutdown::RECEIVE == 0) {
                    Some(id) => net.vsock_received(id, bytes),
                    // The socket is closed, so the bytes are dropped.
                    None => connection.credit.forward(bytes.len()),
                }
            }
            (op::SHUTDOWN, true) => {
                connection.peer_ended |= header.flags & shutdown::BOTH;
                let (ended, socket) = (connection.peer_ended, connection.socket);
                match ended {
                    // Earlier bytes are already in the socket's queue.
                    shutdown::BOTH => self.reset(ends, None, net),
                    ended => socket.into_iter().for_each(|id| net.vsock_ended(id, ended)),
                }
            }
            (op::CREDIT_UPDATE, true) => {}
            (op::CREDIT_REQUEST, true) => self.tell_peer(ends, op::CREDIT_UPDATE, 0),
            // More bytes than the buffer has room for, or an unknown operation.
            _ => self.reset(ends, None, net),
        }
    }

    /// Accepts a connection request if a socket listens on the port and has room.
    fn agree(&mut self, ends: Ends, request: &VsockHeader, net: &mut Network) -> bool {
        let Some((id, buffer)) = net.vsock_accepted(ends, self.cid) else {
            return false;
        };
        let mut connection = Connection::new(id, buffer);
        connection.is_open = true;
        connection.credit.update(request);
        self.connections.insert(ends, connection);
        true
    }

    /// Begins to connect a socket, with a buffer of this length, until `deadline`.
    ///
    /// # Errors
    /// `EADDRINUSE` if a connection with these endpoints exists.
    fn connect(
        &mut self,
        id: SocketId,
        ends: Ends,
        buffer: u32,
        deadline: u64,
    ) -> Result<(), Errno> {
        if self.connections.contains_key(&ends) {
            return Err(Errno::EADDRINUSE);
        }
        let mut connection = Connection::new(id, buffer);
        connection.deadline = Some(deadline);
        self.connections.insert(ends, connection);
        self.deadlines.insert((deadline, ends));
        self.tell_peer(ends, op::REQUEST, 0);
        Ok(())
    }

    /// Sends bytes. Returns how many were sent.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EPIPE` if the connection is gone.
    fn send(&mut self, ends: Ends, bytes: UserSlice<'_>) -> Result<usize, Errno> {
        let mut header = self.header(ends, op::DATA);
        let connection = self.connections.get_mut(&ends).ok_or(Errno::EPIPE)?;
        let mut done = 0;
        while done < bytes.len() {
            let most = connection.credit.room().min(self.channel.most());
            let count = most.min(bytes.len() - done);
            if count == 0 {
                break;
            }
            // Waiting packets without bytes go first.
            if !self.waiting.is_empty() || !self.channel.has_room() {
                self.blocked.insert(ends);
                break;
            }
            header.length = low_u32(count as u64);
            connection.credit.stamp(&mut header);
            if !self.channel.send(&header, bytes.skip(done).first(count)) {
                break;
            }
            connection.credit.send(count);
            done += count;
        }
        match done {
            0 if !bytes.is_empty() => Err(Errno::EAGAIN),
            done => Ok(done),
        }
    }

    /// Whether bytes can be sent now.
    fn can_send(&self, ends: Ends) -> bool {
        !self.blocked.contains(&ends)
            && (self.connections.get(&ends)).is_some_and(|connection| connection.credit.room() > 0)
    }

    /// Records that the program has read this many bytes.
    fn forward(&mut self, ends: Ends, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.forward(bytes);
            if connection.credit.is_news() {
                self.tell_peer(ends, op::CREDIT_UPDATE, 0);
            }
        }
    }

    /// Changes the length of a connection's buffer.
    fn resize(&mut self, ends: Ends, buffer: u32) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.resize(buffer);
            self.tell_peer(ends, op::CREDIT_UPDATE, 0);
        }
    }

    /// Shuts down receiving or sending of a connection.
    fn finish(&mut self, ends: Ends, flags: u32) {
        if let Some(connection) = self.connections.get_mut(&ends)
            && connection.ended | flags != connection.ended
        {
            connection.ended |= flags;
            let ended = connection.ended;
            self.tell_peer(ends, op::SHUTDOWN, ended);
        }
    }

    /// Closes the socket of a connection. The peer drops the connection when it has received all
    /// bytes.
    fn close(&mut self, ends: Ends, net: &mut Network) {
        let Some(connection) = self.connections.get_mut(&ends) else {
            return;
        };
        connection.socket = None;
        match connection.is_open {
            true => self.finish(ends, shutdown::BOTH),
            false => self.reset(ends, None, net),
        }
    }

    /// Resets a connection.
    fn reset(&mut self, ends: Ends, error: Option<Errno>, net: &mut Network) {
        self.tell_peer(ends, op::RESET, 0);
        self.forget(ends, error, net);
    }

    /// Removes a connection and tells its socket.
    fn forget(&mut self, ends: Ends, error: Option<Errno>, net: &mut Network) {
        let Some(connection) = self.connections.remove(&ends) else {
            return;
        };
        self.blocked.remove(&ends);
        if let Some(at) = connection.deadline {
            self.deadlines.remove(&(at, ends));
        }
        if let Some(id) = connection.socket {
            net.vsock_closed(id, error);
        }
    }

    fn forget_all(&mut self, net: &mut Network) {
        self.waiting.clear();
        let all: Vec<Ends> = self.connections.keys().copied().collect();
        for ends in all {
            self.forget(ends, Some(Errno::ECONNRESET), net);
        }
    }
}

impl Connection {
    fn new(socket: SocketId, buffer: u32) -> Self {
        Self {
            socket: Some(socket),
            is_open: false,
            credit: Credit::new(buffer),
            ended: 0,
            peer_ended: 0,
            deadline: None,
        }
    }
}
