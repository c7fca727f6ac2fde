//! A list of named tests and the rule for machines without KVM.

use crate::Result;
use crate::hartline::CHAOS;
use libtest_mimic::{Arguments, Trial};
use std::env;
use std::fs::{self, OpenOptions};
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::thread;

/// The tests of one file.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
    /// Tests that run at once for each processor; 0 as 1.
    at_once: usize,
}

impl Suite {
    /// Makes an empty suite.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty suite whose tests wait most of their time: three run at once for each processor.
    pub fn of_waiting_tests() -> Self {
        Self {
            at_once: 3,
            ..Self::default()
        }
    }

    /// Adds a test that runs everywhere.
    pub fn add(&mut self, name: impl Into<String>, test: impl Fn() -> Result<()> + Send + 'static) {
        self.trials.push(trial(name.into(), test));
    }

    /// Adds a test that runs a VM. Without KVM the test is listed as ignored, or fails if
    /// `HARTLINE_REQUIRE_KVM` is 1.
    pub fn add_kvm(
        &mut self,
        name: impl Into<String>,
        test: impl Fn() -> Result<()> + Send + 'static,
    ) {
        let trial = match (kvm(), kvm_is_required()) {
            (Ok(()), _) => trial(name.into(), test),
            (Err(reason), true) => Trial::test(name, move || Err(reason.into())),
            (Err(reason), false) => return self.add_unless(name, &reason, test),
        };
        self.trials.push(trial);
    }

    /// Adds a test that is listed as ignored on this machine, with `reason` in its name.
    pub fn add_unless(
        &mut self,
        name: impl Into<String>,
        reason: &str,
        test: impl Fn() -> Result<()> + Send + 'static,
    ) {
        let name = format!("{} ({reason})", name.into());
        self.trials.push(trial(name, test).with_ignored_flag(true));
    }

    /// Adds a test as [`add_kvm`](Self::add_kvm) does, which only root can run.
    pub fn add_root_kvm(
        &mut self,
        name: impl Into<String>,
        test: impl Fn() -> Result<()> + Send + 'static,
    ) {
        self.add_kvm(name, test);
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if let Some(trial) = self.trials.pop() {
            let ignored = trial.has_ignored_flag() || !is_root;
            self.trials.push(trial.with_ignored_flag(ignored));
        }
    }

    /// Adds a test as [`add_kvm`](Self::add_kvm) does, which takes minutes and runs only with
    /// `--ignored` or `--include-ignored`.
    pub fn add_long_kvm(
        &mut self,
        name: impl Into<String>,
        test: impl Fn() -> Result<()> + Send + 'static,
    ) {
        self.add_kvm(format!("{} (takes minutes)", name.into()), test);
        if let Some(trial) = self.trials.pop() {
            self.trials.push(trial.with_ignored_flag(true));
        }
    }

    /// Runs the tests that the command line selects.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = processors * self.at_once.max(1);
        arguments.test_threads.get_or_insert(threads);
        libtest_mimic::run(&arguments, self.trials).exit_code()
    }
}

/// Makes a test whose error message has the seed of the run, if there was one.
fn trial(name: String, test: impl Fn() -> Result<()> + Send + 'static) -> Trial {
    let Ok(seed) = env::var(CHAOS) else {
        return Trial::test(name, test);
    };
    Trial::test(name, move || {
        let result = panic::catch_unwind(AssertUnwindSafe(&test));
        result
            .unwrap_or_else(|payload| {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
                Err(text.unwrap_or("it panicked").into())
            })
            .map_err(|failed| {
                let message = failed.message().unwrap_or("it failed");
                format!("{message}\n{CHAOS}={seed}").into()
            })
    })
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

fn kvm_is_required() -> bool {
    is_set("HARTLINE_REQUIRE_KVM")
}

/// Checks that `/dev/kvm` can be used; otherwise returns the reason.
fn kvm() -> std::result::Result<(), String> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .map(drop)
        .map_err(|error| format!("skipped: /dev/kvm: {error}"))
}
