//! TAP interfaces of the host (Documentation/networking/tuntap.rst).

mod batch;
#[cfg(test)]
mod tests;

pub use batch::Batch;

use super::Backend;
use hartline_abi::virtio::{NetHeader, net_feature};
use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/net/tun";

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETQUEUE: libc::c_ulong = 0x4004_54d9;
const SIOCBRADDIF: libc::c_ulong = 0x89a2;
const TUN_F_CSUM: libc::c_uint = 1;
const TUN_F_TSO4: libc::c_uint = 2;
const TUN_F_TSO6: libc::c_uint = 4;
/// Several UDP datagrams in one packet, since Linux 6.2, and over both protocols or neither.
const TUN_F_USO: libc::c_uint = 0x20 | 0x40;
/// The features for that: what may come, and all of them.
const GUEST_USO: u64 = net_feature::GUEST_USO4 | net_feature::GUEST_USO6;
const USO: u64 = GUEST_USO | net_feature::HOST_USO;

/// Why a TAP interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name is none of an interface.
    #[error("{name:?} is no name of a network interface (1 to 15 bytes)")]
    Name {
        /// As it was given.
        name: String,
    },
    /// There is no such interface.
    #[error(
        "there is no network interface {name}: make one with `ip tuntap add dev {name} mode tap`"
    )]
    Missing {
        /// Its name.
        name: String,
    },
    /// Another program uses it.
    #[error("the TAP interface {name} is in use by another program")]
    Busy {
        /// Its name.
        name: String,
    },
    /// This user may not use it.
    #[error("no permission to use the TAP interface {name}: make it with `user` or `group`")]
    Permission {
        /// Its name.
        name: String,
    },
    /// It is another kind of interface.
    #[error("the network interface {name} is no TAP interface with one queue")]
    Kind {
        /// Its name.
        name: String,
    },
    /// It is another kind of interface, and several queues are asked for.
    #[error(
        "the network interface {name} is no TAP interface with several queues: make one with `ip tuntap add dev {name} mode tap multi_queue`"
    )]
    OneQueue {
        /// Its name.
        name: String,
    },
    /// Another failure.
    #[error("{what}: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A queue of a TAP interface that is open. Reading and writing do not wait. Each packet comes with a
/// [`NetHeader`].
#[derive(Debug)]
pub struct Tap {
    file: File,
    mtu: u16,
    offloads: u64,
    /// Writes several packets at once.
    batch: Option<Batch>,
}

impl Tap {
    /// Opens `queues` queues, at least one, of an interface that there is, and whose name is
    /// `name`. Packets come to the first one until others are
    /// [used](Backend::set_used).
    ///
    /// # Errors
    /// [`TapError`].
    pub fn open(name: &str, queues: u16) -> Result<Vec<Self>, TapError> {
        let bad = || TapError::Name { name: name.into() };
        let text = CString::new(name).map_err(|_| bad())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(bad());
        }
        // SAFETY: a valid string. Opening would make an interface that is not there.
        if unsafe { libc::if_nametoindex(text.as_ptr()) } == 0 {
            return Err(TapError::Missing { name: name.into() });
        }
        let (file, request) = attach(&text, queues > 1)?;
        let mtu = mtu(request).map_err(failed("SIOCGIFMTU"))?;
        let mut opened = vec![Self::from_file(file, mtu, Batch::new().ok())];
        for _ in 1..queues {
            let (file, _) = attach(&text, true)?;
            let mut queue = Self::from_file(file, mtu, Batch::new().ok());
            queue.set_used(false).map_err(failed("TUNSETQUEUE"))?;
            opened.push(queue);
        }
        Ok(opened)
    }

    /// An interface that another process has [made](Self::make), whose largest IP packet has
    /// so many bytes. Without a `batch`, packets are written one by one.
    #[must_use]
    pub fn from_file(file: File, mtu: u16, batch: Option<Batch>) -> Self {
        // Packets wait for a driver that takes more than the simplest.
        let tries = [TUN_F_CSUM | TUN_F_USO, 0];
        let has_uso = tries
            .iter()
            .all(|&tried| set_offloads(&file, tried).is_ok());
        let always = net_feature::CHECKSUM
            | net_feature::GUEST_CHECKSUM
            | net_feature::GUEST_TSO4
            | net_feature::GUEST_TSO6
            | net_feature::HOST_TSO4
            | net_feature::HOST_TSO6;
        Self {
            batch: batch.and_then(|mut batch| batch.can_write(&file).then_some(batch)),
            file,
            mtu,
            offloads: always | if has_uso { USO } else { 0 },
        }
    }

    /// The name of an interface that is open, in the namespace where it is.
    ///
    /// # Errors
    /// [`TapError`]: the file is none.
    pub fn name(file: &File) -> Result<String, TapError> {
        let mut found = request(c"");
        ioctl(file.as_raw_fd(), TUNGETIFF, &mut found).map_err(failed("TUNGETIFF"))?;
        let bytes = found.ifr_name.map(libc::c_char::cast_unsigned);
        let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Makes an interface in this thread's network namespace, with a name that nobody has,
    /// as a port of `bridge`, and up. It is deleted when nobody has the file open any more.
    ///
    /// # Errors
    /// [`TapError`]; this process may not, or there is no such bridge.
    pub fn make(bridge: &str) -> Result<File, TapError> {
        let (file, made) = attach(c"tap%d", false)?;
        let socket = socket().map_err(failed("socket"))?;
        let mut index = made;
        ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &mut index)
            .map_err(failed("SIOCGIFINDEX"))?;
        let bridge = CString::new(bridge).map_err(|error| failed("bridge")(error.into()))?;
        let mut port = request(&bridge);
        // SAFETY: the call before has filled this field.
        port.ifr_ifru.ifru_ifindex = unsafe { index.ifr_ifru.ifru_ifindex };
        ioctl(socket.as_raw_fd(), SIOCBRADDIF, &mut port).map_err(failed("SIOCBRADDIF"))?;
        let mut up = made;
        up.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &mut up).map_err(failed("SIOCSIFFLAGS"))?;
        Ok(file)
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> TapError {
    move |source| TapError::Failed { what, source }
}

