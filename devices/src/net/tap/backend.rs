//! A queue of a TAP interface as a backend.

use super::batch::Batch;
use super::ioctl::{self, DEVICE};
use crate::net::backend::Backend;
use crate::virtio::{Buffers, feature_bit};
use hartline_abi::virtio::NetHeader;
use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
};

/// The offload of several UDP datagrams in one packet, since Linux 6.2. The kernel has it for both
/// protocols or neither.
const TUN_F_USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;
/// The features for the same offload: for RX, and for both directions.
const GUEST_USO: u64 = feature_bit(VIRTIO_NET_F_GUEST_USO4) | feature_bit(VIRTIO_NET_F_GUEST_USO6);
const USO: u64 = GUEST_USO | feature_bit(VIRTIO_NET_F_HOST_USO);
/// The features that all TAP interfaces have.
const OFFLOADS: u64 = feature_bit(VIRTIO_NET_F_CSUM)
    | feature_bit(VIRTIO_NET_F_GUEST_CSUM)
    | feature_bit(VIRTIO_NET_F_GUEST_TSO4)
    | feature_bit(VIRTIO_NET_F_GUEST_TSO6)
    | feature_bit(VIRTIO_NET_F_HOST_TSO4)
    | feature_bit(VIRTIO_NET_F_HOST_TSO6);

/// Why a TAP interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name cannot be the name of an interface.
    #[error("{name:?} is not the name of a network interface: it must have 1 to 15 bytes")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no such interface.
    #[error(
        "there is no network interface {name}: make one with `ip tuntap add dev {name} mode tap`"
    )]
    Missing {
        /// Name of the interface.
        name: String,
    },
    /// Another program uses the interface.
    #[error("the TAP interface {name} is in use by another program")]
    Busy {
        /// Name of the interface.
        name: String,
    },
    /// This user may not use the interface.
    #[error("no permission to use the TAP interface {name}: make it with `user` or `group`")]
    Permission {
        /// Name of the interface.
        name: String,
    },
    /// The interface is no TAP interface, or has several queues.
    #[error("the network interface {name} is not a TAP interface with one queue")]
    Kind {
        /// Name of the interface.
        name: String,
    },
    /// Several queues are wanted, and the interface is no TAP interface or has one queue.
    #[error(
        "the network interface {name} is not a TAP interface with several queues: make one with `ip tuntap add dev {name} mode tap multi_queue`"
    )]
    OneQueue {
        /// Name of the interface.
        name: String,
    },
    /// The host refuses a system call.
    #[error("{what}: {source}")]
    Failed {
        /// Name of the system call or request.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

/// An open queue of a TAP interface. Reading and writing do not wait. Each packet has a
/// [`NetHeader`].
#[derive(Debug)]
pub struct Tap {
    file: File,
    mtu: u16,
    offloads: u64,
    /// The ring that writes several packets at once.
    pub(super) batch: Option<Batch>,
}

impl Tap {
    /// Opens `queues` queues, at least one, of the existing interface `name`. The first queue
    /// receives all packets until others are [active](Backend::set_active).
    ///
    /// # Errors
    /// [`TapError`].
    pub fn open(name: &str, queues: u16) -> Result<Vec<Self>, TapError> {
        let bad = || TapError::Name { name: name.into() };
        let text = CString::new(name).map_err(|_| bad())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(bad());
        }
        // Opening would create an interface that does not exist.
        if ioctl::index(&text).is_err() {
            return Err(TapError::Missing { name: name.into() });
        }
        let (file, request) = attach(&text, queues > 1)?;
        let mtu = ioctl::mtu(request).map_err(failed("SIOCGIFMTU"))?;
        let mut opened = vec![Self::from_file(file, mtu, Batch::new().ok())];
        for _ in 1..queues {
            let (file, _) = attach(&text, true)?;
            let mut queue = Self::from_file(file, mtu, Batch::new().ok());
            queue.set_active(false).map_err(failed("TUNSETQUEUE"))?;
            opened.push(queue);
        }
        Ok(opened)
    }

    /// A backend for an interface that another process has [created](Self::make), whose largest IP
    /// packet has `mtu` bytes. Without a `batch`, packets are written one by one.
    #[must_use]
    pub fn from_file(file: File, mtu: u16, batch: Option<Batch>) -> Self {
        // Finally no offloads: until the driver accepts more, packets must be plain.
        let has_uso = [libc::TUN_F_CSUM | TUN_F_USO, 0]
            .into_iter()
            .all(|offloads| ioctl::set_offloads(file.as_fd(), offloads).is_ok());
        Self {
            batch: batch.and_then(|mut batch| batch.can_write(&file).then_some(batch)),
            file,
            mtu,
            offloads: OFFLOADS | if has_uso { USO } else { 0 },
        }
    }

    /// The name of an open interface in its own network namespace.
    ///
    /// # Errors
    /// [`TapError`]: the file is no TAP interface.
    pub fn name(file: &File) -> Result<String, TapError> {
        ioctl::name(file.as_fd()).map_err(failed("TUNGETIFF"))
    }

    /// Creates an interface in this thread's network namespace, with an unused name, adds it to
    /// `bridge`, and sets it up. The kernel deletes the interface when the file is closed.
    ///
    /// # Errors
    /// [`TapError`]: this process lacks the privilege, or there is no such bridge.
    pub fn make(bridge: &str) -> Result<File, TapError> {
        let (file, made) = attach(c"tap%d", false)?;
        let index = ioctl::index_of(made).map_err(failed("SIOCGIFINDEX"))?;
        let bridge = CString::new(bridge).map_err(|error| failed("bridge")(error.into()))?;
        ioctl::add_to_bridge(&bridge, index).map_err(failed("SIOCBRADDIF"))?;
        ioctl::set_up(made).map_err(failed("SIOCSIFFLAGS"))?;
        Ok(file)
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> TapError {
    move |source| TapError::Failed { what, source }
}

/// Opens the interface `name`, or one more queue of it if `has_several`. Creates the interface if
/// there is none, with a number for `%d` in the name. Returns the file and a request with the
/// interface's name.
pub(super) fn attach(name: &CStr, has_several: bool) -> Result<(File, libc::ifreq), TapError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(failed(DEVICE))?;
    let request = ioctl::attach(file.as_fd(), name, has_several).map_err(|source| {
        let name = name.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY) => TapError::Busy { name },
            Some(libc::EPERM) => TapError::Permission { name },
            Some(libc::EINVAL) if has_several => TapError::OneQueue { name },
            Some(libc::EINVAL) => TapError::Kind { name },
            _ => failed("TUNSETIFF")(source),
        }
    })?;
    ioctl::set_header_length(file.as_fd(), NetHeader::LENGTH).map_err(failed("TUNSETVNETHDRSZ"))?;
    Ok((file, request))
}

