//! A tenant that requests more than its quota, and the usage that the daemon reports.

use super::neighbour::Scene;
use super::{Test, check};
use hartline_tests::daemon::until;
use hartline_tests::{Result, compile, hartline, process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

pub const TESTS: &[(&str, Test)] = &[("more than the quota", more_than_the_quota)];

const MEMORY: u64 = 128 << 20;
/// Bytes that count for the outputs of a running machine.
const OUTPUTS: u64 = 36 << 20;

/// Returns a tenant's usage and limits, by resource.
fn parse(usage: &Value) -> BTreeMap<String, (u64, Option<u64>)> {
    let entry = |entry: &Value| {
        let resource = entry["resource"].as_str()?.to_owned();
        Some((resource, (entry["used"].as_u64()?, entry["limit"].as_u64())))
    };
    let entries = usage.as_array().into_iter().flatten();
    entries.filter_map(entry).collect()
}

fn usage(scene: &Scene) -> Result<BTreeMap<String, (u64, Option<u64>)>> {
    let answer = scene.attack("GET", "/v1/tenants/attacker/usage", b"")?;
    let usage = parse(&answer.expect(200)?.json());
    check("resources", usage.len() == 9, &usage)?;
    for (resource, (used, limit)) in &usage {
        let within = limit.is_none_or(|limit| *used <= limit);
        check(resource, within, &(used, limit))?;
    }
    Ok(usage)
}

fn more_than_the_quota() -> Result<()> {
    let mut scene = Scene::start("pool = 2")?;
    let quota = json!({ "max_machines": 2, "max_memory": 5 * MEMORY });
    let quota = quota.to_string();
    let path = "/v1/tenants/attacker";
    scene
        .daemon
        .request("PUT", path, quota.as_bytes())?
        .expect(200)?;
    let service = fs::read(compile::service()?)?;
    let program = scene.attack_push("name=service", &service)?;
    // The upload, its tree, and its translation.
    let before = usage(&scene)?;
    let stored = before["storage"].0;
    let upload = scene.attack("GET", &format!("/v1/programs/{program}"), b"")?;
    let upload = upload.expect(200)?.json();
    let of = |field: &str| upload[field].as_u64().unwrap_or_default();
    let directory = scene.daemon.data().join("images/attacker");
    let images = fs::read_dir(&directory)?;
    // The disk space that the files take counts.
    let images = images.map(|image| Ok(image?.metadata()?.blocks() * 512));
    let images = images.sum::<std::io::Result<u64>>()?;
    let right = of("size") == service.len() as u64 && of("tree_size") > 0 && images > 0;
    check("what is stored", right, &(&upload, images))?;
    let sum = of("size") + of("tree_size") + images;
    check("storage", stored == sum, &(stored, sum))?;
    let files = 2 + fs::read_dir(&directory)?.count() as u64;
    check("inodes", before["inodes"].0 == files, &(&before, files))?;
    let idle = json!({ "program": program, "args": ["idle"], "memory": MEMORY, "start": true });
    let mut machines = Vec::new();
    for _ in 0..5 {
        let made = scene.attack("POST", "/v1/machines", idle.to_string().as_bytes())?;
        machines.push(format!("/v1/machines/{}", made.expect(201)?.text("id")));
        usage(&scene)?;
    }
    let taken = |usage: &BTreeMap<String, (u64, Option<u64>)>| {
        ["runs", "memory", "cpus"].map(|resource| usage[resource])
    };
    let full = [(2, Some(2)), (2 * MEMORY, Some(5 * MEMORY)), (2, None)];
    until(|| usage(&scene).is_ok_and(|usage| taken(&usage) == full))?;
    // Each machine keeps its database row, and may write outputs while it runs.
    let rows = 5 * 4096..5 * 8192;
    until(|| {
        let kept = usage(&scene).map(|now| now["storage"].0 - stored);
        kept.is_ok_and(|kept| rows.contains(&kept.wrapping_sub(2 * OUTPUTS)))
    })?;
    let inodes = usage(&scene)?["inodes"].0;
    let right = inodes == before["inodes"].0 + 5 * 11;
    check("inodes of machines", right, &(&before, inodes))?;
    // A request above the quota is refused, and the error names the resource.
    let large = json!({ "program": program, "memory": 8 * MEMORY });
    let refused = scene.attack("POST", "/v1/runs", large.to_string().as_bytes())?;
    let code = (refused.status, refused.text("code"));
    check("refused", code == (403, "quota".to_owned()), &code)?;

    // A new daemon counts the machines that it finds.
    scene.daemon.kill()?;
    scene.daemon.restart()?;
    until(|| usage(&scene).is_ok_and(|usage| taken(&usage) == full))?;
    scene.neighbour_is_well("while the attacker has its quota")?;

    // The neighbour may not read the attacker's usage, and reads its own.
    let other = scene.as_neighbour("GET", "/v1/tenants/attacker/usage", b"")?;
    other.expect(403)?;
    let own = scene.as_neighbour("GET", "/v1/tenants/neighbour/usage", b"")?;
    let own = parse(&own.expect(200)?.json());
    check("the neighbour's", own["runs"].0 == 0, &own)?;
    shown(&scene)?;

    for machine in machines {
        until(|| {
            let killed = scene.attack("POST", &format!("{machine}/kill"), b"");
            killed.is_ok_and(|killed| killed.status == 200)
        })?;
    }
    until(|| {
        let none = |usage: BTreeMap<_, _>| taken(&usage).map(|(used, _)| used) == [0; 3];
        usage(&scene).is_ok_and(none)
    })?;
    scene.end()
}

/// Checks that `hartline tenant show` prints the same.
fn shown(scene: &Scene) -> Result<()> {
    let host = format!("unix://{}", scene.daemon.socket().display());
    let show = |options: &[&str]| -> Result<String> {
        let mut command = hartline::command("tenant")?;
        command
            .args(["show", "--host", &host, "attacker"])
            .args(options);
        let outcome = process::run(&mut command, b"")?;
        check("tenant show", outcome.code == 0, &outcome.stderr_text())?;
        Ok(outcome.stdout_text())
    };
    let told = parse(&serde_json::from_str(&show(&["-o", "json"])?)?);
    check("runs", told["runs"] == (2, Some(2)), &told)?;
    let table = show(&[])?;
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["runs", "2", "2"];
    check("table", table.lines().any(row), &table)
}
