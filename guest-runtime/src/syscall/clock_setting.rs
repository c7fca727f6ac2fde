//! Setting clocks, which only the host can do: as in a container without `CAP_SYS_TIME`, valid
//! calls return `EPERM`.

use super::Entry;
use super::time::read_timespec;
use crate::arch::clock::{self, SECOND};
use crate::kernel::Kernel;
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;
use hartline_linux::time::CLOCK_REALTIME;
use hartline_linux::timex::{MAXFREQ_SCALED, NTP_PHASE_LIMIT, STA_UNSYNC, TIME_ERROR, Timex};

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::clock_settime, clock_settime),
    (nr::settimeofday, settimeofday),
    (nr::adjtimex, |kernel, a| adjust(kernel, a[0])),
    (nr::clock_adjtime, clock_adjtime),
];

fn clock_settime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[0] != CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    read_timespec(kernel, a[1])?;
    Err(Errno::EPERM)
}

fn settimeofday(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if a[0] != 0 {
        let [_, microseconds]: [i64; 2] = user::read(kernel.memory_mut(), a[0])?;
        if !(0..1_000_000).contains(&microseconds) {
            return Err(Errno::EINVAL);
        }
    }
    if a[1] != 0 {
        user::slice(kernel.memory_mut(), a[1], 8)?;
    }
    Err(Errno::EPERM)
}

fn clock_adjtime(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    match a[0] {
        CLOCK_REALTIME => adjust(kernel, a[1]),
        // The other clocks cannot be adjusted.
        1..16 => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// Tells the state of the clock, which nothing in the VM synchronizes.
fn adjust(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    let asked: Timex = user::read(kernel.memory_mut(), address)?;
    if asked.modes != 0 {
        return Err(Errno::EPERM);
    }
    let now = clock::realtime();
    let timex = Timex {
        maxerror: NTP_PHASE_LIMIT,
        esterror: NTP_PHASE_LIMIT,
        status: STA_UNSYNC,
        constant: 2,
        precision: 1,
        tolerance: MAXFREQ_SCALED,
        time: [now / SECOND, now % SECOND / 1000].map(u64::cast_signed),
        // The length of a tick, µs.
        tick: 10_000,
        ..Timex::default()
    };
    user::write(kernel.memory_mut(), address, &timex)?;
    Ok(TIME_ERROR)
}
