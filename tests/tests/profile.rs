//! Profiles of running programs: `--profile` and `--perf-map`.

use hartline_tests::compare::Run;
use hartline_tests::compile::{self, VARIANTS, Variant};
use hartline_tests::process::{self, Outcome};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::process::ExitCode;

const O2: Variant = VARIANTS[1];
const STRIPPED: Variant = VARIANTS[2];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("profile: functions and their callers", named);
    suite.add_kvm("profile: first run", first_run);
    suite.add_kvm("profile: stripped program", stripped);
    suite.add_kvm("profile: interpreted", interpreted);
    suite.add_kvm("perf map: every function once", perf_map);
    suite.run()
}

/// A profile: call stacks, outermost function first, with their share of the time.
struct Profile {
    shares: HashMap<Vec<String>, f64>,
    samples: usize,
}

/// Runs a program with `--profile` and reads the file, checking it against speedscope's schema.
fn profile(run: &Run, options: &[&str]) -> Result<Profile> {
    profile_of(|file| run.hartline(&[options, &["--profile", file]].concat()))
}

/// As [`profile`], of what `run` does with the path of the file.
fn profile_of(run: impl FnOnce(&str) -> Result<Outcome>) -> Result<Profile> {
    let folder = Scratch::new()?;
    let file = folder.path().join("profile.json");
    let outcome = run(&file.to_string_lossy())?;
    if outcome.code != 0 {
        return Err(format!("{outcome:?}").into());
    }
    let json: Value = serde_json::from_slice(&fs::read(&file)?)?;
    if json["$schema"] != "https://www.speedscope.app/file-format-schema.json" {
        return Err("no schema".into());
    }
    let names = json["shared"]["frames"].as_array().ok_or("no frames")?;
    let profile = &json["profiles"][0];
    if profile["type"] != "sampled" || profile["unit"] != "nanoseconds" {
        return Err("not a sampled profile".into());
    }
    let samples = profile["samples"].as_array().ok_or("no samples")?;
    let weights = profile["weights"].as_array().ok_or("no weights")?;
    let total = profile["endValue"].as_u64().ok_or("no end")?;
    let sum: u64 = weights.iter().filter_map(Value::as_u64).sum();
    if samples.len() != weights.len() || sum != total || profile["startValue"] != 0 {
        return Err("samples and weights do not agree".into());
    }
    let mut shares = HashMap::new();
    for (sample, weight) in samples.iter().zip(weights) {
        let mut stack = Vec::new();
        for frame in sample.as_array().ok_or("a sample is no list")? {
            let index = frame.as_u64().ok_or("a frame is no number")? as usize;
            let name = names.get(index).and_then(|frame| frame["name"].as_str());
            stack.push(name.ok_or("a frame has no name")?.to_owned());
        }
        let weight = weight.as_u64().ok_or("a weight is no number")?;
        *shares.entry(stack).or_insert(0.0) += weight as f64 / total as f64;
    }
    Ok(Profile {
        shares,
        samples: samples.len(),
    })
}

impl Profile {
    /// Returns the share of the time in stacks that end with these functions.
    fn share(&self, end: &[&str]) -> f64 {
        let ends = |stack: &Vec<String>| {
            stack.len() >= end.len() && stack[stack.len() - end.len()..] == *end
        };
        let shares = self.shares.iter().filter(|(stack, _)| ends(stack));
        shares.map(|(_, share)| share).sum()
    }

    fn check(&self, end: &[&str], expected: f64) -> Result<()> {
        let share = self.share(end);
        match (share - expected).abs() < 0.1 {
            true => Ok(()),
            false => Err(format!("{end:?} has {share:.2}: {:?}", self.shares).into()),
        }
    }

    fn has_samples(&self, least: usize) -> Result<()> {
        match self.samples >= least {
            true => Ok(()),
            false => Err(format!("only {} samples", self.samples).into()),
        }
    }
}

fn hotspots(variant: Variant, rounds: &str) -> Result<Run> {
    Ok(Run::new(&compile::programs(variant)?, ["hotspots", rounds]))
}

