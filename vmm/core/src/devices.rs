//! Virtio devices: their registers in the guest's physical memory, and their interrupts.

use crate::confine::{Confine, Thread, confine_to};
use crate::control::Stop;
use crate::interrupts::{Interrupt, Lines, Reach};
use crate::platform::{self, Mapping, Mmio};
use hartline_abi::boot::DISK_NAME;
use hartline_abi::call::RegisterAccess;
use hartline_abi::layout::{DEVICE_GPA, PAGE_SIZE, RAM_GPA};
use hartline_abi::virtio::{CONSOLE_DEVICE, FIRST_DISK, NET_DEVICE, RNG_DEVICE, VSOCK_DEVICE};
use hartline_devices::block::{self, Block, Image};
use hartline_devices::console::{self, Console, Outputs};
use hartline_devices::limiter::Limits;
use hartline_devices::net::{self, Backend, Net};
use hartline_devices::rng::{self, Rng};
use hartline_devices::virtio::mmio::{Saved, Transport};
use hartline_devices::virtio::{ActivateError, Device, DeviceError, Guest, Memory, ThreadInit};
use hartline_devices::vsock::{self, Vsock};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A network interface for a VM.
#[derive(Debug)]
pub struct Network {
    /// The backend of each pair of queues: at least one pair, and at most as many as the VM has
    /// vCPUs.
    pub backends: Vec<Box<dyn Backend>>,
    /// Address of the guest's interface.
    pub mac: [u8; 6],
    /// Longest time for which host and guest busy-poll the rings before they sleep.
    pub polling: Duration,
    /// Limits of each direction, which may change while the VM runs.
    pub limits: Arc<dyn Limits>,
}

/// A disk for a VM.
#[derive(Debug)]
pub struct Disk {
    /// Its name in `/dev` of the guest.
    pub name: DiskName,
    /// Its contents.
    pub image: Image,
    /// Limits of all requests together, which may change while the VM runs.
    pub limits: Arc<dyn Limits>,
}

/// The name of a disk, filled up with zeros.
pub type DiskName = [u8; DISK_NAME];

/// A socket device for a VM.
#[derive(Debug)]
pub struct Sockets {
    /// CID of the VM, from [`FIRST_CID`](hartline_abi::vsock::FIRST_CID) on.
    pub cid: u32,
    /// Socket that programs of the host connect to.
    pub host: vsock::Host,
    /// Longest time for which host and guest busy-poll the rings before they sleep.
    pub polling: Duration,
}

/// The optional devices of a VM.
#[derive(Debug, Default)]
pub struct Attached {
    /// The network interface.
    pub network: Option<Network>,
    /// The disks, at most [`MAX_DISKS`](hartline_abi::limits::MAX_DISKS).
    pub disks: Vec<Disk>,
    /// The socket device.
    pub sockets: Option<Sockets>,
}

/// Longest time for which the thread of a disk busy-polls its ring before it sleeps.
const DISK_POLLING: Duration = Duration::from_micros(200);

impl Attached {
    /// The numbers of all devices of the VM, a bit for each.
    pub(crate) fn numbers(&self) -> u32 {
        let disks = (FIRST_DISK..).take(self.disks.len());
        let disks = disks.fold(0, |set, n| set | 1 << n);
        let network = u32::from(self.network.is_some()) << NET_DEVICE;
        let sockets = u32::from(self.sockets.is_some()) << VSOCK_DEVICE;
        disks | network | sockets | ALWAYS
    }
}

/// Devices that every VM has.
const ALWAYS: u32 = 1 << RNG_DEVICE | 1 << CONSOLE_DEVICE;

/// The devices that interrupt. The entropy device is done when the write of its notification returns,
/// and a caller that waits for the console does nothing else meanwhile ([`Console::flush`]).
pub(crate) fn interrupting(numbers: u32) -> u32 {
    numbers & !ALWAYS
}

/// The number of pages with registers of these devices.
pub(crate) fn pages(numbers: u32) -> u64 {
    u64::from(u32::BITS - numbers.leading_zeros())
}

