//! Tests of the probe in real VMs.

use super::*;
use std::path::Path;

/// KVM, or `None` with a notice; a failure with `HARTLINE_REQUIRE_KVM=1`.
fn kvm(test: &str) -> Option<Kvm> {
    match Kvm::open(Path::new(Kvm::DEVICE)) {
        Ok(kvm) => Some(kvm),
        Err(error) => {
            let required = std::env::var_os("HARTLINE_REQUIRE_KVM").is_some_and(|v| v == "1");
            assert!(!required, "{test}: {error}");
            eprintln!("skipped: {test}: {error}");
            None
        }
    }
}

#[test]
fn finds_what_the_processor_has() {
    let Some(kvm) = kvm("finds_what_the_processor_has") else {
        return;
    };
    let features = probe(&kvm).unwrap();
    assert!(features.complete());
    for finding in features.findings() {
        println!("{:<10} {} {}", finding.name, finding.works, finding.reason);
    }
    // A guest cannot execute instructions that the processor does not have.
    for (feature, native) in [
        (Feature::Sse3, is_x86_feature_detected!("sse3")),
        (Feature::Popcnt, is_x86_feature_detected!("popcnt")),
        (Feature::Lzcnt, is_x86_feature_detected!("lzcnt")),
        (Feature::Bmi2, is_x86_feature_detected!("bmi2")),
        (Feature::Avx2, is_x86_feature_detected!("avx2")),
        (Feature::Avx512f, is_x86_feature_detected!("avx512f")),
    ] {
        assert!(native || !features.works(feature), "{feature}");
    }
    // Integer instructions need no enabling: the processor's features work.
    assert_eq!(
        features.works(Feature::Popcnt),
        is_x86_feature_detected!("popcnt")
    );
    assert_eq!(
        features.works(Feature::Bmi2),
        is_x86_feature_detected!("bmi2")
    );
    assert_eq!(
        features,
        probe(&kvm).unwrap(),
        "a second probe finds the same"
    );
}

#[test]
fn llvm_string_follows_the_findings() {
    let finding = |feature: Feature, works| Finding {
        name: feature.llvm_name().to_owned(),
        works,
        reason: String::new(),
    };
    let works = |f: Feature| !matches!(f, Feature::Avx2 | Feature::Movbe);
    let findings = Feature::ALL.map(|f| finding(f, works(f))).to_vec();
    let text = Features { findings }.llvm_string();
    assert!(text.starts_with("+sse3,+ssse3,+sse4.1,"), "{text}");
    assert!(
        text.contains("+bmi,+bmi2,+cx16") && text.ends_with("+f16c,+fma"),
        "{text}"
    );
}

#[test]
fn every_feature_has_its_own_test() {
    let starts: Vec<_> = (0..code::FEATURES + Feature::ALL.len())
        .map(code::test)
        .collect();
    for (index, start) in starts.iter().enumerate() {
        let start = start.unwrap();
        assert!(start < code::bytes().len() as u64);
        assert_eq!(
            starts.iter().filter(|&&other| other == Some(start)).count(),
            1,
            "{index}"
        );
    }
    for (index, feature) in Feature::ALL.into_iter().enumerate() {
        assert_eq!(feature as usize, index);
        assert!(feature.requires().is_none_or(|needed| needed < feature));
    }
}

#[test]
fn costs_are_plausible() {
    let Some(kvm) = kvm("costs_are_plausible") else {
        return;
    };
    let costs = Costs::measure(&kvm).unwrap();
    let possible = std::time::Duration::from_nanos(100)..std::time::Duration::from_millis(100);
    for time in [costs.exit, costs.create, costs.destroy] {
        assert!(possible.contains(&time), "{costs:?}");
    }
}
