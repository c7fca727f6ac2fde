//! The standard streams: output through the ports of the console ([`hartline_abi::console`]), and
//! host calls for standard input, terminals and waiting.
//!
//! Input does not use the console. The host's input is read only when a program wants it, and only
//! as much, because the rest belongs to another process of the host. A read takes one exit; a
//! buffer for the device would take two, for its notification and for the sleep until it is used.

use crate::arch::host::Host;
use crate::convert::low_u32;
use crate::drivers;
use crate::mm::{UserSlice, UserSliceMut};
use crate::wait::WaitQueue;
use alloc::boxed::Box;
use core::cell::RefCell;
use core::fmt::Debug;
use core::hint;
use hartline_abi::call::{CALL_DATA, Operation};
use hartline_abi::checkpoint::trigger;
use hartline_abi::console::STREAMS;
use hartline_linux::errno::Errno;

/// Number of polls of a full port before the vCPU waits in the host, which takes longer than the
/// host's thread needs to make room if it is running.
const LOOKS: u32 = 1000;

/// The bit of standard input in the set of [`Streams::wait`].
pub const INPUT_READY: u64 = 1;

/// Status of the host's file behind a standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStatus {
    /// `st_mode`.
    pub mode: u32,
    /// `st_size`, bytes.
    pub size: u64,
    /// `st_rdev`.
    pub rdev: u64,
}

/// The transport of output to the host.
pub trait Ports: Debug {
    /// Whether the host has opened a port.
    fn is_open(&mut self, port: u32) -> bool;

