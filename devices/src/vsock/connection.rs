//! One connection: a stream of the guest, and a Unix socket of the host that carries its bytes
//! on.

use crate::virtio::buffers;
use hartline_abi::vsock::{Credit, VsockHeader, op, shutdown};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use vmm_sys_util::epoll::EventSet;

/// Length of the buffer of what the guest has sent and the host has not taken, bytes. Memory is
/// taken when it is used.
pub(super) const BUFFER: u32 = 256 << 10;
/// Longest line with which a host begins, bytes.
const LONGEST_COMMAND: usize = 32;

/// The ports of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub guest: u32,
    pub host: u32,
}

/// Where a connection is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// The host has connected and is to say where to.
    Command(Vec<u8>),
    /// The guest is to be asked.
    Asking,
    /// It was asked.
    Asked,
    /// The guest has asked, and is to be answered.
    Answering,
    /// Both ends know of it.
    Open,
    /// The guest is to be told that it is over.
    Resetting,
    /// It is over, and nobody need be told.
    Over,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub ends: Ends,
    pub phase: Phase,
    stream: UnixStream,
    credit: Credit,
    /// What the guest has sent and the host has not taken.
    unwritten: VecDeque<u8>,
    /// Whether there may be something to read from the host, and room for it there.
    readable: bool,
    writable: bool,
    /// What the host will not do any more, as [`shutdown`] says it: that is what it will not
    /// send or receive.
    host_ended: u32,
    /// What of that the guest was told.
    told: u32,
    /// What the guest will not do any more.
    guest_ended: u32,
    /// What of that the host was told.
    passed_on: u32,
    /// The guest asked how much room there is.
    asked_for_credit: bool,
    /// It waits for its turn to give the guest something.
    pub is_queued: bool,
}

/// What was read of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// More is to come.
    Unfinished,
    /// The port of the guest to connect to.
    Connect(u32),
    /// Something else.
    Bad,
}

impl Connection {
    fn new(stream: UnixStream, ends: Ends, phase: Phase) -> Self {
        Self {
            ends,
            phase,
            stream,
            credit: Credit::new(BUFFER),
            unwritten: VecDeque::new(),
            readable: false,
            writable: false,
            host_ended: 0,
            told: 0,
            guest_ended: 0,
            passed_on: 0,
            asked_for_credit: false,
            is_queued: false,
        }
    }

    /// A host has connected.
    pub fn from_host(stream: UnixStream) -> Self {
        let nowhere = Ends { guest: 0, host: 0 };
        Self::new(stream, nowhere, Phase::Command(Vec::new()))
    }

    /// The guest has asked for it with this packet, and the host's end is there.
    pub fn from_guest(stream: UnixStream, ends: Ends, request: &VsockHeader) -> Self {
        let mut connection = Self::new(stream, ends, Phase::Answering);
        connection.credit.hear(request);
        connection
    }

    /// The socket of the host.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Something has happened to the socket of the host.
    pub fn note(&mut self, events: EventSet) {
        let failed = events.intersects(EventSet::ERROR | EventSet::HANG_UP);
        self.readable |= failed || events.intersects(EventSet::IN | EventSet::READ_HANG_UP);
        self.writable |= failed || events.contains(EventSet::OUT);
        if failed {
            self.host_takes_no_more();
        }
        self.flush();
        if failed && matches!(self.phase, Phase::Asking | Phase::Asked) {
            self.reset();
        }
    }

    /// Reads what the host wants, no further than the end of the line: what follows is the
    /// guest's.
    pub fn read_command(&mut self) -> Command {
        let Phase::Command(line) = &mut self.phase else {
            return Command::Bad;
        };
        let mut byte = [0];
        while line.len() < LONGEST_COMMAND {
            match self.stream.read(&mut byte) {
                Ok(1) if byte == *b"\n" => return parse(line),
                Ok(1) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Command::Unfinished;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return Command::Bad,
            }
        }
        Command::Bad
    }

