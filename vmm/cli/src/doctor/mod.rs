//! Examines a host: whether it can run programs, how well, and possible improvements.

mod advice;
#[cfg(feature = "client")]
mod installation;
#[cfg(feature = "client")]
mod service;
mod system;
mod text;
mod tuning;

pub use advice::Advice;
#[cfg(feature = "client")]
pub use installation::{Installation, Unit};
#[cfg(feature = "client")]
pub use service::Service;
pub use system::Memory;
pub use tuning::Tuning;

use hartline_vmm::interrupts::Mode;
use hartline_vmm::platform::{CoreScheduling, Kvm};
use hartline_vmm::probe::{Costs, Finding, Host, ProbeError, Virtualization, probe};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use system::ProcessorSupport;

/// The checked capabilities of KVM, by the name in `<linux/kvm.h>` without `KVM_CAP_`. The first
/// three are required.
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
/// The number of required capabilities.
const REQUIRED: usize = 3;
/// Capabilities that restrict the guest's access to KVM, and the parts that it reaches without
/// them.
const RESTRICTIONS: [(&str, &str); 4] = [
    ("X86_MSR_FILTER", "the MSRs that KVM emulates"),
    ("X86_USER_SPACE_MSR", "the MSRs that KVM emulates"),
    ("PMU_CAPABILITY", "the PMU that KVM emulates"),
    ("ENFORCE_PV_FEATURE_CPUID", "the paravirtual interfaces"),
];

/// The report about a host.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether programs can run here.
    pub can_run: bool,
    /// The reason why not; absent if they can.
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
    /// Features of the virtualization.
    pub virtualization: Virtualization,
    /// Values of KVM's capabilities; empty without a usable device.
    pub capabilities: BTreeMap<&'static str, i32>,
    /// Huge pages and overcommitment.
    pub memory: Memory,
    /// Settings that matter to hosts with many machines.
    pub tuning: Tuning,
    /// Abilities of the daemon, unless this is built without its client.
    #[cfg(feature = "client")]
    #[serde(flatten)]
    pub service: Service,
    /// The installation of the daemon; absent if there is none, or if this is built without its
    /// client.
    #[cfg(feature = "client")]
    pub installation: Option<Installation>,
    /// The reason why `hartlined` cannot keep tenants off each other's cores; absent if it can.
    pub core_scheduling: Option<String>,
    /// Instruction-set extensions that translated code may use, and the reasons against the others.
    pub features: Vec<Finding>,
    /// Features that programs are translated for, as LLVM names them.
    pub target_features: String,
    /// Measured costs; absent without a usable device.
    pub costs: Option<MeasuredCosts>,
    /// Default interrupt mode of devices on this host.
    pub interrupts: Mode,
    /// All interrupt modes that work here.
    pub interrupt_modes: Vec<Mode>,
    /// Advice.
    pub advice: Vec<Advice>,
}

/// [`Costs`] in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MeasuredCosts {
    /// From CPL 3 to the VMM and back.
    pub exit_us: f64,
    /// Making a VM with one vCPU.
    pub vm_create_us: f64,
    /// Destroying the VM.
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

/// Examines this host. `device` is `/dev/kvm`. All values are read again, regardless of the results
/// of earlier probes.
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
        #[cfg(feature = "client")]
        service: Service::detect(),
        #[cfg(feature = "client")]
        installation: Installation::detect(),
        core_scheduling: CoreScheduling::detect().err().map(|why| why.to_string()),
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
    /// Everything that needs an open device.
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

    /// Interrupt modes of devices that are possible.
    fn possible_modes(&self) -> Vec<Mode> {
        let has = |name| self.capabilities.get(name).is_some_and(|&value| value > 0);
        let can = |mode: &Mode| {
            !mode.has_vectors() || has("IRQFD") && has("X2APIC_API") && mode.check().is_ok()
        };
        let modes = [Mode::Safepoint, Mode::Posted, Mode::Injected];
        modes.into_iter().filter(can).collect()
    }

    /// Parts of KVM that a guest reaches here without needing them.
    fn reachable(&self) -> Vec<&'static str> {
        let lacks = |name| self.capabilities.get(name).is_some_and(|&value| value <= 0);
        let missing = RESTRICTIONS.into_iter().filter(|(name, _)| lacks(*name));
        let mut reachable: Vec<_> = missing.map(|(_, what)| what).collect();
        reachable.dedup();
        reachable
    }

    /// The names of missing required capabilities.
    fn missing_capabilities(&self) -> Vec<&'static str> {
        let required = CAPABILITIES[..REQUIRED].iter().map(|(name, _)| *name);
        required
            .filter(|name| self.capabilities.get(name).is_some_and(|&v| v <= 0))
            .collect()
    }
}

#[cfg(test)]
mod tests;
