//! Workloads of Debian's packages (`tests/packages/workloads.txt`): each must print the same as
//! under `qemu-riscv64`. `make test-packages` fetches the packages, runs them and writes their
//! rows of `docs/programs.md`.

use hartline_tests::compare::check_equal;
use hartline_tests::packages::{List, Workload, path, reference, run, timed};
use hartline_tests::process::Outcome;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, paths};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The page that lists the workloads.
const PAGE: &str = "docs/programs.md";
/// If it is 1, the rows of the workloads that run are written anew.
const WRITE: &str = "HARTLINE_WRITE_PROGRAMS";
/// What a workload did under Hartline, beside the reference.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// With an empty cache of translations.
    first: Duration,
    /// With what the first run left.
    second: Duration,
    qemu: Duration,
}

type Results = Arc<Mutex<BTreeMap<String, std::result::Result<Times, String>>>>;

fn main() -> ExitCode {
    let workloads = match List::Workloads.scripts() {
        Ok(workloads) => workloads,
        Err(error) => {
            eprintln!("packages: {}", error.message().unwrap_or("it failed"));
            return ExitCode::FAILURE;
        }
    };
    let results = Results::default();
    let mut suite = Suite::new();
    let listed = workloads.clone();
    suite.add("docs/programs.md lists every workload", move || {
        check_page(&listed)
    });
    for workload in workloads.clone() {
        let (results, listed) = (Arc::clone(&results), workloads.clone());
        suite.add_long_kvm(workload.package.clone(), move || {
            let times = compare(&workload);
            let result = match &times {
                Ok(times) => Ok(*times),
                Err(error) => Err(error.message().unwrap_or("it failed").to_owned()),
            };
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.insert(workload.package.clone(), result);
            if env::var_os(WRITE).is_some_and(|value| value == "1") {
                fs::write(path(PAGE), page(&listed, &results)?)?;
            }
            times.map(drop)
        });
    }
    suite.run()
}

/// Checks that the page has a row and the script of every workload, and no other rows.
fn check_page(workloads: &[Workload]) -> Result<()> {
    let page = fs::read_to_string(path(PAGE))?;
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split(']').next())
        .collect();
    let expected: Vec<&str> = workloads.iter().map(|it| it.package.as_str()).collect();
    if rows != expected {
        return Err(format!("{PAGE}: run make test-packages: {rows:?}, not {expected:?}").into());
    }
    let outdated = workloads.iter().find(|it| !page.contains(&section(it)));
    match outdated {
        Some(workload) => Err(format!("{PAGE}: another script of {}", workload.package).into()),
        None => Ok(()),
    }
}

/// Runs a workload under the reference and twice under Hartline.
fn compare(workload: &Workload) -> Result<Times> {
    let (root, image) = List::Workloads.root()?;
    let (expected, qemu) = timed(&mut reference(&workload.script, root)?)?;
    let cache = paths::work().join(format!("packages-{}", workload.package));
    let _ = fs::remove_dir_all(&cache);
    let (first, first_time) = timed(&mut run(&workload.script, image, &cache, 1)?)?;
    check_same("first run", &expected, &first)?;
    let (second, second_time) = timed(&mut run(&workload.script, image, &cache, 1)?)?;
    check_same("second run", &expected, &second)?;
    fs::remove_dir_all(&cache)?;
    let times = Times {
        first: first_time,
        second: second_time,
        qemu,
    };
    eprintln!("{}: {times:.1?}", workload.package);
    Ok(times)
}

/// Compares exit codes and standard output; messages on standard error may name processes.
fn check_same(what: &str, expected: &Outcome, actual: &Outcome) -> Result<()> {
    let plain = Outcome {
        stderr: expected.stderr.clone(),
        ..actual.clone()
    };
    check_equal(expected, &plain).map_err(|error| {
        let message = error.message().unwrap_or("it differs");
        let text = actual.stderr_text();
        format!("{what}: {message}\nstandard error: {text}").into()
    })
}

/// The part of the page with a workload's script.
fn section(workload: &Workload) -> String {
    format!(
        "### {}\n\n```sh\n{}\n```\n",
        workload.package, workload.script
    )
}

/// The rows of the page by package, as they are.
fn rows() -> BTreeMap<String, String> {
    let page = fs::read_to_string(path(PAGE)).unwrap_or_default();
    let row = |line: &str| {
        let package = line.strip_prefix("| [")?.split(']').next()?;
        Some((package.to_owned(), line.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// The page, with the results of a run. Rows of workloads that did not run stay as they are.
fn page(
    workloads: &[Workload],
    results: &BTreeMap<String, std::result::Result<Times, String>>,
) -> Result<String> {
    let (versions, old) = (List::Workloads.versions()?, rows());
    let mut table = String::new();
    for Workload { package, .. } in workloads {
        let version = versions.get(package).map_or("", String::as_str);
        let anchor = package.to_lowercase().replace(['.', '+'], "");
        let head = format!("| [{package}](#{anchor}) | {version} |");
        match results.get(package) {
            Some(Ok(times)) => {
                let [first, second, qemu] =
                    [times.first, times.second, times.qemu].map(|time| time.as_secs_f64());
                writeln!(
                    table,
                    "{head} same | {first:.1} | {second:.1} | {qemu:.1} |"
                )?;
            }
            Some(Err(error)) => {
                // Without the command and its paths.
                let line = error.split(['\n', '"']).next().unwrap_or_default();
                let line = line.trim_end_matches([' ', ':']).replace('|', " ");
                writeln!(table, "{head} {line} | | | |")?;
            }
            None => match old.get(package) {
                Some(row) => writeln!(table, "{row}")?,
                None => writeln!(table, "{head} not run | | | |")?,
            },
        }
    }
    let same = table.matches(" | same | ").count();
    let mut text = format!(
        "# Programs\n\n\
         Debian packages for riscv64 with a workload each, compared with `qemu-riscv64`: standard output \
         and exit code must be the same in the first run, with an empty cache of translations, and in \
         the second one. {same} of {} are the same. The scripts are below the table.\n\n\
         `make test-packages` runs them, as root, and writes this page. Times are seconds of the whole \
         script, two scripts at a time, and depend on what else the machine does, so they show that a \
         script ends, not how fast Hartline is: `hartline bench` compares speed.\n\n\
         | package | version | result | first run | second run | qemu-riscv64 |\n\
         |---|---|---|---:|---:|---:|\n{table}\n\
         ## Scripts\n\nA script runs in an empty directory, by Debian's `/bin/sh`.\n",
        workloads.len()
    );
    for workload in workloads {
        write!(text, "\n{}", section(workload))?;
    }
    Ok(text)
}
