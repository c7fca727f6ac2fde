//! The example `embed`, with a program of Debian.

// It is compiled as a module, so that this test is about the file that is there.
#[path = "../examples/embed.rs"]
#[expect(dead_code, reason = "the example's own start")]
mod embed;

use hartline_vmm::platform::Kvm;
use std::path::Path;

#[test]
fn a_program_runs_to_its_exit_status() {
    if let Err(error) = Kvm::open(Path::new(Kvm::DEVICE)) {
        assert!(
            std::env::var_os("HARTLINE_REQUIRE_KVM").is_none(),
            "{error}"
        );
        eprintln!("skipped: a_program_runs_to_its_exit_status: {error}");
        return;
    }
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    let busybox = busybox.to_str().expect("a path in UTF-8");
    let run = |script: &str| embed::run(&[busybox, "sh", "-c", script].map(str::to_owned));
    assert_eq!(run("exit 42").unwrap(), 42);
    assert_eq!(run("kill -9 $$").unwrap(), 128 + 9);
    assert!(embed::run(&[]).is_err());
    assert!(embed::run(&["/dev/null".to_owned()]).is_err());
}
