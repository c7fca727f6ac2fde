//! The standard streams: the producer of the console ring
//! ([`hartline_abi::console`]) and the host calls for standard input, terminals and
//! waiting.

use crate::errno::Errno;
use crate::host::Host;
use core::ptr::addr_of_mut;
use core::sync::atomic::Ordering;
use hartline_abi::call::{CALL_DATA, Operation};
use hartline_abi::console::{Console, MAX_RECORD, RING_SIZE, RecordHeader};
use hartline_abi::port;

const HEADER: usize = size_of::<RecordHeader>();
/// A record is cut short rather than waiting for room for all of it, unless less
/// than this many bytes would fit.
const MIN_PART: usize = 4096;

/// Standard input, in the set of [`Streams::wait`].
pub const INPUT_READY: u64 = 1;

/// What the host has behind a standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStatus {
    /// `st_mode`.
    pub mode: u32,
    /// `st_size`, bytes.
    pub size: u64,
    /// `st_rdev`.
    pub rdev: u64,
}

/// The standard streams.
#[derive(Debug)]
pub struct Streams {
    host: Host,
    status: [Option<StreamStatus>; 3],
}

impl Streams {
    /// The streams of this VM. There may be only one producer of its ring.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            status: [None; 3],
        }
    }

    /// Whether host descriptor `stream` is a terminal.
    pub fn is_terminal(&self, stream: u32) -> bool {
        stream < 3 && self.host.boot().terminals & (1 << stream) != 0
    }

    /// What the host has behind `stream` (0, 1 or 2); asked for once.
    ///
    /// # Errors
    /// The host's; `EBADF` for another stream.
    pub fn status(&mut self, stream: u32) -> Result<StreamStatus, Errno> {
        let known = self.status.get_mut(stream as usize).ok_or(Errno::EBADF)?;
        if let Some(status) = known {
            return Ok(*status);
        }
        let mut args = [u64::from(stream), 0, 0, 0, 0, 0];
        self.host.call(Operation::Status, &mut args)?;
        let status = StreamStatus {
            mode: args[0] as u32,
            size: args[1],
            rdev: args[2],
        };
        *known = Some(status);
        Ok(status)
    }

    /// Waits until something of `set` ([`INPUT_READY`]) is ready, `timeout_ns` have
    /// passed (`u64::MAX`: for ever) or a signal arrives; the result is what is ready.
    ///
    /// # Errors
    /// `EINTR`, or the host's.
    pub fn wait(&mut self, set: u64, timeout_ns: u64) -> Result<u64, Errno> {
        let mut args = [set, timeout_ns, 0, 0, 0, 0];
        self.host.call(Operation::Wait, &mut args)
    }

    /// Reads from standard input, at most [`CALL_DATA`] bytes; 0 at its end.
    ///
    /// # Errors
    /// `EAGAIN` if it would block and `nonblocking` is set, `EINTR`, or the host's.
    pub fn read(&mut self, to: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        if to.is_empty() {
            return Ok(0);
        }
        if nonblocking && self.wait(INPUT_READY, 0)? & INPUT_READY == 0 {
            return Err(Errno::EAGAIN);
        }
        let wanted = to.len().min(CALL_DATA);
        let mut args = [0, wanted as u64, 0, 0, 0, 0];
        let got = self.host.call(Operation::Read, &mut args)?;
        let got = usize::try_from(got).map_or(wanted, |got| got.min(wanted));
        to[..got].copy_from_slice(&self.host.call_data()[..got]);
        Ok(got)
    }

    /// A terminal request on host descriptor `stream`, `data` being its structure.
    ///
    /// # Errors
    /// `ENOTTY`, or the host's.
    pub fn ioctl(&mut self, stream: u32, request: u32, data: &mut [u8]) -> Result<u64, Errno> {
        if !self.is_terminal(stream) || data.len() > CALL_DATA {
            return Err(Errno::ENOTTY);
        }
        let length = data.len();
        self.host.call_data()[..length].copy_from_slice(data);
        let mut args = [
            u64::from(stream),
            u64::from(request),
            length as u64,
            0,
            0,
            0,
        ];
        let result = self.host.call(Operation::Ioctl, &mut args)?;
        data.copy_from_slice(&self.host.call_data()[..length]);
        Ok(result)
    }

    /// Waits until everything written so far has left the VM.
    ///
    /// # Errors
    /// The host's.
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.host.call(Operation::Flush, &mut [0; 6]).map(|_| ())
    }

    /// Writes to standard output (1) or error (2), waiting while the ring is full.
    ///
    /// # Errors
    /// `EPIPE` if the host cannot write there any more, or the host's.
    pub fn write(&mut self, stream: u32, from: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < from.len() {
            match self.write_record(stream, &from[done..]) {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Whether the host cannot write to `stream` any more.
    pub fn is_broken(&self, stream: u32) -> bool {
        let bit = 1 << stream.saturating_sub(1).min(1);
        // SAFETY: the ring is mapped as long as the program runs; the field is atomic.
        let broken = unsafe { &(*self.ring()).broken };
        broken.load(Ordering::Relaxed) & bit != 0
    }

    fn ring(&self) -> *mut Console {
        self.host.console().as_ptr()
    }

    /// Bytes of a record that fit now.
    fn room(&self) -> usize {
        // SAFETY: as in `is_broken`.
        let (written, read) = unsafe { (&(*self.ring()).written, &(*self.ring()).read) };
        let (end, start) = (
            written.load(Ordering::Relaxed),
            read.load(Ordering::Acquire),
        );
        let used = end.saturating_sub(start);
        let free = RING_SIZE.saturating_sub(usize::try_from(used).unwrap_or(RING_SIZE));
        free.saturating_sub(HEADER)
    }

    /// Writes the next record, which may hold less than `from`.
    fn write_record(&mut self, stream: u32, from: &[u8]) -> Result<usize, Errno> {
        let wanted = from.len().min(MAX_RECORD);
        if self.room() < wanted.min(MIN_PART) {
            self.flush()?;
        }
        if self.is_broken(stream) {
            return Err(Errno::EPIPE);
        }
        // What is free is a multiple of 8, so the padding fits too.
        let length = wanted.min(self.room());
        if length == 0 {
            return Err(Errno::EIO);
        }
        let header = RecordHeader {
            descriptor: stream,
            length: length as u32,
        };
        self.publish(header, &from[..length]);
        Ok(length)
    }

    /// Puts a record that fits into the ring and wakes the reader if it sleeps.
    fn publish(&self, header: RecordHeader, bytes: &[u8]) {
        let ring = self.ring();
        // SAFETY: as in `is_broken`.
        let (written, waits) = unsafe { (&(*ring).written, &(*ring).reader_waits) };
        let position = written.load(Ordering::Relaxed);
        let mut raw = [0; HEADER];
        raw[..4].copy_from_slice(&header.descriptor.to_le_bytes());
        raw[4..].copy_from_slice(&header.length.to_le_bytes());
        self.store(position, &raw);
        self.store(position + HEADER as u64, bytes);
        let end = position + (HEADER + bytes.len()).next_multiple_of(8) as u64;
        written.store(end, Ordering::SeqCst);
        if waits.swap(0, Ordering::SeqCst) == 1 {
            self.host.ring(port::CONSOLE);
        }
    }

    /// Copies bytes into the ring at `position`.
    fn store(&self, position: u64, bytes: &[u8]) {
        let start = (position % RING_SIZE as u64) as usize;
        let first = bytes.len().min(RING_SIZE - start);
        // SAFETY: both parts lie in the ring's data, in its free part, which the
        // reader does not touch until `written` is published; `bytes` is elsewhere.
        unsafe {
            let data = addr_of_mut!((*self.ring()).data).cast::<u8>();
            data.add(start)
                .copy_from_nonoverlapping(bytes.as_ptr(), first);
            data.copy_from_nonoverlapping(bytes[first..].as_ptr(), bytes.len() - first);
        }
    }
}