fn named() -> Result<()> {
    let profile = profile(&hotspots(O2, "8000")?, &[])?;
    profile.has_samples(200)?;
    for (function, share) in [("three_quarters", 0.75), ("one_quarter", 0.25)] {
        profile.check(&["main", "rounds", function], share)?;
    }
    // The stack is complete: from the first frame to the last.
    let whole = |stack: &Vec<String>| stack[0] == "_start" && stack.contains(&"main".to_owned());
    match profile.shares.keys().any(whole) {
        true => Ok(()),
        false => Err(format!("no whole stack: {:?}", profile.shares).into()),
    }
}

/// In a first run, functions run in images that are only in memory, mostly the baseline
/// translator's. They have names too.
fn first_run() -> Result<()> {
    let cache = Scratch::new()?;
    let program = compile::programs(O2)?;
    let profile = profile_of(|file| {
        let mut command = hartline::command("run")?;
        command.env("HARTLINE_CACHE", cache.path());
        command.args(["--baseline", "only", "--profile", file, "--"]);
        command.arg(&program).args(["hotspots", "8000"]);
        process::run(&mut command, b"")
    })?;
    profile.has_samples(200)?;
    for (function, share) in [("three_quarters", 0.75), ("one_quarter", 0.25)] {
        profile.check(&[function], share)?;
    }
    Ok(())
}

/// Without symbols, functions are named after their addresses.
fn stripped() -> Result<()> {
    let profile = profile(&hotspots(STRIPPED, "8000")?, &["--profile-period", "2.5"])?;
    profile.has_samples(80)?;
    let mut shares = HashMap::new();
    for (stack, share) in &profile.shares {
        let function = stack.last().ok_or("an empty stack")?;
        if !function.starts_with("sub_") {
            return Err(format!("{function} in a program without symbols").into());
        }
        *shares.entry(function).or_insert(0.0) += share;
    }
    let mut shares: Vec<f64> = shares.into_values().collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    match shares[..] {
        [first, second, ..] if (first - 0.75).abs() < 0.1 && (second - 0.25).abs() < 0.1 => Ok(()),
        _ => Err(format!("{shares:?}").into()),
    }
}

fn interpreted() -> Result<()> {
    let profile = profile(&hotspots(O2, "100")?, &["--interpret"])?;
    profile.has_samples(50)?;
    profile.check(&["three_quarters [interpreted]"], 0.75)?;
    profile.check(&["one_quarter [interpreted]"], 0.25)
}

/// The perf map has `start length name` lines, sorted and without overlaps, and every function of
/// the program.
fn perf_map() -> Result<()> {
    let folder = Scratch::new()?;
    let file = folder.path().join("map");
    let run = hotspots(O2, "1")?;
    let option = format!("--perf-map={}", file.display());
    let outcome = run.hartline(&[&option])?;
    if outcome.code != 0 {
        return Err(format!("{outcome:?}").into());
    }
    let map = fs::read_to_string(&file)?;
    let mut names = Vec::new();
    let mut end = 0;
    for line in map.lines() {
        let mut parts = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(parts.next().unwrap_or(""), 16);
        let (start, length) = (number()?, number()?);
        if start < end {
            return Err(format!("{line}: begins before the end of the one before").into());
        }
        end = start + length;
        let name = parts.next().ok_or("no name")?;
        names.push(name);
    }
    for name in [
        "rounds",
        "three_quarters",
        "one_quarter",
        "_start",
        "__printf",
    ] {
        if !names.contains(&name) {
            return Err(format!("no {name} in the map").into());
        }
    }
    if !names.iter().any(|name| name.starts_with("[runtime] ")) {
        return Err("nothing of the runtime".into());
    }
    // The map has as many functions as the image, which `inspect` counts.
    let inspected = hartline::command("inspect")?
        .arg("--json")
        .arg(&run.program)
        .output()?;
    let inspected: Value = serde_json::from_slice(&inspected.stdout)?;
    let functions = inspected["functions"]
        .as_u64()
        .ok_or("inspect tells no functions")?;
    // `name+offset` is an entry into the middle of a function, `name [adapter]` an entry that moves
    // registers for it.
    let whole = |name: &&&str| {
        !name.starts_with("[runtime] ") && !name.contains('+') && !name.ends_with(" [adapter]")
    };
    let entries = names.iter().filter(whole);
    match entries.count() as u64 == functions {
        true => Ok(()),
        false => Err(format!("{} lines, {functions} functions", map.lines().count()).into()),
    }
}
