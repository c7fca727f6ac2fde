//! The thread of a socket device: packets between the rings and the connections.

use super::connection::{Command, Connection, Ends, Phase};
use super::host::{Host, LISTENER};
use super::stats::Counters;
use crate::virtio::buffers;
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Bell, Work};
use crate::virtio::{
    Chain, DeviceError, Direction, Guest, MAX_QUEUE_SIZE, Memory, give_back, interrupt_for,
    next_chain, want_doorbell,
};
use hartline_abi::vsock::{CID_HOST, STREAM, VsockHeader, op};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_queue::Queue;
use vmm_sys_util::epoll::{EpollEvent, EventSet};

/// Packets that are moved in one direction, and connections that are taken, before something
/// else is looked at.
const BATCH: usize = 64;
/// Most connections: each has a descriptor and a buffer of the host.
pub(super) const MOST: usize = 1024;
/// Answers to packets of no connection that wait for the guest to take them. While there are so
/// many nothing is taken from it.
const MOST_ANSWERS: usize = 256;
/// Events of host sockets that are looked at in one go.
const EVENTS: usize = 64;
/// The first port of the host that stands for one of its clients; those below are for what the
/// guest connects to.
const FIRST_PORT: u32 = 1 << 30;
/// How long the host has time to take what the guest has sent before the VM ended.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    host: Host,
    cid: u64,
    receive: Queue,
    transmit: Queue,
    /// By a number that is not used again.
    connections: HashMap<u64, Connection>,
    by_ends: HashMap<Ends, u64>,
    last: u64,
    last_port: u32,
    /// Connections that have something for the guest, each of them once.
    pub(super) queued: VecDeque<u64>,
    /// Answers to packets of no connection.
    answers: VecDeque<VsockHeader>,
    /// Hosts may be waiting to be connected.
    accepts: bool,
    /// A receive buffer that was taken and not used yet.
    spare: Option<Chain>,
    /// There was no receive buffer.
    starved: bool,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
}

impl Worker {
    pub fn new(
        host: Host,
        cid: u64,
        [receive, transmit]: [Queue; 2],
        memory: Memory,
        guest: Arc<dyn Guest>,
        counters: Arc<Counters>,
        bell: Arc<Bell>,
    ) -> Self {
        Self {
            host,
            cid,
            receive,
            transmit,
            connections: HashMap::new(),
            by_ends: HashMap::new(),
            last: LISTENER,
            last_port: FIRST_PORT,
            queued: VecDeque::new(),
            answers: VecDeque::new(),
            // Some may have come before the guest was ready.
            accepts: true,
            spare: None,
            starved: false,
            memory,
            guest,
            counters,
            bell,
        }
    }