/// Statistics of the devices of a VM.
#[derive(Debug, Clone, Default)]
pub struct DeviceStatistics {
    /// Each pair of queues of the network device, if the VM has one.
    pub net_pairs: Vec<net::Statistics>,
    /// The disks.
    pub disks: Vec<block::Statistics>,
    /// The console.
    pub console: console::Statistics,
    /// The entropy device.
    pub rng: rng::Statistics,
    /// The socket device, if there is one.
    pub vsock: Option<vsock::Statistics>,
}

impl DeviceStatistics {
    /// The network device, if there is one.
    #[must_use]
    pub fn net(&self) -> Option<net::Statistics> {
        let pairs = &self.net_pairs;
        (!pairs.is_empty()).then(|| net::Statistics::sum(pairs))
    }

    /// Whether there are devices that interrupt the guest.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.net_pairs.is_empty() || !self.disks.is_empty() || self.vsock.is_some()
    }

    /// The number of interrupts to the guest.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        let net = self.net().map_or(0, |net| net.interrupts);
        let vsock = self.vsock.map_or(0, |vsock| vsock.interrupts);
        let disks = self.disks.iter().map(|disk| disk.interrupts);
        disks.fold(net + vsock, |n, disk| n + disk)
    }

    /// Names of the used devices, with the names and values of their counters. If there are several
    /// pairs of queues, each has a name too.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, Vec<(&'static str, u64)>)> {
        let net = self.net().map(|net| ("net".to_owned(), net.rows()));
        let several = self.net_pairs.len() > 1;
        let pairs = self.net_pairs.iter().enumerate().filter(|_| several);
        let pairs = pairs.map(|(number, pair)| (format!("net_pair{number}"), pair.rows()));
        let net = net.into_iter().chain(pairs);
        let disks = self.disks.iter().enumerate();
        let disks = disks.map(|(number, disk)| (format!("disk{number}"), disk.rows()));
        let console = self.console;
        let console = (console.kicks > 0).then(|| ("console".to_owned(), console.rows()));
        let rng = (self.rng.kicks > 0).then(|| ("rng".to_owned(), self.rng.rows()));
        let vsock = self
            .vsock
            .iter()
            .map(|vsock| ("vsock".to_owned(), vsock.rows()));
        let each = net.chain(disks).chain(console).chain(rng);
        each.chain(vsock).collect()
    }
}

/// The devices of a VM.
#[derive(Debug)]
pub(crate) struct Devices {
    slots: Vec<Slot>,
    console: Console,
    /// Counters of each pair of queues.
    net: Vec<Arc<net::Counters>>,
    disks: Vec<Arc<block::Counters>>,
    rng: Arc<rng::Counters>,
    vsock: Option<Arc<vsock::Counters>>,
}

/// The states of the devices of a VM.
#[derive(Debug)]
pub(crate) struct SavedDevices(Vec<Option<Saved>>);

