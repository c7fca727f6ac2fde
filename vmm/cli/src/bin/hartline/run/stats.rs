//! `--stats`: the costs of a run.

use hartline_abi::report::ExitReport;
use hartline_linux::syscall::find;
use hartline_vmm::devices::DeviceStatistics;
use hartline_vmm::live::exits_per_operation;
use hartline_vmm::machine::Outcome;
use hartline_vmm::platform::Counters;
use hartline_vmm::{End, ExitReason, UserExits};
use std::io::{self, Write};
use std::time::Duration;

/// KVM's counters of a vCPU that make up its exits, with their meanings. Not every kind of KVM
/// counts all of them: counters that are 0 are not shown.
const EXITS: [(&str, &str); 7] = [
    ("insn_emulation", "emulated instructions"),
    ("io_exits", "port I/O exits"),
    ("mmio_exits", "MMIO exits"),
    ("halt_exits", "halts"),
    ("irq_exits", "host interrupts"),
    ("signal_exits", "signals"),
    ("pf_taken", "page faults"),
];

/// The source of the translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translation {
    /// All code was interpreted.
    Off,
    /// All of the translation is from the cache.
    Cached,
    /// This many functions were translated while the program ran.
    WhileRunning(usize),
}

/// A finished run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The outcome of the run.
    pub outcome: &'a Outcome,
    /// Time since the start of the command.
    pub wall: Duration,
    /// The source of the translation.
    pub translation: Translation,
}

impl Run<'_> {
    /// Prints the table to standard error.
    pub fn print_table(&self) {
        let Self { outcome, wall, .. } = *self;
        let mut lines = vec![
            ("wall time".to_owned(), milliseconds(wall)),
            ("boot time".to_owned(), milliseconds(outcome.boot_time)),
            ("run time".to_owned(), milliseconds(outcome.run_time)),
            ("translation".to_owned(), self.translation().to_owned()),
        ];
        if let Translation::WhileRunning(functions) = self.translation {
            let row = ("functions translated".to_owned(), functions.to_string());
            lines.push(row);
        }
        lines.extend(self.exits());
        for (device, rows) in outcome.devices.rows() {
            let row = |(name, n): (&str, u64)| (format!("{device} {}", words(name)), n.to_string());
            lines.extend(rows.into_iter().map(row));
        }
        if outcome.devices.any() {
            let (mode, delivered) = outcome.interrupts;
            lines.push(("interrupt mode".to_owned(), mode.to_string()));
            lines.push(("interrupts by vector".to_owned(), delivered.to_string()));
        }
        if outcome.volume_requests > 0 {
            let count = outcome.volume_requests.to_string();
            lines.push(("volume requests".to_owned(), count));
        }
        if let Some(each) = self.exits_per_packet() {
            lines.push(("exits per packet".to_owned(), format!("{each:.4}")));
        }
        if let End::Report(report) = &outcome.end {
            lines.extend([
                ("system calls".to_owned(), report.syscalls.to_string()),
                (
                    "interpreter entries".to_owned(),
                    report.interpreter_entries.to_string(),
                ),
                (
                    "interpreted instructions".to_owned(),
                    report.interpreted.to_string(),
                ),
                (
                    "peak memory".to_owned(),
                    format!("{} KiB", report.peak_memory >> 10),
                ),
            ]);
            if report.compared + report.not_compared != 0 {
                let counts = format!(
                    "{} of {}",
                    report.compared,
                    report.compared + report.not_compared
                );
                lines.push(("translated code compared".to_owned(), counts));
            }
            if report.schedule != 0 {
                let digest = format!("{:016x}", report.schedule);
                lines.push(("schedule".to_owned(), digest));
            }
            lines.extend(missing(report).map(|(number, count)| {
                (
                    format!("missing system call {}", call_name(number)),
                    format!("{count} times"),
                )
            }));
        }
        let mut text = String::new();
        for (what, value) in lines {
            text.push_str(&format!("{what:<26}{value:>16}\n"));
        }
        // A closed standard error is no reason to fail.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Rows about exits.
    fn exits(&self) -> Vec<(String, String)> {
        let row = |(what, count): (&str, u64)| (what.to_owned(), count.to_string());
        let exits = self.exits_of_all();
        let mut rows = vec![
            row(("host calls", exits.by(ExitReason::Call))),
            row(("kicks", exits.by(ExitReason::Kick))),
            row((
                "interruptions by the VMM",
                exits.by(ExitReason::Interruption),
            )),
        ];
        if exits.by(ExitReason::Device) > 0 {
            rows.push(row(("device accesses", exits.by(ExitReason::Device))));
        }
        if self.outcome.exits.len() > 1 {
            rows.extend([
                row(("vCPU sleeps", exits.by(ExitReason::Sleep))),
                row(("vCPU wake-ups", exits.by(ExitReason::Wake))),
                row(("vCPU yields", exits.by(ExitReason::Yield))),
            ]);
            let each = self.outcome.exits.iter().enumerate();
            rows.extend(each.map(|(cpu, exits)| {
                let what = format!("exits to the VMM, vCPU {cpu}");
                (what, exits.total().to_string())
            }));
        }
        if let Some([vcpu, _]) = &self.outcome.counters {
            rows.insert(0, row(("exits from the guest", vcpu.get("exits"))));
            let counted = EXITS.map(|(name, what)| (what, vcpu.get(name)));
            rows.extend(counted.into_iter().filter(|(_, count)| *count > 0).map(row));
        }
        rows
    }

    /// Exits without the host's own interrupts, for each packet of the network.
    fn exits_per_packet(&self) -> Option<f64> {
        let network = self.outcome.devices.net()?;
        let [vcpu, _] = self.outcome.counters.as_ref()?;
        let packets = network.received_packets + network.sent_packets;
        exits_per_operation(vcpu.get("exits"), vcpu.get("irq_exits"), packets)
    }

    fn exits_of_all(&self) -> UserExits {
        let each = self.outcome.exits.iter().copied();
        each.fold(UserExits::default(), UserExits::plus)
    }

    /// Prints one JSON object to standard error. Times are seconds.
    ///
    /// # Errors
    /// None in practice: the object is made of numbers.
    pub fn print_json(&self) -> serde_json::Result<()> {
        let Self { outcome, wall, .. } = *self;
        let counters = |index: usize| {
            let all = outcome.counters.as_ref().map(|both| both[index].iter());
            all.into_iter()
                .flatten()
                .collect::<std::collections::BTreeMap<_, _>>()
        };
        let vcpus = outcome.exits.iter().map(exits_json);
        let mut object = serde_json::json!({
            "wall_s": wall.as_secs_f64(),
            "boot_s": outcome.boot_time.as_secs_f64(),
            "run_s": outcome.run_time.as_secs_f64(),
            "translation": self.translation(),
            "functions_translated": match self.translation {
                Translation::WhileRunning(functions) => functions,
                _ => 0,
            },
            "exits": exits_json(&self.exits_of_all()),
            "vcpus": vcpus.collect::<Vec<_>>(),
            "volume_requests": outcome.volume_requests,
            "vcpu": counters(0),
            "vm": counters(1),
        });
        add_devices(&mut object, &outcome.devices);
        if let Some(each) = self.exits_per_packet() {
            object["net"]["exits_per_packet"] = each.into();
        }
        if outcome.devices.any() {
            let (mode, delivered) = outcome.interrupts;
            object["interrupts"] = serde_json::json!({
                "mode": mode,
                "raised": outcome.devices.interrupts(),
                "delivered_by_vector": delivered,
            });
        }
        if let End::Report(report) = &outcome.end {
            let missing: Vec<_> = missing(report)
                .map(|(number, count)| {
                    let name = find(number.into()).map(|call| call.name);
                    serde_json::json!({ "number": number, "name": name, "count": count })
                })
                .collect();
            object["syscalls"] = report.syscalls.into();
            object["interpreter_entries"] = report.interpreter_entries.into();
            object["interpreted"] = report.interpreted.into();
            object["compared"] = report.compared.into();
            object["not_compared"] = report.not_compared.into();
            object["schedule"] = format!("{:016x}", report.schedule).into();
            object["peak_memory"] = report.peak_memory.into();
            object["missing_syscalls"] = missing.into();
        }
        let text = serde_json::to_string(&object)?;
        // A closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "{text}");
        Ok(())
    }

    fn translation(&self) -> &'static str {
        match self.translation {
            Translation::Off => "none",
            Translation::Cached => "cached",
            Translation::WhileRunning(_) => "while running",
        }
    }
}

