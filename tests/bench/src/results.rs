//! Times, their medians and means, and the two forms in which they are printed.

use super::suite::Group;
use super::versions::{self, Version};
use std::fmt::Write;

/// Times of all runs of one benchmark, seconds, in the order of the rounds.
#[derive(Debug, Default, serde::Serialize)]
pub struct Samples {
    /// Native runs, one per round.
    pub native: Vec<f64>,
    /// Runs under qemu, in the first rounds only.
    pub qemu: Vec<f64>,
    /// Runs under Hartline, one per round.
    pub hartline: Vec<f64>,
}

/// The ratio of the times of two ways.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Ratio {
    /// The ratio of the medians.
    pub value: f64,
    /// The ratio of the round where it is lowest.
    pub low: f64,
    /// The ratio of the round where it is highest.
    pub high: f64,
}

impl Ratio {
    /// Makes the ratio of times from the same rounds, at least one.
    pub fn new(above: &[f64], below: &[f64]) -> Self {
        let rounds = || above.iter().zip(below).map(|(above, below)| above / below);
        Self {
            value: median(above) / median(below),
            low: rounds().fold(f64::INFINITY, f64::min),
            high: rounds().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Results of one benchmark. Times are medians, seconds.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    name: &'static str,
    native_s: f64,
    qemu_s: f64,
    hartline_s: f64,
    group: Group,
    /// Hartline's time divided by the native time.
    vs_native: Ratio,
    /// qemu's time divided by Hartline's.
    vs_qemu: Ratio,
    /// All times, seconds.
    samples: Samples,
}

impl Row {
    /// Makes the row from at least one time for each way.
    pub fn new(name: &'static str, group: Group, samples: Samples) -> Self {
        Self {
            name,
            native_s: median(&samples.native),
            qemu_s: median(&samples.qemu),
            hartline_s: median(&samples.hartline),
            group,
            vs_native: Ratio::new(&samples.hartline, &samples.native),
            vs_qemu: Ratio::new(&samples.qemu, &samples.hartline),
            samples,
        }
    }
}

/// A benchmark without times.
#[derive(Debug, serde::Serialize)]
pub struct Missing {
    /// The benchmark's name.
    pub name: &'static str,
    /// The reason, one line.
    pub reason: String,
}

/// The results of one `hartline bench compute`. A mean over no benchmarks is `null`.
#[derive(Debug, serde::Serialize)]
pub struct Results {
    benchmarks: Vec<Row>,
    /// Hartline's time divided by the native time, without the group `assembly`.
    geomean_vs_native: Option<f64>,
    /// qemu's time divided by Hartline's, without the group `assembly`.
    geomean_vs_qemu: Option<f64>,
    floating_point_vs_native: Option<f64>,
    floating_point_vs_qemu: Option<f64>,
    assembly_vs_qemu: Option<f64>,
    /// Programs that Hartline reports it cannot run.
    not_yet: Vec<Missing>,
    /// Benchmarks that failed.
    failed: Vec<Missing>,
    /// Load average of the machine over the minute before the start, if known.
    load_average: Option<f64>,
    /// Versions of the Debian packages with the programs.
    versions: Vec<Version>,
}

impl Results {
    /// Makes the results and computes the means.
    pub fn new(
        benchmarks: Vec<Row>,
        not_yet: Vec<Missing>,
        failed: Vec<Missing>,
        load_average: Option<f64>,
        versions: Vec<Version>,
    ) -> Self {
        let mean = |group: fn(Group) -> bool, ratio: fn(&Row) -> Ratio| {
            let rows = benchmarks.iter().filter(|row| group(row.group));
            geometric_mean(rows.map(|row| ratio(row).value))
        };
        let overall = |group| group != Group::Assembly;
        let floating = |group| group == Group::FloatingPoint;
        let assembly = |group| group == Group::Assembly;
        Self {
            geomean_vs_native: mean(overall, |row| row.vs_native),
            geomean_vs_qemu: mean(overall, |row| row.vs_qemu),
            floating_point_vs_native: mean(floating, |row| row.vs_native),
            floating_point_vs_qemu: mean(floating, |row| row.vs_qemu),
            assembly_vs_qemu: mean(assembly, |row| row.vs_qemu),
            benchmarks,
            not_yet,
            failed,
            load_average,
            versions,
        }
    }

    /// Returns how many benchmarks failed.
    pub fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Formats a table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<18} {:>8} {:>8} {:>10}  {:>15} {:<13}  {:>13}\n",
            "",
            "native s",
            "qemu s",
            "hartline s",
            "hartline/native",
            "lowest..high",
            "qemu/hartline"
        );
        for (group, title) in [
            (Group::General, "general"),
            (Group::FloatingPoint, "floating point"),
            (Group::Assembly, "native side in assembly"),
        ] {
            let rows = || self.benchmarks.iter().filter(|row| row.group == group);
            if rows().next().is_some() {
                let _ = writeln!(text, "{title}");
            }
            rows().for_each(|row| text += &row.line());
        }
        for (name, native, qemu) in [
            (
                "geometric mean",
                self.geomean_vs_native,
                self.geomean_vs_qemu,
            ),
            (
                "  floating point",
                self.floating_point_vs_native,
                self.floating_point_vs_qemu,
            ),
            ("  assembly", None, self.assembly_vs_qemu),
        ] {
            if native.or(qemu).is_some() {
                let (native, qemu) = (optional(native), optional(qemu));
                let _ = writeln!(text, "{name:<46}  {native:>15} {:<13}  {qemu:>13}", "");
            }
        }
        for missing in &self.not_yet {
            let _ = writeln!(text, "not yet: {}: {}", missing.name, missing.reason);
        }
        for missing in &self.failed {
            let _ = writeln!(text, "failed: {}: {}", missing.name, missing.reason);
        }
        text + &versions::differences(&self.versions)
    }
}

