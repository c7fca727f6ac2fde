//! Code that a program makes at run time, in a jailed VMM: its vCPU's thread translates it.

use super::{check, run};
use hartline_tests::Result;
use hartline_tests::compile::{self, VARIANTS};
use hartline_tests::daemon::Daemon;
use serde_json::json;
use std::fs;

/// Each translation is a host call; without translations the program makes about ten.
const LEAST_CALLS: u64 = 25;

pub fn is_translated() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    let program = compile::programs(VARIANTS[1])?;
    daemon.give_image(&program)?;
    daemon.push("name=jit", &fs::read(&program)?)?;
    let outcome = run(&daemon, &json!({ "program": "jit", "args": ["jit"] }))?;
    let text = outcome["stdout"]["text"].as_str().unwrap_or_default();
    let calls = outcome["exits"]["calls"].as_u64().unwrap_or_default();
    let right = text.lines().count() == 10 && text.contains("patched below threads 0\n");
    check("output", right, &outcome)?;
    check("translated", calls >= LEAST_CALLS, &outcome)
}