    /// Sends the start of `bytes`, which must not be empty. Returns how many bytes; 0 only if there
    /// is no room now.
    fn send(&mut self, port: u32, bytes: UserSlice<'_>) -> usize;
}

/// The console device, which is started on first use.
#[derive(Debug)]
enum Device {
    Unused,
    Missing,
    Started(Box<dyn Ports>),
}

/// The standard streams.
#[derive(Debug)]
pub struct Streams {
    host: Host,
    device: RefCell<Device>,
    /// The port of each stream, starting with standard output.
    ports: [u32; STREAMS],
    status: [Option<StreamStatus>; 3],
    /// There is no other task: a read may block in the host.
    alone: bool,
    /// Standard input is known to be readable.
    input_ready: bool,
    /// The next read asks for a checkpoint first.
    checkpoints: bool,
    /// A read has asked for a checkpoint.
    reached: bool,
    /// The parties that wait for standard input. The host is asked for it while there is a task
    /// among them.
    pub input_waiters: WaitQueue,
}

impl Streams {
    /// Returns the streams of this VM.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            device: RefCell::new(Device::Unused),
            ports: host.boot().console,
            status: [None; 3],
            alone: true,
            input_ready: false,
            checkpoints: host.boot().checkpoint == trigger::STDIN,
            reached: false,
            input_waiters: WaitQueue::default(),
        }
    }

    /// Starts again with the devices and streams of another VM, after a snapshot.
    pub fn restart(&mut self) {
        let waiters = core::mem::take(&mut self.input_waiters);
        *self = Self {
            alone: self.alone,
            input_waiters: waiters,
            ..Self::new(self.host)
        };
    }

    /// Whether a read was made that must wait for a checkpoint; cleared by this.
    pub fn take_checkpoint(&mut self) -> bool {
        core::mem::take(&mut self.reached)
    }

    /// Sets whether the running task is the only one, so that the whole VM may wait for standard
    /// input.
    pub fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Whether standard input is known to be readable.
    pub fn is_input_ready(&self) -> bool {
        self.input_ready
    }

    /// Whether standard input can be read without blocking.
    pub fn poll_input(&mut self) -> bool {
        // If the host call fails, reading will find the error.
        self.input_ready || self.wait_no_time().unwrap_or(INPUT_READY) != 0
    }

    /// As [`wait`](Self::wait) without waiting. A signal that arrives changes nothing: there is no input.
    fn wait_no_time(&mut self) -> Result<u64, Errno> {
        match self.wait(INPUT_READY, 0) {
            Err(Errno::EINTR) => Ok(0),
            answer => answer,
        }
    }

    /// Number of bytes of standard input that can be read without blocking, 0 or 1: the host reports
    /// whether there is input, not how much.
    ///
    /// # Errors
    /// An error of the host.
    pub fn waiting(&mut self) -> Result<u64, Errno> {
        Ok(self.wait_no_time()? & INPUT_READY)
    }

    /// Whether host descriptor `stream` is a terminal.
    pub fn is_terminal(&self, stream: u32) -> bool {
        stream < 3 && self.host.boot().terminals & (1 << stream) != 0
    }

    /// The status of the host's file behind `stream` (0, 1 or 2), which is queried once.
    ///
    /// # Errors
    /// An error of the host; `EBADF` for another stream.
    pub fn status(&mut self, stream: u32) -> Result<StreamStatus, Errno> {
        let cached = self.status.get_mut(stream as usize).ok_or(Errno::EBADF)?;
        if let Some(status) = cached {
            return Ok(*status);
        }
        let mut args = [u64::from(stream), 0, 0, 0, 0, 0];
        self.host.call(Operation::Status, &mut args)?;
        let status = StreamStatus {
            mode: low_u32(args[0]),
            size: args[1],
            rdev: args[2],
        };
        *cached = Some(status);
        Ok(status)
    }

    /// Waits until something in `set` ([`INPUT_READY`]) is ready, `timeout_ns` have passed
    /// (`u64::MAX`: no limit) or a signal arrives. Returns the ready set.
    ///
    /// # Errors
    /// `EINTR`, or an error of the host.
    pub fn wait(&mut self, set: u64, timeout_ns: u64) -> Result<u64, Errno> {
        let mut args = [set, timeout_ns, 0, 0, 0, 0];
        let ready = self.host.call(Operation::Wait, &mut args)?;
        self.input_ready |= ready & INPUT_READY != 0;
        Ok(ready)
    }

    /// Reads from standard input, at most [`CALL_DATA`] bytes; 0 at its end.
    ///
    /// # Errors
    /// `EAGAIN` if reading would block and `nonblocking` is set or there are other tasks, `EINTR`,
    /// or an error of the host. `ERESTARTSYS` before the first read if a checkpoint is made there: the
    /// call is made again after it.
    pub fn read<'a>(
        &mut self,
        to: impl Into<UserSliceMut<'a>>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let mut to = to.into();
        if to.is_empty() {
            return Ok(0);
        }
        if core::mem::take(&mut self.checkpoints) {
            self.reached = true;
            return Err(Errno::ERESTARTSYS);
        }
        if (nonblocking || !self.alone) && !self.poll_input() {
            return Err(Errno::EAGAIN);
        }
        self.input_ready = false;
        let wanted = to.len().min(CALL_DATA);
        let mut args = [0, wanted as u64, 0, 0, 0, 0];
        let got = self.host.call(Operation::Read, &mut args)?;
        let got = usize::try_from(got).map_or(wanted, |got| got.min(wanted));
        Ok(to.copy_start(&self.host.call_data()[..got]))
    }

    /// Makes a terminal request on host descriptor `stream`; `data` is its structure.
    ///
    /// # Errors
    /// `ENOTTY`, or an error of the host.
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

    /// Waits until all output so far has left the VM.
    ///
    /// # Errors
    /// An error of the host.
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.host.call(Operation::Flush, &mut [0; 6]).map(|_| ())
    }

    /// Writes to standard output (1), standard error (2) or the trace (3). Waits if there is no
    /// room.
    ///
    /// # Errors
    /// `EPIPE` if the host cannot write there any more, `EIO` if there is no console, or an error
    /// of the host.
    pub fn write<'a>(
        &mut self,
        stream: u32,
        from: impl Into<UserSlice<'a>>,
    ) -> Result<usize, Errno> {
        let from = from.into();
        let mut done = 0;
        while done < from.len() {
            match self.send(stream, from.skip(done)) {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Whether the host cannot write to `stream` any more.
    pub fn is_broken(&self, stream: u32) -> bool {
        match &mut *self.device.borrow_mut() {
            Device::Started(ports) => !ports.is_open(self.port(stream)),
            Device::Unused | Device::Missing => false,
        }
    }

    fn port(&self, stream: u32) -> u32 {
        let index = stream.saturating_sub(1) as usize;
        self.ports[index.min(STREAMS - 1)]
    }

    /// Sends the start of `from` to a stream.
    fn send(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno> {
        match self.try_send(stream, from)? {
            // After the flush there is room.
            0 => self.flush()?,
            sent => return Ok(sent),
        }
        match self.try_send(stream, from)? {
            0 => Err(Errno::EIO),
            sent => Ok(sent),
        }
    }

    /// As `send`, but returns 0 if there is no room in time.
    fn try_send(&mut self, stream: u32, from: UserSlice<'_>) -> Result<usize, Errno> {
        let (host, port) = (self.host, self.port(stream));
        let device = self.device.get_mut();
        if let Device::Unused = device {
            *device = match drivers::console::start(host) {
                Ok(ports) => Device::Started(Box::new(ports)),
                Err(_) => Device::Missing,
            };
        }
        let Device::Started(ports) = device else {
            return Err(Errno::EIO);
        };
        for _ in 0..LOOKS {
            if !ports.is_open(port) {
                return Err(Errno::EPIPE);
            }
            match ports.send(port, from) {
                0 => hint::spin_loop(),
                sent => return Ok(sent),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{low_u8, to_usize};
    use core::ptr::NonNull;
    use hartline_abi::boot::Shared;
    use hartline_abi::call::HostCall;
    use hartline_abi::port;
    use std::boxed::Box;
    use std::cell::RefCell;
    use std::vec::Vec;

    /// Bytes that a port accepts before it is flushed.
    const ROOM: usize = 1000;

    /// The host side of the ports and of the notifications.
    struct Vmm {
        shared: *mut Shared,
        /// Output of each port, and how much of it was written since the last flush.
        output: [(Vec<u8>, usize); 2],
        closed: [bool; 2],
        input: Vec<u8>,
        calls: Vec<u32>,
    }

    std::thread_local! {
        static VMM: RefCell<Option<Vmm>> = const { RefCell::new(None) };
    }

    #[derive(Debug)]
    struct Console;

    impl Ports for Console {
        fn is_open(&mut self, port: u32) -> bool {
            vmm(|vmm| !vmm.closed[port as usize])
        }

        fn send(&mut self, port: u32, bytes: UserSlice<'_>) -> usize {
            vmm(|vmm| {
                let (output, used) = &mut vmm.output[port as usize];
                let count = bytes.len().min(ROOM - *used);
                output.extend(bytes.first(count).to_vec());
                *used += count;
                count
            })
        }
    }

    impl Vmm {
        fn serve(&mut self) {
            // SAFETY: leaked by `start`; no other reference to the mailbox is alive.
            let call: &mut HostCall = unsafe { &mut (*self.shared).call };
            self.calls.push(call.operation);
            call.result = match call.operation {
                1 => {
                    let n = self.input.len().min(to_usize(call.args[1]));
                    call.data[..n].copy_from_slice(&self.input[..n]);
                    self.input.drain(..n);
                    i64::try_from(n).unwrap()
                }
                2 => i64::from(!self.input.is_empty()),
                3 => {
                    self.output.iter_mut().for_each(|(_, used)| *used = 0);
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

    fn vm_exit(port: u16) {
        assert_eq!(port, port::CALL);
        vmm(Vmm::serve);
    }

    /// Streams with a console; standard error and traces share a port.
    fn start() -> Streams {
        // SAFETY: all-zero bytes are a valid `Shared`, which has integers only.
        let shared = Box::leak(unsafe { Box::<Shared>::new_zeroed().assume_init() });
        shared.boot.terminals = 1;
        shared.boot.console = [0, 1, 1];
        let shared = NonNull::from(shared);
        VMM.set(Some(Vmm {
            shared: shared.as_ptr(),
            output: Default::default(),
            closed: [false; 2],
            input: Vec::new(),
            calls: Vec::new(),
        }));
        // SAFETY: leaked; only this thread uses it.
        let mut streams = Streams::new(unsafe { Host::new(shared, vm_exit) });
        *streams.device.get_mut() = Device::Started(Box::new(Console));
        streams
    }

    fn vmm<T>(look: impl FnOnce(&mut Vmm) -> T) -> T {
        VMM.with_borrow_mut(|vmm| look(vmm.as_mut().expect("started")))
    }

    #[test]
    fn streams_go_to_their_ports_without_a_call() {
        let mut streams = start();
        assert_eq!(streams.write(1, b"out"), Ok(3));
        assert_eq!(streams.write(2, b"error "), Ok(6));
        assert_eq!(streams.write(3, b"trace"), Ok(5));
        assert_eq!(streams.write(1, b""), Ok(0));
        vmm(|vmm| {
            assert!(vmm.calls.is_empty());
            assert_eq!(vmm.output[0].0, b"out");
            assert_eq!(vmm.output[1].0, b"error trace");
        });
    }

    #[test]
    fn room_is_waited_for() {
        let mut streams = start();
        let bytes: Vec<u8> = (0..3 * ROOM + 12).map(|n| low_u8(n as u64 * 7)).collect();
        assert_eq!(streams.write(1, &bytes), Ok(bytes.len()));
        vmm(|vmm| {
            assert!(vmm.output[0].0 == bytes);
            assert_eq!(vmm.calls, [Operation::Flush as u32; 3]);
        });
    }

    #[test]
    fn a_broken_stream_gives_epipe() {
        let mut streams = start();
        vmm(|vmm| vmm.closed[1] = true);
        assert_eq!(streams.write(2, b"x"), Err(Errno::EPIPE));
        assert_eq!(streams.write(1, b"x"), Ok(1));
        assert!(streams.is_broken(2) && streams.is_broken(3) && !streams.is_broken(1));
    }

    #[test]
    fn without_a_console_there_is_no_output() {
        let mut streams = start();
        *streams.device.get_mut() = Device::Missing;
        assert_eq!(streams.write(1, b"x"), Err(Errno::EIO));
        assert!(!streams.is_broken(1));
    }

    #[test]
    fn the_first_read_waits_for_a_checkpoint() {
        let mut streams = start();
        streams.checkpoints = true;
        vmm(|vmm| vmm.input = std::vec![5; 10]);
        let mut buffer = [0; 4];
        assert_eq!(streams.read(&mut [], true), Ok(0));
        assert!(!streams.take_checkpoint());
        assert_eq!(streams.read(&mut buffer, false), Err(Errno::ERESTARTSYS));
        assert!(vmm(|vmm| vmm.calls.is_empty()));
        assert!(streams.take_checkpoint() && !streams.take_checkpoint());
        assert_eq!(streams.read(&mut buffer, false), Ok(4));
        // In another VM, the streams are asked about again.
        streams.status(0).unwrap();
        streams.set_alone(false);
        streams.restart();
        assert!(streams.status[0].is_none() && !streams.alone && !streams.checkpoints);
        assert!(matches!(*streams.device.get_mut(), Device::Unused));
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