/// A device in its place.
#[derive(Debug)]
struct Slot {
    /// Number of the device.
    number: u64,
    /// Its registers.
    transport: Mutex<Transport>,
    /// The reason why the device was not activated, the first time.
    activate_error: OnceLock<ActivateError>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Transport> {
        let transport = self.transport.lock();
        transport.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to an offset of the register page.
    fn write(&self, offset: u64, data: &[u8]) {
        let mut transport = self.lock();
        transport.write(offset, data);
        if let Some(error) = transport.take_activate_error() {
            // A driver that tries again has told enough.
            let _ = self.activate_error.set(error);
        }
    }
}

impl Devices {
    /// Makes the devices of a VM. Output goes to `outputs`, with a limit as [`Console::new`] has it. The
    /// devices interrupt through `lines`, or, without lines, at safepoints.
    ///
    /// # Errors
    /// If the host has no descriptors left.
    pub fn new(
        attached: Attached,
        (outputs, output_limit): (Outputs, u64),
        reach: &Reach,
        mut lines: Option<&mut Lines>,
        confine: Option<&Arc<dyn Confine>>,
    ) -> Result<Self, platform::Error> {
        let mut guest = |number: u64| {
            let lines = lines.as_deref_mut();
            Arc::new(Interrupt::new(reach, number, lines))
        };
        let memory = memory_of(&reach.ram, RAM_GPA)?;
        let begin = |thread| -> ThreadInit {
            let confine = confine.cloned();
            Arc::new(move || confine_to(thread, confine.as_ref()))
        };
        let parts = (memory.clone(), guest(CONSOLE_DEVICE) as Arc<dyn Guest>);
        let console = Console::new(outputs, output_limit, begin(Thread::Console), parts);
        let console = console.map_err(failed)?;
        let console_device = console.device();
        let mut devices = Self {
            slots: Vec::new(),
            console,
            net: Vec::new(),
            disks: Vec::new(),
            rng: Arc::default(),
            vsock: None,
        };
        let mut add = |number: u64, device: Box<dyn Device>| {
            devices.slots.push(Slot {
                number,
                transport: Mutex::new(Transport::new(device, memory.clone())),
                activate_error: OnceLock::new(),
            });
        };
        add(CONSOLE_DEVICE, console_device);
        let Attached {
            network,
            disks,
            sockets,
        } = attached;
        if let Some(network) = network {
            let Network {
                backends,
                mac,
                polling,
                limits,
            } = network;
            let begin = begin(Thread::Network);
            let parts = (memory.clone(), guest(NET_DEVICE) as Arc<dyn Guest>);
            let net = Net::new(backends, mac, polling, limits, begin, parts).map_err(failed)?;
            devices.net = net.counters();
            add(NET_DEVICE, Box::new(net));
        }
        let rng = Rng::new(memory.clone(), guest(RNG_DEVICE));
        devices.rng = rng.counters();
        add(RNG_DEVICE, Box::new(rng));
        for (number, disk) in (FIRST_DISK..).zip(disks) {
            let Disk { image, limits, .. } = disk;
            let block = Block::new(image, DISK_POLLING, limits, memory.clone(), guest(number));
            let block = block.map_err(failed)?;
            devices.disks.push(block.counters());
            add(number, Box::new(block));
        }
        if let Some(Sockets { cid, host, polling }) = sockets {
            let guest = guest(VSOCK_DEVICE);
            let vsock = Vsock::new(host, cid, polling, memory.clone(), guest).map_err(failed)?;
            devices.vsock = Some(vsock.counters());
            add(VSOCK_DEVICE, Box::new(vsock));
        }
        Ok(devices)
    }

    /// The console.
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Performs an access on behalf of the guest ([`RegisterAccess`]).
    pub fn access(&self, access: &mut RegisterAccess) {
        let gpa = DEVICE_GPA + u64::from(access.offset);
        let mut value = access.value.to_le_bytes();
        // An access without a device has no effect.
        match access.is_write {
            true => self.write(gpa, &value),
            false => self.read(gpa, &mut value),
        };
        access.value = u32::from_le_bytes(value);
    }

    /// Stops all devices at the end of the VM. What the guest has sent to other hosts is delivered, for at most
    /// `limit`. Pending output of the console is written later ([`Console::finish`]).
    pub fn stop(&self, limit: Duration) {
        self.console.stop();
        self.slots.iter().for_each(|slot| slot.lock().finish(limit));
        self.reset();
    }

    /// The states of the devices that the driver has started. They may have stopped then, until they are
    /// [restored](Self::restore).
    pub fn save(&self) -> SavedDevices {
        let states = self.slots.iter().map(|slot| slot.lock().save());
        SavedDevices(states.collect())
    }

    /// Puts the devices into the states of [`save`](Self::save). The guest's memory is as it was then.
    ///
    /// # Errors
    /// A device cannot start.
    pub fn restore(&self, saved: &SavedDevices) -> Result<(), ActivateError> {
        let mut states = self.slots.iter().zip(&saved.0);
        states.try_for_each(|(slot, state)| slot.lock().restore(state.as_ref()))
    }

    /// Resets all devices, as the guest can.
    pub fn reset(&self) {
        for slot in &self.slots {
            slot.lock().reset();
        }
    }

    /// The devices that the guest's driver could not start: the first reason of each.
    pub fn activate_errors(&self) -> Vec<String> {
        let errors = self
            .slots
            .iter()
            .filter_map(|slot| slot.activate_error.get());
        errors.map(ActivateError::to_string).collect()
    }

