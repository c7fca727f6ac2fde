//! Warm clones of a shell in this process.

mod common;
#[path = "common/shell.rs"]
mod shell;
#[path = "common/snapshot.rs"]
mod snapshot;

use common::has_kvm;
use hartline_abi::layout::PAGE_SIZE;
use hartline_embed::{
    CallError, Captures, Cause, ResetError, RunError, Streams, Template, TemplateError, WarmClone,
    input_of,
};
use shell::{PATIENCE, file, files, measure, run, template};
use snapshot::options;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{PipeReader, Read, Seek, Write, pipe};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

fn clone() -> WarmClone {
    WarmClone::start(&template()).unwrap()
}

/// Streams whose output and error are the same pipe.
fn piped(input: OwnedFd) -> (Streams, PipeReader) {
    let (reader, writer) = pipe().unwrap();
    let copy = writer.try_clone().unwrap();
    let streams = Streams {
        input: Some(input),
        outputs: [writer.into(), copy.into()],
        output_limit: u64::MAX,
    };
    (streams, reader)
}

#[test]
fn each_run_begins_in_the_state_of_the_snapshot() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    let script = "
        test -e /left && echo left
        test -n \"$LEFT\" && echo variable
        LEFT=1; echo $LEFT > /left
        echo $$ $! $(/busybox ls /proc | /busybox grep -c '^[0-9]')
        (while :; do :; done) & /busybox sleep 100 &
        cd /proc; echo wrong >&2; exit 7";
    let (first, outputs) = run(&clone, script);
    assert_eq!((first.code, &first.message[..]), (7, ""));
    assert_eq!(outputs[1], "wrong\n");
    assert!(outputs[0].starts_with("1 "), "{outputs:?}");
    for _ in 0..20 {
        let (end, again) = run(&clone, script);
        assert_eq!((end.code, again), (7, outputs.clone()));
        assert!(end.reset.pages > 0);
    }
    assert_eq!(clone.warnings(), [""; 0]);
}

#[test]
fn memory_is_that_of_the_snapshot_after_a_run() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    for script in [
        "echo x",
        "/busybox dd if=/dev/zero of=/big bs=1048576 count=60",
        "for i in 1 2 3 4 5 6 7 8 9; do /busybox sleep 9 & done; kill -SEGV $$",
        "while :; do X=$X$X.; done",
    ] {
        for _ in 0..3 {
            let streams = piped(file(script).into()).0;
            let (end, difference) = clone.run_and_compare(streams, PATIENCE).unwrap();
            assert_eq!(difference, None, "{script}: {end:?}");
        }
    }
}

#[test]
fn ends_have_their_codes() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    for (script, code, cause) in [
        ("exit 0", 0, Cause::Exited),
        ("exit 255", 255, Cause::Exited),
        ("exit 137", 137, Cause::Exited),
        ("kill -ABRT $$", 134, Cause::Signal(6)),
        ("kill -KILL $$", 137, Cause::Signal(9)),
        ("", 0, Cause::Exited),
        ("exec /busybox cat", 0, Cause::Exited),
        ("/busybox no-such-applet", 127, Cause::Exited),
    ] {
        for _ in 0..2 {
            let (end, _) = run(&clone, script);
            assert_eq!((end.code, end.cause), (code, cause), "{script}: {end:?}");
            // Of signals, only errors of the program have a message.
            let has_message = end.message.starts_with("/busybox: SIGABRT, at pc 0x");
            assert_eq!(has_message, cause == Cause::Signal(6), "{end:?}");
            assert!(has_message || end.message.is_empty(), "{end:?}");
        }
    }
}

#[test]
fn output_is_captured_in_memory() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    // More than the shortest file that the output is kept in.
    let script = b"i=0; while test $i -lt 15000; do echo $i; i=$((i+1)); done; echo wrong >&2";
    for (most, expected, error) in [
        ([0, 0], "", ""),
        ([12, 0], "14998\n14999\n", ""),
        ([1, 1000], "\n", "wrong\n"),
        ([6, 3], "14999\n", "ng\n"),
    ] {
        let captures = Captures::new(most).unwrap();
        let streams = captures.streams(Some(input_of(script).unwrap())).unwrap();
        assert_eq!(clone.run(streams, PATIENCE).unwrap().code, 0);
        let outputs = captures.take().unwrap();
        for ((output, text), (most, total)) in outputs
            .iter()
            .zip([expected, error])
            .zip(most.into_iter().zip([78_890, 6]))
        {
            assert_eq!(output.bytes, text.as_bytes(), "{most:?}");
            assert_eq!(output.total, if most == 0 { 0 } else { total });
        }
    }
}

