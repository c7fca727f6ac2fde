//! Stream sockets between this VM and its host (virtio 1.3, section 5.10), and those of the same
//! family within the VM, as vsock(7) has them.
//!
//! What a connection receives goes into the queue of its socket at once, and counts as
//! forwarded when the program has read it. What is sent is copied into the device's buffers, as
//! far as the other end has room: nothing is kept here.

mod sockets;
#[cfg(test)]
mod tests;

use super::Network;
use super::socket::SocketId;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt::Debug;
use hartline_abi::vsock::{Credit, STREAM, VsockHeader, op, shutdown};
use hartline_linux::errno::Errno;

/// Packets that are looked at before programs have their turn.
const BATCH: usize = 256;

/// The device: packets to the host, and from it.
pub trait Channel: Debug {
    /// Whether something has come, or there is room for which somebody waits.
    fn is_pending(&self) -> bool;

    /// Packets are about to be taken: later ones may interrupt.
    fn begin(&mut self);

    /// Whether the device has lost all connections since the last call.
    fn was_reset(&mut self) -> bool;

    /// Takes the next packet, and its bytes.
    fn next(&mut self) -> Option<(VsockHeader, Vec<u8>)>;

    /// No packet was left: the next one is to interrupt. Result: whether one has come
    /// meanwhile.
    fn rest(&mut self) -> bool;

    /// Whether there is room for a packet. If not, room that comes about is told of.
    fn has_room(&mut self) -> bool;

    /// Most bytes of a packet.
    fn most(&self) -> usize;

    /// Sends a packet with no more bytes than that. Result: whether there was room.
    fn send(&mut self, header: &VsockHeader, bytes: &[u8]) -> bool;
}

/// The ends of a connection; this VM has one CID only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// Port of this end.
    pub port: u32,
    /// CID and port of the other one.
    pub peer: (u32, u32),
}

/// What a connection is that the device knows of.
#[derive(Debug)]
struct Connection {
    /// None once it is closed: the other end is to agree.
    socket: Option<SocketId>,
    /// Whether the other end has agreed to it.
    is_open: bool,
    credit: Credit,
    /// What this end will not do any more ([`shutdown`]), and the other one.
    ended: u32,
    peer_ended: u32,
    /// When it is given up, if the other end does not answer: ns of `CLOCK_MONOTONIC`.
    deadline: Option<u64>,
}

/// The device and the connections over it.
#[derive(Debug)]
pub struct Vsock {
    channel: Box<dyn Channel>,
    /// Of this VM.
    cid: u32,
    connections: BTreeMap<Ends, Connection>,
    deadlines: BTreeSet<(u64, Ends)>,
    /// Packets without bytes for which there was no room. They are few: while packets cannot be
    /// sent, the host soon has no room for what it would answer either.
    waiting: VecDeque<VsockHeader>,
    /// Connections that had bytes to send and found no room in the device.
    blocked: BTreeSet<Ends>,
}

impl Vsock {
    /// The device of a VM with this CID.
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

    /// The CID of this VM.
    #[must_use]
    pub fn cid(&self) -> u32 {
        self.cid
    }

