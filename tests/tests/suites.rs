//! Test suites of other projects, in Debian's packages (`tests/packages/suites.txt`): nearly all of
//! their cases that pass under `qemu-riscv64` must pass in Hartline. `make test-suites` fetches the
//! packages, runs them and writes `docs/suites.md`.

use hartline_tests::packages::{List, Root, Workload, path, reference, run};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::{Result, paths};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The page with the results.
const PAGE: &str = "docs/suites.md";
/// If it is 1, the rows of the suites that run are written anew.
const WRITE: &str = "HARTLINE_WRITE_SUITES";
/// Of the cases that pass under the reference, the least that must pass in Hartline, percent.
const LEAST: usize = 97;
/// The longest time of a program of a suite, under Hartline or the reference.
const DEADLINE: Duration = Duration::from_secs(300);

/// The results of a suite.
#[derive(Debug, Clone, Default)]
struct Results {
    /// Number of cases that pass under the reference.
    passed: usize,
    /// Those among them that do not pass in Hartline.
    failed: Vec<String>,
}

type All = Arc<Mutex<BTreeMap<String, Results>>>;

fn main() -> ExitCode {
    let scripts = match List::Suites.scripts() {
        Ok(scripts) => scripts,
        Err(error) => {
            eprintln!("suites: {}", error.message().unwrap_or("it failed"));
            return ExitCode::FAILURE;
        }
    };
    let all = All::default();
    let mut suite = Suite::new();
    suite.add("cases of Python's unittest", python_cases);
    for script in scripts.clone() {
        let (all, listed) = (Arc::clone(&all), scripts.clone());
        suite.add_long_kvm(script.package.clone(), move || {
            let results = compare(&script)?;
            let (passed, failed) = (results.passed, results.failed.clone());
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(script.package.clone(), results);
            if env::var_os(WRITE).is_some_and(|value| value == "1") {
                fs::write(path(PAGE), page(&listed, &all)?)?;
            }
            match (passed - failed.len()) * 100 >= passed * LEAST && passed > 0 {
                true => Ok(()),
                false => Err(format!("{} of {passed} fail: {failed:?}", failed.len()).into()),
            }
        });
    }
    suite.run()
}

/// Runs all programs of a suite under the reference and in Hartline.
fn compare(suite: &Workload) -> Result<Results> {
    let (root, image): &Root = List::Suites.root()?;
    let cache = paths::work().join(format!("suites-{}", suite.package));
    let _ = fs::remove_dir_all(&cache);
    let list = reference(&suite.script, root)?;
    let list = ended(list)?.ok_or("the list takes too long")?;
    let mut results = Results::default();
    for line in list.stdout_text().lines() {
        let (name, program) = line.split_once(' ').ok_or("a line without a program")?;
        // Not the first process, which signals do not end.
        let program = format!("{program}\nexit $?");
        let expected = cases(name, ended(reference(&program, root)?)?);
        let actual = cases(name, ended(run(&program, image, &cache, 2)?)?);
        for (case, _) in expected.iter().filter(|&(_, &passed)| passed) {
            results.passed += 1;
            if actual.get(case) != Some(&true) {
                eprintln!("{}: {case} fails", suite.package);
                results.failed.push(case.clone());
            }
        }
    }
    remove(&cache)?;
    Ok(results)
}

