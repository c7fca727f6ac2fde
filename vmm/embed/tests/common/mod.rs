//! What several test programs use.

use hartline_vmm::platform::Kvm;
use std::path::Path;
use std::thread;

/// Whether there is KVM. If not, the test is skipped.
pub fn has_kvm() -> bool {
    match Kvm::open(Path::new(Kvm::DEVICE)) {
        Ok(_) => true,
        Err(error) => {
            assert!(
                std::env::var_os("HARTLINE_REQUIRE_KVM").is_none(),
                "{error}"
            );
            eprintln!("skipped: {:?}: {error}", thread::current().name());
            false
        }
    }
}