/// Prints the costs of a running VM so far, as one JSON object, to standard error.
pub fn print_running(vcpus: &Counters, devices: &DeviceStatistics) {
    let mut object = serde_json::json!({
        "vcpu": vcpus.iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    add_devices(&mut object, devices);
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "{object}");
}

/// Adds an object for each device.
fn add_devices(object: &mut serde_json::Value, devices: &DeviceStatistics) {
    for (device, rows) in devices.rows() {
        let rows = rows
            .into_iter()
            .map(|(name, n)| (name.to_owned(), n.into()));
        object[device] = rows.collect::<serde_json::Map<_, _>>().into();
    }
}

fn missing(report: &ExitReport) -> impl Iterator<Item = (u32, u32)> {
    report
        .missing_syscalls
        .iter()
        .filter(|entry| entry[1] > 0)
        .map(|entry| (entry[0], entry[1]))
}

/// The name of a system call, or its number if Linux has none.
fn call_name(number: u32) -> String {
    let name = find(number.into()).map(|call| call.name.to_owned());
    name.unwrap_or_else(|| number.to_string())
}

/// The name of a counter as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn exits_json(exits: &UserExits) -> serde_json::Value {
    serde_json::json!({
        "calls": exits.by(ExitReason::Call),
        "kicks": exits.by(ExitReason::Kick),
        "interruptions": exits.by(ExitReason::Interruption),
        "sleeps": exits.by(ExitReason::Sleep),
        "wakes": exits.by(ExitReason::Wake),
        "yields": exits.by(ExitReason::Yield),
        "devices": exits.by(ExitReason::Device),
    })
}
