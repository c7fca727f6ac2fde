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
    /// There is no other task: reading may wait in the host.
    alone: bool,
    /// Standard input is known to be readable.
    input_ready: bool,
}

impl Streams {
    /// The streams of this VM. There may be only one producer of its ring.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            status: [None; 3],
            alone: true,
            input_ready: false,
        }
    }

    /// Tells whether there is no task but the running one, so that the whole VM may wait
    /// for standard input.
    pub fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Whether standard input is known to be readable.
    pub fn is_input_ready(&self) -> bool {
        self.input_ready
    }

    /// Whether standard input can be read without waiting.
    pub fn poll_input(&mut self) -> bool {
        // An error is found by reading.
        self.input_ready || self.wait(INPUT_READY, 0).unwrap_or(INPUT_READY) != 0
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
        let ready = self.host.call(Operation::Wait, &mut args)?;
        self.input_ready |= ready & INPUT_READY != 0;
        Ok(ready)
    }

    /// Reads from standard input, at most [`CALL_DATA`] bytes; 0 at its end.
    ///
    /// # Errors
    /// `EAGAIN` if it would block and `nonblocking` is set or there are other tasks,
    /// `EINTR`, or the host's.
    pub fn read(&mut self, to: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        if to.is_empty() {
            return Ok(0);
        }
        if (nonblocking || !self.alone) && !self.poll_input() {
            return Err(Errno::EAGAIN);
        }
        self.input_ready = false;
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
        let bit = 1 << stream.saturating_sub(1).min(2);
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::{NonNull, addr_of};
    use hartline_abi::boot::Shared;
    use hartline_abi::call::HostCall;
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::vec::Vec;

    /// The other side of the doorbell.
    struct Vmm {
        shared: *mut Shared,
        /// What was written to each descriptor.
        output: [Vec<u8>; 3],
        input: Vec<u8>,
        doorbells: usize,
        calls: Vec<u32>,
    }

    std::thread_local! {
        static VMM: RefCell<Option<Vmm>> = const { RefCell::new(None) };
    }

    impl Vmm {
        fn console(&self) -> &Console {
            // SAFETY: leaked by `start`; the test is its only thread.
            unsafe { &*addr_of!((*self.shared).console) }
        }

        /// Takes all records out of the ring.
        fn drain(&mut self) {
            let mut at = self.console().read.load(Ordering::SeqCst);
            let end = self.console().written.load(Ordering::SeqCst);
            let byte = |console: &Console, at: u64| console.data[at as usize % RING_SIZE];
            while at < end {
                assert_eq!(at % 8, 0);
                let word =
                    |at| u32::from_le_bytes([0, 1, 2, 3].map(|n| byte(self.console(), at + n)));
                let (descriptor, length) = (word(at), word(at + 4));
                assert!(length > 0 && length as usize <= MAX_RECORD);
                let bytes: Vec<u8> = (0..u64::from(length))
                    .map(|n| byte(self.console(), at + 8 + n))
                    .collect();
                self.output[descriptor as usize].extend(bytes);
                at = (at + 8 + u64::from(length)).next_multiple_of(8);
            }
            assert_eq!(at, end);
            self.console().read.store(end, Ordering::SeqCst);
        }

        fn serve(&mut self) {
            // SAFETY: as in `console`; no other reference to the mailbox is alive.
            let call: &mut HostCall = unsafe { &mut (*self.shared).call };
            self.calls.push(call.operation);
            call.result = match call.operation {
                1 => {
                    let n = self.input.len().min(call.args[1] as usize);
                    call.data[..n].copy_from_slice(&self.input[..n]);
                    self.input.drain(..n);
                    n as i64
                }
                2 => i64::from(!self.input.is_empty()),
                3 => {
                    self.drain();
                    0
                }
                5 => {
                    call.args = [0o020_620, 0, 0x8801, 0, 0, 0];
                    0
                }
                _ => -25,
            };
        }
    }

    fn doorbell(port: u16) {
        VMM.with_borrow_mut(|vmm| {
            let vmm = vmm.as_mut().expect("started");
            match port {
                port::CALL => vmm.serve(),
                port::CONSOLE => {
                    vmm.doorbells += 1;
                    vmm.drain();
                }
                other => panic!("port {other:#x}"),
            }
        });
    }

    fn start() -> Streams {
        // SAFETY: all-zero bytes are a valid `Shared`, which has integers only.
        let shared = Box::leak(unsafe { Box::<Shared>::new_zeroed().assume_init() });
        shared.boot.terminals = 1;
        let shared = NonNull::from(shared);
        VMM.set(Some(Vmm {
            shared: shared.as_ptr(),
            output: [Vec::new(), Vec::new(), Vec::new()],
            input: Vec::new(),
            doorbells: 0,
            calls: Vec::new(),
        }));
        // SAFETY: leaked; only this thread uses it.
        Streams::new(unsafe { Host::new(shared, doorbell) })
    }

    fn vmm<T>(look: impl FnOnce(&mut Vmm) -> T) -> T {
        VMM.with_borrow_mut(|vmm| look(vmm.as_mut().expect("started")))
    }

    #[test]
    fn small_writes_take_no_exit() {
        let mut streams = start();
        for n in 0..100_u8 {
            let bytes = std::vec![n; usize::from(n) + 1];
            assert_eq!(streams.write(1 + u32::from(n & 1), &bytes), Ok(bytes.len()));
        }
        assert_eq!(streams.write(1, b""), Ok(0));
        vmm(|vmm| {
            assert_eq!((vmm.doorbells, vmm.calls.len()), (0, 0));
            vmm.drain();
            let expected = |odd| -> Vec<u8> {
                (0..100_u8)
                    .filter(|n| n & 1 == odd)
                    .flat_map(|n| std::vec![n; usize::from(n) + 1])
                    .collect()
            };
            assert!(vmm.output[1] == expected(0) && vmm.output[2] == expected(1));
        });
    }

    #[test]
    fn a_sleeping_reader_is_woken_once() {
        let mut streams = start();
        vmm(|vmm| vmm.console().reader_waits.store(1, Ordering::SeqCst));
        streams.write(1, b"one").unwrap();
        streams.write(1, b"two").unwrap();
        vmm(|vmm| {
            assert_eq!(vmm.doorbells, 1);
            assert_eq!(vmm.output[1], b"one");
            vmm.drain();
            assert_eq!(vmm.output[1], b"onetwo");
        });
    }

    #[test]
    fn a_full_ring_is_waited_for() {
        let mut streams = start();
        let bytes: Vec<u8> = (0..3 * RING_SIZE + 12_345).map(|n| (n * 7) as u8).collect();
        for part in bytes.chunks(100_003) {
            assert_eq!(streams.write(1, part), Ok(part.len()));
        }
        vmm(|vmm| {
            vmm.drain();
            assert!(vmm.output[1] == bytes);
            assert!((2..30).contains(&vmm.calls.len()));
        });
    }

    #[test]
    fn a_broken_stream_gives_epipe() {
        let mut streams = start();
        vmm(|vmm| vmm.console().broken.store(2, Ordering::SeqCst));
        assert_eq!(streams.write(2, b"x"), Err(Errno::EPIPE));
        assert_eq!(streams.write(1, b"x"), Ok(1));
        assert!(streams.is_broken(2) && !streams.is_broken(1));
    }

    #[test]
    fn input_and_status() {
        let mut streams = start();
        assert_eq!(streams.read(&mut [0; 4], true), Err(Errno::EAGAIN));
        vmm(|vmm| vmm.input = std::vec![5; 100_000]);
        let mut buffer = std::vec![0; 200_000];
        assert_eq!(streams.read(&mut buffer, false), Ok(CALL_DATA));
        assert_eq!(streams.read(&mut buffer, true), Ok(100_000 - CALL_DATA));
        assert_eq!(streams.read(&mut buffer, false), Ok(0));
        assert_eq!(buffer[..10], [5; 10]);
        let before = vmm(|vmm| vmm.calls.len());
        let status = streams.status(0).unwrap();
        assert_eq!((status.mode, status.rdev), (0o020_620, 0x8801));
        assert_eq!(streams.status(0), Ok(status));
        assert_eq!(vmm(|vmm| vmm.calls.len()), before + 1);
        assert_eq!(streams.status(3), Err(Errno::EBADF));
        assert_eq!(streams.ioctl(1, 0x5401, &mut [0; 4]), Err(Errno::ENOTTY));
        assert!(streams.is_terminal(0) && !streams.is_terminal(1) && !streams.is_terminal(40));
    }
}
