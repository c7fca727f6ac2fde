//! A busy machine: eight VMs at once, each with an empty translation cache, run scripts of several
//! processes for a minute. Translation is slow then, so images arrive late, while many processes
//! are switched. Each run must match the reference.

use hartline_tests::Result;
use hartline_tests::pipelines::{self, Pipelines, Setting};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The number of VMs at once.
const VMS: usize = 8;

/// The script that once gave wrong sums; it takes longer than the others.
const SUMS: &str = "sums";

/// The distance between two runs of [`SUMS`].
const PERIOD: usize = 16;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("eight VMs at once", busy);
    suite.run()
}

/// Starts runs for `HARTLINE_BUSY_SECONDS` (default 30). The numbers of vCPUs come from
/// `HARTLINE_TEST_CPUS` in turn.
fn busy() -> Result<()> {
    let seconds = match env::var("HARTLINE_BUSY_SECONDS") {
        Ok(text) => text.parse()?,
        Err(_) => 30,
    };
    let names = pipelines::names()?;
    let cpus = pipelines::cpus();
    let pipelines = Pipelines::new()?;
    // Half a minute is too short for all scripts, so the first script depends on the time.
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as usize % names.len();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let started = Instant::now();
    let vm = || {
        while started.elapsed() < Duration::from_secs(seconds) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let name = match number % PERIOD {
                0 => SUMS,
                _ => &names[(first + number) % names.len()],
            };
            let cpus = &cpus[number % cpus.len()];
            if let Err(error) = run(&pipelines, name, cpus) {
                let text = error.message().unwrap_or("failed").to_owned();
                eprintln!("busy: run {number}: {text}");
                let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                wrong.push(text);
            }
        }
    };
    thread::scope(|scope| (0..VMS).for_each(|_| drop(scope.spawn(vm))));
    let runs = next.into_inner();
    let wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    let took = started.elapsed().as_secs();
    let told = format!(
        "{runs} runs in {took} s from {}, {} wrong",
        names[first],
        wrong.len()
    );
    println!("busy: {told}");
    match wrong.is_empty() && runs >= VMS {
        true => Ok(()),
        false => Err(format!("{told}\n{}", wrong.join("\n")).into()),
    }
}

fn run(pipelines: &Pipelines, name: &str, cpus: &str) -> Result<()> {
    let cache = Scratch::new()?;
    let setting = Setting {
        cache: cache.path(),
        cpus,
        chaos: None,
    };
    pipelines.compare(name, &setting)
}
