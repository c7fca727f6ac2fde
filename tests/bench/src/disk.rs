//! `hartline bench disk`: compares 4 KiB reads at random offsets of a VM's disk with the same reads
//! by a native program.

use super::compute::progress;
use super::programs::{finish, last_line};
use super::results::{Ratio, median};
use anyhow::{Context, bail};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Arguments of `hartline bench disk`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object and no table
    #[arg(long)]
    json: bool,
    /// Do a hundredth of the reads and one run each, to check that everything works; the rates mean
    /// nothing
    #[arg(long)]
    quick: bool,
    /// Run each workload this many times in each way and take the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Make the disk's file in this directory, whose file system and storage are measured, and
    /// delete it afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Set the length of the file, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// The reads of a benchmark.
#[derive(Debug, Clone, Copy)]
struct Workload {
    name: &'static str,
    threads: u64,
    /// The number of reads of all threads in a run.
    reads: u64,
    /// Whether storage is measured: the host's page cache is empty before the run, and the native
    /// program reads with `O_DIRECT`.
    storage: bool,
}

const fn workload(name: &'static str, threads: u64, reads: u64, storage: bool) -> Workload {
    Workload {
        name,
        threads,
        reads,
        storage,
    }
}

const WORKLOADS: [Workload; 4] = [
    workload("storage, 1 thread", 1, 4_000, true),
    workload("storage, 8 threads", 8, 16_000, true),
    workload("page cache, 1 thread", 1, 100_000, false),
    workload("page cache, 8 threads", 8, 200_000, false),
];

/// The results of one workload. Rates are reads per second.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: &'static str,
    native_per_s: f64,
    hartline_per_s: f64,
    /// Hartline's rate divided by the native one.
    ratio: Ratio,
    /// Exits of the VM per read, of all kinds, including those of its start.
    exits: f64,
}

#[derive(Debug, serde::Serialize)]
struct Results {
    workloads: Vec<Row>,
}

/// Measures, and prints the results on standard output and progress on standard error.
///
/// # Errors
/// A program is missing or fails, or there is no room for the file.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let programs = Programs::open(&arguments.programs)?;
    let image = Image::new(&arguments.directory, arguments.size)?;
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let row = measure(&programs, &image, workload, arguments)
            .with_context(|| workload.name.to_owned())?;
        progress(&format!("{}: done", row.name));
        rows.push(row);
    }
    let results = Results { workloads: rows };
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{}", results.table())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs natively and under Hartline in turn, so that a disturbance of the machine affects both.
fn measure(
    programs: &Programs,
    image: &Image,
    workload: Workload,
    a: &Arguments,
) -> anyhow::Result<Row> {
    let (runs, reads) = match a.quick {
        true => (1, workload.reads / 100),
        false => (a.runs, workload.reads),
    };
    let workload = Workload { reads, ..workload };
    let (mut native, mut hartline, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        image.prepare(workload)?;
        native.push(programs.native(image, workload)?);
        image.prepare(workload)?;
        let (rate, count) = programs.hartline(image, workload)?;
        hartline.push(rate);
        exits.push(count / reads as f64);
    }
    Ok(Row {
        name: workload.name,
        native_per_s: median(&native),
        hartline_per_s: median(&hartline),
        ratio: Ratio::new(&hartline, &native),
        exits: median(&exits),
    })
}

impl Results {
    /// Formats a table.
    fn table(&self) -> String {
        let mut text = format!(
            "{:<22} {:>9} {:>10}  {:>15} {:<13} {:>8}\n",
            "4 KiB reads per second",
            "native",
            "hartline",
            "hartline/native",
            "lowest..highest",
            "exits"
        );
        for row in &self.workloads {
            let Ratio { value, low, high } = row.ratio;
            let range = format!("{low:.2}..{high:.2}");
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{:<22} {:>9.0} {:>10.0}  {value:>15.2} {range:<15} {:>8.3}",
                row.name, row.native_per_s, row.hartline_per_s, row.exits
            );
        }
        text
    }
}

/// The disk's file, which is deleted when this is dropped.
struct Image {
    path: PathBuf,
    file: File,
}

