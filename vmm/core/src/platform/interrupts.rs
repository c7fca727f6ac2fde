//! Message-signalled interrupts (MSI): local APICs in the kernel, in x2APIC mode, and events that
//! send a message to one of them.

use super::{Error, Vcpu, Vm};
use kvm_bindings::{
    KVM_CAP_X2APIC_API, KVM_IRQ_ROUTING_MSI, KVM_MP_STATE_RUNNABLE,
    KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK, KVM_X2APIC_API_USE_32BIT_IDS, KvmIrqRouting,
    kvm_enable_cap, kvm_irq_routing_entry, kvm_irq_routing_msi, kvm_mp_state,
};
use kvm_ioctls::Cap;
use std::io;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Bits of `IA32_APIC_BASE`: the APIC is on, in x2APIC mode.
pub(super) const APIC_BASE_X2APIC: u64 = 1 << 11 | 1 << 10;
/// Offset of the spurious-interrupt vector register in the APIC's page.
const SPURIOUS: usize = 0xf0;
/// Its value: the APIC is enabled, with the unassigned vector 255.
const SPURIOUS_ENABLED: u32 = 1 << 8 | 0xff;
/// Address of messages (Intel SDM volume 3, 11.11.1), and the bit position of the destination in
/// the address.
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;
const MESSAGE_DESTINATION: u32 = 12;

/// An interrupt: its vCPU and vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Number of the vCPU, below 255.
    pub cpu: u8,
    /// The vector, from 32.
    pub vector: u8,
}

impl Message {
    /// The message's route, under the number `gsi`.
    fn route(self, gsi: u32) -> kvm_irq_routing_entry {
        let mut entry = kvm_irq_routing_entry {
            gsi,
            type_: KVM_IRQ_ROUTING_MSI,
            ..Default::default()
        };
        // Physical destination, fixed delivery, edge.
        entry.u.msi = kvm_irq_routing_msi {
            address_lo: MESSAGE_ADDRESS | u32::from(self.cpu) << MESSAGE_DESTINATION,
            data: self.vector.into(),
            ..Default::default()
        };
        entry
    }
}

impl Vm {
    /// Gives the VM local APICs, before it has vCPUs.
    ///
    /// # Errors
    /// [`Error::Request`], also if this KVM does not support them.
    pub fn add_apics(&mut self) -> Result<(), Error> {
        for (capability, request) in [
            (Cap::Irqfd, "interrupts by events are not supported"),
            (Cap::X2ApicApi, "x2APIC is not supported"),
        ] {
            if !self.fd.check_extension(capability) {
                let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
                return Err(Error::Request { request, source });
            }
        }
        self.fd
            .create_irq_chip()
            .map_err(Error::request("KVM_CREATE_IRQCHIP"))?;
        let mut capability = kvm_enable_cap {
            cap: KVM_CAP_X2APIC_API,
            ..Default::default()
        };
        capability.args[0] =
            u64::from(KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK);
        self.fd
            .enable_cap(&capability)
            .map_err(Error::request("KVM_CAP_X2APIC_API"))?;
        self.has_apics = true;
        Ok(())
    }

    /// Events that are delivered as these messages. To be called at most once for a VM.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn route(&self, messages: &[Message]) -> Result<Vec<EventFd>, Error> {
        let routes: Vec<_> = (0..).zip(messages).map(|(gsi, m)| m.route(gsi)).collect();
        let routing = KvmIrqRouting::from_entries(&routes).map_err(|_| Error::Request {
            request: "KVM_SET_GSI_ROUTING",
            source: io::Error::from_raw_os_error(libc::E2BIG),
        })?;
        self.fd
            .set_gsi_routing(&routing)
            .map_err(Error::request("KVM_SET_GSI_ROUTING"))?;
        let register = |(gsi, _): (u32, &Message)| {
            let event = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(|source| {
                let request = "eventfd";
                Error::Request { request, source }
            })?;
            self.fd
                .register_irqfd(&event, gsi)
                .map_err(Error::request("KVM_IRQFD"))?;
            Ok(event)
        };
        (0..).zip(messages).map(register).collect()
    }
}

impl Vcpu {
    /// Enables the local APIC, whose base is set already, and lets the vCPU run without a
    /// start-up message.
    pub(super) fn start_apic(&self) -> Result<(), Error> {
        let mut state = self
            .fd
            .get_lapic()
            .map_err(Error::request("KVM_GET_LAPIC"))?;
        let register = &mut state.regs[SPURIOUS..SPURIOUS + 4];
        for (to, from) in register.iter_mut().zip(SPURIOUS_ENABLED.to_le_bytes()) {
            *to = from.cast_signed();
        }
        self.fd
            .set_lapic(&state)
            .map_err(Error::request("KVM_SET_LAPIC"))?;
        let runnable = kvm_mp_state {
            mp_state: KVM_MP_STATE_RUNNABLE,
        };
        self.fd
            .set_mp_state(runnable)
            .map_err(Error::request("KVM_SET_MP_STATE"))
    }
}