    /// Whether something has come.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.channel.is_pending()
    }

    /// When a connection is given up that the other end does not answer, ns of
    /// `CLOCK_MONOTONIC`.
    pub(super) fn next_time(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Looks at packets that have come, and does what time (`now`) asks for.
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
            && self.channel.send(header, &[])
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
    fn tell(&mut self, header: VsockHeader) {
        if !self.waiting.is_empty() || !self.channel.send(&header, &[]) {
            self.waiting.push_back(header);
        }
    }

    /// Sends a packet without bytes of a connection.
    fn tell_peer(&mut self, ends: Ends, op: u16, flags: u32) {
        let mut header = self.header(ends, op);
        header.flags = flags;
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.tell(&mut header);
        }
        self.tell(header);
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

    /// Looks at a packet.
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
                connection.credit.hear(header);
                if !had_room && let (1.., Some(id)) = (connection.credit.room(), connection.socket)
                {
                    net.touch_output(id);
                }
                self.take_known(ends, header, bytes, net);
            }
            None => match (ends, header.op) {
                // A packet that is too short is none.
                (_, op::RESET | 0) => {}
                (Some(ends), op::REQUEST) if self.agree(ends, header, net) => {
                    self.tell_peer(ends, op::RESPONSE, 0);
                }
                _ => self.tell(header.answer(op::RESET)),
            },
        }
    }

    /// Looks at a packet of a connection.
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
                    // Nobody will read it.
                    None => connection.credit.forward(bytes.len()),
                }
            }
            (op::SHUTDOWN, true) => {
                connection.peer_ended |= header.flags & shutdown::BOTH;
                let (ended, socket) = (connection.peer_ended, connection.socket);
                match ended {
                    // What came before is in the socket's queue.
                    shutdown::BOTH => self.reset(ends, None, net),
                    ended => socket.into_iter().for_each(|id| net.vsock_ended(id, ended)),
                }
            }
            (op::CREDIT_UPDATE, true) => {}
            (op::CREDIT_REQUEST, true) => self.tell_peer(ends, op::CREDIT_UPDATE, 0),
            // More than there was room for, or nothing known.
            _ => self.reset(ends, None, net),
        }
    }

    /// Agrees to a connection, if somebody listens who has room for it.
    fn agree(&mut self, ends: Ends, request: &VsockHeader, net: &mut Network) -> bool {
        let Some((id, buffer)) = net.vsock_accepted(ends, self.cid) else {
            return false;
        };
        let mut connection = Connection::new(id, buffer);
        connection.is_open = true;
        connection.credit.hear(request);
        self.connections.insert(ends, connection);
        true
    }

    /// Begins to connect a socket, with a buffer of this length, until `deadline`.
    ///
    /// # Errors
    /// `EADDRINUSE`: there is such a connection.
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

    /// Sends bytes. Result: how many were sent.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EPIPE` if the connection is gone.
    fn send(&mut self, ends: Ends, bytes: &[u8]) -> Result<usize, Errno> {
        let mut header = self.header(ends, op::DATA);
        let connection = self.connections.get_mut(&ends).ok_or(Errno::EPIPE)?;
        let mut done = 0;
        while done < bytes.len() {
            let most = connection.credit.room().min(self.channel.most());
            let count = most.min(bytes.len() - done);
            if count == 0 {
                break;
            }
            // Packets without bytes that wait were first.
            if !self.waiting.is_empty() || !self.channel.has_room() {
                self.blocked.insert(ends);
                break;
            }
            header.length = count as u32;
            connection.credit.tell(&mut header);
            if !self.channel.send(&header, &bytes[done..done + count]) {
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

    /// The program has read so many bytes.
    fn forward(&mut self, ends: Ends, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.forward(bytes);
            if connection.credit.is_news() {
                self.tell_peer(ends, op::CREDIT_UPDATE, 0);
            }
        }
    }

    /// The buffer of a connection has another length from now on.
    fn resize(&mut self, ends: Ends, buffer: u32) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.credit.resize(buffer);
            self.tell_peer(ends, op::CREDIT_UPDATE, 0);
        }
    }

    /// This end will not receive, or not send any more.
    fn finish(&mut self, ends: Ends, flags: u32) {
        if let Some(connection) = self.connections.get_mut(&ends)
            && connection.ended | flags != connection.ended
        {
            connection.ended |= flags;
            let ended = connection.ended;
            self.tell_peer(ends, op::SHUTDOWN, ended);
        }
    }

    /// The socket of a connection is closed. The other end forgets the connection when it has
    /// all that was sent.
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

    /// Ends a connection and tells the other end.
    fn reset(&mut self, ends: Ends, error: Option<Errno>, net: &mut Network) {
        self.tell_peer(ends, op::RESET, 0);
        self.forget(ends, error, net);
    }

    /// A connection is over.
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