impl Backend for Tap {
    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn offloads(&self) -> u64 {
        self.offloads
    }

    fn set_active(&mut self, active: bool) -> io::Result<()> {
        ioctl::set_queue(self.file.as_fd(), active)
    }

    fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        let mut offloads = 0;
        for (feature, offload) in [
            (VIRTIO_NET_F_GUEST_CSUM, libc::TUN_F_CSUM),
            (VIRTIO_NET_F_GUEST_TSO4, libc::TUN_F_TSO4),
            (VIRTIO_NET_F_GUEST_TSO6, libc::TUN_F_TSO6),
        ] {
            if features & feature_bit(feature) != 0 {
                offloads |= offload;
            }
        }
        if features & GUEST_USO == GUEST_USO {
            offloads |= TUN_F_USO;
        }
        ioctl::set_offloads(self.file.as_fd(), offloads)
    }

    fn read(&mut self, buffers: &Buffers) -> io::Result<usize> {
        buffers.read_from(&self.file)
    }

    fn write(&mut self, buffers: &Buffers) -> io::Result<()> {
        buffers.write_into(&self.file).map(drop)
    }

    fn write_all(&mut self, packets: &[&Buffers], done: &mut dyn FnMut(usize, io::Result<()>)) {
        if let Some(batch) = &mut self.batch
            && packets.len() > 1
        {
            if batch.write(&self.file, packets, done).is_err() {
                self.batch = None;
            }
            return;
        }
        for (number, packet) in packets.iter().enumerate() {
            done(number, self.write(packet));
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}
