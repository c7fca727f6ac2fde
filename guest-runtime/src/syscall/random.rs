//! Random numbers: `getrandom`.

use super::Entry;
use crate::kernel::Kernel;
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::random::{GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::getrandom, getrandom)];

fn getrandom(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    const FLAGS: u64 = GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE;
    const MOST: u64 = 32 << 20;
    let [address, length, flags, ..] = *arguments;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(MOST);
    let memory = &mut kernel.spaces[kernel.current].memory;
    let mut bytes = user::slice_mut(memory, address, length)?;
    bytes.fill_with(|part| kernel.random.fill(part));
    Ok(length)
}
