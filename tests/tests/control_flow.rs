//! Unusual control flow, and atomics: the programs of `tests/programs/control` in several builds,
//! translated, interpreted, translated while they run, and under the reference. The output and the
//! exit code must be equal.

use hartline_tests::Result;
use hartline_tests::compare::{Run, check_equal};
use hartline_tests::compile::{CONTROL_VARIANTS, Set, Variant};
use hartline_tests::hartline;
use hartline_tests::suite::Suite;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    let names = Set::Control.names().unwrap_or_default();
    suite.add("there are programs", || match Set::Control.names()?.len() {
        0 => Err("none".into()),
        _ => Ok(()),
    });
    for variant in CONTROL_VARIANTS {
        for name in &names {
            let name = name.clone();
            suite.add_kvm(format!("{}: {name}", variant.name), move || {
                compare(variant, &name)
            });
        }
    }
    suite.run()
}

fn compare(variant: Variant, name: &str) -> Result<()> {
    let run = Run::new(&Set::Control.build(variant)?, [name]);
    let expected = run.reference()?;
    if expected.stdout.is_empty() || expected.code > 125 {
        return Err(format!("the reference: {expected:?}").into());
    }
    let mut ways = vec![
        ("interpreted", run.interpreted()?),
        ("translated", run.hartline(&[])?),
        ("baseline", run.hartline(&["--baseline", "only"])?),
    ];
    if variant == CONTROL_VARIANTS[0] {
        ways.push(("translated while it runs", run.unprepared(&[])?));
    }
    if name == "unannounced" {
        ways.push(("on three vCPUs", run.hartline(&["--cpus", "3"])?));
    }
    if name == "generated" && variant == CONTROL_VARIANTS[0] {
        // LLVM's code of the whole program, called by code that does not keep to the psABI.
        hartline::translate_for_made_code(&run.program)?;
        ways.push((
            "made code and LLVM's",
            run.hartline(&["--baseline", "off"])?,
        ));
    }
    for (way, outcome) in ways {
        check_equal(&expected, &outcome)
            .map_err(|error| format!("{way}: {}", error.message().unwrap_or("failed")))?;
    }
    Ok(())
}
