//! A tenant that keeps the translator busy.

use super::Test;
use super::neighbour::Scene;
use hartline_tests::daemon::{is_ended_first, until};
use hartline_tests::{Result, compile, paths};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, Test)] = &[
    ("many translations", many_translations),
    ("its share of translations", spent_budget),
];

/// Uploads of the attacker, each of which takes many seconds to translate.
const UPLOADS: u8 = 6;

/// Returns a program that takes long to translate, a different one for each number.
fn hard(number: u8) -> Result<Vec<u8>> {
    let path = paths::repository().join(".debian/riscv64/usr/bin/busybox");
    let mut program = fs::read(path)?;
    program.push(number);
    Ok(program)
}

/// Returns a program of the neighbour that was not translated before.
fn easy() -> Result<Vec<u8>> {
    let mut program = fs::read(compile::service()?)?;
    program.push(1);
    Ok(program)
}

/// Starts to upload and prepare a program of the attacker. Result: its path.
fn begin(scene: &Scene, number: u8) -> Result<String> {
    let headers = [("Authorization", scene.attacker())];
    let upload = "/v1/programs?name=busybox";
    let made = scene
        .daemon
        .request_with("POST", upload, &headers, &hard(number)?)?;
    Ok(format!("/v1/programs/{}", made.expect(201)?.text("id")))
}

fn get(scene: &Scene, key: &str, path: &str) -> Result<Value> {
    Ok(scene.request(key, "GET", path, b"")?.expect(200)?.json())
}

/// Many long translations at once do not delay the neighbour.
fn many_translations() -> Result<()> {
    let scene = Scene::start("pool = 2")?;
    let begun = (0..UPLOADS).map(|number| begin(&scene, number));
    let attacks = begun.collect::<Result<Vec<String>>>()?;
    // If the host runs out of memory, the kernel ends the translator and no VMM.
    until(|| !scene.daemon.workers().is_empty())?;
    let service = scene.daemon.service()?;
    if is_ended_first(service) || scene.daemon.jailed().into_iter().all(is_ended_first) {
        return Err("the kernel would not end a translator before others".into());
    }
    let id = scene.push(scene.neighbour(), "name=service", &easy()?)?;
    let program = get(&scene, scene.neighbour(), &format!("/v1/programs/{id}"))?;
    if program["state"] != "ready" || program["problem"] != "" {
        return Err(format!("the neighbour's program: {program}").into());
    }
    let mut done = 0;
    for path in &attacks {
        done += u8::from(get(&scene, scene.attacker(), path)?["state"] == "ready");
    }
    println!("{done} of {UPLOADS} programs of the attacker were ready before the neighbour's");
    if done > 1 {
        return Err(format!("the neighbour waited for {done} of {UPLOADS}").into());
    }
    for path in &attacks {
        scene.attack("DELETE", path, b"")?.expect(204)?;
    }
    // A translation of busybox takes many times as long.
    let deleted = Instant::now();
    until(|| scene.daemon.workers().is_empty())?;
    let took = deleted.elapsed();
    println!("the translator of deleted programs ended after {took:?}");
    if took > Duration::from_secs(5) {
        return Err(format!("deleted programs were translated for {took:?}").into());
    }
    scene.end()
}

/// A tenant that has used its translation budget gets no more, and its programs report that.
fn spent_budget() -> Result<()> {
    // A translation is ended when it has used two seconds of each CPU, or after eight seconds: on a
    // busy machine it takes several translations to use the budget.
    let settings = "pool = 2\ntranslation_budget_s = 1\ntranslation_timeout_s = 2";
    let scene = Scene::start(settings)?;
    let begun = (0..UPLOADS).map(|number| begin(&scene, number));
    let attacks = begun.collect::<Result<Vec<String>>>()?;
    let mut spent = 0;
    for path in &attacks {
        let ready = |program: Value| program["state"] == "ready";
        until(|| get(&scene, scene.attacker(), path).is_ok_and(ready))?;
        let program = get(&scene, scene.attacker(), path)?;
        spent += u8::from(program["problem"] == "translation-budget");
    }
    println!("{spent} of {UPLOADS} programs of the attacker got no processor time");
    if spent == 0 {
        return Err("all programs of the attacker got processor time".into());
    }
    // The budget of the attacker does not affect the neighbour.
    let id = scene.push(scene.neighbour(), "name=service", &easy()?)?;
    let program = get(&scene, scene.neighbour(), &format!("/v1/programs/{id}"))?;
    if program["problem"] != "" {
        return Err(format!("the neighbour's program: {program}").into());
    }
    // A new daemon has counted nothing yet.
    for path in &attacks {
        scene.attack("DELETE", path, b"")?.expect(204)?;
    }
    scene.end()
}