fn remove(cache: &Path) -> Result<()> {
    match fs::remove_dir_all(cache) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Runs a command. None if it takes longer than the [`DEADLINE`].
fn ended(mut command: Command) -> Result<Option<Outcome>> {
    match process::run_for(&mut command, b"", DEADLINE) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(error)
            if error
                .message()
                .is_some_and(|text| text.contains("did not end")) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The cases of a program and whether they passed: the tests that Python's unittest names, else the
/// program as a whole.
fn cases(name: &str, outcome: Option<Outcome>) -> BTreeMap<String, bool> {
    let Some(outcome) = outcome else {
        return BTreeMap::from([(name.to_owned(), false)]);
    };
    let tests = python_results(&outcome.stdout_text());
    match tests.is_empty() {
        true => BTreeMap::from([(name.to_owned(), outcome.code == 0)]),
        false => tests,
    }
}

/// Reads what `unittest -v` prints: `NAME (MODULE.CLASS.NAME) ... RESULT`, where a description may
/// follow the name on a line of its own. Skipped tests are left out.
fn python_results(output: &str) -> BTreeMap<String, bool> {
    let mut results = BTreeMap::new();
    let mut current = None;
    for line in output.lines() {
        if let Some((_, rest)) = line.split_once(" (test.")
            && let Some((name, _)) = rest.split_once(')')
        {
            current = Some(name.to_owned());
        }
        let result = line.rsplit(' ').next().unwrap_or_default();
        if let (Some(name), "ok" | "FAIL" | "ERROR") = (&current, result) {
            results.insert(name.clone(), result == "ok");
            current = None;
        }
    }
    results
}

fn python_cases() -> Result<()> {
    let output = "test_a (test.test_x.A.test_a) ... ok\n\
                  test_b (test.test_x.A.test_b)\nWhat it does. ... a warning\nFAIL\n\
                  test_c (test.test_x.A.test_c) ... skipped 'needs root'\n\
                  test_d (test.test_x.A.test_d) ... ERROR\n\nFAILED (failures=1, errors=1)\n";
    let expected = [
        ("test_x.A.test_a", true),
        ("test_x.A.test_b", false),
        ("test_x.A.test_d", false),
    ];
    let expected = BTreeMap::from(expected.map(|(name, passed)| (name.to_owned(), passed)));
    match python_results(output) {
        results if results == expected => Ok(()),
        results => Err(format!("{results:?}").into()),
    }
}

/// The rows of the page by package, as they are.
fn rows() -> BTreeMap<String, String> {
    let page = fs::read_to_string(path(PAGE)).unwrap_or_default();
    let row = |line: &str| {
        let package = line.strip_prefix("| `")?.split('`').next()?;
        Some((package.to_owned(), line.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// The page, with the results of a run. Rows of suites that did not run stay as they are.
fn page(suites: &[Workload], all: &BTreeMap<String, Results>) -> Result<String> {
    let (versions, old) = (List::Suites.versions()?, rows());
    let mut table = String::new();
    for Workload { package, .. } in suites {
        let version = versions.get(package).map_or("", String::as_str);
        match (all.get(package), old.get(package)) {
            (Some(Results { passed, failed }), _) => {
                let share = (passed - failed.len()) as f64 * 100.0 / (*passed).max(1) as f64;
                let failed: Vec<_> = failed.iter().map(|case| format!("`{case}`")).collect();
                writeln!(
                    table,
                    "| `{package}` | {version} | {passed} | {share:.1} % | {} |",
                    failed.join(", ")
                )?;
            }
            (None, Some(row)) => writeln!(table, "{row}")?,
            (None, None) => writeln!(table, "| `{package}` | {version} | not run | | |")?,
        }
    }
    Ok(format!(
        "# Test suites of other projects\n\n\
         Debian has packages with the tests of systemd, GLib and Python, and with stress-ng, which \
         checks the results of system calls. `make test-suites` runs them for riscv64 under \
         `qemu-riscv64` and in Hartline, as root, and writes this page. A case is a test of Python's \
         unittest, or a program. {LEAST} % of the cases that pass under qemu must pass in Hartline.\n\n\
         `tests/packages/suites.txt` has the list. stress-ng runs each stressor for 2 s or 2,000 \
         operations, without those that need all memory or devices of the host.\n\n\
         | package | version | pass under qemu | pass in Hartline too | fail in Hartline |\n\
         |---|---|---:|---:|---|\n{table}"
    ))
}
