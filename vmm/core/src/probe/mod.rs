//! Probes which x86-64 instruction-set extensions really work at CPL 3 in a guest of this host:
//! neither KVM's CPUID list nor the processor's shows it on every kind of KVM. Each extension's
//! instructions run in a small VM, which catches exceptions and checks results. The contents of
//! vector registers must survive exits while the host uses its own. Results are stored in the cache
//! directory.

mod cache;
mod code;
mod costs;
mod feature;
mod guest;
mod host;
mod virtualization;

pub use cache::cached;
pub use costs::Costs;
pub use feature::Feature;
pub use host::{Host, KvmKind};
pub use virtualization::Virtualization;

use crate::platform::{self, Kvm};
use feature::Registers;
use guest::{Guest, INVALID_OPCODE, Outcome};
use std::io;

/// The reason why the probe has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// KVM or the host refused.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The guest's memory could not be laid out.
    #[error(transparent)]
    Layout(#[from] crate::layout::Error),
    /// The memory file of the supervisor pages cannot be made.
    #[error("feature probe: cannot make a memory file: {source}")]
    File {
        /// The reason.
        source: io::Error,
    },
    /// Even baseline instructions do not work, or lose the contents of registers.
    #[error("feature probe: programs cannot run on this KVM: {0}")]
    Baseline(String),
    /// The probe guest behaved in an impossible way.
    #[error("feature probe: the guest behaved unexpectedly")]
    Confused,
}

/// The probe's result for one feature.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// LLVM's name of the feature ([`Feature::llvm_name`]).
    pub name: String,
    /// Whether translated code may use it.
    pub works: bool,
    /// The reason why not; empty if it works.
    pub reason: String,
}

/// The probe's results: one finding per [`Feature`], in their order.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Features {
    findings: Vec<Finding>,
}

impl Features {
    /// All findings, in the order of [`Feature::ALL`].
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether translated code may use `feature`.
    #[must_use]
    pub fn works(&self, feature: Feature) -> bool {
        self.findings
            .get(feature as usize)
            .is_some_and(|finding| finding.works)
    }

    /// The features to compile translated code for, as LLVM's target feature string:
    /// `+sse3,+ssse3,…`. AVX-512 is left out ([`Feature::by_default`]).
    #[must_use]
    pub fn llvm_string(&self) -> String {
        let used = Feature::ALL
            .into_iter()
            .filter(|f| f.by_default() && self.works(*f));
        used.map(|feature| format!("+{feature}"))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Whether there is a finding for every feature.
    fn complete(&self) -> bool {
        let names = self.findings.iter().map(|finding| finding.name.as_str());
        names.eq(Feature::ALL.map(Feature::llvm_name))
    }
}

/// Probes now, in some tens of milliseconds.
///
/// # Errors
/// KVM refuses a VM, or even baseline code does not work in it.
pub fn probe(kvm: &Kvm) -> Result<Features, ProbeError> {
    let mut guest = Guest::new(kvm)?;
    guest.check()?;
    if let Some(reason) = describe(guest.try_registers(Registers::Xmm)?) {
        return Err(ProbeError::Baseline(reason));
    }
    let mut features = Features {
        findings: Vec::new(),
    };
    for feature in Feature::ALL {
        let reason = match feature.requires().filter(|&needed| !features.works(needed)) {
            Some(needed) => Some(format!("needs {needed}")),
            None => try_one(kvm, &mut guest, feature)?,
        };
        features.findings.push(Finding {
            name: feature.llvm_name().to_owned(),
            works: reason.is_none(),
            reason: reason.unwrap_or_default(),
        });
    }
    Ok(features)
}

/// The reason why a feature cannot be used; `None` if it can.
fn try_one(kvm: &Kvm, guest: &mut Guest, feature: Feature) -> Result<Option<String>, ProbeError> {
    let mut outcome = guest.try_feature(feature)?;
    if let (Outcome::Works, Some(registers)) = (outcome, feature.registers()) {
        outcome = guest.try_registers(registers)?;
    }
    if let Outcome::Failed(_) = outcome {
        // A failed VM is not used again.
        *guest = Guest::new(kvm)?;
    }
    Ok(describe(outcome))
}

fn describe(outcome: Outcome) -> Option<String> {
    Some(match outcome {
        Outcome::Works => return None,
        Outcome::Exception(INVALID_OPCODE) => "invalid opcode".to_owned(),
        Outcome::Exception(vector) => format!("exception {vector}"),
        Outcome::WrongResult => "wrong result".to_owned(),
        Outcome::NotKept => "register contents are lost when the VM is left".to_owned(),
        Outcome::Failed(failure) => failure.to_string(),
    })
}

#[cfg(test)]
mod tests;