#[test]
fn an_ended_clone_ends_runs_of_other_threads() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    thread::scope(|scope| {
        let spins = || clone.run(piped(file("while :; do :; done").into()).0, None);
        // One runs, and the other one waits for it.
        let threads = [scope.spawn(spins), scope.spawn(spins)];
        thread::sleep(Duration::from_millis(100));
        clone.end();
        for thread in threads {
            let error = thread.join().unwrap().unwrap_err();
            let is_ended = matches!(error, RunError::Ended(CallError::Ended(_)));
            assert!(is_ended, "{error}");
        }
    });
    clone.end();
}

#[test]
fn random_numbers_are_new() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    let script = "/busybox od -An -N16 -tx1 /dev/urandom; echo $RANDOM > /dev/null";
    let seen: BTreeSet<String> = (0..10).map(|_| run(&clone, script).1[0].clone()).collect();
    assert_eq!(seen.len(), 10, "{seen:?}");
    assert!(seen.iter().all(|text| text.trim().len() == 47), "{seen:?}");
}

#[test]
fn the_clock_goes_on() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    let seconds = |text: &str| text.trim().parse::<u64>().unwrap();
    let now = || {
        let since = std::time::UNIX_EPOCH.elapsed();
        since.unwrap().as_secs()
    };
    for _ in 0..3 {
        let before = now();
        let found = seconds(&run(&clone, "/busybox date +%s").1[0]);
        assert!((before..=now()).contains(&found), "{found} {before}");
        thread::sleep(Duration::from_millis(700));
    }
}

#[test]
fn a_run_takes_its_input_when_it_comes() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    for _ in 0..3 {
        let (input, mut keys) = pipe().unwrap();
        let (streams, mut output) = piped(input.into());
        thread::scope(|scope| {
            let end = scope.spawn(|| clone.run(streams, PATIENCE).unwrap());
            let mut byte = [0];
            for round in 0..5 {
                writeln!(keys, "echo {round}").unwrap();
                output.read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], b'0' + round);
                output.read_exact(&mut byte).unwrap();
            }
            writeln!(keys, "exit 3").unwrap();
            assert_eq!(end.join().unwrap().code, 3);
        });
        // The streams are closed.
        assert_eq!(output.read(&mut [0]).unwrap(), 0);
        assert!(keys.write_all(&[0; 1 << 20]).is_err());
    }
}

#[test]
fn all_output_arrives_before_the_end() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    for _ in 0..3 {
        let script = "i=0; while test $i -lt 20000; do echo 0123456789; i=$((i+1)); done; exit 5";
        let (streams, mut output) = piped(file(script).into());
        let end = thread::scope(|scope| {
            let end = scope.spawn(|| clone.run(streams, PATIENCE).unwrap());
            // A slow reader.
            thread::sleep(Duration::from_millis(200));
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            assert_eq!(text, "0123456789\n".repeat(20000));
            end.join().unwrap()
        });
        assert_eq!(end.code, 5, "{end:?}");
    }
    // A reader that has gone.
    let (streams, output) = piped(file("while :; do echo x; done").into());
    drop(output);
    let end = clone.run(streams, PATIENCE).unwrap();
    assert_eq!(end.code, 141, "{end:?}");
    assert_eq!(run(&clone, "echo right").1[0], "right\n");
}

#[test]
fn files_of_limited_length_keep_the_newest_output() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    const LIMIT: u64 = 1000;
    for _ in 0..2 {
        let output = file("");
        let streams = Streams {
            input: Some(file("i=0; while test $i -lt 5000; do echo $i; i=$((i+1)); done").into()),
            outputs: [output.try_clone().unwrap().into(), file("").into()],
            output_limit: LIMIT,
        };
        assert_eq!(clone.run(streams, PATIENCE).unwrap().code, 0);
        let range = hartline_devices::console::log::extent(&output, LIMIT).unwrap();
        let mut last = [0; 5];
        let read = hartline_devices::console::log::read(&output, LIMIT, range.end - 5, &mut last);
        assert_eq!((read.unwrap().1, &last), (5, b"4999\n"));
        assert!(output.metadata().unwrap().len() <= LIMIT);
    }
}

