//! Copies from and to volumes of machines that do not run.

use super::commands::client;
use super::{await_state, check, start};
use hartline_tests::daemon::{Answer, Daemon};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, process};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

pub fn of_volumes() -> Result<()> {
    let (daemon, program) = start()?;
    let size = json!({ "name": "data", "size": 32 << 20 });
    post(&daemon, "/v1/volumes", &size)?.expect(201)?;
    let volumes = json!([{ "volume": "data", "path": "/srv/data" }]);
    let body = json!({ "program": program, "args": ["put", "/srv/data/mark", "it ran"],
        "name": "it", "volumes": volumes });
    post(&daemon, "/v1/machines", &body)?.expect(201)?;
    // A tree with a file that does not fit one message, a link and a directory.
    let scratch = Scratch::new()?;
    let (tree, back) = (scratch.path().join("tree"), scratch.path().join("back"));
    fs::create_dir_all(tree.join("empty"))?;
    let large: Vec<u8> = (0..5_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(tree.join("large"), large)?;
    std::os::unix::fs::symlink("large", tree.join("link"))?;
    let copy = |from: &str, to: &str| client(&daemon, &["cp", from, to], "");
    let (local, back) = (tree.display().to_string(), back.display().to_string());
    // Before the first start, and again after it.
    let copied = copy(&local, "it:/srv/data/tree")?;
    check("to a machine", copied.status.success(), &copied)?;
    let start = |name: &str| -> Result<Answer> {
        daemon
            .request("POST", &format!("/v1/machines/{name}/start"), b"")?
            .expect(200)
    };
    // The volume is free as soon as the copy has ended.
    start("it")?;
    await_state(&daemon, "/v1/machines/it", "exited")?;
    let copied = copy("it:/srv/data/tree", &back)?;
    check("from a machine", copied.status.success(), &copied)?;
    let mut compare = Command::new("diff");
    compare.args(["-r", "--no-dereference", &local, &back]);
    let compared = process::run(&mut compare, b"")?;
    check("equal", compared.code == 0, &compared.stdout_text())?;
    let mark = copy("it:/srv/data/mark", &format!("{back}/mark"))?;
    check("a file", mark.status.success(), &mark)?;
    let text = fs::read_to_string(format!("{back}/mark"))?;
    check("its text", text == "it ran", &text)?;
    start("it")?;
    await_state(&daemon, "/v1/machines/it", "exited")?;

    let files =
        |path: &str| daemon.request("HEAD", &format!("/v1/machines/it/files?path={path}"), b"");
    for (path, status) in [
        ("/srv/data", 200),
        ("/srv/data/mark", 200),
        ("/srv/data/none", 404),
        ("/srv/data/../../program", 409),
        ("/program", 409),
        ("/", 409),
    ] {
        let answer = files(path)?;
        check(path, answer.status == status, &answer)?;
    }
    let refused = copy("it:/program", &back)?;
    let told = String::from_utf8_lossy(&refused.stderr).contains("only files in its volumes");
    check("outside", told, &refused)?;
    // A link that leads out of the volume: nothing is lost without an error.
    std::os::unix::fs::symlink("/", tree.join("out"))?;
    let link = format!("{local}/out");
    let copied = copy(&link, "it:/srv/data/out")?;
    check("a link", copied.status.success(), &copied)?;
    let through = copy(&format!("{back}/mark"), "it:/srv/data/out/mark")?;
    check("through a link", !through.status.success(), &through)?;

    // While another machine writes to the volume, it can be read and not be written.
    let idle = json!({ "program": program, "args": ["idle"], "name": "other", "start": true,
        "volumes": volumes });
    post(&daemon, "/v1/machines", &idle)?.expect(201)?;
    await_state(&daemon, "/v1/machines/other", "running")?;
    check("read", files("/srv/data/mark")?.status == 200, &())?;
    let refused = copy(&format!("{back}/mark"), "it:/srv/data/mark")?;
    let told = String::from_utf8_lossy(&refused.stderr).contains("another active machine");
    check("in use", told && !refused.status.success(), &refused)?;
    // Without volumes a machine must run.
    let plain = json!({ "program": program, "name": "plain" });
    post(&daemon, "/v1/machines", &plain)?.expect(201)?;
    let refused = copy("plain:/program", &back)?;
    let told = String::from_utf8_lossy(&refused.stderr).contains("start it first");
    check("without volumes", told, &refused)
}
