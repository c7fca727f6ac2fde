//! Examines a host: can it run programs, how well, and what to change.

mod advice;
mod system;
mod text;
mod tuning;

pub use advice::Advice;
pub use system::Memory;
pub use tuning::Tuning;

use hartline_jail::spawner;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::platform::{CoreScheduling, Kvm};
use hartline_vmm::probe::{Costs, Finding, Host, ProbeError, Virtualization, probe};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use system::ProcessorSupport;

/// Capabilities of KVM that are looked at, by the name in `<linux/kvm.h>` without
/// `KVM_CAP_`. The first three are required.
const CAPABILITIES: [(&str, u32); 19] = [
    ("READONLY_MEM", kvm_bindings::KVM_CAP_READONLY_MEM),
    ("IMMEDIATE_EXIT", kvm_bindings::KVM_CAP_IMMEDIATE_EXIT),
    ("IOEVENTFD", kvm_bindings::KVM_CAP_IOEVENTFD),
    ("IRQFD", kvm_bindings::KVM_CAP_IRQFD),
    ("SIGNAL_MSI", kvm_bindings::KVM_CAP_SIGNAL_MSI),
    ("SPLIT_IRQCHIP", kvm_bindings::KVM_CAP_SPLIT_IRQCHIP),
    ("X2APIC_API", kvm_bindings::KVM_CAP_X2APIC_API),
    ("X86_DISABLE_EXITS", kvm_bindings::KVM_CAP_X86_DISABLE_EXITS),
    ("BINARY_STATS_FD", kvm_bindings::KVM_CAP_BINARY_STATS_FD),
    ("DIRTY_LOG_RING", kvm_bindings::KVM_CAP_DIRTY_LOG_RING),
    ("XSAVE2", kvm_bindings::KVM_CAP_XSAVE2),
    ("TSC_CONTROL", kvm_bindings::KVM_CAP_TSC_CONTROL),
    ("X86_MSR_FILTER", kvm_bindings::KVM_CAP_X86_MSR_FILTER),
    (
        "X86_USER_SPACE_MSR",
        kvm_bindings::KVM_CAP_X86_USER_SPACE_MSR,
    ),
    ("PMU_CAPABILITY", kvm_bindings::KVM_CAP_PMU_CAPABILITY),
    (
        "ENFORCE_PV_FEATURE_CPUID",
        kvm_bindings::KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
    ),
    ("NR_VCPUS", kvm_bindings::KVM_CAP_NR_VCPUS),
    ("MAX_VCPUS", kvm_bindings::KVM_CAP_MAX_VCPUS),
    ("NR_MEMSLOTS", kvm_bindings::KVM_CAP_NR_MEMSLOTS),
];
/// How many of them are required.
const REQUIRED: usize = 3;
/// Capabilities by which a guest reaches less of KVM, and what it reaches without them.
const RESTRICTIONS: [(&str, &str); 4] = [
    ("X86_MSR_FILTER", "the MSRs that KVM emulates"),
    ("X86_USER_SPACE_MSR", "the MSRs that KVM emulates"),
    ("PMU_CAPABILITY", "the PMU that KVM emulates"),
    ("ENFORCE_PV_FEATURE_CPUID", "the paravirtual interfaces"),
];

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether programs can run here.
    pub can_run: bool,
    /// Why not; absent if they can.
    pub problem: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// Brand string of the processor.
    pub processor: String,
    /// The hypervisor that this host runs under; absent on bare metal.
    pub hypervisor: Option<String>,
    /// Module of the kind of KVM: `kvm_intel`, `kvm_amd`, `kvm_pvm` or `unknown`.
    pub kvm: &'static str,
    /// Version of KVM's interface; absent without a usable device.
    pub kvm_api_version: Option<i32>,
    /// What the kind of KVM can do.
    pub virtualization: Virtualization,
    /// Values of KVM's capabilities; empty without a usable device.
    pub capabilities: BTreeMap<&'static str, i32>,
    /// Huge pages and overcommitment.
    pub memory: Memory,
    /// Settings that matter to many machines.
    pub tuning: Tuning,
    /// What keeps `hartlined` from limiting what machines use; absent if nothing does.
    pub limits: Option<String>,
    /// What keeps `hartlined` from keeping tenants off each other's cores; absent if nothing does.
    pub core_scheduling: Option<String>,
    /// What keeps `hartlined` from making networks of tenants; absent if nothing does.
    pub networks: Option<String>,
    /// Instruction-set extensions that translated code may use, and why not others.
    pub features: Vec<Finding>,
    /// Features that programs are translated for, as LLVM names them.
    pub target_features: String,
    /// Measured costs; absent without a usable device.
    pub costs: Option<MeasuredCosts>,
    /// How devices interrupt a guest here, unless it is asked for another way.
    pub interrupts: Mode,
    /// All ways that work here.
    pub interrupt_modes: Vec<Mode>,
    /// What to change.
    pub advice: Vec<Advice>,
}

