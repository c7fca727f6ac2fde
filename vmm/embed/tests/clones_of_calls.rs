//! Sandboxes that continue a snapshot of a program that waits for its first call.

#[path = "common/calls.rs"]
mod calls;
mod common;
#[path = "common/snapshot.rs"]
mod snapshot;

use common::has_kvm;
use hartline_embed::{
    CallError, Exports, Outputs, Sandbox, StartError, Template, TemplateOptions,
    wait_for_translators,
};
use hartline_vmm::exports;
use hartline_vmm::snapshot::Trigger;
use snapshot::options;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));
/// The number of pages that calls write.
const PAGES: [u8; 8] = 100u64.to_le_bytes();

/// Writes the snapshot of the program and loads it.
fn template(directory: &TempDir) -> Arc<Template> {
    let program = calls::program(directory);
    let (directory, snapshot) = (directory.path(), directory.path().join("snapshot"));
    snapshot::write(&program, &[b"calls"], Trigger::Call, directory, &snapshot);
    Arc::new(Template::load(&snapshot, options(directory)).unwrap())
}

fn number(sandbox: &Sandbox, name: &str) -> u64 {
    let output = sandbox.call(name, b"", PATIENCE).unwrap();
    u64::from_le_bytes(output.try_into().unwrap())
}

/// Each has its own state, and a reset puts back that of the snapshot.
#[test]
fn sandboxes_of_a_template_are_apart() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let template = template(&directory);
    let sandboxes = [(); 3].map(|()| Sandbox::clone_of(&template, &Outputs::Discard).unwrap());
    // They do not need it any more.
    drop(template);
    thread::scope(|scope| {
        for sandbox in &sandboxes {
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!([1, 2].map(|_| number(sandbox, "count")), [1, 2]);
                    let dirty = sandbox.call("dirty", &PAGES, PATIENCE).unwrap();
                    assert_eq!(dirty.len(), 8);
                    sandbox.call("map", &PAGES, PATIENCE).unwrap();
                    let reset = sandbox.reset().unwrap();
                    assert!(reset.pages >= 100, "{reset:?}");
                }
            });
        }
    });
    let generations = sandboxes
        .each_ref()
        .map(|sandbox| number(sandbox, "generation"));
    let [first, second, third] = generations;
    assert!(
        first != second && second != third && third != first,
        "{generations:?}"
    );
    for sandbox in &sandboxes {
        assert_eq!(sandbox.warnings(), [""; 0]);
    }
    wait_for_translators();
}

/// All of RAM is equal after a reset, also what the new VM had written before it waited.
#[test]
fn all_of_ram_is_put_back() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let template = template(&directory);
    let exports = Exports::new();
    exports.register("twice", |input| Ok(input.repeat(2)));
    let sandbox = Sandbox::clone_with(&template, &Outputs::Discard, exports.clone()).unwrap();
    for _ in 0..3 {
        assert_eq!(sandbox.call("host", b"ab", PATIENCE).unwrap(), b"abab");
        sandbox.call("map", &PAGES, PATIENCE).unwrap();
        let (_, difference) = exports.reset_and_compare().unwrap();
        assert_eq!(difference, None);
    }
    let error = sandbox.call("crash", b"", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Ended(_)), "{error}");
    sandbox.reset().unwrap();
    assert_eq!(sandbox.call("host", b"cd", PATIENCE).unwrap(), b"cdcd");
    wait_for_translators();
}

/// A program that waits for something else than a call is no sandbox.
#[test]
fn a_program_without_calls_is_late() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    let (directory, path) = (directory.path(), directory.path().join("snapshot"));
    // Its standard input is empty in a sandbox.
    snapshot::write(&busybox, &[b"cat"], Trigger::Stdin, directory, &path);
    let template = Arc::new(Template::load(&path, options(directory)).unwrap());
    let error = Sandbox::clone_of(&template, &Outputs::Discard).unwrap_err();
    assert!(
        matches!(error, StartError::Start(exports::StartError::Call(_))),
        "{error}"
    );
    snapshot::write(
        &busybox,
        &[b"sh", b"-c", b"read x; while :; do :; done"],
        Trigger::Stdin,
        directory,
        &directory.join("busy"),
    );
    let options = TemplateOptions {
        start_limit: Some(Duration::from_millis(300)),
        ..options(directory)
    };
    let template = Arc::new(Template::load(&directory.join("busy"), options).unwrap());
    let error = Sandbox::clone_of(&template, &Outputs::Discard).unwrap_err();
    assert!(error.to_string().contains("time"), "{error}");
    wait_for_translators();
}
