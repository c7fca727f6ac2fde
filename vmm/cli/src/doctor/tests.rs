//! Reports of this host, of hosts without KVM, and of made-up ones.

use super::*;
use hartline_vmm::probe::KvmKind;

#[test]
fn a_missing_device_is_told_with_a_change() {
    let directory = tempfile::tempdir().unwrap();
    let report = examine(&directory.path().join("kvm"));
    assert!(!report.can_run);
    assert!(
        report
            .problem
            .as_deref()
            .is_some_and(|p| p.contains("does not exist"))
    );
    assert!(report.costs.is_none() && report.features.is_empty());
    assert!(!report.advice.is_empty() && !report.advice[0].change.is_empty());
    let text = report.to_string();
    assert!(
        text.starts_with("Programs cannot run on this host: "),
        "{text}"
    );
}

#[test]
fn a_device_that_is_no_kvm_is_told() {
    let report = examine(Path::new("/dev/null"));
    assert!(!report.can_run && report.problem.is_some());
}

#[test]
fn this_host() {
    let device = Path::new(Kvm::DEVICE);
    let required = std::env::var_os("HARTLINE_REQUIRE_KVM").is_some_and(|v| v == "1");
    if !required && let Err(error) = Kvm::open(device) {
        eprintln!("skipped: this_host: {error}");
        return;
    }
    let report = examine(device);
    assert!(report.can_run, "{report}");
    assert_eq!(report.kvm_api_version, Some(12));
    assert_eq!(report.missing_capabilities(), Vec::<&str>::new());
    assert!(report.costs.is_some_and(|costs| costs.exit_us > 0.1));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["can_run"], true);
    assert_eq!(json["features"].as_array().map(Vec::len), Some(21));
}

/// A host with the best possible settings.
fn ideal() -> Report {
    Report {
        can_run: true,
        problem: None,
        kernel: "6.12.0".into(),
        processor: "a processor".into(),
        hypervisor: None,
        kvm: "kvm_intel",
        kvm_api_version: Some(12),
        virtualization: Virtualization {
            nested_paging: Some(true),
            unrestricted_guest: Some(true),
            interrupt_virtualization: Some(true),
        },
        capabilities: CAPABILITIES.iter().map(|(name, _)| (*name, 1)).collect(),
        memory: Memory {
            transparent_huge_pages: "madvise".into(),
            defragmentation: "madvise".into(),
            ..Memory::default()
        },
        tuning: Tuning {
            smt: Some(false),
            cgroup_controllers: ["cpu", "io", "memory", "pids"].map(str::to_owned).into(),
            favordynmods: Some(true),
            ..Tuning::default()
        },
        #[cfg(feature = "client")]
        service: Service::default(),
        #[cfg(feature = "client")]
        installation: None,
        core_scheduling: None,
        features: Vec::new(),
        target_features: String::new(),
        costs: None,
        interrupts: Mode::Safepoint,
        interrupt_modes: vec![Mode::Safepoint, Mode::Injected],
        advice: Vec::new(),
    }
}

fn advise(report: &Report, kind: KvmKind, processor: ProcessorSupport) -> Vec<Advice> {
    advice::advise(report, kind, processor, Path::new("/dev/kvm"))
}

#[cfg(feature = "client")]
#[test]
fn what_the_daemon_lacks_is_shown() {
    let mut report = ideal();
    assert!(
        report
            .to_string()
            .contains("limits of machines    possible\n")
    );
    report.service.networks = Some("no nft".into());
    report.core_scheduling = Some("no kernel".into());
    let text = report.to_string();
    assert!(
        text.contains("core scheduling       not possible: no kernel\n"),
        "{text}"
    );
    assert!(
        text.contains("networks of tenants   not possible: no nft\n"),
        "{text}"
    );
}

#[test]
fn an_ideal_host_gets_no_advice() {
    assert_eq!(advise(&ideal(), KvmKind::Intel, ProcessorSupport::Vmx), []);
}

#[test]
fn each_fault_gets_its_change() {
    let vmx = ProcessorSupport::Vmx;
    type Spoil = fn(&mut Report);
    let cases: [(Spoil, &str); 13] = [
        (
            |r| r.virtualization.nested_paging = Some(false),
            "kvm_intel ept=1",
        ),
        (
            |r| r.virtualization.interrupt_virtualization = Some(false),
            "enable_apicv=1",
        ),
        (
            |r| r.memory.transparent_huge_pages = "never".into(),
            "transparent_hugepage/enabled",
        ),
        (
            |r| r.memory.defragmentation = "never".into(),
            "transparent_hugepage/defrag",
        ),
        (|r| r.memory.overcommit = 2, "vm.overcommit_memory"),
        (|r| r.hypervisor = Some("X".into()), "bare metal"),
        (|r| r.tuning.smt = Some(true), "smt/control"),
        (|r| r.tuning.same_page_merging = true, "ksm/run"),
        (|r| r.tuning.swap = 1 << 30, "swapoff"),
        (
            |r| r.tuning.favordynmods = Some(false),
            "remount,favordynmods",
        ),
        (|r| drop(r.tuning.cgroup_controllers.pop()), "cgroup_no_v1"),
        (
            |r| *r.capabilities.entry("READONLY_MEM").or_default() = 0,
            "Linux 5.10",
        ),
        (|r| r.kvm_api_version = None, "usermod"),
    ];
    for (spoil, change) in cases {
        let mut report = ideal();
        spoil(&mut report);
        let advice = advise(&report, KvmKind::Intel, vmx);
        assert_eq!(advice.len(), 1, "{change}: {advice:?}");
        assert!(advice[0].change.contains(change), "{advice:?}");
    }
    let pvm = advise(&ideal(), KvmKind::Pvm, vmx);
    assert!(pvm[0].change.contains("modprobe kvm_intel"), "{pvm:?}");
}
