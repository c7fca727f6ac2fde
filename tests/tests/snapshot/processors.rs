//! Programs that go on where translated code may use other instruction-set extensions: on a host with another
//! processor, whose cache directory has other results of the probe.

use super::{Place, Running, from, until};
use hartline_tests::compare::Run;
use hartline_tests::compile::{self, VARIANTS};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, process};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file of a cache directory that says which extensions work (`vmm/core/src/probe/cache.rs`).
const PROBE: &str = "probe.json";
/// Code that the program makes, in loops and in turn with other code, and floating-point numbers.
const PROGRAM: [&str; 2] = ["hot", "300"];

/// The host that continues the snapshot has no extensions.
pub fn fewer() -> Result<()> {
    let processors = Processors::new()?;
    processors.check(&processors.all, &processors.none)
}

/// The host that has written the snapshot has no extensions.
pub fn more() -> Result<()> {
    let processors = Processors::new()?;
    processors.check(&processors.none, &processors.all)
}

/// Cache directories of hosts with different processors.
struct Processors {
    _folder: Scratch,
    place: Place,
    run: Run,
    /// All extensions of this processor.
    all: PathBuf,
    /// No extensions.
    none: PathBuf,
}

impl Processors {
    fn new() -> Result<Self> {
        let folder = Scratch::new()?;
        let [all, none] = ["all", "none"].map(|name| folder.path().join(name));
        let run = Run::new(&compile::programs(VARIANTS[1])?, PROGRAM);
        let small = Run::new(&run.program, ["hot", "0"]);
        process::run(&mut within(small.hartline_command(&[])?, &all), b"")?;
        fs::create_dir(&none)?;
        fs::write(
            none.join(PROBE),
            without_extensions(&fs::read(all.join(PROBE))?)?,
        )?;
        Ok(Self {
            _folder: folder,
            place: Place::new()?,
            run,
            all,
            none,
        })
    }

    /// Writes a snapshot with one cache directory, and continues it with the other one.
    fn check(&self, writer: &Path, reader: &Path) -> Result<()> {
        let probed = |cache: &Path| fs::read(cache.join(PROBE));
        let before = (probed(writer)?, probed(reader)?);
        let command = self
            .place
            .writing_of(&self.run, "one", "signal", &["--snapshot-end"])?;
        let mut running = Running::start(&mut within(command, writer))?;
        running.expect_line("loops: 0 wrong")?;
        running.signal(libc::SIGUSR2)?;
        let snapshot = self.place.path("one");
        until("a snapshot", || snapshot.exists())?;
        let first = running.rest()?;
        let second = process::run(&mut within(from(&snapshot, &[])?, reader), b"")?;
        let told = format!("loops: 0 wrong\n{first}{}", second.stdout_text());
        let expected = self.run.reference()?;
        if second.code != expected.code
            || told != expected.stdout_text()
            || !second.stderr.is_empty()
        {
            return Err(format!("{told:?}, {second:?}").into());
        }
        // The results of the probe were taken, and not those of another one.
        match (probed(writer)?, probed(reader)?) == before {
            true => Ok(()),
            false => Err("hartline has probed again".into()),
        }
    }
}

fn within(mut command: Command, cache: &Path) -> Command {
    command.env("HARTLINE_CACHE", cache);
    command
}

/// The results of a probe on a host where no extension works.
fn without_extensions(probe: &[u8]) -> Result<Vec<u8>> {
    let mut probe: Value = serde_json::from_slice(probe)?;
    let mut hash = Sha256::new();
    let version = probe["version"].as_u64().ok_or("no version")?;
    hash.update(u32::try_from(version)?.to_le_bytes());
    hash.update(probe["host"].as_str().ok_or("no host")?);
    let findings = probe["features"]["findings"].as_array_mut();
    for finding in findings.ok_or("no findings")? {
        let reason = "invalid opcode";
        finding["works"] = false.into();
        finding["reason"] = reason.into();
        let name = finding["name"].as_str().ok_or("no name")?;
        for text in ["\0", name, "\0", "fails", "\0", reason] {
            hash.update(text);
        }
    }
    let sum = hash.finalize();
    probe["checksum"] = sum
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        .into();
    Ok(serde_json::to_vec(&probe)?)
}
