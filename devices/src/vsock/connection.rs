//! A connection: a stream of the guest, and a Unix socket of the host that carries its bytes on.

use crate::virtio::Buffers;
use hartline_abi::vsock::{Credit, VsockHeader, op, shutdown};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Length of the buffer of bytes that the host has not taken yet. Memory is allocated at first use.
pub(super) const BUFFER: u32 = 256 << 10;
/// Longest first line of a client, bytes.
const MAX_COMMAND: usize = 32;

/// The ports of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub guest: u32,
    pub host: u32,
}

/// Phase of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// A client has connected and sends its command: the bytes so far.
    Command(Vec<u8>),
    /// A REQUEST for the guest is pending.
    Requesting,
    /// The guest has the REQUEST.
    Requested,
    /// A RESPONSE for the guest is pending.
    Responding,
    /// The connection is established.
    Open,
    /// A RST for the guest is pending.
    Resetting,
    /// The connection has ended at both ends.
    Over,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub ends: Ends,
    pub phase: Phase,
    stream: UnixStream,
    credit: Credit,
    /// Bytes of the guest that the host has not taken yet.
    unwritten: VecDeque<u8>,
    /// Whether the host's socket may be readable and writable.
    readable: bool,
    writable: bool,
    /// Directions that the host has shut down ([`shutdown`]).
    host_shutdown: u32,
    /// The part of `host_shutdown` that the guest was sent.
    host_shutdown_sent: u32,
    /// Directions that the guest has shut down.
    guest_shutdown: u32,
    /// The part of `guest_shutdown` that was applied to the host's socket.
    guest_shutdown_done: u32,
    /// Whether the guest has requested a credit update.
    owes_credit_update: bool,
    /// Whether the connection is in the queue of connections with a packet for the guest.
    pub is_queued: bool,
}

