//! What is at the other end of a network device.

use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Where packets of a pair of queues go, and come from. Each comes with a
/// [`NetHeader`](hartline_abi::virtio::NetHeader). Nothing waits. The pairs of one device lead to
/// the same network.
pub trait Backend: Send + Debug {
    /// Largest IP packet, bytes.
    fn mtu(&self) -> u16;

    /// Its offloads: what it does with packets that are sent, and what packets may come if
    /// [asked for](Self::set_offloads), by virtio features.
    fn offloads(&self) -> u64;

    /// Tells it whether the guest uses its pair of queues: if it does not, packets come to
    /// others. Not called where a device has one pair.
    ///
    /// # Errors
    /// The host's.
    fn set_used(&mut self, used: bool) -> io::Result<()> {
        let _ = used;
        Ok(())
    }

    /// Tells it, and those of the other pairs, what packets the guest takes, by its virtio
    /// features.
    ///
    /// # Errors
    /// The host's.
    fn set_offloads(&mut self, features: u64) -> io::Result<()>;

    /// Reads a packet with its header into buffers. Result: its length; `WouldBlock` if
    /// there is none.
    ///
    /// # Errors
    /// The host's; `EBADFD` if no packet will come any more.
    ///
    /// # Safety
    /// The buffers are memory that may be written.
    unsafe fn read(&mut self, buffers: &[libc::iovec]) -> io::Result<usize>;

    /// Writes a packet with its header.
    ///
    /// # Errors
    /// The host's; the packet is lost.
    ///
    /// # Safety
    /// The buffers are memory that may be read.
    unsafe fn write(&mut self, buffers: &[libc::iovec]) -> io::Result<()>;

    /// Writes several packets, each with its header, and tells what became of each, by its number
    /// among them: lost, if it is an error of the host.
    ///
    /// # Safety
    /// The buffers are memory that may be read, as long as this backend lives.
    unsafe fn write_all(
        &mut self,
        packets: &[&[libc::iovec]],
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) {
        for (number, packet) in packets.iter().enumerate() {
            // SAFETY: the caller's contract.
            done(number, unsafe { self.write(packet) });
        }
    }

    /// A descriptor that is readable when there may be a packet to read.
    fn descriptor(&self) -> RawFd;

    /// After which time there may be one though the descriptor is not readable.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}
