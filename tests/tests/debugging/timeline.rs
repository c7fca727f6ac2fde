//! The time line of a run (`--trace`), read by the field numbers of Perfetto's messages.

use super::{O2, SEGV};
use hartline_tests::compile::{self, VARIANTS};
use hartline_tests::dynamic::Root;
use hartline_tests::process::{self, Outcome};
use hartline_tests::protobuf::{Field, fields, message, number, text};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, paths};
use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// A slice or an instant.
#[derive(Debug, Clone)]
struct Event {
    name: String,
    /// Names of its track and of the track's parent.
    track: [String; 2],
    start: u64,
    /// `None`: it has not ended.
    end: Option<u64>,
    values: HashMap<String, u64>,
}

/// The name of a track by its descriptor.
fn track_name(descriptor: &[Field<'_>]) -> Result<String> {
    for (message_field, name_field) in [(3, 6), (4, 5)] {
        if let Some(inner) = message(descriptor, message_field) {
            return Ok(text(&fields(inner)?, name_field));
        }
    }
    Ok(text(descriptor, 2))
}

/// The values of an event.
fn values(event: &[Field<'_>]) -> Result<Vec<(String, u64)>> {
    let mut values = Vec::new();
    for &(_, _, annotation) in event.iter().filter(|field| field.0 == 4) {
        let annotation = fields(annotation)?;
        let value = [3, 4, 7].into_iter().find_map(|n| number(&annotation, n));
        values.push((text(&annotation, 10), value.unwrap_or(0)));
    }
    Ok(values)
}

/// The events of a time line. Slices of a track must not overlap.
fn events(file: &[u8]) -> Result<Vec<Event>> {
    let mut tracks: HashMap<u64, (String, u64)> = HashMap::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut events: Vec<Event> = Vec::new();
    let mut ends: HashMap<u64, u64> = HashMap::new();
    for (field, _, packet) in fields(file)? {
        if field != 1 {
            return Err(format!("field {field} of the trace").into());
        }
        let packet = fields(packet)?;
        if let Some(descriptor) = message(&packet, 60) {
            let descriptor = fields(descriptor)?;
            let uuid = number(&descriptor, 1).ok_or("a track without a number")?;
            let parent = number(&descriptor, 5).unwrap_or(0);
            tracks.insert(uuid, (track_name(&descriptor)?, parent));
            continue;
        }
        let time = number(&packet, 8).ok_or("no time")?;
        let event = fields(message(&packet, 11).ok_or("an unknown packet")?)?;
        let track = number(&event, 11).ok_or("no track")?;
        let (name, parent) = tracks.get(&track).ok_or("an event before its track")?;
        let parent = tracks.get(parent).map_or("", |parent| &parent.0);
        let kind = number(&event, 9).ok_or("no type")?;
        match kind {
            1 | 3 => {
                if ends.get(&track).is_some_and(|&end| time < end) {
                    return Err(format!("slices of {name} overlap").into());
                }
                let begun = Event {
                    name: text(&event, 23),
                    track: [name.clone(), parent.to_owned()],
                    start: time,
                    end: (kind == 3).then_some(time),
                    values: values(&event)?.into_iter().collect(),
                };
                events.push(begun);
                if kind == 1 && open.insert(track, events.len() - 1).is_some() {
                    return Err(format!("slices of {name} overlap").into());
                }
            }
            2 => {
                let begun = open.remove(&track).ok_or("an end without a begin")?;
                let begun = &mut events[begun];
                if time < begun.start {
                    return Err(format!("ends before its start: {begun:?}").into());
                }
                begun.end = Some(time);
                begun.values.extend(values(&event)?);
                ends.insert(track, time);
            }
            kind => return Err(format!("type {kind}").into()),
        }
    }
    Ok(events)
}

/// Runs a command with `--trace` and reads the file.
fn trace(command: impl FnOnce(&str) -> Result<Command>) -> Result<(Outcome, Vec<Event>)> {
    let folder = Scratch::new()?;
    let file = folder.path().join("trace");
    let outcome = process::run(&mut command(&file.to_string_lossy())?, b"")?;
    let events = events(&fs::read(&file)?).map_err(|error| format!("{error:?}; {outcome:?}"))?;
    Ok((outcome, events))
}

/// The events with this name below a track of this name.
fn named<'a>(events: &'a [Event], parent: &str, name: &str) -> Vec<&'a Event> {
    let fits = |event: &&Event| event.name == name && event.track[1] == parent;
    events.iter().filter(fits).collect()
}

