//! The process of the service, by the names that all of Prometheus' clients use.

use hartline_abi::layout::PAGE_SIZE;
use hartline_jail::USER_HZ;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Figures of this process (proc(5)).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Process {
    /// Processor time, seconds.
    processor: f64,
    threads: u64,
    /// Start, seconds since 1970.
    start: f64,
    /// Address space, bytes.
    virtual_memory: u64,
    /// Resident memory, bytes.
    memory: u64,
}

impl Process {
    /// Reads the figures from the contents of `/proc/PID/stat` and `/proc/stat`; `None`: they have
    /// another form.
    fn parse(stat: &str, host: &str) -> Option<Self> {
        // The name in parentheses may contain anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<u64> = fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |index: usize| fields.get(index).copied();
        let boot = host.lines().find_map(|line| line.strip_prefix("btime "))?;
        let seconds = |ticks: u64| ticks as f64 / USER_HZ as f64;
        Some(Self {
            processor: seconds(field(11)?.saturating_add(field(12)?)),
            threads: field(17)?,
            start: boot.trim().parse::<f64>().ok()? + seconds(field(19)?),
            virtual_memory: field(20)?,
            memory: field(21)?.saturating_mul(PAGE_SIZE),
        })
    }

    fn read() -> Option<Self> {
        let read = |path| fs::read_to_string(path).ok();
        Self::parse(&read("/proc/self/stat")?, &read("/proc/stat")?)
    }
}

/// Registers the figures that the host tells.
pub(super) fn register(registry: &mut Registry) {
    if let Some(process) = Process::read() {
        let processor = ConstCounter::new(process.processor);
        let help = "Processor time of the service, in user and kernel mode";
        registry.register("process_cpu_seconds", help, processor);
        let start = ConstGauge::new(process.start);
        let help = "Start of the service, in seconds since 1970";
        registry.register("process_start_time_seconds", help, start);
        for (name, help, value) in [
            ("process_threads", "Threads of the service", process.threads),
            (
                "process_virtual_memory_bytes",
                "Address space of the service",
                process.virtual_memory,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory of the service",
                process.memory,
            ),
        ] {
            registry.register(name, help, ConstGauge::new(value));
        }
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        let files = ConstGauge::new(files.count() as u64);
        let help = "Open file descriptors of the service";
        registry.register("process_open_fds", help, files);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "Most file descriptors that the service may have";
        registry.register("process_max_fds", help, ConstGauge::new(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_base_units() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 5 6 20 0 7 0 1000 \
            8192000 25 18446744073709551615 1 1";
        let process = Process::parse(stat, "cpu 1 2\nbtime 1700000000\nprocesses 9\n");
        let expected = Process {
            processor: 2.0,
            threads: 7,
            start: 1_700_000_010.0,
            virtual_memory: 8_192_000,
            memory: 25 * 4096,
        };
        assert_eq!(process, Some(expected));
        assert_eq!(Process::parse("42 (a) S 1", "btime 1"), None);
        assert!(Process::read().is_some_and(|own| own.threads > 0 && own.memory > 0));
    }
}
