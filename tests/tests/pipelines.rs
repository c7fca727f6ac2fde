//! Scripts of several processes with Debian's shells and tools, which must match the reference.
//! Each runs with an empty translation cache, so that images arrive while processes are switched.
//! It runs again with the translations of that run.

use hartline_tests::Result;
use hartline_tests::pipelines::{self, Pipelines, Setting};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The least number of scripts.
const FEWEST: usize = 60;

type Shared = OnceLock<std::result::Result<Pipelines, String>>;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    let names = pipelines::names().unwrap_or_default();
    let count = names.len();
    suite.add("no script is missing", move || match count >= FEWEST {
        true => Ok(()),
        false => Err(format!("{count} scripts, expected {FEWEST}").into()),
    });
    let shared = Arc::<Shared>::default();
    for name in names {
        let shared = Arc::clone(&shared);
        suite.add_kvm(name.clone(), move || {
            let pipelines = shared.get_or_init(|| {
                Pipelines::new().map_err(|error| error.message().unwrap_or("unknown").to_owned())
            });
            run(pipelines.as_ref().map_err(String::as_str)?, &name)
        });
    }
    suite.run()
}

fn run(pipelines: &Pipelines, name: &str) -> Result<()> {
    for cpus in pipelines::cpus() {
        let cache = Scratch::new()?;
        let setting = Setting {
            cache: cache.path(),
            cpus: &cpus,
            chaos: None,
        };
        pipelines.compare(name, &setting)?;
        pipelines
            .compare(name, &setting)
            .map_err(|error| format!("with its cache: {}", error.message().unwrap_or("failed")))?;
    }
    Ok(())
}
