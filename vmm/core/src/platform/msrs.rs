//! Disables MSRs and the PMU, which no guest needs.

use super::{Error, Vm};
use kvm_bindings::{
    KVM_CAP_PMU_CAPABILITY, KVM_CAP_X86_USER_SPACE_MSR, KVM_MSR_EXIT_REASON_FILTER,
    KVM_MSR_EXIT_REASON_INVAL, KVM_MSR_EXIT_REASON_UNKNOWN, KVM_PMU_CAP_DISABLE, kvm_enable_cap,
};
use kvm_ioctls::{Cap, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags};

/// A filter that denies by default must have a range. This range denies too: its bitmap of the MSRs
/// 0 to 7 has no bit set.
const DENIED: MsrFilterRange<'static> = MsrFilterRange {
    flags: MsrFilterRangeFlags::READ.union(MsrFilterRangeFlags::WRITE),
    base: 0,
    msr_count: 8,
    bitmap: &[0],
};

impl Vm {
    /// Makes `rdmsr` and `wrmsr` exit to the VMM for every MSR except x2APIC's, which KVM does not
    /// filter. The guest needs no others: segment bases and the TSC have separate instructions, and
    /// the VMM sets the MSRs for boot. Does nothing if this KVM has no filters.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(super) fn deny_msrs(&self) -> Result<(), Error> {
        let both = [Cap::X86MsrFilter, Cap::X86UserSpaceMsr];
        if !both.into_iter().all(|cap| self.fd.check_extension(cap)) {
            return Ok(());
        }
        let reasons =
            KVM_MSR_EXIT_REASON_FILTER | KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN;
        self.enable(
            KVM_CAP_X86_USER_SPACE_MSR,
            reasons,
            "KVM_CAP_X86_USER_SPACE_MSR",
        )?;
        self.fd
            .set_msr_filter(MsrFilterDefaultAction::DENY, &[DENIED])
            .map_err(Error::request("KVM_X86_SET_MSR_FILTER"))
    }

    /// Disables the PMU of vCPUs that are made later, if this KVM can.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub(super) fn disable_pmu(&self) -> Result<(), Error> {
        let number = KVM_CAP_PMU_CAPABILITY;
        let offered = self.fd.check_extension_raw(number.into());
        match offered.cast_unsigned() & KVM_PMU_CAP_DISABLE {
            0 => Ok(()),
            _ => self.enable(number, KVM_PMU_CAP_DISABLE, "KVM_CAP_PMU_CAPABILITY"),
        }
    }

    fn enable(&self, number: u32, argument: u32, request: &'static str) -> Result<(), Error> {
        let mut capability = kvm_enable_cap {
            cap: number,
            ..Default::default()
        };
        capability.args[0] = argument.into();
        self.fd
            .enable_cap(&capability)
            .map_err(Error::request(request))
    }
}
