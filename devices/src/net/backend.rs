//! The backend of a pair of queues: where its packets go and come from.

use crate::virtio::Buffers;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A network behind a pair of queues. Each packet has a
/// [`NetHeader`](hartline_abi::virtio::NetHeader). No call waits. The backends of one device lead
/// to the same network.
pub trait Backend: Send + Debug {
    /// Largest IP packet, bytes.
    fn mtu(&self) -> u16;

    /// The offloads as virtio features: the offloads of transmitted packets, and the kinds of
    /// received packets that [`set_offloads`](Self::set_offloads) can allow.
    fn offloads(&self) -> u64;

    /// Attaches the backend when the guest starts to use its pair of queues, or detaches it: then
    /// other backends receive the packets. Not called for the first pair.
    ///
    /// # Errors
    /// The host's.
    fn set_active(&mut self, active: bool) -> io::Result<()> {
        let _ = active;
        Ok(())
    }

    /// Allows the kinds of received packets that the driver accepts by its virtio features. The
    /// call holds for all backends of a device.
    ///
    /// # Errors
    /// The host's.
    fn set_offloads(&mut self, features: u64) -> io::Result<()>;

    /// Delivers what the guest has sent, for at most `limit`, and ends all its connections: the VM ends.
    fn finish(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Ends all connections of the guest, which has reset the device or is reset itself. Packets for it are dropped.
    fn forget_guest(&mut self) {}

    /// Reads a packet with its header into buffers. Returns its length, bytes.
    ///
    /// # Errors
    /// The host's; `WouldBlock` if there is no packet, `EBADFD` if the network is disconnected.
    fn read(&mut self, buffers: &Buffers) -> io::Result<usize>;

    /// Writes a packet with its header.
    ///
    /// # Errors
    /// The host's; the packet is lost.
    fn write(&mut self, buffers: &Buffers) -> io::Result<()>;

    /// Writes several packets, each with its header. Calls `done` once for each packet with its
    /// index and result. After an error the packet is lost.
    fn write_all(&mut self, packets: &[&Buffers], done: &mut dyn FnMut(usize, io::Result<()>)) {
        for (number, packet) in packets.iter().enumerate() {
            done(number, self.write(packet));
        }
    }

    /// A descriptor that is readable when there may be a packet to read. `None` if packets come
    /// only after the [`timeout`](Self::timeout), or never.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The time after which there may be a packet although the descriptor is not readable.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// The backend of a worker, and its connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub backend: Box<dyn Backend>,
    /// Whether the network is disconnected: its interface was deleted.
    pub is_disconnected: bool,
}

/// Whether an error of a backend means that the network is disconnected.
pub(super) fn is_disconnect(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}