/// System calls, what vCPUs run, and exits: a parent waits for its child.
pub fn calls() -> Result<()> {
    let program = compile::crash(O2)?;
    let (outcome, events) = trace(|file| {
        let mut command = hartline::command("run")?;
        command.args(["--cpus", "2", "--trace", file, "--"]);
        command.arg(&program).arg("child");
        Ok(command)
    })?;
    if outcome.code != 21 || !outcome.stderr.is_empty() {
        return Err(format!("{outcome:?}").into());
    }
    let [fork] = named(&events, "O2", "clone")[..] else {
        return Err(format!("not one clone: {events:#?}").into());
    };
    let [wait] = named(&events, "O2", "wait4")[..] else {
        return Err(format!("not one wait4: {events:#?}").into());
    };
    let child = fork.values.get("result");
    let is_child = |event: &&Event| event.values.get("tid") == child;
    let run = events.iter().find(|e| e.track[1] == "vCPUs" && is_child(e));
    let run = run.ok_or_else(|| format!("the child does not run: {events:#?}"))?;
    let checks = [
        (
            "child",
            child.is_some_and(|&pid| pid > 1) && wait.values.get("result") == child,
        ),
        (
            "order",
            fork.start < run.start && Some(run.start) < wait.end,
        ),
        (
            "arguments",
            wait.values.get("a0") == Some(&u64::MAX) && wait.values.len() == 5,
        ),
        ("end", named(&events, "O2", "exit_group").len() == 1),
        ("exits", !named(&events, "VM exits", "call").is_empty()),
        (
            "names",
            events
                .iter()
                .any(|e| e.name == "O2" && e.track[0] == "vCPU 0"),
        ),
    ];
    match checks.iter().find(|(_, holds)| !holds) {
        None => Ok(()),
        Some((what, _)) => Err(format!("{what}: {events:#?}").into()),
    }
}

/// Signals that handlers get.
pub fn signals() -> Result<()> {
    let program = compile::crash(O2)?;
    let (outcome, events) = trace(|file| {
        let mut command = hartline::command("run")?;
        command.args(["--trace", file, "--"]).arg(&program);
        command.arg("two-handlers");
        Ok(command)
    })?;
    let signals = named(&events, "O2", "signal").into_iter();
    let numbers = signals.filter_map(|event| event.values.get("signal").copied());
    let numbers: Vec<u64> = numbers.collect();
    // Then a fault ends the program.
    match outcome.code == 128 + SEGV && numbers.starts_with(&[10, 12]) {
        true => Ok(()),
        false => Err(format!("{numbers:?}: {outcome:?}").into()),
    }
}

/// Both translators, with the number of instructions that they translated.
pub fn translations() -> Result<()> {
    let program = compile::programs(VARIANTS[1])?;
    let cache = Scratch::new()?;
    let (outcome, events) = trace(|file| {
        let mut command = hartline::command("run")?;
        command.env("HARTLINE_CACHE", cache.path());
        command.args(["--trace", file, "--"]).arg(&program);
        command.args(["hotspots", "20000"]);
        Ok(command)
    })?;
    let instructions = |tier: &str| {
        let all = named(&events, "translations", tier).into_iter();
        let counts = all.filter_map(|event| event.values.get("instructions"));
        counts.sum::<u64>()
    };
    let counts = ["baseline", "LLVM"].map(instructions);
    match outcome.code == 0 && counts.iter().all(|&count| count > 10) {
        true => Ok(()),
        false => Err(format!("{counts:?}: {outcome:?} {events:#?}").into()),
    }
}

/// Packets of the network and block requests.
pub fn devices() -> Result<()> {
    let root = Root::new("timeline", ["dash"].into_iter())?;
    fs::copy(paths::busybox(), root.path().join("usr/bin/busybox"))?;
    let disk = Scratch::new()?;
    let image = disk.path().join("disk");
    fs::write(&image, vec![7; 1 << 20])?;
    let volume = format!("{}:/dev/vda", image.display());
    let script = "busybox dd if=/dev/vda of=/dev/null bs=65536 count=4 && \
                  busybox dd if=/dev/zero of=/dev/vda bs=4096 count=1 seek=9 conv=fsync && \
                  busybox ping -c 1 -W 5 10.0.2.2";
    let run = root.run("busybox", &["sh", "-c", script]);
    let (outcome, events) =
        trace(|file| run.hartline_command(&["--net", "user", "-v", &volume, "--trace", file]))?;
    let bytes = |name: &str| {
        let all = named(&events, "block requests", name).into_iter();
        all.filter_map(|e| e.values.get("bytes")).sum::<u64>()
    };
    let packets = |track: &str| {
        let lengths = events.iter().filter(|e| e.track[0] == track);
        lengths
            .filter(|e| e.values.get("bytes").is_some_and(|&n| n >= 42))
            .count()
    };
    let writes = named(&events, "block requests", "write");
    let checks = [
        ("reads", bytes("read") >= 4 * 65536),
        (
            "writes",
            writes.iter().any(|e| e.values.get("sector") == Some(&72)),
        ),
        (
            "flushes",
            !named(&events, "block requests", "flush").is_empty(),
        ),
        ("RX", packets("RX packets") >= 1),
        ("TX", packets("TX packets") >= 1),
    ];
    match checks.iter().find(|(_, holds)| !holds) {
        None => Ok(()),
        Some((what, _)) => Err(format!("{what}: {outcome:?} {events:#?}").into()),
    }
}

/// A file that cannot be made is an error before the program starts; a full device is one at the end.
pub fn errors() -> Result<()> {
    let program = compile::crash(O2)?;
    for (file, code) in [("/nowhere/trace", 125), ("/dev/full", 125)] {
        let mut command = hartline::command("run")?;
        command.args(["--trace", file, "--"]);
        let outcome = process::run(command.arg(&program).arg("nothing"), b"")?;
        let told = outcome.stderr_text();
        if outcome.code != code || !told.contains(&format!("--trace {file}: ")) {
            return Err(format!("{outcome:?}").into());
        }
    }
    Ok(())
}
