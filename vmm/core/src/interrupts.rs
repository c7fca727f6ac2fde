//! Interrupts of devices: the modes, the choice of a mode, and the delivery from a device's thread
//! to the guest.

use crate::control::Control;
use crate::kick;
use crate::platform::{self, Mapping, Message, Vm};
use crate::probe::{KvmKind, Virtualization};
use crate::timers::Times;
use hartline_abi::boot::Shared;
use hartline_abi::handshake;
use hartline_abi::hart::Pending;
use hartline_abi::interrupt::{MAX_DEVICES, vector_of};
use serde::Serialize;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vmm_sys_util::eventfd::EventFd;

/// The delivery of devices' interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By a word in shared memory, which harts read at safepoints. No exits.
    Safepoint,
    /// By vectors, which the processor delivers without exits (APICv, AVIC).
    Posted,
    /// By vectors, which KVM injects: the vCPU leaves the guest for that.
    Injected,
}

impl Mode {
    /// The mode's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safepoint => "safepoint",
            Self::Posted => "posted",
            Self::Injected => "injected",
        }
    }

    /// The best mode on this host.
    #[must_use]
    pub fn best() -> Self {
        let host = Virtualization::detect(KvmKind::detect());
        match host.interrupt_virtualization {
            Some(true) => Self::Posted,
            _ => Self::Safepoint,
        }
    }

    /// Checks that this host supports the mode.
    ///
    /// # Errors
    /// [`NotPosted`].
    pub fn check(self) -> Result<(), NotPosted> {
        match self {
            Self::Posted => NotPosted::check(&Virtualization::detect(KvmKind::detect())),
            Self::Safepoint | Self::Injected => Ok(()),
        }
    }

    /// Whether devices have vectors.
    #[must_use]
    pub const fn has_vectors(self) -> bool {
        matches!(self, Self::Posted | Self::Injected)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why this host has no posted interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotPosted {
    /// This kind of KVM does not support them.
    #[error(
        "this host's KVM has no posted interrupts (APICv or AVIC): use safepoint, which needs none"
    )]
    Kind,
    /// They are disabled, or the processor does not support them.
    #[error(
        "posted interrupts are off (enable_apicv of kvm_intel, avic of kvm_amd), or the processor has none: use safepoint"
    )]
    Off,
}

impl NotPosted {
    fn check(host: &Virtualization) -> Result<(), Self> {
        match host.interrupt_virtualization {
            Some(true) => Ok(()),
            Some(false) => Err(Self::Off),
            None => Err(Self::Kind),
        }
    }
}

/// Events that interrupt the guest by a vector, for each device and vCPU.
#[derive(Debug)]
pub(crate) struct Lines {
    devices: Vec<(u8, Vec<EventFd>)>,
}

impl Lines {
    /// Makes the events of the devices in a set of bits.
    ///
    /// # Errors
    /// KVM refuses them.
    pub fn new(vm: &Vm, devices: u32, cpus: u32) -> Result<Self, platform::Error> {
        let numbers = (0..MAX_DEVICES).filter(|device| devices & 1 << device != 0);
        let numbers: Vec<u8> = numbers.collect();
        // MAX_CPUS fits.
        let cpus = u8::try_from(cpus).unwrap_or(u8::MAX);
        let messages = numbers.iter().flat_map(|&device| {
            let vector = vector_of(device);
            (0..cpus).map(move |cpu| Message { cpu, vector })
        });
        let mut events = vm.route(&messages.collect::<Vec<_>>())?.into_iter();
        let of_device = |device| (device, events.by_ref().take(cpus.into()).collect());
        Ok(Self {
            devices: numbers.into_iter().map(of_device).collect(),
        })
    }

    /// Takes the events of a device.
    pub fn take(&mut self, device: u64) -> Option<Vec<EventFd>> {
        let is_it = |(other, _): &(u8, _)| u64::from(*other) == device;
        let at = self.devices.iter().position(is_it)?;
        Some(self.devices.swap_remove(at).1)
    }
}

/// The parts of the VM that threads of devices use.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// Private RAM.
    pub ram: Arc<Mapping>,
    /// The shared pages.
    pub shared: Arc<Mapping>,
    /// Requests to the vCPUs.
    pub control: Arc<Control>,
    /// Times at which the guest is kicked.
    pub times: Arc<Times>,
}

/// The interrupt of one device.
#[derive(Debug)]
pub(crate) struct Interrupt {
    reach: Reach,
    device: u64,
    /// An event for each vCPU; `None`: interrupts are read at safepoints.
    line: Option<Vec<EventFd>>,
}

impl Interrupt {
    /// The interrupt of the device with a number below 32.
    pub fn new(reach: &Reach, device: u64, lines: Option<&mut Lines>) -> Self {
        Self {
            reach: reach.clone(),
            device,
            line: lines.and_then(|lines| lines.take(device)),
        }
    }

