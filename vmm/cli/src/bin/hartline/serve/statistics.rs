//! What a service has done.

use crate::percentiles::Percentiles;
use crate::run::StatsFormat;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Times that are kept for percentiles: the last ones.
const KEPT: usize = 4096;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both sides have ended it, or one of them has reset it.
    Over,
    /// The limit has passed.
    Late,
    /// The program has ended, or its VM cannot go on.
    Crashed,
}

/// Counters, and times.
#[derive(Debug, Default)]
pub struct Statistics(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    connections: u64,
    late: u64,
    crashed: u64,
    resets: u64,
    vms: u64,
    times: Vec<Duration>,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Printed {
    /// Connections that were served.
    connections: u64,
    /// Connections that the limit ended.
    late: u64,
    /// Connections during which the program or its VM ended.
    crashed: u64,
    /// Resets of VMs.
    resets: u64,
    /// VMs that were started.
    vms: u64,
    /// Times of the last 4096 resets, µs.
    reset_us: Option<Percentiles>,
}

impl Statistics {
    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a VM was started.
    pub fn started(&self) {
        self.lock().vms += 1;
    }

    /// Notes the end of a connection.
    pub fn served(&self, end: End) {
        let mut counters = self.lock();
        counters.connections += 1;
        match end {
            End::Over => {}
            End::Late => counters.late += 1,
            End::Crashed => counters.crashed += 1,
        }
    }

    /// Notes a reset.
    pub fn reset(&self, time: Duration) {
        let mut counters = self.lock();
        let place = usize::try_from(counters.resets).unwrap_or(0) % KEPT;
        counters.resets += 1;
        match counters.times.get_mut(place) {
            Some(old) => *old = time,
            None => counters.times.push(time),
        }
    }

    /// Prints all to standard error.
    ///
    /// # Errors
    /// The figures have no form in JSON: a bug.
    pub fn print(&self, format: StatsFormat) -> anyhow::Result<()> {
        let printed = {
            let counters = self.lock();
            Printed {
                connections: counters.connections,
                late: counters.late,
                crashed: counters.crashed,
                resets: counters.resets,
                vms: counters.vms,
                reset_us: Percentiles::of(counters.times.clone()),
            }
        };
        let text = match format {
            StatsFormat::Json => serde_json::to_string(&printed)?,
            StatsFormat::Table => printed.table(),
        };
        // A closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "{text}");
        Ok(())
    }
}

impl Printed {
    fn table(&self) -> String {
        let mut text = format!(
            "connections  {}\n  late       {}\n  crashed    {}\nVMs started  {}\nresets       {}",
            self.connections, self.late, self.crashed, self.vms, self.resets
        );
        if let Some(Percentiles { p50, p90, p99 }) = &self.reset_us {
            text.push_str(&format!(
                "\n  µs         {p50:.0} (p90 {p90:.0}, p99 {p99:.0})"
            ));
        }
        text
    }
}
