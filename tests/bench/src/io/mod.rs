//! `hartline bench io`: runs a Debian server in each configuration, and its client on this machine,
//! in a network namespace of the benchmark.

mod pin;
mod place;
mod plot;
mod results;
mod server;
mod workload;

use super::versions;
use anyhow::{Context, bail};
use pin::Pin;
use place::Place;
use results::{Results, Row};
use server::{Programs, Server};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workload::Workload;

/// Arguments of `hartline bench io`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Run only the workloads whose names contain this word (repeatable)
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Measure each workload for this many seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Let host and guest poll the rings for at most this time before they sleep, in the
    /// configuration exitless: `poll=` of `--net`
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    poll: u32,
    /// Leave the placement of threads to the scheduler. Otherwise the vCPU, or a server outside a
    /// VM, runs on the first CPU of the affinity mask; the client and the VM's other threads run on
    /// the last
    #[arg(long)]
    no_pin: bool,
    /// Draw the ratios to native into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// How the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// The x86-64 program, in a separate network namespace behind a veth pair.
    Native,
    /// The riscv64 program under qemu-riscv64, in such a namespace too.
    Qemu,
    /// In a VM behind a TAP interface, as KVM does it by itself: KVM injects each interrupt, and
    /// neither side polls.
    Injected,
    /// In a VM behind a TAP interface, where host and guest poll.
    Exitless,
    /// As `Exitless`, without busy polling.
    ExitlessNoPoll,
}

impl Configuration {
    const ALL: [Self; 5] = [
        Self::Native,
        Self::Qemu,
        Self::Injected,
        Self::Exitless,
        Self::ExitlessNoPoll,
    ];

    /// Returns whether the server runs in a VM.
    const fn is_vm(self) -> bool {
        matches!(self, Self::Injected | Self::Exitless | Self::ExitlessNoPoll)
    }

    /// Returns the name in the results.
    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Qemu => "qemu",
            Self::Injected => "injected",
            Self::Exitless => "exitless",
            Self::ExitlessNoPoll => "exitless_nopoll",
        }
    }
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// Not root, a program is missing, or a server or client fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let pin = match arguments.no_pin {
        true => None,
        false => Pin::new().context("sched_getaffinity")?,
    };
    let programs = Programs::open(&arguments.programs, pin)?;
    let versions = versions::read(&arguments.programs, &["network"])?;
    let chosen = |workload: &Workload| {
        let filter = &arguments.filter;
        filter.is_empty() || filter.iter().any(|word| workload.name().contains(word))
    };
    let workloads: Vec<_> = Workload::ALL.into_iter().filter(chosen).collect();
    if workloads.is_empty() {
        bail!("--filter: no workload of that name");
    }
    // Opened before the measurements, so that an invalid path is reported at once.
    let plot = match &arguments.plot {
        Some(path) => Some(File::create(path).with_context(|| path.display().to_string())?),
        None => None,
    };
    place::enter_namespace().context("a network namespace: are you root?")?;
    let time = Duration::from_secs(arguments.seconds.into());
    let mut rows = Vec::new();
    for workload in workloads {
        for configuration in Configuration::ALL {
            let place = Place::new(configuration, arguments.poll)?;
            let row = measure(&programs, workload, configuration, &place, time)
                .with_context(|| format!("{}, {}", workload.name(), configuration.name()))?;
            // A closed standard error is not a failure.
            let _ = writeln!(io::stderr(), "{}", row.line());
            rows.push(row);
        }
    }
    let results = Results::new(rows, versions);
    if let Some(mut file) = plot {
        file.write_all(results.plot()?.as_bytes())
            .context("--plot")?;
    }
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{}", results.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(
    programs: &Programs,
    workload: Workload,
    configuration: Configuration,
    place: &Place,
    time: Duration,
) -> anyhow::Result<Row> {
    let mut server = Server::start(programs, workload, configuration, place)?;
    place.finish(server.id())?;
    server.go()?;
    workload.await_server(place.address())?;
    // The warm-up is not measured.
    workload.warm_up(programs, place.address())?;
    let before = server.usage()?;
    let measured = workload.run(programs, place.address(), time)?;
    let after = server.usage()?;
    Ok(Row::new(workload, configuration, measured, before, after))
}