    /// Moves packets until the device is reset, or the guest breaks a ring. Result: the host's
    /// side, without connections.
    pub fn run(mut self, polling: Duration) -> Host {
        let bell = Arc::clone(&self.bell);
        // What the guest has sent before its end still reaches the host.
        let result = worker::run(&mut self, &bell, polling).and_then(|()| self.finish());
        if let Err(error) = result {
            self.guest.fail(error);
        }
        self.host
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        // No more than the ring has room for: a guest that goes on sending must not keep this
        // from its end.
        for _ in 0..usize::from(MAX_QUEUE_SIZE) / BATCH {
            // It no longer takes what it is answered.
            self.answers.clear();
            self.send()?;
        }
        let end = Instant::now() + PATIENCE;
        while self.connections.values().any(Connection::is_behind) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.look(i32::try_from(left.as_millis()).unwrap_or(0) + 1);
        }
        Ok(())
    }

    /// Takes what the guest has sent.
    fn send(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < BATCH
            && self.answers.len() < MOST_ANSWERS
            && let Some(chain) = next_chain(&mut self.transmit, &self.memory, Direction::Read)?
        {
            self.take_packet(&chain)?;
            give_back(&mut self.transmit, &self.memory, chain.head, 0)?;
            done += 1;
        }
        if done > 0 && interrupt_for(&mut self.transmit, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    fn take_packet(&mut self, chain: &Chain) -> Result<(), DeviceError> {
        let (start, data) =
            buffers::split(&chain.buffers, VsockHeader::LENGTH).ok_or(DeviceError::Buffer)?;
        let mut bytes = [0; VsockHeader::LENGTH];
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        unsafe { buffers::copy_from(&start, &mut bytes) };
        let header = VsockHeader::from_bytes(&bytes);
        let (data, _) = buffers::split(&data, header.length as usize).ok_or(DeviceError::Buffer)?;
        count(&self.counters.sent_packets, 1);
        count(&self.counters.sent_bytes, header.length.into());
        if header.src_cid != self.cid {
            // Nobody's: there is no one to answer.
            return Ok(());
        }
        let ends = Ends {
            guest: header.src_port,
            host: header.dst_port,
        };
        let is_for_host = header.dst_cid == u64::from(CID_HOST) && header.kind == STREAM;
        let known = self.by_ends.get(&ends).filter(|_| is_for_host).copied();
        match known.and_then(|id| Some((id, self.connections.get_mut(&id)?))) {
            Some((id, connection)) => {
                connection.hear(&header);
                match (header.op, &connection.phase) {
                    (op::RESET, phase) => {
                        if *phase == Phase::Asked {
                            count(&self.counters.refused, 1);
                        }
                        connection.end();
                    }
                    (op::RESPONSE, Phase::Asked) => {
                        connection.open();
                        count(&self.counters.connections, 1);
                    }
                    // SAFETY: as above.
                    (op::DATA, Phase::Open) => unsafe { connection.take(&data) },
                    (op::SHUTDOWN, Phase::Open) => connection.guest_ends(header.flags),
                    (op::CREDIT_UPDATE, Phase::Open) => {}
                    (op::CREDIT_REQUEST, Phase::Open) => connection.ask_for_credit(),
                    // It was told, or will be.
                    (_, Phase::Resetting | Phase::Over) => {}
                    _ => connection.reset(),
                }
                self.settle(id);
            }
            None if is_for_host && header.op == op::REQUEST => self.connect(ends, &header),
            None if header.op == op::RESET => {}
            None => self.answers.push_back(header.answer(op::RESET)),
        }
        Ok(())
    }

    /// The guest wants to connect to a port of the host.
    fn connect(&mut self, ends: Ends, request: &VsockHeader) {
        let result = match self.connections.len() < MOST {
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
                self.answers.push_back(request.answer(op::RESET));
            }
        }
    }

    fn add(&mut self, connection: Connection) -> io::Result<u64> {
        self.last += 1;
        self.host
            .watch(connection.stream().as_raw_fd(), self.last)?;
        self.connections.insert(self.last, connection);
        Ok(self.last)
    }

    /// Takes hosts that have connected. Result: whether there were any.
    fn accept(&mut self) -> bool {
        for done in 0..BATCH {
            match self.host.accept() {
                Ok(stream) => self.add_host(stream),
                Err(error) => {
                    // One that gave up says nothing about others.
                    self.accepts =
                        matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR));
                    return done > 0;
                }
            }
        }
        true
    }

    fn add_host(&mut self, stream: UnixStream) {
        // One for which there is no room is closed.
        if self.connections.len() < MOST
            && let Ok(id) = self.add(Connection::from_host(stream))
        {
            self.read_command(id);
        }
    }

    /// Reads which port a host wants.
    fn read_command(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        match connection.read_command() {
            Command::Unfinished => {}
            Command::Connect(guest) => {
                // There are more ports than connections.
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
                connection.phase = Phase::Asking;
            }
            Command::Bad => connection.end(),
        }
        self.settle(id);
    }

    /// Looks at what has happened to the host's sockets, or happens within so many
    /// milliseconds. Result: whether something has.
    fn look(&mut self, timeout: i32) -> bool {
        let mut events = [EpollEvent::default(); EVENTS];
        // It fails only if there is no such descriptor.
        let Ok(events) = self.host.events(timeout, &mut events) else {
            return false;
        };
        for event in events {
            self.event(event.data(), event.event_set());
        }
        let accepted = self.accepts && self.accept();
        accepted || !events.is_empty()
    }

    fn event(&mut self, id: u64, events: EventSet) {
        if id == LISTENER {
            self.accepts = true;
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.note(events);
        match connection.phase {
            Phase::Command(_) => self.read_command(id),
            _ => self.settle(id),
        }
    }

    /// Forgets a connection that is over, or lets it wait for its turn if it has something for
    /// the guest.
    fn settle(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.phase == Phase::Over {
            let ends = connection.ends;
            if connection.is_queued {
                // Otherwise the queue grows with each connection of a guest that takes nothing.
                self.queued.retain(|&other| other != id);
            }
            self.connections.remove(&id);
            // There may have been no descriptor for one that waits.
            self.accepts = true;
            if self.by_ends.get(&ends) == Some(&id) {
                self.by_ends.remove(&ends);
            }
        } else if !connection.is_queued && connection.has_news() {
            connection.is_queued = true;
            self.queued.push_back(id);
        }
    }

    /// Gives the guest what there is for it.
    fn receive(&mut self) -> Result<bool, DeviceError> {
        let mut done = 0;
        self.starved = false;
        while done < BATCH && (!self.answers.is_empty() || !self.queued.is_empty()) {
            let chain = match self.spare.take() {
                Some(chain) => Some(chain),
                None => next_chain(&mut self.receive, &self.memory, Direction::Write)?,
            };
            let Some(chain) = chain else {
                self.starved = true;
                break;
            };
            done += usize::from(self.receive_one(chain)?);
        }
        if done > 0 && interrupt_for(&mut self.receive, &self.memory, &*self.guest)? {
            count(&self.counters.interrupts, 1);
        }
        Ok(done > 0)
    }

    /// Gives the guest one packet, if whose turn it is has one. Result: whether it was.
    fn receive_one(&mut self, chain: Chain) -> Result<bool, DeviceError> {
        let (start, room) =
            buffers::split(&chain.buffers, VsockHeader::LENGTH).ok_or(DeviceError::Buffer)?;
        if room.is_empty() {
            return Err(DeviceError::Buffer);
        }
        let header = match self.answers.pop_front() {
            Some(answer) => Some(answer),
            None => self.next_packet(&room),
        };
        let Some(header) = header else {
            self.spare = Some(chain);
            return Ok(false);
        };
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        unsafe { buffers::copy_to(&start, &header.to_bytes()) };
        count(&self.counters.received_packets, 1);
        count(&self.counters.received_bytes, header.length.into());
        let length = VsockHeader::LENGTH as u32 + header.length;
        give_back(&mut self.receive, &self.memory, chain.head, length)?;
        Ok(true)
    }

    /// The next packet of the connection whose turn it is, if it has one.
    fn next_packet(&mut self, room: &[libc::iovec]) -> Option<VsockHeader> {
        let id = self.queued.pop_front()?;
        let connection = self.connections.get_mut(&id)?;
        connection.is_queued = false;
        // SAFETY: buffers in the guest's RAM, which is mapped as long as `memory`.
        let packet = unsafe { connection.next_packet(room) };
        let header = packet.map(|(op, flags, length)| {
            let mut header = VsockHeader {
                src_cid: CID_HOST.into(),
                dst_cid: self.cid,
                src_port: connection.ends.host,
                dst_port: connection.ends.guest,
                length: length as u32,
                kind: STREAM,
                op,
                flags,
                ..VsockHeader::default()
            };
            connection.tell(&mut header);
            header
        });
        self.settle(id);
        header
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.guest
    }

    fn turn(&mut self) -> Result<bool, DeviceError> {
        let sent = self.send()?;
        let looked = self.look(0);
        let received = self.receive()?;
        Ok(sent || looked || received)
    }

    fn watches(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        // What may not be taken yet is no reason to look again.
        let takes = self.answers.len() < MOST_ANSWERS;
        let more = takes && want_doorbell(&mut self.transmit, &self.memory)?;
        let more = more || self.starved && want_doorbell(&mut self.receive, &self.memory)?;
        if more {
            return Ok(());
        }
        count(&self.counters.sleeps, 1);
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls = [entry(self.bell.descriptor()), entry(self.host.descriptor())];
        // SAFETY: two valid entries. Interrupted: the next turn finds nothing.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if polls[0].revents != 0 {
            self.bell.quiet();
        }
        Ok(())
    }
}

// SAFETY: the buffers are the guest's RAM, which belongs to no thread.
unsafe impl Send for Worker {}