#[test]
fn the_time_limit_ends_a_run() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    let limit = Some(Duration::from_millis(300));
    for script in [
        "while :; do :; done",
        "/busybox sleep 100",
        "(while :; do :; done) & wait",
        // It waits for more input.
        "echo begun",
    ] {
        let (input, mut keys) = pipe().unwrap();
        writeln!(keys, "{script}").unwrap();
        let (streams, _output) = piped(input.into());
        let start = Instant::now();
        let end = clone.run(streams, limit).unwrap();
        assert_eq!((end.code, end.cause), (124, Cause::TimeLimit), "{script}");
        assert!(end.message.contains("time limit"), "{end:?}");
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert_eq!(run(&clone, "echo right").1[0], "right\n", "{script}");
    }
}

#[test]
fn output_that_nobody_reads_costs_the_clone() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    let (streams, output) = piped(file("echo x; /busybox sleep 100").into());
    // The pipe is full.
    let mut writer = File::from(streams.outputs[0].try_clone().unwrap());
    writer.write_all(&[0; 16 * PAGE_SIZE as usize]).unwrap();
    drop(writer);
    let error = clone
        .run(streams, Some(Duration::from_secs(4)))
        .unwrap_err();
    let is_lost = matches!(error, RunError::Reset(ResetError::Impossible(_)));
    assert!(is_lost, "{error}");
    let (streams, _other) = piped(file("").into());
    let error = clone.run(streams, PATIENCE).unwrap_err();
    assert!(
        matches!(error, RunError::Ended(CallError::Ended(_))),
        "{error}"
    );
    drop(clone);
    drop(output);
}

#[test]
fn clones_of_one_template_do_not_wait_for_each_other() {
    if !has_kvm() {
        return;
    }
    let template = template();
    thread::scope(|scope| {
        for number in 0..4 {
            let template = &template;
            scope.spawn(move || {
                let clone = WarmClone::start(template).unwrap();
                for round in 0..10 {
                    let script =
                        format!("test -e /a && exit 1; echo {number}.{round} | /busybox tee /a");
                    let (end, outputs) = run(&clone, &script);
                    assert_eq!((end.code, &outputs[0]), (0, &format!("{number}.{round}\n")));
                }
            });
        }
    });
}

#[test]
fn many_runs_leave_nothing() {
    if !has_kvm() {
        return;
    }
    let clone = clone();
    // Most write little; a few write more than is copied back.
    let dirty = "/busybox dd if=/dev/zero of=/big bs=1048576 count=40 2>/dev/null; echo $?";
    assert_eq!(run(&clone, dirty).1[0], "0\n");
    for _ in 0..50 {
        run(&clone, "echo $(/busybox true) x");
    }
    let before = measure();
    for round in 0..1000 {
        match round % 100 {
            50 => assert_eq!(run(&clone, dirty).1[0], "0\n"),
            _ => assert_eq!(run(&clone, "echo $(/busybox true) x").1[0], "x\n"),
        }
    }
    let after = measure();
    // Other tests of this process run meanwhile.
    assert!(after[0] <= before[0] + 200, "{before:?} {after:?}");
    assert!(after[2] <= before[2] + (600 << 20), "{before:?} {after:?}");
}

#[test]
fn what_cannot_be_a_template_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let load = |path: PathBuf| Template::load(&path, options(directory.path())).unwrap_err();
    let missing = load(directory.path().join("missing"));
    assert!(matches!(missing, TemplateError::Snapshot(_)), "{missing}");
    assert!(missing.to_string().contains("missing/config.json"));
    if !has_kvm() {
        return;
    }
    let copy = directory.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["config.json", "memory", "tree"] {
        fs::copy(files().path().join("shell").join(name), copy.join(name)).unwrap();
    }
    let memory = OpenOptions::new().write(true).open(copy.join("memory"));
    // The first page of RAM with contents is the runtime's.
    let mut memory = memory.unwrap();
    let text = fs::read(copy.join("memory")).unwrap();
    let at = text.iter().position(|&byte| byte != 0).unwrap();
    memory.seek(std::io::SeekFrom::Start(at as u64)).unwrap();
    memory.write_all(&[!text[at]]).unwrap();
    let error = load(copy);
    assert!(error.to_string().contains("damaged"), "{error}");
}