impl Image {
    /// Makes a file of `size` MiB whose contents the file system cannot store as holes.
    fn new(directory: &Path, size: u32) -> anyhow::Result<Self> {
        let path = directory.join(format!("hartline-bench-disk-{}", std::process::id()));
        let shown = || path.display().to_string();
        let mut file = File::create_new(&path).with_context(shown)?;
        let piece: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 4096 + 1) as u8).collect();
        let written = (0..size).try_for_each(|_| file.write_all(&piece));
        let image = Self { path, file };
        written.and_then(|()| image.file.sync_all())?;
        Ok(image)
    }

    /// Loads the whole file into the host's page cache, or drops it from there.
    fn prepare(&self, workload: Workload) -> anyhow::Result<()> {
        if !workload.storage {
            io::copy(&mut File::open(&self.path)?, &mut io::sink())?;
            return Ok(());
        }
        let (fd, advice) = (self.file.as_raw_fd(), libc::POSIX_FADV_DONTNEED);
        // SAFETY: no memory is involved.
        match unsafe { libc::posix_fadvise(fd, 0, 0, advice) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error).into()),
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Another process may have deleted the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// The C program (`tests/bench/disk.c`) for both architectures.
struct Programs {
    native: PathBuf,
    riscv64: PathBuf,
    hartline: PathBuf,
}

impl Programs {
    fn open(directory: &Path) -> anyhow::Result<Self> {
        let file = |architecture: &str| {
            let file = directory.join(architecture).join("disk");
            match file.is_file() {
                true => Ok(file),
                false => bail!(
                    "{}: missing (make bench-programs prepares it)",
                    file.display()
                ),
            }
        };
        let programs = Self {
            native: file("native")?,
            riscv64: file("riscv64")?,
            hartline: crate::beside("hartline")?,
        };
        // Translate now, so that no measured run does.
        let mut command = Command::new(&programs.hartline);
        output(command.args(["build", "--all"]).arg(&programs.riscv64))?;
        Ok(programs)
    }

    /// Returns the native program's reads per second.
    fn native(&self, image: &Image, workload: Workload) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.native);
        command.arg(&image.path).args(arguments(workload));
        if workload.storage {
            command.arg("direct");
        }
        number(&output(&mut command)?.0)
    }

    /// Returns the reads per second in a VM, and its exits.
    fn hartline(&self, image: &Image, workload: Workload) -> anyhow::Result<(f64, f64)> {
        let mut volume = image.path.clone().into_os_string();
        volume.push(":/dev/vda:ro");
        let mut command = Command::new(&self.hartline);
        command
            .args(["run", "--stats=json", "--volume"])
            .arg(volume);
        command.arg(&self.riscv64).arg("/dev/vda");
        let (rate, stats) = output(command.args(arguments(workload)))?;
        let stats: serde_json::Value = serde_json::from_str(&stats).context("--stats=json")?;
        let exits = stats["vcpu"]["exits"].as_f64();
        Ok((
            number(&rate)?,
            exits.context("KVM does not count exits here")?,
        ))
    }
}

fn arguments(workload: Workload) -> [String; 2] {
    let each = (workload.reads / workload.threads).max(1);
    [workload.threads.to_string(), each.to_string()]
}

/// Runs a command and returns its standard output and the last line of its standard error.
fn output(command: &mut Command) -> anyhow::Result<(String, String)> {
    let output = finish(command)?;
    let said = last_line(&output);
    if !output.status.success() {
        bail!("{:?}: {}: {said}", command.get_program(), output.status);
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

fn number(text: &str) -> anyhow::Result<f64> {
    let number = text.trim().parse();
    number.with_context(|| format!("it printed {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_json_have_all_figures() {
        let results = Results {
            workloads: vec![Row {
                name: "x",
                native_per_s: 1000.0,
                hartline_per_s: 900.0,
                ratio: Ratio::new(&[900.0], &[1000.0]),
                exits: 0.125,
            }],
        };
        let table = results.table();
        for part in ["1000", "900", "0.90", "0.90..0.90", "0.125"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert_eq!(
            serde_json::to_string(&results).unwrap(),
            r#"{"workloads":[{"name":"x","native_per_s":1000.0,"hartline_per_s":900.0,"ratio":{"value":0.9,"low":0.9,"high":0.9},"exits":0.125}]}"#
        );
    }
}
