//! Registers in reports of faults in code that LLVM has translated: they are right, or not shown.

use crate::{O2, run};
use hartline_tests::compile::{self, Variant};
use hartline_tests::dynamic::Root;
use hartline_tests::process::Outcome;
use hartline_tests::suite::Suite;
use hartline_tests::{Result, hartline, process};
use std::collections::BTreeMap;
use std::fs;

pub fn add(suite: &mut Suite) {
    suite.add_kvm("crash: registers of a translated program", || {
        let program = compile::crash(O2)?;
        hartline::translate(&program)?;
        compare(|options, how| run(&program, options, how))
    });
    suite.add_kvm("crash: registers in a translated library", || {
        const DYNAMIC: Variant = Variant {
            name: "dynamic",
            flags: &["-O2"],
        };
        let root = Root::new("debugging-known", ["dash"].into_iter())?;
        let program = root.path().join("usr/bin/crash");
        fs::copy(compile::crash(DYNAMIC)?, &program)?;
        hartline::translate_in_root(root.path(), "usr/bin/crash".as_ref())?;
        compare(|options, how| {
            let mut command = root.run("crash", &[how]).hartline_command(options)?;
            process::run(&mut command, b"")
        })
    });
}

/// Faults in functions of different kinds: leaves, loops, after calls, in handlers.
const HOW: [&str; 14] = [
    "load",
    "store",
    "nested",
    "variable",
    "many",
    "qsort",
    "handler",
    "two-handlers",
    "exit",
    "longjmp",
    "read-only",
    "pointer",
    "memcpy",
    "strlen",
];

/// Compares the registers of each report with those of code that has all of them.
fn compare(run: impl Fn(&[&str], &str) -> Result<Outcome>) -> Result<()> {
    let mut known = 0;
    for how in HOW {
        let exact = registers(&run(&["--precise"], how)?)?;
        let found = registers(&run(&[], how)?)?;
        let shown = found.iter().filter(|(_, value)| *value != "-");
        for (name, value) in shown {
            if exact.get(name) != Some(value) {
                return Err(format!("{how}: {name} is {value}: {found:?}, {exact:?}").into());
            }
            known += 1;
        }
        if exact.values().any(|value| value == "-") || found.values().all(|value| value != "-") {
            return Err(format!("{how}: {found:?}, {exact:?}").into());
        }
    }
    match known < HOW.len() * 12 {
        true => Err(format!("only {known} registers are known").into()),
        false => Ok(()),
    }
}

/// The registers in a report by their names, of which there are 32.
fn registers(outcome: &Outcome) -> Result<BTreeMap<String, String>> {
    let text = outcome.stderr_text();
    let lines = text.lines().skip_while(|line| !line.starts_with("zero "));
    let words: Vec<&str> = lines.take(8).flat_map(str::split_whitespace).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    match pairs.len() == 32 && rest.is_empty() {
        true => Ok(pairs
            .iter()
            .map(|[name, value]| ((*name).to_owned(), (*value).to_owned()))
            .collect()),
        false => Err(format!("{outcome:?}").into()),
    }
}
