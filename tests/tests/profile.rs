//! Profiles of running programs: `--profile`, `--perf-map` and `--jitdump`.

#[path = "profile/jitdump.rs"]
mod jitdump;

use hartline_tests::compare::Run;
use hartline_tests::compile::{self, VARIANTS, Variant};
use hartline_tests::process::{self, Outcome};
use hartline_tests::protobuf::{fields, message, number, packed};
use hartline_tests::suite::Suite;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::process::{Command, ExitCode};

const O2: Variant = VARIANTS[1];
const STRIPPED: Variant = VARIANTS[2];
/// With debug information.
const DEBUG: Variant = Variant {
    name: "O2-debug",
    flags: &["-O2", "-static", "-g"],
};
/// Lines of `hotspots.c` in the stack of most samples, the outermost one first: the inlined function is
/// the last one.
const LINES: [(&str, u64); 4] = [
    ("hotspots_main", 26),
    ("rounds", 20),
    ("three_quarters", 14),
    ("work", 10),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.add_kvm("profile: functions and their callers", named);
    suite.add_kvm("profile: first run", first_run);
    suite.add_kvm("profile: stripped program", stripped);
    suite.add_kvm("profile: interpreted", interpreted);
    suite.add_kvm("profile: lines and inlined functions", || lines(&[]));
    suite.add_kvm("profile: lines, interpreted", || lines(&["--interpret"]));
    suite.add_kvm("profile: for pprof", pprof);
    suite.add_kvm("profile: folded stacks", folded);
    suite.add_kvm("perf map: every function once", perf_map);
    suite.add_kvm("jitdump: functions and lines", jitdump::functions);
    suite.run()
}

/// A profile: call stacks, outermost function first, with their share of the time.
struct Profile {
    shares: HashMap<Vec<String>, f64>,
    samples: usize,
    /// Functions with the lines that they have in the profile.
    lines: BTreeSet<(String, String, u64)>,
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
        lines: names.iter().filter_map(line).collect(),
    })
}

/// Function, file and line of a frame.
fn line(frame: &Value) -> Option<(String, String, u64)> {
    let file = frame["file"].as_str()?.rsplit('/').next()?;
    let name = frame["name"].as_str()?;
    Some((name.to_owned(), file.to_owned(), frame["line"].as_u64()?))
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

/// Stacks of source functions, with the line of the call in each.
fn lines(options: &[&str]) -> Result<()> {
    let rounds = if options.is_empty() { "8000" } else { "100" };
    let options = [options, &["--profile-lines"]].concat();
    let profile = profile(&hotspots(DEBUG, rounds)?, &options)?;
    profile.has_samples(50)?;
    let last = match options.len() {
        1 => "work",
        _ => "work [interpreted]",
    };
    for (function, share) in [("three_quarters", 0.75), ("one_quarter", 0.25)] {
        profile.check(&["hotspots_main", "rounds", function, last], share)?;
    }
    for (function, line) in LINES {
        let is_it = |(name, file, number): &(String, String, u64)| {
            let is_function = *name == function || function == "work" && name == last;
            is_function && file == "hotspots.c" && *number == line
        };
        if !profile.lines.iter().any(is_it) {
            return Err(format!("no {function}:{line}: {:?}", profile.lines).into());
        }
    }
    Ok(())
}

/// Runs the program with a profile with lines in a file with this ending, and returns its contents.
fn profile_file(ending: &str) -> Result<Vec<u8>> {
    let folder = Scratch::new()?;
    let file = folder.path().join(format!("profile{ending}"));
    let options = ["--profile-lines", "--profile", &file.to_string_lossy()];
    let outcome = hotspots(DEBUG, "8000")?.hartline(&options)?;
    if outcome.code != 0 {
        return Err(format!("{outcome:?}").into());
    }
    Ok(fs::read(&file)?)
}

/// pprof's message, by the field numbers of its definition.
fn pprof() -> Result<()> {
    let compressed = profile_file(".pb.gz")?;
    let bytes = process::run(Command::new("gzip").arg("-dc"), &compressed)?.stdout;
    let profile = fields(&bytes)?;
    let all = |field: u64| {
        let of_field = profile.iter().filter(move |f| f.0 == field);
        of_field.map(|f| fields(f.2)).collect::<Result<Vec<_>>>()
    };
    let strings: Vec<String> = profile
        .iter()
        .filter(|f| f.0 == 6)
        .map(|f| String::from_utf8_lossy(f.2).into_owned())
        .collect();
    let string = |index: Option<u64>| strings[index.unwrap_or(0) as usize].clone();
    let types = all(1)?;
    let types: Vec<_> = types
        .iter()
        .map(|t| [string(number(t, 1)), string(number(t, 2))])
        .collect();
    let expected = [["samples", "count"], ["cpu", "nanoseconds"]];
    if !strings[0].is_empty() || types != expected {
        return Err(format!("types {types:?}").into());
    }
    let mut functions = HashMap::new();
    for function in all(5)? {
        functions.insert(number(&function, 1), string(number(&function, 2)));
    }
    let mut locations = HashMap::new();
    for location in all(4)? {
        let line = fields(message(&location, 4).ok_or("no line")?)?;
        let function = functions.get(&number(&line, 1)).ok_or("no function")?;
        let named = (function.clone(), number(&line, 2).unwrap_or(0));
        locations.insert(number(&location, 1).ok_or("no id")?, named);
    }
    let (mut time, mut total) = (0, 0);
    for sample in all(2)? {
        let value = packed(&sample, 2)?[1];
        let mut stack = Vec::new();
        // The innermost one is the first.
        for id in packed(&sample, 1)?.iter().rev() {
            stack.push(locations.get(id).ok_or("no location")?.clone());
        }
        total += value;
        let is_it = LINES.iter().all(|&(function, line)| {
            let mut lines = stack.iter().filter(|frame| frame.0 == function);
            function == "work" || lines.any(|frame| frame.1 == line)
        });
        time += if is_it { value } else { 0 };
    }
    let share = time as f64 / total as f64;
    match number(&profile, 10) == Some(total) && (share - 0.75).abs() < 0.1 {
        true => Ok(()),
        false => Err(format!("share {share}, total {total}: {locations:?}").into()),
    }
}

fn folded() -> Result<()> {
    let text = String::from_utf8(profile_file(".folded")?)?;
    let (mut time, mut total) = (0, 0);
    for line in text.lines() {
        let (stack, number) = line.rsplit_once(' ').ok_or(line)?;
        let number: u64 = number.parse()?;
        total += number;
        if stack.ends_with("hotspots_main;rounds;three_quarters;work") {
            time += number;
        }
    }
    let share = time as f64 / total as f64;
    match (share - 0.75).abs() < 0.1 {
        true => Ok(()),
        false => Err(format!("share {share}: {text}").into()),
    }
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
