//! The example `sandbox`, with a C program that exports functions.

// It is compiled as a module, so that this test is about the file that is there.
#[path = "../examples/sandbox.rs"]
#[expect(dead_code, reason = "the example's own start")]
mod sandbox;

use hartline_vmm::platform::Kvm;
use std::path::Path;
use std::process::Command;

#[test]
fn functions_are_called_and_leave_nothing() {
    if let Err(error) = Kvm::open(Path::new(Kvm::DEVICE)) {
        assert!(
            std::env::var_os("HARTLINE_REQUIRE_KVM").is_none(),
            "{error}"
        );
        eprintln!("skipped: functions_are_called_and_leave_nothing: {error}");
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("calls");
    let compiled = Command::new("riscv64-linux-gnu-gcc")
        .args(["-std=gnu17", "-O2", "-static", "-I"])
        .arg(repository.join("guest-runtime/sdk"))
        .arg(repository.join("tests/programs/alone/calls.c"))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let name = program.to_str().unwrap();
    let call = |function: &str, inputs: &[&str]| {
        let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
        sandbox::call_each(name, function, &inputs)
    };
    let outputs = call("echo", &["one", "", "three"]).unwrap();
    assert_eq!(outputs, [&b"one"[..], b"", b"three"]);
    // Each call is the first one.
    let one = 1u64.to_le_bytes();
    assert_eq!(call("count", &["", "", ""]).unwrap(), [one; 3]);
    let error = call("fail", &[""]).unwrap_err();
    assert!(error.to_string().contains("the function failed"), "{error}");
    let error = call("least", &[""]).unwrap_err();
    assert!(error.to_string().contains("the function failed"), "{error}");
    let error = sandbox::call_each("/dev/null", "echo", &[]).unwrap_err();
    assert!(!error.to_string().is_empty());
}

/// A program that never waits for a call.
#[test]
fn programs_without_functions_are_no_sandboxes() {
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    if Kvm::open(Path::new(Kvm::DEVICE)).is_err() {
        return;
    }
    let error = sandbox::call_each(busybox.to_str().unwrap(), "echo", &[]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the program cannot be called: it has ended"),
        "{text}"
    );
}