/// Opens the interface of a name, or, if it `has_several`, one more queue of it; if there is none,
/// it is made, `%d` being a number then. Result: the file, and a request that has the name.
fn attach(name: &CStr, has_several: bool) -> Result<(File, libc::ifreq), TapError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(failed(DEVICE))?;
    let mut request = request(name);
    let several = if has_several {
        libc::IFF_MULTI_QUEUE
    } else {
        0
    };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(file.as_raw_fd(), TUNSETIFF, &mut request).map_err(|source| {
        let name = name.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY) => TapError::Busy { name },
            Some(libc::EPERM) => TapError::Permission { name },
            Some(libc::EINVAL) if has_several => TapError::OneQueue { name },
            Some(libc::EINVAL) => TapError::Kind { name },
            _ => failed("TUNSETIFF")(source),
        }
    })?;
    let mut size = NetHeader::LENGTH as libc::c_int;
    ioctl(file.as_raw_fd(), TUNSETVNETHDRSZ, &mut size).map_err(failed("TUNSETVNETHDRSZ"))?;
    Ok((file, request))
}

impl Backend for Tap {
    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn offloads(&self) -> u64 {
        self.offloads
    }

    fn set_used(&mut self, used: bool) -> io::Result<()> {
        let mut change = request(c"");
        let flag = match used {
            true => libc::IFF_ATTACH_QUEUE,
            false => libc::IFF_DETACH_QUEUE,
        };
        change.ifr_ifru.ifru_flags = flag as libc::c_short;
        ioctl(self.file.as_raw_fd(), TUNSETQUEUE, &mut change)
    }

    fn set_offloads(&mut self, features: u64) -> io::Result<()> {
        let mut offloads = 0;
        for (feature, offload) in [
            (net_feature::GUEST_CHECKSUM, TUN_F_CSUM),
            (net_feature::GUEST_TSO4, TUN_F_TSO4),
            (net_feature::GUEST_TSO6, TUN_F_TSO6),
        ] {
            if features & feature != 0 {
                offloads |= offload;
            }
        }
        if features & GUEST_USO == GUEST_USO {
            offloads |= TUN_F_USO;
        }
        set_offloads(&self.file, offloads)
    }

    unsafe fn read(&mut self, buffers: &[libc::iovec]) -> io::Result<usize> {
        let count = buffers.len() as libc::c_int;
        // SAFETY: the caller's contract.
        let result = unsafe { libc::readv(self.file.as_raw_fd(), buffers.as_ptr(), count) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    unsafe fn write(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        let count = buffers.len() as libc::c_int;
        // SAFETY: the caller's contract.
        match unsafe { libc::writev(self.file.as_raw_fd(), buffers.as_ptr(), count) } {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    unsafe fn write_all(
        &mut self,
        packets: &[&[libc::iovec]],
        done: &mut dyn FnMut(usize, io::Result<()>),
    ) {
        if let Some(batch) = &mut self.batch
            && packets.len() > 1
        {
            // SAFETY: the caller's contract.
            if unsafe { batch.write(&self.file, packets, done) }.is_err() {
                self.batch = None;
            }
            return;
        }
        for (number, packet) in packets.iter().enumerate() {
            // SAFETY: the caller's contract.
            done(number, unsafe { self.write(packet) });
        }
    }

    fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn request(name: &CStr) -> libc::ifreq {
    // SAFETY: all zeros are a valid structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = from.cast_signed();
    }
    request
}

fn ioctl<T>(fd: RawFd, number: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: every request of this file takes a pointer to a structure of this type.
    check(unsafe { libc::ioctl(fd, number, std::ptr::from_mut(argument)) })
}

/// Says what packets are taken of a TAP interface, which offers more then.
fn set_offloads(file: &File, offloads: libc::c_uint) -> io::Result<()> {
    let offloads = libc::c_ulong::from(offloads);
    // SAFETY: the argument is a number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, offloads) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A socket for requests about interfaces of this thread's network namespace.
fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a fresh descriptor or an error.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Largest IP packet of the interface whose name the request has, bytes.
fn mtu(mut request: libc::ifreq) -> io::Result<u16> {
    ioctl(socket()?.as_raw_fd(), libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the call has filled this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    // More is not made use of.
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}
