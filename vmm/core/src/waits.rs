//! Idle vCPUs ([`CpuWait`]): how they sleep and wake. Wrong values of the guest affect only the
//! guest.

use crate::calls::poll_readable;
use crate::control::{Control, Input};
use crate::interrupts;
use crate::platform::{self, Mapping};
use hartline_abi::boot::{CpuWait, Shared};
use hartline_abi::limits::MAX_CPUS;
use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;
use std::time::Duration;

const WAITS: u64 = offset_of!(Shared, waits) as u64;
const HARTS: u64 = offset_of!(Shared, harts) as u64;

/// Offset of a field of the wait of `cpu` in the shared pages.
fn field_offset(cpu: usize, field: usize) -> u64 {
    WAITS + (cpu * size_of::<CpuWait>() + field) as u64
}

/// Lets vCPU `cpu` sleep until it is woken, its timeout ends, or the input that it waits for
/// arrives.
///
/// # Errors
/// Only if its [`CpuWait`] is not in the shared pages: a bug of the VMM.
pub(crate) fn sleep(
    control: &Control,
    shared: &Mapping,
    cpu: usize,
) -> Result<(), platform::Error> {
    let timeout = shared.atomic_u64(field_offset(cpu, offset_of!(CpuWait, timeout)))?;
    let input = shared.atomic_u32(field_offset(cpu, offset_of!(CpuWait, input)))?;
    let time = match timeout.load(Ordering::SeqCst) {
        u64::MAX => None,
        ns => Some(Duration::from_nanos(ns)),
    };
    let input = input.load(Ordering::SeqCst) != 0;
    let (_, event) = control.of_cpu(cpu);
    // Most waits are not for input.
    let source = input.then(|| control.input());
    let source = source.as_ref();
    let [ready, woken] = control.while_idle(cpu, || {
        // Checked after this vCPU is counted as waiting, so that no interrupt is missed.
        match interrupts::is_pending(control, shared, cpu)? {
            true => Ok([false; 2]),
            false if source.is_some_and(|source| source.descriptor().is_none()) => {
                Ok([true, false])
            }
            false if control.is_resetting() => Ok([false; 2]),
            false => Ok(poll_readable(
                source.and_then(Input::descriptor),
                event,
                time,
            )),
        }
    })?;
    if woken {
        event.take();
    }
    let ready_word = field_offset(cpu, offset_of!(CpuWait, ready));
    shared
        .atomic_u32(ready_word)?
        .store(ready.into(), Ordering::SeqCst);
    Ok(())
}

/// Waits until the guest has published a hart for vCPU `cpu` and woken it, or the VM ends.
///
/// # Errors
/// Only if its hart is not in the shared pages: a bug of the VMM.
pub(crate) fn wait_for_start(
    control: &Control,
    shared: &Mapping,
    cpu: usize,
) -> Result<(), platform::Error> {
    let hart = shared.atomic_u64(HARTS + (cpu * size_of::<u64>()) as u64)?;
    let (_, event) = control.of_cpu(cpu);
    control.while_idle(cpu, || {
        loop {
            poll_readable(None, event, None);
            event.take();
            if control.is_over() || hart.load(Ordering::SeqCst) != 0 {
                return Ok(());
            }
        }
    })
}

/// Wakes all vCPUs that the guest marked.
///
/// # Errors
/// As [`sleep`].
pub(crate) fn wake(control: &Control, shared: &Mapping) -> Result<(), platform::Error> {
    for cpu in 0..control.cpus().min(MAX_CPUS) {
        let marked = shared.atomic_u32(field_offset(cpu, offset_of!(CpuWait, wake)))?;
        if marked.swap(0, Ordering::SeqCst) != 0 {
            control.wake_cpu(cpu);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_vcpus_are_woken() {
        let shared = Mapping::anonymous("shared", 4 << 20).unwrap();
        let control = Control::new(2).unwrap();
        let word = |cpu, field| shared.atomic_u32(field_offset(cpu, field)).unwrap();
        word(1, offset_of!(CpuWait, wake)).store(1, Ordering::SeqCst);
        wake(&control, &shared).unwrap();
        assert_eq!(control.of_cpu(1).1.take(), 1);
        assert_eq!(control.of_cpu(0).1.take(), 0);
        assert_eq!(word(1, offset_of!(CpuWait, wake)).load(Ordering::SeqCst), 0);
        // Without a timeout and input it does not sleep.
        sleep(&control, &shared, 1).unwrap();
        assert_eq!(
            word(1, offset_of!(CpuWait, ready)).load(Ordering::SeqCst),
            0
        );
    }

    #[test]
    fn a_vcpu_starts_when_its_hart_is_there_or_never() {
        let shared = Mapping::anonymous("shared", 4 << 20).unwrap();
        let control = Control::new(2).unwrap();
        shared
            .atomic_u64(HARTS + 8)
            .unwrap()
            .store(64, Ordering::SeqCst);
        control.wake_cpu(1);
        wait_for_start(&control, &shared, 1).unwrap();
        assert!(!control.is_over());
        control.end();
        wait_for_start(&control, &shared, 0).unwrap();
        assert!(control.is_over() && control.stopped().is_none());
    }
}
