//! The results of `hartline bench snapshot`, as JSON and as text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// All results.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    pub starts: Vec<StartRow>,
    pub rates: Option<Rates>,
    pub requests: Vec<RequestRow>,
    pub calls: Vec<CallRow>,
    /// Load average of the machine over the minute before the start, if known.
    pub load_average: Option<f64>,
}

/// Percentiles. The field that has them names the unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Percentiles {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |percent: usize| sorted.get(last * percent / 100).copied().unwrap_or(0.0);
        Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
        }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.2} {:>9.2} {:>9.2}", self.p50, self.p90, self.p99)
    }
}

/// Times from the start of a process to the first byte of its output.
#[derive(Debug, Serialize)]
pub struct StartRow {
    pub name: &'static str,
    pub native_ms: Percentiles,
    /// A new run.
    pub run_ms: Percentiles,
    /// A program that goes on from a snapshot.
    pub clone_ms: Percentiles,
    /// Until a VM of this process is ready for runs from the snapshot.
    pub warm_ready_ms: f64,
    /// The median of the first runs of such VMs.
    pub warm_first_ms: f64,
    /// Later runs of one, which is reset after each.
    pub warm_ms: Percentiles,
    /// Private memory of one that has not run, MiB.
    pub warm_idle_mib: f64,
    /// Private memory of one that has, with what its guest touched, MiB.
    pub warm_used_mib: f64,
    /// The longest median of a warm clone that is allowed.
    pub limit_ms: Option<f64>,
    /// Memory of the process of a clone that has answered, beyond what its guest touched, MiB.
    pub own_mib: f64,
    /// What its guest touched, MiB.
    pub guest_mib: f64,
}

/// Processes per second, from start to end, two at a time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rates {
    pub native_per_s: f64,
    pub run_per_s: f64,
    pub clone_per_s: f64,
    /// Runs of two VMs that are reset after each.
    pub warm_per_s: f64,
}

/// Times of requests to a server, from the connection to the end of the answer, one after another.
#[derive(Debug, Serialize)]
pub struct RequestRow {
    pub name: &'static str,
    pub native_ms: Percentiles,
    /// By a VM that has answered one request before its template, and is reset after each.
    pub ephemeral_ms: Percentiles,
    /// By a VM that is not reset.
    pub kept_ms: Percentiles,
}

/// Times of calls or resets.
#[derive(Debug, Serialize)]
pub struct CallRow {
    pub name: &'static str,
    /// The same in a native program, the mean: by a thread, or in a new process for each call.
    pub native_us: f64,
    pub hartline_us: Percentiles,
    /// The longest median that is allowed.
    pub limit_us: Option<f64>,
    /// Pages of 4 KiB that a reset puts back.
    pub pages: Option<u64>,
    /// Whether page tables of the guest had changed.
    pub tables_changed: Option<bool>,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "to the first output, ms";
        writeln!(f, "{title:<31} {:>9} {:>9} {:>9}", "p50", "p90", "p99")?;
        for row in &self.starts {
            writeln!(f, "{:<20} native     {}", row.name, row.native_ms)?;
            writeln!(f, "{:<20} run        {}", "", row.run_ms)?;
            let limit = row.limit_ms.map(|limit| format!("  (p50 limit {limit})"));
            let limit = limit.unwrap_or_default();
            writeln!(f, "{:<20} clone      {}", "", row.clone_ms)?;
            writeln!(f, "{:<20} warm clone {}{limit}", "", row.warm_ms)?;
            writeln!(
                f,
                "{:<20} ready after {:.1} ms, first run {:.1} ms; {:.1} MiB of its own, {:.1} MiB after runs",
                "", row.warm_ready_ms, row.warm_first_ms, row.warm_idle_mib, row.warm_used_mib
            )?;
            writeln!(
                f,
                "{:<20} {:.1} MiB beside {:.1} MiB that the guest of a clone touched",
                "", row.own_mib, row.guest_mib
            )?;
        }
        if let Some(rates) = &self.rates {
            writeln!(
                f,
                "two at a time, per second: native {:.0}, runs {:.0}, clones {:.0}, warm clones {:.0}",
                rates.native_per_s, rates.run_per_s, rates.clone_per_s, rates.warm_per_s
            )?;
        }
        let title = "a request, ms";
        writeln!(f, "{title:<31} {:>9} {:>9} {:>9}", "p50", "p90", "p99")?;
        for row in &self.requests {
            writeln!(f, "{:<20} native     {}", row.name, row.native_ms)?;
            writeln!(f, "{:<20} not reset  {}", "", row.kept_ms)?;
            writeln!(f, "{:<20} reset      {}", "", row.ephemeral_ms)?;
        }
        writeln!(
            f,
            "{:<31} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6}",
            "calls, µs", "p50", "p90", "p99", "native", "limit", "pages"
        )?;
        for row in &self.calls {
            let pages = row.pages.map(|pages| pages.to_string()).unwrap_or_default();
            let limit = row.limit_us.map(|limit| limit.to_string());
            writeln!(
                f,
                "{:<31} {} {:>9.2} {:>6} {pages:>6}",
                row.name,
                row.hartline_us,
                row.native_us,
                limit.unwrap_or_default()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values() {
        let values: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        let Percentiles { p50, p90, p99 } = Percentiles::of(&values);
        assert_eq!([p50, p90, p99], [51.0, 91.0, 100.0]);
        assert_eq!(Percentiles::of(&[2.0]).p99, 2.0);
    }

    #[test]
    fn the_table_and_json_have_all_figures() {
        let some = Percentiles {
            p50: 1.25,
            p90: 2.5,
            p99: 3.75,
        };
        let results = Results {
            starts: vec![StartRow {
                name: "x",
                native_ms: some,
                run_ms: some,
                clone_ms: some,
                warm_ready_ms: 8.5,
                warm_first_ms: 9.5,
                warm_ms: Percentiles { p99: 4.25, ..some },
                warm_idle_mib: 0.5,
                warm_used_mib: 11.5,
                limit_ms: Some(3.0),
                own_mib: 1.5,
                guest_mib: 8.0,
            }],
            rates: Some(Rates {
                native_per_s: 100.0,
                run_per_s: 50.0,
                clone_per_s: 75.0,
                warm_per_s: 300.0,
            }),
            requests: vec![RequestRow {
                name: "z",
                native_ms: some,
                ephemeral_ms: Percentiles { p90: 7.5, ..some },
                kept_ms: some,
            }],
            calls: vec![CallRow {
                name: "y",
                native_us: 0.5,
                hartline_us: some,
                limit_us: Some(5.0),
                pages: Some(12),
                tables_changed: Some(false),
            }],
            load_average: None,
        };
        let table = results.to_string();
        for part in [
            "1.25",
            "2.50",
            "3.75",
            "limit 3",
            "1.5 MiB",
            "8.0 MiB",
            "clones 75, warm clones 300",
            "warm clone      1.25      2.50      4.25  (p50 limit 3)",
            "ready after 8.5 ms, first run 9.5 ms; 0.5 MiB of its own, 11.5 MiB",
            "reset           1.25      7.50",
            "0.50",
            " 5 ",
            " 12\n",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["starts"][0]["clone_ms"]["p90"], 2.5);
        assert_eq!(json["requests"][0]["ephemeral_ms"]["p90"], 7.5);
        assert_eq!(json["rates"]["clone_per_s"], 75.0);
        assert_eq!(json["rates"]["warm_per_s"], 300.0);
        assert_eq!(json["starts"][0]["warm_ms"]["p99"], 4.25);
        assert_eq!(json["calls"][0]["hartline_us"]["p99"], 3.75);
    }
}
