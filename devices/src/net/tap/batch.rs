//! Batches of packets: several writes to a TAP interface with one system call, by io_uring.
//!
//! A packet for the host's TCP stack may wake its receiver. The scheduler may then run the receiver
//! before the device's thread writes the next packet, so both threads alternate for each packet.
//! Within one system call this does not happen.

use crate::virtio::Buffers;
use io_uring::register::Restriction;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Length of the ring.
const RING: u32 = 64;
/// Most packets per system call.
const ENTRIES: usize = RING as usize;

/// An io_uring that executes `writev` and refuses all other operations.
///
/// Create it before a seccomp filter forbids `io_uring_setup`; afterwards it needs only
/// `io_uring_enter`. The ring has no registered files, because the kernel would close them only
/// some time after the end of the process.
pub struct Batch {
    ring: IoUring,
    /// Packets whose result is unknown after an error. The kernel may still read them, so they stay
    /// mapped longer than the ring.
    unknown: Vec<Buffers>,
}

impl Batch {
    /// An empty ring.
    ///
    /// # Errors
    /// The kernel has no io_uring or denies it (`kernel.io_uring_disabled`, the filter of a
    /// container).
    pub fn new() -> io::Result<Self> {
        let ring: IoUring = IoUring::builder().setup_r_disabled().build(RING)?;
        let mut allowed = [Restriction::sqe_op(opcode::Writev::CODE)];
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(Self {
            ring,
            unknown: Vec::new(),
        })
    }

    /// Whether the ring can write to a file without waiting. TAP interfaces can since Linux 5.11.
    pub(super) fn can_write(&mut self, file: &File) -> bool {
        let mut can = false;
        let mut done = |_, result: io::Result<()>| {
            can = !result.is_err_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP));
        };
        // The interface refuses an empty packet with another error than the one for files without
        // `RWF_NOWAIT`.
        let tried = self.write(file, &[&Buffers::default()], &mut done);
        tried.is_ok() && can
    }

    /// Writes packets to a file. Calls `done` once for each packet with its index and result.
    ///
    /// # Errors
    /// The kernel's. The results of some packets are unknown then, and they count as lost. The ring
    /// must not be used any more.
    pub(super) fn write(
        &mut self,
        file: &File,
        packets: &[&Buffers],
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) -> io::Result<()> {
        let mut outcome = Ok(());
        for (part, packets) in packets.chunks(ENTRIES).enumerate() {
            let first = part * ENTRIES;
            let mut pending = u64::MAX >> (ENTRIES - packets.len());
            if outcome.is_ok() {
                let mut done = |number, result| done(first + number, result);
                outcome = self.write_part(file, packets, &mut pending, &mut done);
                if outcome.is_err() {
                    self.unknown.extend(packets.iter().copied().cloned());
                }
            }
            // The kernel may still write these packets. Losing a packet is better than writing it
            // twice.
            for number in (0..packets.len()).filter(|number| pending >> number & 1 != 0) {
                done(first + number, Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
        outcome
    }

    /// Writes up to [`ENTRIES`] packets as [`write`](Self::write). `pending` is a set of packets, a
    /// bit each; packets without a result stay in it.
    fn write_part(
        &mut self,
        file: &File,
        packets: &[&Buffers],
        pending: &mut u64,
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) -> io::Result<()> {
        let fd = Fd(file.as_raw_fd());
        for (number, packet) in packets.iter().enumerate() {
            // Without waiting: a full queue of the host loses the packet.
            let (first, count) = (packet.vectors().as_ptr(), packet.vector_count());
            let entry = opcode::Writev::new(fd, first, count.unsigned_abs())
                .rw_flags(libc::RWF_NOWAIT)
                .build()
                .user_data(number as u64);
            // SAFETY: the kernel copies the list of vectors when it takes the entry, in the system call
            // below that consumes all entries, and `packets` outlives that. Its buffers stay mapped
            // until the result is there: the caller has them until this returns, and after an error
            // `unknown` keeps them.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.map_err(io::Error::other)?;
        }
        while *pending != 0 {
            match self.ring.submit_and_wait(pending.count_ones() as usize) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            for entry in self.ring.completion() {
                let number = usize::try_from(entry.user_data()).map_err(io::Error::other)?;
                *pending &= !(1 << number);
                done(
                    number,
                    match entry.result() {
                        error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
                        _ => Ok(()),
                    },
                );
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::tests::filled;
    use io_uring::squeue::Flags;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::io::Read;

    /// A non-blocking pipe and a ring that writes to it. `None` if the kernel has no io_uring.
    fn pipe() -> Option<(File, File, Batch)> {
        let Ok(mut batch) = Batch::new() else {
            eprintln!("skipped: no io_uring here");
            return None;
        };
        let (out, into) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (out, into) = (File::from(out), File::from(into));
        assert!(batch.can_write(&into));
        Some((out, into, batch))
    }

    #[test]
    fn packets_are_written_in_order_and_each_has_a_result() {
        let Some((mut out, into, mut batch)) = pipe() else {
            return;
        };
        let bytes: Vec<u8> = (0..150).collect();
        let buffers: Vec<_> = bytes.chunks(1).map(|byte| filled(&[byte])).collect();
        let packets: Vec<_> = buffers.iter().collect();
        let mut results = Vec::new();
        let mut done = |number, result: io::Result<()>| {
            result.unwrap();
            results.push(number);
        };
        batch.write(&into, &packets, &mut done).unwrap();
        assert_eq!(results, (0..150).collect::<Vec<_>>());
        let mut came = [0; 200];
        assert_eq!(out.read(&mut came).unwrap(), 150);
        assert_eq!(came[..150], bytes);
    }

    #[test]
    fn full_and_disconnected_files_lose_packets() {
        let Some((out, into, mut batch)) = pipe() else {
            return;
        };
        let buffer = filled(&[&[7; 40 << 10]]);
        let packets = [&buffer; 3];
        let mut write = || {
            let mut results = Vec::new();
            let mut done =
                |_, result: io::Result<()>| results.push(result.err().map(|error| error.kind()));
            batch.write(&into, &packets, &mut done).unwrap();
            results
        };
        let results = write();
        assert_eq!(results.len(), 3);
        assert_eq!(results[2], Some(io::ErrorKind::WouldBlock), "{results:?}");
        drop(out);
        // SAFETY: the signal is ignored, so no handler runs, as Rust's runtime has it too.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        assert_eq!(write(), [Some(io::ErrorKind::BrokenPipe); 3]);
    }

    #[test]
    fn other_operations_are_refused() {
        let Some((out, _into, mut batch)) = pipe() else {
            return;
        };
        let mut byte = 0u8;
        let read = opcode::Read::new(Fd(out.as_raw_fd()), &raw mut byte, 1).build();
        let text = filled(&[&[1]]);
        let later = opcode::Writev::new(Fd(2), text.vectors().as_ptr(), 1).build();
        let later = later.flags(Flags::ASYNC);
        for entry in [read, later, opcode::Nop::new().build()] {
            // SAFETY: the byte and the text outlive the call; the ring refuses the operation.
            unsafe { batch.ring.submission().push(&entry) }.unwrap();
            batch.ring.submit_and_wait(1).unwrap();
            let result = batch.ring.completion().next().map(|entry| entry.result());
            assert_eq!(result, Some(-libc::EACCES), "{entry:?}");
        }
        let files = batch.ring.submitter().register_files(&[out.as_raw_fd()]);
        assert_eq!(files.unwrap_err().raw_os_error(), Some(libc::EACCES));
        let event = batch.ring.submitter().register_eventfd(0);
        assert_eq!(event.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
}