    /// The statistics of the devices.
    pub fn statistics(&self) -> DeviceStatistics {
        DeviceStatistics {
            net_pairs: self.net.iter().map(|counters| counters.read()).collect(),
            disks: self.disks.iter().map(|counters| counters.read()).collect(),
            console: self.console.counters().read(),
            rng: self.rng.read(),
            vsock: self.vsock.as_ref().map(|counters| counters.read()),
        }
    }

    /// The device with registers at a guest-physical address, and the offset in them.
    fn at(&self, gpa: u64) -> Option<(&Slot, u64)> {
        let offset = gpa.checked_sub(DEVICE_GPA)?;
        let is_here = |slot: &&Slot| slot.number == offset / PAGE_SIZE;
        let slot = self.slots.iter().find(is_here)?;
        Some((slot, offset % PAGE_SIZE))
    }
}

/// Memory of the guest at a guest-physical address, as devices access it. It keeps the mapping.
///
/// # Errors
/// The mapping is read-only, or the addresses would wrap.
pub(crate) fn memory_of(mapping: &Arc<Mapping>, gpa: u64) -> Result<Memory, platform::Error> {
    let refused = || failed(io::Error::from_raw_os_error(libc::EINVAL));
    if !mapping.writable() {
        return Err(refused());
    }
    let length = usize::try_from(mapping.length()).map_err(|_| refused())?;
    let owner = Arc::clone(mapping) as Arc<_>;
    // SAFETY: the range is the whole mapping, which is writable and which the result keeps, so it
    // stays mapped.
    let memory = unsafe { Memory::new(mapping.base(), length, gpa, owner) };
    memory.ok_or_else(refused)
}

/// The error of a device that cannot be made.
fn failed(source: io::Error) -> platform::Error {
    platform::Error::Request {
        request: "device",
        source,
    }
}

impl Mmio for Devices {
    fn read(&self, gpa: u64, data: &mut [u8]) -> bool {
        let found = self.at(gpa);
        if let Some((slot, offset)) = found {
            slot.lock().read(offset, data);
        }
        found.is_some()
    }

    fn write(&self, gpa: u64, data: &[u8]) -> bool {
        let found = self.at(gpa);
        if let Some((slot, offset)) = found {
            slot.write(offset, data);
        }
        found.is_some()
    }
}

impl Guest for Interrupt {
    fn interrupt(&self) {
        self.raise();
    }

    fn set_polling(&self, is_polling: bool) {
        Self::set_watching(self, is_polling);
    }

    fn poll(&self) {
        Self::watch(self);
    }

    fn fail(&self, error: DeviceError) {
        self.control().stop(Stop::Device(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::timers::{GuestClock, Times};
    use std::fs::File;

    fn devices() -> Devices {
        let ram = Arc::new(Mapping::anonymous("ram", 1 << 20).unwrap());
        let shared = Arc::new(Mapping::anonymous("shared", 4 << 20).unwrap());
        let clock = GuestClock::new(1_000_000_000, 0);
        let reach = Reach {
            ram,
            shared: Arc::clone(&shared),
            control: Arc::new(Control::new(1).unwrap()),
            times: Arc::new(Times::new(shared, clock)),
        };
        let null = || {
            File::options()
                .write(true)
                .open("/dev/null")
                .unwrap()
                .into()
        };
        let outputs = (Outputs::new([null(), null(), null()]), 0);
        Devices::new(Attached::default(), outputs, &reach, None, None).unwrap()
    }

    #[test]
    fn a_device_that_cannot_start_is_reported_once() {
        const STATUS: u64 = 0x70;
        const DRIVER_OK: u32 = 4;
        let devices = devices();
        let status = DEVICE_GPA + RNG_DEVICE * PAGE_SIZE + STATUS;
        assert_eq!(devices.activate_errors(), [""; 0]);
        // The driver has not settled the features.
        for value in [DRIVER_OK, 0, DRIVER_OK | 1] {
            assert!(devices.write(status, &value.to_le_bytes()));
        }
        devices.reset();
        let expected = "virtio-rng: cannot activate: status 0x4 lacks FEATURES_OK";
        assert_eq!(devices.activate_errors(), [expected]);
    }
}
