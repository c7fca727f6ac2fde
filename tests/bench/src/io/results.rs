//! Results of `hartline bench io`.

use super::super::versions::{self, Version};
use super::Configuration;
use super::plot::{self, Bar};
use super::server::Usage;
use super::workload::{Measured, Workload};
use std::fmt::Write;

/// The results of one workload in one configuration.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    name: &'static str,
    config: &'static str,
    throughput: f64,
    unit: &'static str,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    /// CPU time of the server per second; a VM counts with all its threads. `None` for netserver
    /// outside a VM, which does not wait for the children that do its work.
    cpu_cores: Option<f64>,
    /// All exits of the vCPU per second.
    exits_per_s: Option<f64>,
    /// Exits that the guest caused, per operation: without exits for interrupts of the host, most
    /// of which are timer interrupts.
    exits_per_op: Option<f64>,
    ratio_to_native: Option<f64>,
}

impl Row {
    /// Makes a row of what the client measured and what the server used.
    pub fn new(
        workload: Workload,
        configuration: Configuration,
        measured: Measured,
        before: Usage,
        after: Usage,
    ) -> Self {
        let seconds = after.since(&before).as_secs_f64();
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds;
        let is_known = configuration.is_vm() || workload.server() != "netserver";
        let exits = before.exits.zip(after.exits).map(|(before, after)| {
            let [all, by_host] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64);
            (
                all / seconds,
                (all - by_host).max(0.0) / measured.operations,
            )
        });
        Self {
            name: workload.name(),
            config: configuration.name(),
            throughput: measured.throughput,
            unit: workload.unit(),
            p50_us: measured.latency.map(|[p50, _]| p50),
            p99_us: measured.latency.map(|[_, p99]| p99),
            cpu_cores: is_known.then_some(cpu),
            exits_per_s: exits.map(|(per_second, _)| per_second),
            exits_per_op: exits.map(|(_, per_operation)| per_operation),
            ratio_to_native: None,
        }
    }

    /// Formats the row as a line of the table.
    pub fn line(&self) -> String {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        format!(
            "{:<11} {:<16} {:>10.0} {:<7} {:>7} {:>7} {:>6} {:>9} {:>9} {:>7}",
            self.name,
            self.config,
            self.throughput,
            self.unit,
            number(self.p50_us, 0),
            number(self.p99_us, 0),
            number(self.cpu_cores, 2),
            number(self.exits_per_s, 0),
            number(self.exits_per_op, 4),
            number(self.ratio_to_native, 2),
        )
    }
}

/// All results of `hartline bench io`.
#[derive(Debug, serde::Serialize)]
pub struct Results {
    workloads: Vec<Row>,
    /// Versions of the Debian packages with the servers.
    versions: Vec<Version>,
}

impl Results {
    /// Makes the results, with the ratio of each row to the native one.
    pub fn new(mut rows: Vec<Row>, versions: Vec<Version>) -> Self {
        let native = Configuration::Native.name();
        let natives: Vec<(&str, f64)> = rows
            .iter()
            .filter(|row| row.config == native)
            .map(|row| (row.name, row.throughput))
            .collect();
        for row in &mut rows {
            let found = natives.iter().find(|(name, _)| *name == row.name);
            row.ratio_to_native = found.map(|(_, throughput)| row.throughput / throughput);
        }
        Self {
            workloads: rows,
            versions,
        }
    }

    /// Draws a chart of the throughput of all configurations but the native one, which is 1, as
    /// SVG.
    ///
    /// # Errors
    /// None in practice: the chart is drawn into memory.
    pub fn plot(&self) -> anyhow::Result<String> {
        let compared = self.workloads.iter();
        let compared = compared.filter(|row| row.config != Configuration::Native.name());
        let bars = compared.filter_map(|row| {
            Some(Bar {
                group: row.name,
                name: row.config,
                height: row.ratio_to_native?,
            })
        });
        plot::draw("throughput, native = 1", &bars.collect::<Vec<_>>())
    }

    /// Formats a table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<11} {:<16} {:>18} {:>7} {:>7} {:>6} {:>9} {:>9} {:>7}\n",
            "workload",
            "configuration",
            "throughput",
            "p50 µs",
            "p99 µs",
            "cores",
            "exits/s",
            "exits/op",
            "ratio"
        );
        for row in &self.workloads {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", row.line());
        }
        text + &versions::differences(&self.versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_with_native_ones() {
        let row = |config: &'static str, throughput| Row {
            name: "tcp_rr",
            config,
            throughput,
            unit: "1/s",
            p50_us: Some(1.0),
            p99_us: None,
            cpu_cores: Some(1.0),
            exits_per_s: None,
            exits_per_op: None,
            ratio_to_native: None,
        };
        let version = Version {
            package: "nginx".into(),
            native: "1-4".into(),
            riscv64: "1-5".into(),
        };
        let rows = vec![row("native", 50.0), row("exitless", 60.0)];
        let results = Results::new(rows, vec![version]);
        let ratios: Vec<_> = results
            .workloads
            .iter()
            .map(|row| row.ratio_to_native)
            .collect();
        assert_eq!(ratios, [Some(1.0), Some(1.2)]);
        let table = results.table();
        assert_eq!(table.lines().count(), 4);
        assert!(
            table.ends_with("\nother version: nginx: 1-4 native, 1-5 riscv64\n"),
            "{table}"
        );
        let plot = results.plot().unwrap();
        assert!(plot.contains("exitless") && !plot.contains("native<"));
        let json = serde_json::to_string(&results).unwrap();
        assert!(json.starts_with(r#"{"workloads":[{"name":"tcp_rr","config":"native","#));
        let end = r#"}],"versions":[{"package":"nginx","native":"1-4","riscv64":"1-5"}]}"#;
        assert!(json.ends_with(end), "{json}");
    }
}