/// [`Costs`] in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MeasuredCosts {
    /// From CPL 3 to the VMM and back.
    pub exit_us: f64,
    /// Making a VM with one vCPU.
    pub vm_create_us: f64,
    /// Its end.
    pub vm_destroy_us: f64,
}

impl From<Costs> for MeasuredCosts {
    fn from(costs: Costs) -> Self {
        let microseconds = |time: std::time::Duration| (time.as_secs_f64() * 1e8).round() / 100.0;
        Self {
            exit_us: microseconds(costs.exit),
            vm_create_us: microseconds(costs.create),
            vm_destroy_us: microseconds(costs.destroy),
        }
    }
}

/// Examine this host. `device` is `/dev/kvm`. Everything is looked at anew, whatever
/// earlier probes found.
#[must_use]
pub fn examine(device: &Path) -> Report {
    let host = Host::detect();
    let mut report = Report {
        can_run: false,
        problem: None,
        kernel: host.kernel,
        processor: host.processor,
        hypervisor: system::hypervisor(),
        kvm: host.kvm.module(),
        kvm_api_version: None,
        virtualization: Virtualization::detect(host.kvm),
        capabilities: BTreeMap::new(),
        memory: Memory::detect(),
        tuning: Tuning::detect(),
        limits: spawner::check_host().err().map(|why| why.to_string()),
        core_scheduling: CoreScheduling::detect().err().map(|why| why.to_string()),
        networks: spawner::lacking().map(|why| why.to_string()),
        features: Vec::new(),
        target_features: String::new(),
        costs: None,
        interrupts: Mode::best(),
        interrupt_modes: Vec::new(),
        advice: Vec::new(),
    };
    let result = Kvm::open(device)
        .map_err(ProbeError::from)
        .and_then(|kvm| report.try_kvm(&kvm));
    report.can_run = result.is_ok();
    report.problem = result.err().map(|error| error.to_string());
    report.advice = advice::advise(&report, host.kvm, ProcessorSupport::detect(), device);
    report
}

impl Report {
    /// Everything that needs a device that can be opened.
    fn try_kvm(&mut self, kvm: &Kvm) -> Result<(), ProbeError> {
        self.kvm_api_version = Some(kvm.system().get_api_version());
        for (name, number) in CAPABILITIES {
            let value = kvm.system().check_extension_raw(u64::from(number));
            self.capabilities.insert(name, value);
        }
        self.interrupt_modes = self.possible_modes();
        let features = probe(kvm)?;
        self.features = features.findings().to_vec();
        self.target_features = features.llvm_string();
        self.costs = Some(Costs::measure(kvm)?.into());
        Ok(())
    }

    /// Ways in which devices can interrupt a guest.
    fn possible_modes(&self) -> Vec<Mode> {
        let has = |name| self.capabilities.get(name).is_some_and(|&value| value > 0);
        let can = |mode: &Mode| {
            !mode.has_vectors() || has("IRQFD") && has("X2APIC_API") && mode.check().is_ok()
        };
        let modes = [Mode::Safepoint, Mode::Posted, Mode::Injected];
        modes.into_iter().filter(can).collect()
    }

    /// What of KVM a guest reaches here that it does not need.
    fn reachable(&self) -> Vec<&'static str> {
        let lacks = |name| self.capabilities.get(name).is_some_and(|&value| value <= 0);
        let missing = RESTRICTIONS.into_iter().filter(|(name, _)| lacks(*name));
        let mut reachable: Vec<_> = missing.map(|(_, what)| what).collect();
        reachable.dedup();
        reachable
    }

    /// The names of required capabilities that this KVM does not have.
    fn missing_capabilities(&self) -> Vec<&'static str> {
        let required = CAPABILITIES[..REQUIRED].iter().map(|(name, _)| *name);
        required
            .filter(|name| self.capabilities.get(name).is_some_and(|&v| v <= 0))
            .collect()
    }
}

#[cfg(test)]
mod tests;