impl Row {
    fn line(&self) -> String {
        let (native, range) = match self.group {
            Group::Assembly => Default::default(),
            _ => (
                format!("{:.2}", self.vs_native.value),
                format!("{:.2}..{:.2}", self.vs_native.low, self.vs_native.high),
            ),
        };
        format!(
            "  {:<16} {:>8.3} {:>8.3} {:>10.3}  {native:>15} {range:<13}  {:>13.2}\n",
            self.name, self.native_s, self.qemu_s, self.hartline_s, self.vs_qemu.value
        )
    }
}

fn optional(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.2}")).unwrap_or_default()
}

/// Returns the median of at least one value: the middle value, or the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// Returns the geometric mean, or `None` if there are no values.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value.ln(), n + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(group: Group, native: &[f64], qemu: &[f64], hartline: &[f64]) -> Row {
        let samples = Samples {
            native: native.to_vec(),
            qemu: qemu.to_vec(),
            hartline: hartline.to_vec(),
        };
        Row::new("x", group, samples)
    }

    #[test]
    fn means_and_medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let mean = geometric_mean([1.0, 4.0, 16.0].into_iter()).unwrap();
        assert!((mean - 4.0).abs() < 1e-12, "{mean}");
        assert_eq!(geometric_mean([].into_iter()), None);
    }

    #[test]
    fn ratios_have_the_range_of_the_rounds() {
        let row = row(Group::General, &[1.0, 1.0, 2.0], &[9.0], &[3.0, 2.0, 3.0]);
        let expected = Ratio {
            value: 3.0,
            low: 1.5,
            high: 3.0,
        };
        assert_eq!(row.vs_native, expected);
        assert_eq!((row.vs_qemu.low, row.vs_qemu.high), (3.0, 3.0));
    }

    #[test]
    fn json_has_the_documented_shape() {
        let row = row(Group::FloatingPoint, &[1.0], &[8.0], &[2.0]);
        let missing = Missing {
            name: "y",
            reason: "z".into(),
        };
        let version = Version {
            package: "bc".into(),
            native: "1-4".into(),
            riscv64: "1-5".into(),
        };
        let results = Results::new(vec![row], vec![missing], vec![], None, vec![version]);
        let table = results.table();
        assert!(
            table.ends_with("\nother version: bc: 1-4 native, 1-5 riscv64\n"),
            "{table}"
        );
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(
            text,
            r#"{"benchmarks":[{"name":"x","native_s":1.0,"qemu_s":8.0,"hartline_s":2.0,"group":"floating-point","vs_native":{"value":2.0,"low":2.0,"high":2.0},"vs_qemu":{"value":4.0,"low":4.0,"high":4.0},"samples":{"native":[1.0],"qemu":[8.0],"hartline":[2.0]}}],"geomean_vs_native":2.0,"geomean_vs_qemu":4.0,"floating_point_vs_native":2.0,"floating_point_vs_qemu":4.0,"assembly_vs_qemu":null,"not_yet":[{"name":"y","reason":"z"}],"failed":[],"load_average":null,"versions":[{"package":"bc","native":"1-4","riscv64":"1-5"}]}"#
        );
    }

    #[test]
    fn assembly_counts_only_against_qemu() {
        let rows = vec![
            row(Group::General, &[1.0], &[4.0], &[2.0]),
            row(Group::Assembly, &[0.1], &[9.0], &[3.0]),
        ];
        let results = Results::new(rows, vec![], vec![], None, vec![]);
        let mean = results.geomean_vs_native.unwrap();
        assert!((mean - 2.0).abs() < 1e-12, "{mean}");
        let mean = results.assembly_vs_qemu.unwrap();
        assert!((mean - 3.0).abs() < 1e-12, "{mean}");
        assert!(results.floating_point_vs_qemu.is_none());
        let table = results.table();
        assert!(!table.contains("30.00"), "{table}");
    }
}