/// The command of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The line is incomplete.
    Unfinished,
    /// `CONNECT` with a port of the guest.
    Connect(u32),
    /// Another line.
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
            host_shutdown: 0,
            host_shutdown_sent: 0,
            guest_shutdown: 0,
            guest_shutdown_done: 0,
            owes_credit_update: false,
            is_queued: false,
        }
    }

    /// The connection of a client, whose ports are not known yet.
    pub fn from_host(stream: UnixStream) -> Self {
        let unknown = Ends { guest: 0, host: 0 };
        Self::new(stream, unknown, Phase::Command(Vec::new()))
    }

    /// The connection of a guest that sent this REQUEST. `stream` is connected to the host's end.
    pub fn from_guest(stream: UnixStream, ends: Ends, request: &VsockHeader) -> Self {
        let mut connection = Self::new(stream, ends, Phase::Responding);
        connection.credit.update(request);
        connection
    }

    /// The socket of the host.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Handles an event of the host's socket.
    pub fn handle_event(&mut self, events: EventFlags) {
        let failed = events.intersects(EventFlags::ERR | EventFlags::HUP);
        self.readable |= failed || events.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= failed || events.contains(EventFlags::OUT);
        if failed {
            self.close_host_receive();
        }
        self.flush();
        if failed && matches!(self.phase, Phase::Requesting | Phase::Requested) {
            self.reset();
        }
    }

    /// Reads a client's command up to the end of the line: the bytes after it are for the guest.
    pub fn read_command(&mut self) -> Command {
        let Phase::Command(line) = &mut self.phase else {
            return Command::Bad;
        };
        let mut byte = [0];
        while line.len() < MAX_COMMAND {
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

    /// Opens the connection after the guest's RESPONSE.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
        // The socket's buffer is empty, so it has room for the line.
        let line = format!("OK {}\n", self.ends.host);
        if self.stream.write_all(line.as_bytes()).is_err() {
            self.close_host_receive();
        }
    }

    /// Ends the connection with a RST for the guest. Bytes that the host has not taken are lost.
    pub fn reset(&mut self) {
        self.phase = Phase::Resetting;
        self.close();
    }

    /// Ends the connection after a RST of the guest, or before the guest knows it.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
        self.close();
    }

    fn close(&mut self) {
        self.unwritten = VecDeque::new();
        // The other end may be disconnected.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Updates the credit from the header of a packet of the guest.
    pub fn update_credit(&mut self, header: &VsockHeader) {
        self.credit.update(header);
    }

    /// Handles a CREDIT_REQUEST of the guest.
    pub fn request_credit_update(&mut self) {
        self.owes_credit_update = true;
    }

    /// Handles a SHUTDOWN of the guest with these flags.
    pub fn guest_shuts_down(&mut self, flags: u32) {
        self.guest_shutdown |= flags & shutdown::BOTH;
        self.apply_guest_shutdown();
    }

    /// Shuts the host's socket down as the guest has, for sending only after the host has all bytes.
    fn apply_guest_shutdown(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        let mut added = self.guest_shutdown & !self.guest_shutdown_done;
        if !self.unwritten.is_empty() {
            added &= !shutdown::SEND;
        }
        for (flag, how) in [
            (shutdown::SEND, Shutdown::Write),
            (shutdown::RECEIVE, Shutdown::Read),
        ] {
            if added & flag != 0 {
                // The other end may be disconnected.
                let _ = self.stream.shutdown(how);
            }
        }
        self.guest_shutdown_done |= added;
        if self.guest_shutdown_done == shutdown::BOTH {
            self.reset();
        }
    }

    /// Marks that the host receives no more. Bytes that it has not taken are lost.
    fn close_host_receive(&mut self) {
        self.host_shutdown |= shutdown::RECEIVE;
        self.credit.forward(self.unwritten.len());
        self.unwritten = VecDeque::new();
        self.apply_guest_shutdown();
    }

    /// Handles bytes of the guest.
    pub fn take(&mut self, data: &Buffers) {
        let length = data.length();
        if self.guest_shutdown & shutdown::SEND != 0 || self.credit.receive(length).is_err() {
            return self.reset();
        }
        if self.host_shutdown & shutdown::RECEIVE != 0 {
            return self.credit.forward(length);
        }
        let mut done = 0;
        if self.unwritten.is_empty() && self.writable {
            match send(&self.stream, data) {
                Ok(count) => done = count,
                Err(error) => self.handle_write_error(&error),
            }
            self.credit.forward(done);
        }
        if self.host_shutdown & shutdown::RECEIVE != 0 {
            return self.credit.forward(length - done);
        }
        if let Some((_, rest)) = data.split(done) {
            let mut bytes = vec![0; length - done];
            rest.copy_from(&mut bytes);
            self.unwritten.extend(bytes);
        }
        self.flush();
    }

    /// Writes bytes that the host has not taken yet.
    pub fn flush(&mut self) {
        while self.writable && !self.unwritten.is_empty() {
            let (first, _) = self.unwritten.as_slices();
            match self.stream.write(first) {
                Ok(count) => {
                    self.unwritten.drain(..count);
                    self.credit.forward(count);
                }
                Err(error) => self.handle_write_error(&error),
            }
        }
        if self.unwritten.is_empty() {
            self.apply_guest_shutdown();
        }
    }

    /// Whether the host has not taken all bytes yet.
    pub fn is_behind(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Handles an error of a write to the host's socket.
    fn handle_write_error(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.writable = false,
            io::ErrorKind::Interrupted => {}
            _ => self.close_host_receive(),
        }
    }

    /// Whether the host may have bytes that the guest can receive.
    fn can_read(&self) -> bool {
        self.readable
            && self.phase == Phase::Open
            && self.host_shutdown & shutdown::SEND == 0
            && self.guest_shutdown & shutdown::RECEIVE == 0
            && self.credit.room() > 0
    }

    /// Whether there may be a packet for the guest.
    pub fn has_packet(&self) -> bool {
        match self.phase {
            Phase::Requesting | Phase::Responding | Phase::Resetting => true,
            Phase::Command(_) | Phase::Requested | Phase::Over => false,
            Phase::Open => {
                self.can_read()
                    || self.host_shutdown != self.host_shutdown_sent
                    || self.owes_credit_update
                    || self.credit.is_news()
            }
        }
    }

    /// The next packet for the guest, whose bytes go into `room`: operation, flags, and number of
    /// bytes. `None` if there is no packet after all.
    pub fn next_packet(&mut self, room: &Buffers) -> Option<(u16, u32, u32)> {
        match self.phase {
            Phase::Requesting => {
                self.phase = Phase::Requested;
                return Some((op::REQUEST, 0, 0));
            }
            Phase::Responding => {
                self.phase = Phase::Open;
                return Some((op::RESPONSE, 0, 0));
            }
            Phase::Resetting => {
                self.phase = Phase::Over;
                return Some((op::RESET, 0, 0));
            }
            Phase::Command(_) | Phase::Requested | Phase::Over => return None,
            Phase::Open => {}
        }
        if self.can_read()
            && let Some(count) = self.read(room)
        {
            return Some((op::DATA, 0, count));
        }
        if self.host_shutdown != self.host_shutdown_sent {
            self.host_shutdown_sent = self.host_shutdown;
            return Some((op::SHUTDOWN, self.host_shutdown_sent, 0));
        }
        let wants_update = self.owes_credit_update || self.credit.is_news();
        self.owes_credit_update = false;
        wants_update.then_some((op::CREDIT_UPDATE, 0, 0))
    }

    /// Sets the credit in the header of a packet for the guest.
    pub fn set_credit(&mut self, header: &mut VsockHeader) {
        self.credit.stamp(header);
    }

    /// Reads bytes of the host, as many as the guest has credit for. Returns their number; `None` if
    /// there are none.
    fn read(&mut self, room: &Buffers) -> Option<u32> {
        let most = room.length().min(self.credit.room());
        let (room, _) = room.split(most)?;
        loop {
            match room.read_from(&self.stream) {
                Ok(0) => {
                    self.host_shutdown |= shutdown::SEND;
                    return None;
                }
                Ok(count) => {
                    self.credit.send(count);
                    // The credit is below this limit.
                    return Some(u32::try_from(count).unwrap_or(u32::MAX));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        self.readable = false;
                        return None;
                    }
                    // The other end has reset the connection.
                    _ => {
                        self.host_shutdown |= shutdown::SEND;
                        return None;
                    }
                },
            }
        }
    }
}

/// Parses a line `CONNECT PORT`.
fn parse(line: &[u8]) -> Command {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let port = line
        .strip_prefix(b"CONNECT ")
        .and_then(|port| str::from_utf8(port).ok())
        .and_then(|port| port.parse().ok());
    port.map_or(Command::Bad, Command::Connect)
}

/// Writes to a socket without a signal if its other end is disconnected.
fn send(stream: &UnixStream, data: &Buffers) -> io::Result<usize> {
    let message = libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: data.vectors().as_ptr().cast_mut(),
        msg_iovlen: data.count(),
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    // SAFETY: `message` has the list of vectors and no address or control data. `sendmsg` only reads
    // the list and the buffers, which stay mapped as long as `data`; the guest may change them.
    let count =
        unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
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
