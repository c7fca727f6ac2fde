//! The results of `hartline bench service`, as JSON and as text.

use super::again::Again;
use super::machines::{Idle, Restart};
use super::{Arguments, Left};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// All results.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Median time of a run from request to answer, one client, milliseconds.
    p50_ms: f64,
    /// 99th percentile of that time, milliseconds.
    p99_ms: f64,
    /// Runs per second of all clients at once.
    runs_per_s: f64,
    clients: u32,
    sequential: u32,
    parallel: u32,
    /// Commands in a running machine.
    pub commands: Option<Times>,
    /// Runs of python from a snapshot.
    pub again: Option<Again>,
    /// Resources before and after many runs.
    left: Option<Runs>,
    pub idle: Option<Idle>,
    pub restart: Option<Restart>,
}

/// Times of requests, one after another, each to the whole answer.
#[derive(Debug, Clone, Serialize)]
pub struct Times {
    /// Their number.
    count: usize,
    /// Median, milliseconds.
    p50_ms: f64,
    /// 99th percentile, milliseconds.
    p99_ms: f64,
}

impl Times {
    /// Makes the result from times.
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            count: times.len(),
            p50_ms: percentile(&times, 50),
            p99_ms: percentile(&times, 99),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", self.p50_ms, self.p99_ms)
    }
}

/// Resources before and after runs.
#[derive(Debug, Clone, Serialize)]
struct Runs {
    runs: u32,
    before: Left,
    after: Left,
    /// The names of the resources that grew.
    leaks: Vec<&'static str>,
}

impl Results {
    /// Makes the results from at least one time, shortest first, and a rate.
    pub fn new(times: &[Duration], runs_per_s: f64, arguments: &Arguments) -> Self {
        Self {
            p50_ms: percentile(times, 50),
            p99_ms: percentile(times, 99),
            runs_per_s,
            clients: arguments.clients,
            sequential: arguments.sequential,
            parallel: arguments.parallel,
            commands: None,
            again: None,
            left: None,
            idle: None,
            restart: None,
        }
    }

    /// Sets the resources before and after `runs` runs.
    pub fn set_left(&mut self, runs: u32, before: Left, after: Left) {
        let leaks = after.more_than(&before);
        self.left = Some(Runs {
            runs,
            before,
            after,
            leaks,
        });
    }

    /// Returns whether no resource leaked and no machine was lost.
    pub fn is_clean(&self) -> bool {
        let leaks = self
            .left
            .as_ref()
            .is_some_and(|left| !left.leaks.is_empty());
        let lost = self
            .restart
            .as_ref()
            .is_some_and(|restart| restart.lost > 0);
        !leaks && !lost
    }

    /// Formats the times and the rate.
    pub fn speed(&self) -> String {
        format!(
            "one client: p50 {:.1} ms, p99 {:.1} ms; {} clients: {:.1} runs/s",
            self.p50_ms, self.p99_ms, self.clients, self.runs_per_s
        )
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.speed())?;
        if let Some(commands) = &self.commands {
            writeln!(
                f,
                "{} commands in a running machine: {commands}",
                commands.count
            )?;
        }
        if let Some(again) = &self.again {
            writeln!(f, "runs of python3, {}: {}", again.new.count, again.new)?;
            writeln!(
                f,
                "from a snapshot, {}: {}; the first one {:.1} ms; two clients: {:.1} runs/s",
                again.again.count, again.again, again.first_ms, again.per_s
            )?;
        }
        if let Some(left) = &self.left {
            writeln!(f, "before {} runs: {}", left.runs, left.before)?;
            writeln!(f, "after:{:>width$} {}", "", left.after, width = 9)?;
            match left.leaks.is_empty() {
                true => writeln!(f, "nothing is left of them")?,
                false => writeln!(f, "LEFT OF THEM: {}", left.leaks.join(", "))?,
            }
        }
        if let Some(idle) = &self.idle {
            writeln!(
                f,
                "{} idle machines: {:.1} MiB each beside {:.1} MiB that the guest touched, \
                 {:.1} % of a processor together",
                idle.machines, idle.memory_each_mib, idle.guest_each_mib, idle.cpu_percent
            )?;
        }
        if let Some(restart) = &self.restart {
            writeln!(
                f,
                "daemon killed with {} machines: back in {:.2} s, {} lost",
                restart.machines, restart.seconds, restart.lost
            )?;
        }
        Ok(())
    }
}

/// Returns a percentile of sorted times, milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted
        .get(index)
        .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), 100.0);
        assert_eq!(percentile(&times, 99), 198.0);
        assert_eq!(percentile(&times[..1], 99), 1.0);
    }
}