    /// The guest has agreed.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
        // The first bytes that the host is sent, for which it has room.
        let line = format!("OK {}\n", self.ends.host);
        if self.stream.write_all(line.as_bytes()).is_err() {
            self.host_takes_no_more();
        }
    }

    /// It is over, and the guest is to be told. What the host has not taken is lost.
    pub fn reset(&mut self) {
        self.phase = Phase::Resetting;
        self.close();
    }

    /// The guest has ended it.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
        self.close();
    }

    fn close(&mut self) {
        self.unwritten = VecDeque::new();
        // The other end may be gone.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Takes over what each packet of the guest tells.
    pub fn hear(&mut self, header: &VsockHeader) {
        self.credit.hear(header);
    }

    /// The guest asked how much room there is.
    pub fn ask_for_credit(&mut self) {
        self.asked_for_credit = true;
    }

    /// The guest will not receive, or not send any more.
    pub fn guest_ends(&mut self, flags: u32) {
        self.guest_ended |= flags & shutdown::BOTH;
        self.pass_ends_on();
    }

    /// Tells the host what the guest will not do any more, once it has what was sent before.
    fn pass_ends_on(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        let mut news = self.guest_ended & !self.passed_on;
        if !self.unwritten.is_empty() {
            news &= !shutdown::SEND;
        }
        for (flag, how) in [
            (shutdown::SEND, Shutdown::Write),
            (shutdown::RECEIVE, Shutdown::Read),
        ] {
            if news & flag != 0 {
                // The other end may be gone.
                let _ = self.stream.shutdown(how);
            }
        }
        self.passed_on |= news;
        if self.passed_on == shutdown::BOTH {
            self.reset();
        }
    }

    /// The host does not take any more; what it has not taken is lost.
    fn host_takes_no_more(&mut self) {
        self.host_ended |= shutdown::RECEIVE;
        self.credit.forward(self.unwritten.len());
        self.unwritten = VecDeque::new();
        self.pass_ends_on();
    }

    /// The guest has sent these bytes.
    ///
    /// # Safety
    /// The buffers may be read.
    pub unsafe fn take(&mut self, data: &[libc::iovec]) {
        let length = buffers::length(data);
        if self.guest_ended & shutdown::SEND != 0 || self.credit.receive(length).is_err() {
            return self.reset();
        }
        if self.host_ended & shutdown::RECEIVE != 0 {
            return self.credit.forward(length);
        }
        let mut done = 0;
        if self.unwritten.is_empty() && self.writable {
            // SAFETY: the caller's contract.
            match unsafe { send(&self.stream, data) } {
                Ok(count) => done = count,
                Err(error) => self.note_error(&error),
            }
            self.credit.forward(done);
        }
        if self.host_ended & shutdown::RECEIVE != 0 {
            return self.credit.forward(length - done);
        }
        if let Some((_, rest)) = buffers::split(data, done) {
            let mut bytes = vec![0; length - done];
            // SAFETY: the caller's contract.
            unsafe { buffers::copy_from(&rest, &mut bytes) };
            self.unwritten.extend(bytes);
        }
        self.flush();
    }

    /// Gives the host what it has not taken.
    pub fn flush(&mut self) {
        while self.writable && !self.unwritten.is_empty() {
            let (first, _) = self.unwritten.as_slices();
            match self.stream.write(first) {
                Ok(count) => {
                    self.unwritten.drain(..count);
                    self.credit.forward(count);
                }
                Err(error) => self.note_error(&error),
            }
        }
        if self.unwritten.is_empty() {
            self.pass_ends_on();
        }
    }

    /// Whether the host has not taken everything yet.
    pub fn is_behind(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// An error of writing.
    fn note_error(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.writable = false,
            io::ErrorKind::Interrupted => {}
            _ => self.host_takes_no_more(),
        }
    }

    /// Whether bytes of the host can be given to the guest, as far as is known.
    fn can_read(&self) -> bool {
        self.readable
            && self.phase == Phase::Open
            && self.host_ended & shutdown::SEND == 0
            && self.guest_ended & shutdown::RECEIVE == 0
            && self.credit.room() > 0
    }

    /// Whether the guest has not been told all that it is to know.
    pub fn has_news(&self) -> bool {
        match self.phase {
            Phase::Asking | Phase::Answering | Phase::Resetting => true,
            Phase::Command(_) | Phase::Asked | Phase::Over => false,
            Phase::Open => {
                self.can_read()
                    || self.host_ended != self.told
                    || self.asked_for_credit
                    || self.credit.is_news()
            }
        }
    }

    /// The next packet for the guest, whose bytes go into `room`. Result: what the packet is,
    /// its flags, and the number of its bytes; none if there is none, after all.
    ///
    /// # Safety
    /// The buffers may be written.
    pub unsafe fn next_packet(&mut self, room: &[libc::iovec]) -> Option<(u16, u32, usize)> {
        match self.phase {
            Phase::Asking => {
                self.phase = Phase::Asked;
                return Some((op::REQUEST, 0, 0));
            }
            Phase::Answering => {
                self.phase = Phase::Open;
                return Some((op::RESPONSE, 0, 0));
            }
            Phase::Resetting => {
                self.phase = Phase::Over;
                return Some((op::RESET, 0, 0));
            }
            Phase::Command(_) | Phase::Asked | Phase::Over => return None,
            Phase::Open => {}
        }
        if self.can_read() {
            // SAFETY: the caller's contract.
            let read = unsafe { self.read(room) };
            if let Some(count) = read {
                return Some((op::DATA, 0, count));
            }
        }
        if self.host_ended != self.told {
            self.told = self.host_ended;
            return Some((op::SHUTDOWN, self.told, 0));
        }
        let wants_update = self.asked_for_credit || self.credit.is_news();
        self.asked_for_credit = false;
        wants_update.then_some((op::CREDIT_UPDATE, 0, 0))
    }

    /// Tells the guest how much room there is, in any packet.
    pub fn tell(&mut self, header: &mut VsockHeader) {
        self.credit.tell(header);
    }

    /// Reads what the host has sent, as much as the guest takes.
    ///
    /// # Safety
    /// The buffers may be written.
    unsafe fn read(&mut self, room: &[libc::iovec]) -> Option<usize> {
        let most = buffers::length(room).min(self.credit.room());
        let (room, _) = buffers::split(room, most)?;
        loop {
            // SAFETY: the caller's contract; MAX_BUFFERS is far below the kernel's limit.
            let count = unsafe {
                let (first, count) = (room.as_ptr(), room.len() as libc::c_int);
                libc::readv(self.stream.as_raw_fd(), first, count)
            };
            match count {
                1.. => {
                    let count = count.unsigned_abs();
                    self.credit.send(count);
                    return Some(count);
                }
                0 => {
                    self.host_ended |= shutdown::SEND;
                    return None;
                }
                _ => {}
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return None;
                }
                // Reset by the other end.
                _ => {
                    self.host_ended |= shutdown::SEND;
                    return None;
                }
            }
        }
    }
}

