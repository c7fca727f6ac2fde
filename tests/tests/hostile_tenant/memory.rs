//! A tenant makes the daemon read its programs, to use up the daemon's memory.

use super::Test;
use super::neighbour::Scene;
use hartline_tests::{Result, compile};
use serde_json::json;
use std::fs;
use std::thread;

pub const TESTS: &[(&str, Test)] = &[("long programs at once", long_programs)];

/// Zeros at the end of the program, bytes.
const PADDING: usize = 96 << 20;
/// Runs at once.
const RUNS: usize = 16;
/// The additional memory that the daemon may need for the runs, bytes.
const MOST: u64 = 64 << 20;

/// Returns the peak memory of a process, bytes.
///
/// # Errors
/// The process has ended.
pub fn peak(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.ok_or("no VmHWM")? << 10)
}

/// Makes many runs at once of a program of hundreds of megabytes that was not opened before.
fn long_programs() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let mut program = fs::read(compile::service()?)?;
    program.resize(program.len() + PADDING, 0);
    let before = peak(scene.daemon.service()?)?;
    let id = scene.attack_push("name=service", &program)?;
    drop(program);
    let body = json!({ "program": id }).to_string();
    thread::scope(|scope| {
        let run = || {
            let answer = scene.attack("POST", "/v1/runs", body.as_bytes())?;
            let outcome = answer.expect(200)?.json();
            match outcome["stdout"]["text"] == "hello, world\n" {
                true => Ok(()),
                false => Err(format!("{outcome}").into()),
            }
        };
        let runs: Vec<_> = (0..RUNS).map(|_| scope.spawn(run)).collect();
        runs.into_iter()
            .try_for_each(|run| -> Result<()> { run.join().map_err(|_| "panic")? })
    })?;
    let more = peak(scene.daemon.service()?)? - before;
    println!("the daemon needed {} MiB more", more >> 20);
    if more > MOST {
        return Err(format!("the daemon needed {more} bytes more").into());
    }
    scene.end()
}