    /// Requests to the vCPUs.
    pub fn control(&self) -> &Control {
        &self.reach.control
    }

    /// Sets whether the device's thread polls continuously from now on.
    pub fn set_watching(&self, watches: bool) {
        let times = &self.reach.times;
        // Fails only if the shared pages have no room for their own fields.
        let look = match watches {
            true => times.begin_watching().map(|()| false),
            false => times.end_watching(),
        };
        if look.unwrap_or(false) {
            self.reach.control.look();
        }
    }

    /// Kicks the guest if its time has come.
    pub fn watch(&self) {
        // Fails only if the shared pages have no room for their own fields.
        if self.reach.times.watch().unwrap_or(false) {
            kick::all(&self.reach.shared, &self.reach.ram, Pending::Tick);
        }
    }

    /// Interrupts the guest.
    pub fn raise(&self) {
        match &self.line {
            None => self.raise_at_safepoint(),
            Some(line) => {
                let cpu = self.reach.control.interrupt_target();
                if let Some(event) = line.get(cpu) {
                    // Fails only if the counter is at its limit: the event is then signalled
                    // already.
                    let _: io::Result<()> = event.write(1);
                }
                // The message waits in the APIC until the vCPU enters the guest.
                self.reach.control.interrupt(cpu);
            }
        }
    }

    fn raise_at_safepoint(&self) {
        // Fails only if the shared pages have no room for their own fields.
        let Ok(word) = self.reach.shared.atomic_u64(PENDING) else {
            return;
        };
        let sleepers = handshake::raise(word, 1 << self.device, self.reach.control.sleepers());
        kick::all(&self.reach.shared, &self.reach.ram, Pending::Device);
        if self.reach.control.are_all(sleepers) {
            self.reach.control.wake_cpu(0);
        }
    }
}

/// Offset of the set of interrupting devices in the shared pages.
const PENDING: u64 = offset_of!(Shared, interrupts) as u64;

/// Whether a vCPU that is counted as sleeping must stay awake: a device has an interrupt that the
/// guest has not handled.
///
/// # Errors
/// Only if the shared pages have no room for their own fields.
pub(crate) fn is_pending(
    control: &Control,
    shared: &Mapping,
    cpu: usize,
) -> Result<bool, platform::Error> {
    let at_safepoint = shared.atomic_u64(PENDING)?.load(Ordering::SeqCst);
    Ok(control.take_interrupt(cpu) || at_safepoint != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::GuestClock;

    #[test]
    fn posted_interrupts_are_refused_where_there_are_none() {
        let host = |value| Virtualization {
            interrupt_virtualization: value,
            ..Default::default()
        };
        assert_eq!(NotPosted::check(&host(None)), Err(NotPosted::Kind));
        assert_eq!(NotPosted::check(&host(Some(false))), Err(NotPosted::Off));
        assert_eq!(NotPosted::check(&host(Some(true))), Ok(()));
    }

    #[test]
    fn a_device_wakes_a_vcpu_that_sleeps() {
        let shared = Arc::new(Mapping::anonymous("shared", 4 << 20).unwrap());
        let ram = Arc::new(Mapping::anonymous("ram", 4096).unwrap());
        let control = Arc::new(Control::new(2).unwrap());
        let clock = GuestClock::new(1_000_000_000, 0);
        let reach = Reach {
            ram,
            shared: Arc::clone(&shared),
            control: Arc::clone(&control),
            times: Arc::new(Times::new(Arc::clone(&shared), clock)),
        };
        let interrupt = Interrupt::new(&reach, 3, None);
        control.while_idle(0, || interrupt.raise());
        assert!(
            control.of_cpu(0).1.take() > 0,
            "the other thread has not begun"
        );
        control.while_idle(1, || ());
        interrupt.raise();
        assert!(control.of_cpu(0).1.take() == 0, "nobody sleeps");
        assert!(is_pending(&control, &shared, 1).unwrap());
        control.while_idle(0, || {
            interrupt.raise();
            assert!(control.of_cpu(0).1.take() == 0, "one runs");
            control.while_idle(1, || interrupt.raise());
        });
        assert!(control.of_cpu(0).1.take() > 0);
    }

    #[test]
    fn a_vector_goes_to_a_vcpu_that_runs() {
        let control = Control::new(3).unwrap();
        assert_eq!(control.interrupt_target(), 0);
        control.while_idle(0, || {
            assert_eq!(control.interrupt_target(), 0, "the others have not run yet");
            control.while_idle(2, || ());
            control.make_reachable(2);
            assert_eq!(control.interrupt_target(), 2);
            control.interrupt(2);
            assert!(control.of_cpu(2).1.take() == 0);
            control.interrupt(0);
            assert!(control.of_cpu(0).1.take() > 0);
        });
        let shared = Mapping::anonymous("shared", 4 << 20).unwrap();
        assert!(is_pending(&control, &shared, 2).unwrap());
        assert!(!is_pending(&control, &shared, 2).unwrap());
    }
}