/// `CONNECT PORT`
fn parse(line: &[u8]) -> Command {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let port = line
        .strip_prefix(b"CONNECT ")
        .and_then(|port| str::from_utf8(port).ok())
        .and_then(|port| port.parse().ok());
    port.map_or(Command::Bad, Command::Connect)
}

/// Writes to a socket without a signal when its other end is gone.
///
/// # Safety
/// The buffers may be read.
unsafe fn send(stream: &UnixStream, data: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: all zeros are a valid structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = data.as_ptr().cast_mut();
    message.msg_iovlen = data.len();
    // SAFETY: a valid structure, whose buffers the caller vouches for; they are only read.
    let count =
        unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        assert_eq!(parse(b"CONNECT 52"), Command::Connect(52));
        assert_eq!(parse(b"CONNECT 4294967295\r"), Command::Connect(u32::MAX));
        for bad in [
            "",
            "CONNECT",
            "CONNECT ",
            "connect 5",
            "CONNECT -1",
            "CONNECT 4294967296",
        ] {
            assert_eq!(parse(bad.as_bytes()), Command::Bad, "{bad}");
        }
    }

    #[test]
    fn a_line_may_come_in_pieces_and_ends_where_it_ends() {
        let (mut host, here) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut connection = Connection::from_host(here);
        host.write_all(b"CONN").unwrap();
        assert_eq!(connection.read_command(), Command::Unfinished);
        host.write_all(b"ECT 7\nhello").unwrap();
        assert_eq!(connection.read_command(), Command::Connect(7));
        let mut rest = [0; 9];
        assert_eq!((&connection.stream).read(&mut rest).unwrap(), 5);
        assert_eq!(&rest[..5], b"hello");
        host.write_all(&[b'x'; 40]).unwrap();
        assert_eq!(connection.read_command(), Command::Bad);
    }
}
