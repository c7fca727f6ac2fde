//! Several packets for a TAP interface with one system call, by io_uring.
//!
//! A packet that the host's TCP stack takes may wake its receiver, which then has the processor
//! before the next packet is written: the thread of the device and the receiver take turns for
//! each packet. Within one system call that does not happen.

use io_uring::register::Restriction;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Most packets of one system call.
const ENTRIES: usize = 64;

/// A queue for packets: the kernel does the work of `writev` for it, and refuses all else. To be
/// made before a seccomp filter forbids `io_uring_setup`; then `io_uring_enter` is enough. It
/// keeps no file open: the kernel closes what a queue has some time after its process has ended.
pub struct Batch {
    ring: IoUring,
}

impl Batch {
    /// A queue.
    ///
    /// # Errors
    /// The kernel has no io_uring, or denies it (`kernel.io_uring_disabled`, a container's
    /// filter).
    pub fn new() -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_r_disabled()
            .build(ENTRIES as u32)?;
        let mut allowed = [Restriction::sqe_op(opcode::Writev::CODE)];
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(Self { ring })
    }

    /// Whether packets can be written to a file in this way: otherwise it would be waited for
    /// (TAP interfaces before Linux 5.11).
    pub(super) fn can_write(&mut self, file: &File) -> bool {
        let mut can = false;
        let mut tell = |_, result: io::Result<()>| {
            can = !result.is_err_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP));
        };
        // SAFETY: no buffers. It is no packet, and refused, unless that is for another reason.
        let asked = unsafe { self.write(file, &[&[]], &mut tell) };
        asked.is_ok() && can
    }

    /// Writes packets to a file, and tells what became of each, by its number.
    ///
    /// # Errors
    /// The kernel's: what became of some is not known, and they count as lost. The queue must not
    /// be used any more.
    ///
    /// # Safety
    /// The buffers are memory that may be read, even after this has failed.
    pub(super) unsafe fn write(
        &mut self,
        file: &File,
        packets: &[&[libc::iovec]],
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) -> io::Result<()> {
        let mut result = Ok(());
        for (part, packets) in packets.chunks(ENTRIES).enumerate() {
            let first = part * ENTRIES;
            let mut open = u64::MAX >> (ENTRIES - packets.len());
            if result.is_ok() {
                let mut done = |number, result| done(first + number, result);
                // SAFETY: the caller's contract.
                result = unsafe { self.write_part(file, packets, &mut open, &mut done) };
            }
            // They may be on their way: that one comes twice is worse than that it is lost.
            for number in (0..packets.len()).filter(|number| open >> number & 1 != 0) {
                done(first + number, Err(io::ErrorKind::BrokenPipe.into()));
            }
        }
        result
    }

    /// As [`write`](Self::write), of up to [`ENTRIES`] packets: those that were not told of stay
    /// in the set `open`.
    unsafe fn write_part(
        &mut self,
        file: &File,
        packets: &[&[libc::iovec]],
        open: &mut u64,
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) -> io::Result<()> {
        let fd = Fd(file.as_raw_fd());
        for (number, packet) in packets.iter().enumerate() {
            // A full queue of the host loses the packet: the file is not waited for.
            let entry = opcode::Writev::new(fd, packet.as_ptr(), packet.len() as u32)
                .rw_flags(libc::RWF_NOWAIT)
                .build()
                .user_data(number as u64);
            // SAFETY: the caller's contract; the kernel reads the list of buffers before the
            // system call ends.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.map_err(io::Error::other)?;
        }
        while *open != 0 {
            match self.ring.submit_and_wait(open.count_ones() as usize) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            for entry in self.ring.completion() {
                let number = entry.user_data() as usize;
                *open &= !(1 << number);
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
    use io_uring::squeue::Flags;
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};

    /// A pipe that does not wait, and a queue for it; none if the kernel has none.
    fn pipe() -> Option<(File, File, Batch)> {
        let Ok(mut batch) = Batch::new() else {
            eprintln!("skipped: no io_uring here");
            return None;
        };
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are new and nobody else's.
        let [out, into] = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
            ends.map(|end| File::from(OwnedFd::from_raw_fd(end)))
        };
        assert!(batch.can_write(&into));
        Some((out, into, batch))
    }

    fn buffer(bytes: &[u8]) -> [libc::iovec; 1] {
        [libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }]
    }

    #[test]
    fn packets_go_in_order_and_each_is_told_of() {
        let Some((mut out, into, mut batch)) = pipe() else {
            return;
        };
        let bytes: Vec<u8> = (0..150).collect();
        let buffers: Vec<_> = bytes.chunks(1).map(buffer).collect();
        let packets: Vec<&[libc::iovec]> = buffers.iter().map(|one| &one[..]).collect();
        let mut told = Vec::new();
        // SAFETY: the bytes live.
        unsafe {
            batch.write(&into, &packets, &mut |number, result| {
                result.unwrap();
                told.push(number);
            })
        }
        .unwrap();
        assert_eq!(told, (0..150).collect::<Vec<_>>());
        let mut came = [0; 200];
        assert_eq!(out.read(&mut came).unwrap(), 150);
        assert_eq!(came[..150], bytes);
    }

    #[test]
    fn what_is_full_or_gone_loses_packets() {
        let Some((out, into, mut batch)) = pipe() else {
            return;
        };
        let bytes = vec![7; 40 << 10];
        let buffers = [buffer(&bytes), buffer(&bytes), buffer(&bytes)];
        let packets = buffers.each_ref().map(|one| &one[..]);
        let mut write = || {
            let mut told = Vec::new();
            let mut tell =
                |_, result: io::Result<()>| told.push(result.err().map(|error| error.kind()));
            // SAFETY: the bytes live.
            unsafe { batch.write(&into, &packets, &mut tell) }.unwrap();
            told
        };
        let told = write();
        assert_eq!(told.len(), 3);
        assert_eq!(told[2], Some(io::ErrorKind::WouldBlock), "{told:?}");
        drop(out);
        // SAFETY: no memory is involved. The signal would end the test.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        assert_eq!(write(), [Some(io::ErrorKind::BrokenPipe); 3]);
    }

    #[test]
    fn it_does_nothing_else() {
        let Some((out, _into, mut batch)) = pipe() else {
            return;
        };
        let mut byte = 0u8;
        let read = opcode::Read::new(Fd(out.as_raw_fd()), &raw mut byte, 1).build();
        let text = buffer(&[1]);
        let later = opcode::Writev::new(Fd(2), text.as_ptr(), 1).build();
        let later = later.flags(Flags::ASYNC);
        for entry in [read, later, opcode::Nop::new().build()] {
            // SAFETY: all that it names lives.
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
