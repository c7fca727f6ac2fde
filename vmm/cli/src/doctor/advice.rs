//! Advice for changes on a host, by importance.

use super::Report;
use super::system::ProcessorSupport;
use hartline_vmm::probe::KvmKind;
use serde::Serialize;
use std::path::Path;

/// A setting that should be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The problem and its cost.
    pub problem: String,
    /// The remedy: a command, a kernel or firmware setting.
    pub change: String,
}

impl Advice {
    pub(super) fn new(problem: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            change: change.into(),
        }
    }
}

/// All advice about `report`.
pub(super) fn advise(
    report: &Report,
    kind: KvmKind,
    processor: ProcessorSupport,
    device: &Path,
) -> Vec<Advice> {
    let mut advice = Vec::new();
    if report.kvm_api_version.is_none() {
        advice.push(no_device(report, kind, processor, device));
    }
    for name in report.missing_capabilities() {
        advice.push(Advice::new(
            format!("this KVM has no KVM_CAP_{name}, which every program needs"),
            "use Linux 5.10 or newer",
        ));
    }
    advice.extend(kind_of_kvm(report, kind, processor));
    advice.extend(module_parameters(report, kind));
    advice.extend(memory(report));
    advice.extend(report.tuning.advise());
    #[cfg(feature = "client")]
    if let Some(installation) = &report.installation {
        advice.extend(installation.advise());
    }
    let missing = report
        .features
        .iter()
        .filter(|f| !f.works && !f.name.starts_with("avx512"));
    let missing: Vec<_> = missing.map(|finding| finding.name.as_str()).collect();
    if !missing.is_empty() {
        let change = match &report.hypervisor {
            Some(name) => {
                format!("configure {name} to expose the CPU's features (QEMU: -cpu host)")
            }
            None => "use a newer CPU".to_owned(),
        };
        let missing = missing.join(", ");
        advice.push(Advice::new(
            format!("translated code cannot use {missing}"),
            change,
        ));
    }
    advice
}

fn no_device(report: &Report, kind: KvmKind, processor: ProcessorSupport, device: &Path) -> Advice {
    let problem = report.problem.clone().unwrap_or_default();
    let problem = if problem.is_empty() {
        "KVM cannot be opened".to_owned()
    } else {
        problem
    };
    let device = device.display();
    let change = match (kind, processor) {
        (KvmKind::Unknown, ProcessorSupport::Vmx) => "modprobe kvm_intel".to_owned(),
        (KvmKind::Unknown, ProcessorSupport::Svm) => "modprobe kvm_amd".to_owned(),
        (KvmKind::Unknown, ProcessorSupport::None) => match &report.hypervisor {
            Some(name) => format!("turn nested virtualization on for this machine in {name}"),
            None => "turn VT-x or SVM on in the firmware's settings".to_owned(),
        },
        _ => format!(
            "usermod -aG \"$(stat -c %G {device})\" \"$USER\", then log in again; \
             in a container, pass {device} through"
        ),
    };
    Advice::new(problem, change)
}

fn kind_of_kvm(report: &Report, kind: KvmKind, processor: ProcessorSupport) -> Option<Advice> {
    let exit = report.costs.map_or(70.0, |costs| costs.exit_us);
    match (kind, processor) {
        (KvmKind::Pvm, ProcessorSupport::None) => Some(Advice::new(
            format!("KVM is paravirtual: leaving a VM costs {exit:.0} µs instead of 1 to 2 µs"),
            "for many VMs, use a machine whose CPU shows vmx or svm in /proc/cpuinfo \
             (bare metal, or nested virtualization)",
        )),
        (KvmKind::Pvm, support) => Some(Advice::new(
            "KVM is paravirtual although the CPU has hardware virtualization",
            match support {
                ProcessorSupport::Svm => "modprobe -r kvm_pvm && modprobe kvm_amd",
                _ => "modprobe -r kvm_pvm && modprobe kvm_intel",
            },
        )),
        (KvmKind::Intel | KvmKind::Amd, _) => report.hypervisor.as_ref().map(|name| {
            Advice::new(
                format!(
                    "this host is itself a VM under {name}: leaving a VM costs several times more"
                ),
                "use bare metal for the fastest I/O",
            )
        }),
        (KvmKind::Unknown, _) => None,
    }
}

fn module_parameters(report: &Report, kind: KvmKind) -> Vec<Advice> {
    let v = &report.virtualization;
    let (paging, interrupts) = match kind {
        KvmKind::Intel => ("ept", "enable_apicv"),
        KvmKind::Amd => ("npt", "avic"),
        KvmKind::Pvm | KvmKind::Unknown => return Vec::new(),
    };
    let module = kind.module();
    let reload = |parameter: &str| {
        format!(
            "echo options {module} {parameter}=1 > /etc/modprobe.d/{module}.conf && \
             modprobe -r {module} && modprobe {module} (and check whether the CPU supports it)"
        )
    };
    let mut advice = Vec::new();
    let switches = [
        (
            v.nested_paging,
            paging,
            "nested paging is off: every new page of a guest costs exits",
        ),
        (
            v.unrestricted_guest,
            "unrestricted_guest",
            "unrestricted guests are off",
        ),
        (
            v.interrupt_virtualization,
            interrupts,
            "interrupts cannot reach a guest without an exit",
        ),
    ];
    for (value, parameter, problem) in switches {
        if value == Some(false) {
            let problem = format!("{problem} ({module}.{parameter}=0)");
            advice.push(Advice::new(problem, reload(parameter)));
        }
    }
    advice
}

fn memory(report: &Report) -> Vec<Advice> {
    let memory = &report.memory;
    let mut advice = Vec::new();
    match memory.transparent_huge_pages.as_str() {
        "always" | "madvise" => {}
        "" => advice.push(Advice::new(
            "the kernel has no transparent huge pages: guest memory is mapped in 4 KiB pages",
            "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        )),
        _ => advice.push(Advice::new(
            "transparent huge pages are off: guest memory is mapped in 4 KiB pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )),
    }
    if memory.defragmentation == "never" {
        advice.push(Advice::new(
            "memory is never compacted: a host that has run for long has no free huge pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag",
        ));
    }
    if memory.overcommit == 2 {
        advice.push(Advice::new(
            "memory is never overcommitted: a VM allocates all of its --mem at once",
            "sysctl vm.overcommit_memory=0, or give --mem",
        ));
    }
    advice
}
