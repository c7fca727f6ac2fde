//! Random numbers: `getrandom`, and `ioctl` on `/dev/random` (random(4)).

use super::Entry;
use crate::kernel::Kernel;
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::random::{
    GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM, RNDADDENTROPY, RNDADDTOENTCNT, RNDCLEARPOOL,
    RNDGETENTCNT, RNDRESEEDCRNG, RNDZAPENTCNT,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::getrandom, getrandom)];

/// The entropy that the generator reports, bits: it is always seeded.
const BITS: i32 = 256;

fn getrandom(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const FLAGS: u64 = GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE;
    const MOST: u64 = 32 << 20;
    let [address, length, flags, ..] = *arguments;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(MOST);
    let mut bytes = user::slice_mut(&mut kernel.memory, address, length)?;
    bytes.fill_with(|part| kernel.random.fill(part));
    Ok(length)
}

/// `ioctl` on `/dev/random` and `/dev/urandom`.
///
/// # Errors
/// `EINVAL` for an unknown request, `EPERM` for a request reserved for root, and the errors of the
/// device.
pub(super) fn ioctl(kernel: &mut Kernel, request: u32, address: u64) -> Result<u64, Errno> {
    let is_root = kernel.process.uid == 0;
    match request {
        RNDGETENTCNT => user::write(&mut kernel.memory, address, &BITS)?,
        RNDADDTOENTCNT | RNDZAPENTCNT | RNDCLEARPOOL if is_root => {}
        RNDRESEEDCRNG if is_root => kernel.random.reseed()?,
        RNDADDENTROPY if is_root => {
            let [bits, length]: [i32; 2] = user::read(&mut kernel.memory, address)?;
            let (Ok(_), Ok(length)) = (u32::try_from(bits), u32::try_from(length)) else {
                return Err(Errno::EINVAL);
            };
            let from = user::slice(&mut kernel.memory, address.wrapping_add(8), length.into())?;
            kernel.random.mix(from);
        }
        RNDADDTOENTCNT | RNDZAPENTCNT | RNDCLEARPOOL | RNDRESEEDCRNG | RNDADDENTROPY => {
            return Err(Errno::EPERM);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
