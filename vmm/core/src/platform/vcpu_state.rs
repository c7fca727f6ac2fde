//! The state of a vCPU, saved and restored.

use super::{Error, Exit, Mmio, Vcpu};
use kvm_bindings::{kvm_debugregs, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs, kvm_xsave};
use kvm_ioctls::SyncReg;
use std::sync::atomic::{AtomicU8, Ordering};

/// Exits that the completion of one exit may cause: each is a part of a string instruction.
const MAX_EXITS: usize = 4096;

/// What KVM can take when the guest is entered.
const GIVEN: [SyncReg; 3] = [
    SyncReg::Register,
    SyncReg::SystemRegister,
    SyncReg::VcpuEvents,
];

/// The registers that a guest can change, also one that has taken over CPL 0. It has no MSRs but those of x2APIC,
/// which a VM without APICs has not.
pub(crate) struct VcpuState {
    registers: kvm_regs,
    system: kvm_sregs,
    extended: Box<kvm_xsave>,
    events: kvm_vcpu_events,
    debug: kvm_debugregs,
    /// `None`: the processor has no XSAVE.
    control: Option<kvm_xcrs>,
}

impl std::fmt::Debug for VcpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VcpuState").finish_non_exhaustive()
    }
}

impl VcpuState {
    /// Guest-physical address of the top-level page table.
    pub fn page_table(&self) -> u64 {
        self.system.cr3
    }
}

impl Vcpu {
    /// Completes the instruction that caused the last exit, without running the next one. What it does outside the
    /// VM, an access to a device apart, has no effect. Result: whether it is complete; a string instruction may have too
    /// many parts.
    pub(crate) fn complete(&mut self, devices: &dyn Mmio) -> bool {
        self.is_complete
            || (0..MAX_EXITS).any(|_| {
                let byte = self.immediate_exit();
                // SAFETY: as in `interrupted`.
                unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.store(1, Ordering::SeqCst);
                matches!(self.run(devices), Ok(Exit::Interrupted))
            })
    }

    /// The state. The last exit is [complete](Self::complete).
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(crate) fn save(&self) -> Result<VcpuState, Error> {
        let fd = &self.fd;
        Ok(VcpuState {
            registers: fd.get_regs().map_err(Error::request("KVM_GET_REGS"))?,
            system: fd.get_sregs().map_err(Error::request("KVM_GET_SREGS"))?,
            extended: Box::new(fd.get_xsave().map_err(Error::request("KVM_GET_XSAVE"))?),
            events: (fd.get_vcpu_events()).map_err(Error::request("KVM_GET_VCPU_EVENTS"))?,
            debug: (fd.get_debug_regs()).map_err(Error::request("KVM_GET_DEBUGREGS"))?,
            control: match self.has_xsave() {
                true => Some(fd.get_xcrs().map_err(Error::request("KVM_GET_XCRS"))?),
                false => None,
            },
        })
    }

    /// Restores the state when the guest is entered, and makes KVM flush the vCPU's TLB. The last exit is
    /// [complete](Self::complete). Until the guest is entered, [`Vcpu::registers`] may show others.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(crate) fn restore(&mut self, state: &VcpuState) -> Result<(), Error> {
        // KVM flushes when CR3 changes.
        let mut other = state.system;
        other.cr3 = 0;
        self.set_system(&other)?;
        let fd = &self.fd;
        // Before the extended state, which depends on it.
        if let Some(control) = &state.control {
            fd.set_xcrs(control)
                .map_err(Error::request("KVM_SET_XCRS"))?;
        }
        // SAFETY: the state is one that KVM returned for this vCPU. Its size fits the structure: the guest has
        // no state components that are enabled dynamically.
        unsafe { fd.set_xsave(&state.extended) }.map_err(Error::request("KVM_SET_XSAVE"))?;
        fd.set_debug_regs(&state.debug)
            .map_err(Error::request("KVM_SET_DEBUGREGS"))?;
        if self.takes_registers {
            self.give_registers(state);
            return Ok(());
        }
        self.set_system(&state.system)?;
        let fd = &self.fd;
        fd.set_regs(&state.registers)
            .map_err(Error::request("KVM_SET_REGS"))?;
        fd.set_vcpu_events(&state.events)
            .map_err(Error::request("KVM_SET_VCPU_EVENTS"))
    }

    fn set_system(&self, system: &kvm_sregs) -> Result<(), Error> {
        self.fd
            .set_sregs(system)
            .map_err(Error::request("KVM_SET_SREGS"))
    }

    /// Lets KVM take registers when the guest is entered: each request takes several microseconds on some hosts.
    fn give_registers(&mut self, state: &VcpuState) {
        let given = self.fd.sync_regs_mut();
        (given.regs, given.sregs, given.events) = (state.registers, state.system, state.events);
        for registers in GIVEN {
            self.fd.set_sync_dirty_reg(registers);
        }
    }

    /// Forgets registers that KVM has not taken.
    pub(super) fn forget_registers(&mut self) {
        for registers in GIVEN {
            self.fd.clear_sync_dirty_reg(registers);
        }
    }
}
