//! Character devices without state: `/dev/null` and its like, random numbers, vsock.

use crate::file::caller::Caller;
use crate::file::description::writes;
use crate::file::operations::{File, Mapped, Mode};
use crate::file::transfer::Transfer;
use crate::file::{Io, Vfs};
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::mm::{UserSlice, UserSliceMut, user};
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::random::{
    RNDADDENTROPY, RNDADDTOENTCNT, RNDCLEARPOOL, RNDGETENTCNT, RNDRESEEDCRNG, RNDZAPENTCNT,
};
use hartline_linux::vm_sockets::IOCTL_VM_SOCKETS_GET_LOCAL_CID;

/// The entropy that the generator reports, bits: it is always seeded.
const BITS: i32 = 256;

/// A character device without state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// `/dev/null`
    Null,
    /// `/dev/zero`
    Zero,
    /// `/dev/full`
    Full,
    /// `/dev/random`
    Random,
    /// `/dev/urandom`
    Urandom,
    /// `/dev/hwrng`
    HardwareRandom,
    /// `/dev/vsock`
    Vsock,
}

impl Device {
    /// The device with this number.
    ///
    /// # Errors
    /// `ENXIO` if there is no such device.
    pub fn of(major: u64, minor: u64) -> Result<Self, Errno> {
        match (major, minor) {
            (1, 3) => Ok(Self::Null),
            (1, 5) => Ok(Self::Zero),
            (1, 7) => Ok(Self::Full),
            (1, 8) => Ok(Self::Random),
            (1, 9) => Ok(Self::Urandom),
            (10, 183) => Ok(Self::HardwareRandom),
            (10, 122) => Ok(Self::Vsock),
            _ => Err(Errno::ENXIO),
        }
    }
}

impl File for Device {
    fn mode(&self) -> Mode {
        const MODE: Mode = Mode::PREAD.with(Mode::SPLICE_READ).with(Mode::SPLICE_WRITE);
        match self {
            // The only one that Linux can poll.
            Self::Random => MODE,
            _ => MODE.with(Mode::NO_POLL),
        }
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        match self {
            Self::Null => return Ok(0),
            Self::Zero | Self::Full => to.fill(0),
            Self::Random | Self::Urandom => transfer.outside.random(to.reborrow()),
            Self::HardwareRandom => return transfer.outside.entropy(to),
            Self::Vsock => return Err(Errno::EINVAL),
        }
        Ok(to.len())
    }

    fn write(&self, transfer: &mut Transfer<'_>, from: UserSlice<'_>) -> Result<usize, Errno> {
        match self {
            Self::Null | Self::Zero => {}
            Self::Full => return Err(Errno::ENOSPC),
            Self::Random | Self::Urandom => transfer.outside.mix(from),
            Self::HardwareRandom | Self::Vsock => return Err(Errno::EINVAL),
        }
        Ok(from.len())
    }

    fn llseek(&self, _: &mut Io<'_>, _: FileId, _: i64, _: u32) -> Result<u64, Errno> {
        Ok(0)
    }

    fn ioctl(&self, caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
        match (self, request) {
            (Self::Random | Self::Urandom, _) => random_ioctl(caller, request, address),
            (Self::Vsock, IOCTL_VM_SOCKETS_GET_LOCAL_CID) => {
                let cid = caller.io().0.net.cid();
                user::write(caller.memory(), address, &cid)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn mmap(&self, _: &mut Vfs, _: Ino, flags: u32, _: bool) -> Result<Mapped, Errno> {
        match self {
            Self::Zero => Ok(Mapped::Zero {
                writable: writes(flags),
            }),
            _ => Err(Errno::ENODEV),
        }
    }
}

/// Serves a request on `/dev/random` or `/dev/urandom` (random(4)).
///
/// # Errors
/// `EINVAL` for an unknown request, `EPERM` for a request that needs `CAP_SYS_ADMIN`, and the
/// errors of the device.
fn random_ioctl(caller: &mut dyn Caller, request: u32, address: u64) -> Result<u64, Errno> {
    let privileged = caller.io().1.cred.has(CAP_SYS_ADMIN);
    match request {
        RNDGETENTCNT => user::write(caller.memory(), address, &BITS)?,
        RNDADDTOENTCNT | RNDZAPENTCNT | RNDCLEARPOOL if privileged => {}
        RNDRESEEDCRNG if privileged => caller.reseed()?,
        RNDADDENTROPY if privileged => {
            let [bits, length]: [i32; 2] = user::read(caller.memory(), address)?;
            let (Ok(_), Ok(length)) = (u32::try_from(bits), u32::try_from(length)) else {
                return Err(Errno::EINVAL);
            };
            caller.mix(address.wrapping_add(8), length.into())?;
        }
        RNDADDTOENTCNT | RNDZAPENTCNT | RNDCLEARPOOL | RNDRESEEDCRNG | RNDADDENTROPY => {
            return Err(Errno::EPERM);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
