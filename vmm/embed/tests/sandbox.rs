//! Sandboxes in this process, with a C program that exports functions.

#[path = "common/calls.rs"]
mod calls;
mod common;

use calls::program;
use common::has_kvm;
use hartline_embed::{
    CallError, Exports, LoadError, Options, Outputs, Program, ResetError, Sandbox, StartError,
};
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

fn options(directory: &TempDir) -> Options {
    Options {
        cache: Some(directory.path().join("cache")),
        ..Options::default()
    }
}

fn load(directory: &TempDir) -> Program {
    Program::load(&program(directory), options(directory)).unwrap()
}

fn count(sandbox: &Sandbox) -> u64 {
    let output = sandbox.call("count", b"", PATIENCE).unwrap();
    u64::from_le_bytes(output.try_into().unwrap())
}

/// Several VMs of one program, from several threads, with translations that are made meanwhile.
#[test]
fn sandboxes_share_a_process() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let program = load(&directory);
    let sandboxes = [(); 2].map(|()| Sandbox::start(&program).unwrap());
    assert_eq!(
        (
            count(&sandboxes[0]),
            count(&sandboxes[0]),
            count(&sandboxes[1])
        ),
        (1, 2, 1)
    );
    thread::scope(|scope| {
        for sandbox in sandboxes.iter().chain(&sandboxes) {
            scope.spawn(move || {
                for round in 0..200u64 {
                    let input = round.to_le_bytes();
                    let output = sandbox.call("echo", &input, PATIENCE).unwrap();
                    assert_eq!(output, input);
                }
            });
        }
    });
    // Hot code gets translations, which the cache keeps.
    let input = [1; 60_000];
    let images = || {
        let files = fs::read_dir(directory.path().join("cache"));
        files.map_or(0, Iterator::count)
    };
    for _ in 0..2000 {
        sandboxes[0].call("add", &input, PATIENCE).unwrap();
    }
    for sandbox in &sandboxes {
        sandbox.reset().unwrap();
        assert_eq!(count(sandbox), 1);
        assert_eq!(sandbox.warnings(), [""; 0]);
        sandbox.end();
        let error = sandbox.call("count", b"", PATIENCE).unwrap_err();
        assert!(matches!(error, CallError::Ended(_)), "{error}");
        assert!(matches!(sandbox.reset(), Err(ResetError::Ended(_))));
        sandbox.end();
    }
    assert!(images() > 0);
    hartline_embed::wait_for_translators();
}

/// Output goes where the host says, and no standard stream of this process is used.
#[test]
fn output_goes_to_files() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("output");
    let options = Options {
        outputs: Outputs::try_from(File::create(&path).unwrap()).unwrap(),
        interprets: true,
        ..options(&directory)
    };
    let program = Program::load(&program(&directory), options).unwrap();
    let sandbox = Sandbox::start(&program).unwrap();
    sandbox.call("say", b"first\n", PATIENCE).unwrap();
    sandbox.reset().unwrap();
    sandbox.call("say", b"second\n", PATIENCE).unwrap();
    drop(sandbox);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "ready\nfirst\nsecond\n");
    hartline_embed::wait_for_translators();
}

/// Functions of this process that fail, panic, or end the VM.
#[test]
fn functions_of_the_host() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let program = load(&directory);
    let exports = Exports::new();
    exports.register("twice", |input| Ok(input.repeat(2)));
    let sandbox = Arc::new(Sandbox::start_with(&program, exports).unwrap());
    assert_eq!(sandbox.call("host", b"ab", PATIENCE).unwrap(), b"abab");
    sandbox.register("twice", |_| Err(libc::EDOM));
    let error = sandbox.call("host", b"ab", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Function(libc::EDOM)), "{error}");
    sandbox.register("twice", |_| panic!("expected by the test"));
    let error = sandbox.call("host", b"ab", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Function(libc::EIO)), "{error}");
    let own: Arc<Mutex<Weak<Sandbox>>> = Arc::new(Mutex::new(Arc::downgrade(&sandbox)));
    sandbox.register("twice", move |_| {
        let sandbox = own.lock().unwrap().upgrade().unwrap();
        sandbox.end();
        Ok(Vec::new())
    });
    let error = sandbox.call("host", b"", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Ended(_)), "{error}");
    hartline_embed::wait_for_translators();
}

#[test]
fn failures_of_the_program() {
    if !has_kvm() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let sandbox = Sandbox::start(&load(&directory)).unwrap();
    let soon = Some(Duration::from_millis(50));
    let error = sandbox.call("spin", b"", soon).unwrap_err();
    assert!(matches!(error, CallError::Late), "{error}");
    let error = sandbox.call("count", b"", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Poisoned), "{error}");
    sandbox.reset().unwrap();
    let error = sandbox.call("crash", b"", PATIENCE).unwrap_err();
    assert!(matches!(error, CallError::Ended(_)), "{error}");
    sandbox.reset().unwrap();
    assert_eq!(count(&sandbox), 1);
    drop(sandbox);
    hartline_embed::wait_for_translators();
}

#[test]
fn mistakes() {
    let directory = TempDir::new().unwrap();
    let missing = Program::load(Path::new("/no/such"), options(&directory)).unwrap_err();
    assert!(matches!(missing, LoadError::Program(_)), "{missing}");
    let other = Program::load(&std::env::current_exe().unwrap(), options(&directory)).unwrap_err();
    assert!(matches!(other, LoadError::Program(_)), "{other}");
    let none = Program::load(Path::new("/"), options(&directory)).unwrap_err();
    assert!(matches!(none, LoadError::Program(_)), "{none}");
    let small = Options {
        ram: 1,
        ..options(&directory)
    };
    let small = Program::load(&program(&directory), small).unwrap_err();
    assert!(matches!(small, LoadError::Ram(1)), "{small}");
    if !has_kvm() {
        return;
    }
    // A program that exports nothing.
    let silent = Options {
        arguments: vec!["true".into()],
        ..options(&directory)
    };
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    let error = Sandbox::start(&Program::load(&busybox, silent).unwrap()).unwrap_err();
    assert!(matches!(error, StartError::Start(_)), "{error}");
    hartline_embed::wait_for_translators();
}
