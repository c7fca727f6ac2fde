//! Virtio devices: their registers in the guest's physical memory, and their interrupts.

use crate::control::{Control, Stop};
use crate::interrupts::{Interrupt, Lines};
use crate::platform::{self, Mapping, Mmio};
use hartline_abi::layout::{DEVICE_GPA, PAGE_SIZE, RAM_GPA};
use hartline_abi::virtio::NET_DEVICE;
use hartline_devices::limiter::Limits;
use hartline_devices::net::{Backend, Counters, Net, Statistics};
use hartline_devices::virtio::mmio::Transport;
use hartline_devices::virtio::{DeviceError, Guest, Memory};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A network interface for a VM.
#[derive(Debug)]
pub struct Network {
    /// What it leads to.
    pub backend: Box<dyn Backend>,
    /// Address of the guest's interface.
    pub mac: [u8; 6],
    /// Longest time for which host and guest watch the rings before they sleep.
    pub polling: Duration,
    /// Limits of each direction, which may be changed while the VM runs.
    pub limits: Arc<Limits>,
}

/// The devices of a VM.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    /// The network device, and its counters.
    net: Option<(Mutex<Transport>, Arc<Counters>)>,
}

impl Devices {
    /// The devices of a VM with these memories, none without `network`. They interrupt by
    /// `lines`, or, without those, at safepoints.
    ///
    /// # Errors
    /// If the host has no descriptors left.
    pub fn new(
        network: Option<Network>,
        ram: &Arc<Mapping>,
        shared: &Arc<Mapping>,
        control: &Arc<Control>,
        lines: Option<&mut Lines>,
    ) -> Result<Self, platform::Error> {
        let Some(network) = network else {
            return Ok(Self::default());
        };
        let failed = |source| platform::Error::Request {
            request: "network device",
            source,
        };
        let device = NET_DEVICE as u8;
        let guest = Arc::new(Interrupt::new(ram, shared, control, device, lines));
        let length = usize::try_from(ram.length())
            .map_err(|_| failed(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // SAFETY: all of the mapping, which the value keeps.
        let memory = unsafe { Memory::new(ram.base(), length, RAM_GPA, Arc::clone(ram) as Arc<_>) }
            .ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let Network {
            backend,
            mac,
            polling,
            limits,
        } = network;
        let net = Net::new(backend, mac, polling, limits, memory.clone(), guest);
        let net = net.map_err(failed)?;
        let counters = net.counters();
        let transport = Transport::new(Box::new(net), memory);
        Ok(Self {
            net: Some((Mutex::new(transport), counters)),
        })
    }

    /// The VM has ended: stops all devices.
    pub fn stop(&self) {
        if let Some((transport, _)) = &self.net {
            lock(transport).reset();
        }
    }

    /// What the network device did, if there is one.
    pub fn network(&self) -> Option<Statistics> {
        self.net.as_ref().map(|(_, counters)| counters.read())
    }

    /// The registers at a guest-physical address, and the offset in them.
    fn at(&self, gpa: u64) -> Option<(MutexGuard<'_, Transport>, u64)> {
        let offset = gpa.checked_sub(DEVICE_GPA)?;
        let (transport, _) = self.net.as_ref()?;
        (offset / PAGE_SIZE == NET_DEVICE).then(|| (lock(transport), offset % PAGE_SIZE))
    }
}

fn lock(transport: &Mutex<Transport>) -> MutexGuard<'_, Transport> {
    transport.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mmio for Devices {
    fn read(&self, gpa: u64, data: &mut [u8]) -> bool {
        let found = self.at(gpa);
        if let Some((transport, offset)) = &found {
            transport.read(*offset, data);
        }
        found.is_some()
    }

    fn write(&self, gpa: u64, data: &[u8]) -> bool {
        let mut found = self.at(gpa);
        if let Some((transport, offset)) = &mut found {
            transport.write(*offset, data);
        }
        found.is_some()
    }
}

impl Guest for Interrupt {
    fn interrupt(&self) {
        self.raise();
    }

    fn fail(&self, error: DeviceError) {
        self.control().stop(Stop::Device(error));
    }
}
