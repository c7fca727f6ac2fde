//! Guests written in assembly, packed as the ELF file of a runtime.

mod code;

use hartline_abi::layout::RUNTIME_BASE;
use hartline_vmm::boot::Arguments;
use hartline_vmm::machine::{Outcome, Settings, run};
use std::time::Duration;

/// Whether there is KVM; if not, the test is reported as skipped, or fails where KVM
/// is required.
pub fn kvm_available(test: &str) -> bool {
    if std::path::Path::new("/dev/kvm").exists() {
        return true;
    }
    assert!(
        std::env::var_os("HARTLINE_REQUIRE_KVM").is_none(),
        "{test}: /dev/kvm is missing but HARTLINE_REQUIRE_KVM is set"
    );
    eprintln!("skipped: {test}: no /dev/kvm");
    false
}

/// What to run.
pub struct Guest {
    /// Name of its code.
    pub name: &'static str,
    /// As `Settings::timeout`.
    pub timeout: Option<Duration>,
}

impl Guest {
    /// A guest that ends by itself (or is broken, and ended after ten seconds).
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            timeout: Some(Duration::from_secs(10)),
        }
    }
}

/// Runs a guest to its end.
pub fn run_guest(guest: &Guest) -> Outcome {
    let arguments = Arguments {
        path: b"/guest".to_vec(),
        ..Default::default()
    };
    let settings = Settings {
        ram: 64 << 20,
        cpus: 1,
        runtime: &elf(&code::machine_code(), code::entry(guest.name)),
        tree: None,
        images: None,
        program_image: None,
        arguments: &arguments,
        volumes: Vec::new(),
        network: None,
        interpret_only: true,
        trace: None,
        variant: 0,
        profile: None,
        confine: None,
        timeout: guest.timeout,
        count: true,
        statistics: None,
    };
    run(settings).expect("the VM starts")
}

/// An ELF file with one executable segment.
fn elf(code: &[u8], entry: u64) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend_from_slice(&(RUNTIME_BASE + 4096 + entry).to_le_bytes());
    for word in [64u64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    file.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    let length = code.len() as u64;
    let address = RUNTIME_BASE + 4096;
    for word in [4096, address, address, length, length, 4096] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.resize(4096, 0);
    file.extend_from_slice(code);
    file
}
