//! A soak of the daemon. Clients make runs and machines while the daemon and VMMs are killed, the
//! disk fills and empties, and the configuration is read again. Everything that the daemon has
//! acknowledged must have its right end, and nothing may be there twice.
//!
//! `HARTLINE_SOAK_SECONDS` (20) is its length, `HARTLINE_SEED` its seed.

#[path = "soak/clients.rs"]
mod clients;
#[path = "soak/harm.rs"]
mod harm;
#[path = "soak/verdict.rs"]
mod verdict;

use clients::Clients;
use harm::Harm;
use hartline_tests::Result;
use hartline_tests::daemon::Daemon;
use hartline_tests::random::{Random, number, seed};
use hartline_tests::suite::Suite;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Clients at a time.
const CLIENTS: u64 = 4;
/// Bytes of the disk with the daemon's data.
const DISK: usize = 512 << 20;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_root_kvm("harm to the daemon", soak);
    suite.run()
}

fn soak() -> Result<()> {
    let seconds = Duration::from_secs(number("HARTLINE_SOAK_SECONDS").unwrap_or(20));
    let seed = seed();
    println!("soak: HARTLINE_SEED={seed}, {} s", seconds.as_secs());
    let mut daemon = Daemon::start_on_disk(harm::CONFIGURATION, DISK)?;
    let clients = Clients::new(&daemon)?;
    let mut harm = Harm::new(Random::new(seed));
    let done = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let clients = &clients;
            let random = Random::new(seed ^ (number + 1) << 32);
            scope.spawn(move || clients.work(number, random));
        }
        let start = Instant::now();
        let mut done = Ok(());
        while done.is_ok() && start.elapsed() < seconds {
            done = harm.once(&mut daemon);
        }
        clients.stop();
        done
    });
    done.map_err(|error| format!("seed {seed}: {error:?}, {}", daemon.log()))?;
    println!("soak: {harm}");
    let judged = verdict::judge(&daemon, clients.into_acknowledged(), &harm);
    println!(
        "soak: {}",
        judged.map_err(|error| format!("seed {seed}: {error:?}"))?
    );
    Ok(())
}
