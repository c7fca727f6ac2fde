//! Python's own tests, in Debian's python3.13: modules that test the interpreter and the parts of
//! the operating system that it needs.

use hartline_tests::dynamic::Root;
use hartline_tests::process;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline};
use std::os::unix::fs::symlink;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The programs that the tests run, with Python itself.
const PROGRAMS: [&str; 8] = [
    "python3.13",
    "bash",
    "dash",
    "cat",
    "env",
    "ls",
    "sleep",
    "uname",
];

/// Modules, the least number of tests of each, and whether the module runs only on request, with
/// Python translated before: that takes minutes.
const MODULES: [(&str, u32, bool); 11] = [
    ("test_bool", 30, false),
    ("test_augassign", 6, false),
    ("test_int", 46, true),
    ("test_float", 50, true),
    ("test_math", 60, true),
    ("test_json", 180, true),
    ("test_re", 120, true),
    ("test_struct", 39, true),
    ("test_threading", 150, true),
    ("test_subprocess", 340, true),
    ("test_os", 360, true),
];

/// The longest time of a module.
const DEADLINE: Duration = Duration::from_secs(1200);

type Shared = OnceLock<std::result::Result<Root, String>>;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    let root = Arc::<Shared>::default();
    for (module, fewest, long) in MODULES {
        let root = Arc::clone(&root);
        let test = move || {
            let root = root.get_or_init(|| make_root().map_err(|error| told(&error)));
            let root = root.as_ref().map_err(|error| error.as_str())?;
            run(root, module, fewest, long)
        };
        match long {
            true => suite.add_long_kvm(module, test),
            false => suite.add_kvm(module, test),
        }
    }
    suite.run()
}

fn told(error: &libtest_mimic::Failed) -> String {
    error.message().unwrap_or("unknown").to_owned()
}

fn make_root() -> Result<Root> {
    let root = Root::new("python-tests", PROGRAMS.into_iter())?;
    root.add_python()?;
    root.add_python_tests()?;
    symlink("dash", root.path().join("usr/bin/sh"))?;
    Ok(root)
}

/// All tests of a module pass or are skipped, and there are at least `fewest`.
fn run(root: &Root, module: &str, fewest: u32, translated: bool) -> Result<()> {
    let name = format!("test.{module}");
    let run = root.run("python3.13", &["-m", "unittest", "-v", &name]);
    if translated {
        root.translate("python3.13")?;
    }
    let options: &[&str] = match translated {
        true => &["--mem", "1500M"],
        false => &["--mem", "1500M", "--interpret"],
    };
    hartline::binary()?;
    let mut command = run.hartline_command(options)?;
    let outcome = process::run_for(&mut command, b"", DEADLINE)?;
    let text = outcome.stderr_text();
    let count = text.lines().find_map(|line| {
        let rest = line.strip_prefix("Ran ")?;
        rest.split(' ').next()?.parse::<u32>().ok()
    });
    match count {
        Some(count) if count >= fewest && outcome.code == 0 => Ok(()),
        _ => Err(format!(
            "exit code {}, {count:?} tests\n{}",
            outcome.code,
            failures(&text)
        )
        .into()),
    }
}

/// Returns the parts of a report about tests that did not pass, and its end.
fn failures(text: &str) -> String {
    let failed = |line: &&str| line.ends_with("... FAIL") || line.ends_with("... ERROR");
    let mut lines: Vec<&str> = text.lines().filter(failed).collect();
    let all: Vec<&str> = text.lines().collect();
    lines.extend(&all[all.len().saturating_sub(60)..]);
    lines.join("\n")
}
