//! Snapshots of machines, and machines and runs that continue them.

use super::commands::client;
use super::{await_state, check, run, state, tar};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::{Result, paths};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

const MEMORY: u64 = 64 << 20;
/// A script that counts.
pub(super) const COUNT: &str = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done";
/// A script that prepares something and reads a line.
const READ: &str =
    "x=42; echo file > /tmp/f; echo ready; read line; echo \"$x $line $(cat /tmp/f)\"";

pub(super) fn start(configuration: &str) -> Result<Daemon> {
    let daemon = Daemon::start(configuration)?;
    push(&daemon)?;
    Ok(daemon)
}

/// Uploads a root file system with busybox, named `tools`. Its translation is there.
pub(super) fn push(daemon: &Daemon) -> Result<()> {
    daemon.give_image(&paths::busybox())?;
    push_untranslated(daemon)
}

/// Uploads the root file system and waits until it is translated.
fn push_untranslated(daemon: &Daemon) -> Result<()> {
    daemon.push("name=tools", &tools()?)?;
    Ok(())
}

/// Uploads the program of another tenant, which may still be translated then.
pub(super) fn push_for(daemon: &Daemon, tenant: &str) -> Result<()> {
    let tenant = [("Hartline-Tenant", tenant)];
    let path = "/v1/programs?name=tools";
    daemon
        .request_with("POST", path, &tenant, &tools()?)?
        .expect(201)?;
    Ok(())
}

/// A root file system with busybox.
fn tools() -> Result<Vec<u8>> {
    let busybox = fs::read(paths::busybox())?;
    let links = ["bin/sh", "bin/sleep", "bin/cat"];
    let mut members = vec![("bin/busybox", b'0', "", &busybox[..])];
    members.extend(links.map(|path| (path, b'2', "busybox", &b""[..])));
    members.push(("tmp", b'5', "", b""));
    Ok(tar(&members))
}

/// The specification of a machine that runs a script.
pub(super) fn script(name: &str, text: &str) -> Value {
    json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", text], "name": name,
        "memory": MEMORY, "start": true })
}

pub(super) fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

/// Makes a machine that runs. Result: its path in the API.
pub(super) fn machine(daemon: &Daemon, spec: &Value) -> Result<String> {
    let made = post(daemon, "/v1/machines", spec)?.expect(201)?;
    let path = format!("/v1/machines/{}", made.text("id"));
    await_state(daemon, &path, "running")?;
    Ok(path)
}

/// Makes a machine that counts, and waits until it has begun.
pub(super) fn counter(daemon: &Daemon, name: &str) -> Result<String> {
    let path = machine(daemon, &script(name, COUNT))?;
    await_count(daemon, &path, 3)?;
    Ok(path)
}

/// Makes a machine that has prepared something and reads standard input.
pub(super) fn reader(daemon: &Daemon, name: &str) -> Result<String> {
    let mut spec = script(name, READ);
    spec["interactive"] = true.into();
    let path = machine(daemon, &spec)?;
    until(|| log(daemon, &path).is_ok_and(|log| log == "ready\n"))?;
    Ok(path)
}

pub(super) fn log(daemon: &Daemon, machine: &str) -> Result<String> {
    let log = daemon.request("GET", &format!("{machine}/logs"), b"")?;
    Ok(String::from_utf8_lossy(&log.expect(200)?.body).into_owned())
}

/// The numbers that a machine has printed.
pub(super) fn numbers(daemon: &Daemon, machine: &str) -> Result<Vec<u64>> {
    let log = log(daemon, machine)?;
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole
        .lines()
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?)
}

/// Waits until a machine has printed a number of numbers.
pub(super) fn await_count(daemon: &Daemon, machine: &str, least: usize) -> Result<()> {
    let has = || numbers(daemon, machine).is_ok_and(|found| found.len() >= least);
    until(has).map_err(|_| format!("{:?}, {}", log(daemon, machine), daemon.log()).into())
}

pub(super) fn snapshot(daemon: &Daemon, machine: &str, body: &Value) -> Result<Answer> {
    post(daemon, &format!("{machine}/snapshots"), body)
}

/// Makes a snapshot. Result: its id.
pub(super) fn made(daemon: &Daemon, machine: &str, name: &str) -> Result<String> {
    let made = snapshot(daemon, machine, &json!({ "name": name }))?;
    let made = made
        .expect(201)
        .map_err(|error| format!("{error:?}, {}", daemon.log()))?;
    Ok(made.text("id"))
}

pub(super) fn refused(
    what: &str,
    answer: &Answer,
    status: u16,
    code: &str,
    detail: &str,
) -> Result<()> {
    let right = answer.status == status
        && answer.text("code") == code
        && answer.text("detail").contains(detail);
    check(what, right, answer)
}

pub(super) fn files(daemon: &Daemon) -> Result<Vec<String>> {
    let entries = fs::read_dir(daemon.data().join("snapshots"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// The machine goes on after its snapshot; lists, prefixes and names; other tenants; deletion.
pub fn of_machines() -> Result<()> {
    let daemon = start("pool = 1")?;
    let counting = counter(&daemon, "counting")?;
    let answer = snapshot(&daemon, &counting, &json!({ "name": "warm" }))?.expect(201)?;
    let (id, size) = (answer.text("id"), answer.json()["size"].as_u64());
    let is_right = size.is_some_and(|size| (1 << 20..MEMORY).contains(&size))
        && answer.json()["memory"] == MEMORY
        && counting.ends_with(&answer.text("machine"));
    check("the snapshot", is_right, &answer)?;
    let before = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, before + 3)?;
    let all = numbers(&daemon, &counting)?;
    let expected: Vec<u64> = (1..).take(all.len()).collect();
    check("it goes on", all == expected, &all)?;

    let directory = daemon.data().join("snapshots").join(&id);
    let mut found: Vec<_> = fs::read_dir(&directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    found.sort();
    check("files", found == ["config.json", "memory", "tree"], &found)?;
    let tree = fs::metadata(directory.join("tree"))?;
    check("the tree is a link", tree.nlink() == 2, &tree)?;
    let mode = fs::metadata(directory.join("memory"))?.mode() & 0o777;
    check("mode", mode == 0o600, &mode)?;

    // A second one of the same machine, without a name.
    let second = snapshot(&daemon, &counting, &json!({}))?
        .expect(201)?
        .text("id");
    let get = |path: &str| daemon.request("GET", path, b"");
    let listed = get("/v1/snapshots")?.expect(200)?.json();
    let mut ids = [id.as_str(), second.as_str()];
    ids.sort_unstable();
    let is_listed = |at: usize| listed[at]["id"] == ids[at];
    check("list", is_listed(0) && is_listed(1), &listed)?;
    let page = get("/v1/snapshots?limit=1")?.expect(200)?;
    let linked = page.head.contains("rel=\"next\"") && page.json()[0]["id"] == ids[0];
    check("page", linked, &page)?;
    for name in ["warm", &id, &id[..12]] {
        let found = get(&format!("/v1/snapshots/{name}"))?.expect(200)?;
        check(name, found.text("id") == id, &found)?;
    }
    let again = snapshot(&daemon, &counting, &json!({ "name": "warm" }))?;
    refused("its name", &again, 409, "name-in-use", "name")?;
    let digits = snapshot(&daemon, &counting, &json!({ "name": "cafe" }))?;
    check("digits", digits.status == 422, &digits)?;

    // Another tenant does not see it.
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let other = [
        ("Hartline-Tenant", "other"),
        ("Content-Type", "application/json"),
    ];
    let body = json!({ "snapshot": id }).to_string();
    for (method, path, body) in [
        ("GET", format!("/v1/snapshots/{id}"), ""),
        ("DELETE", format!("/v1/snapshots/{id}"), ""),
        ("POST", format!("{counting}/snapshots"), "{}"),
        ("POST", "/v1/runs".to_owned(), body.as_str()),
        ("POST", "/v1/machines".to_owned(), body.as_str()),
    ] {
        let answer = daemon.request_with(method, &path, &other, body.as_bytes())?;
        check(&format!("{method} {path}"), answer.status == 404, &answer)?;
    }
    let none = daemon.request_with("GET", "/v1/snapshots", &other, b"")?;
    check("its list", none.json() == json!([]), &none)?;

    // The snapshot outlives its machine; its program is kept for it.
    daemon
        .request("POST", &format!("{counting}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &counting, "exited")?;
    refused(
        "ended",
        &snapshot(&daemon, &counting, &json!({}))?,
        409,
        "wrong-state",
        "exited",
    )?;
    daemon.request("DELETE", &counting, b"")?.expect(204)?;
    let program = daemon.request("DELETE", "/v1/programs/tools", b"")?;
    refused("its program", &program, 409, "program-in-use", "snapshots")?;
    for name in [&id, &second] {
        daemon
            .request("DELETE", &format!("/v1/snapshots/{name}"), b"")?
            .expect(204)?;
    }
    check("files", files(&daemon)?.is_empty(), &files(&daemon)?)?;
    daemon
        .request("DELETE", "/v1/programs/tools", b"")?
        .expect(204)?;
    Ok(())
}

/// Machines with state that a snapshot cannot have, and requests that are wrong.
pub fn refusals() -> Result<()> {
    let daemon = start("pool = 1")?;
    let volume = json!({ "name": "data", "size": 1 << 20 });
    post(&daemon, "/v1/volumes", &volume)?.expect(201)?;
    let mounts = json!([{ "volume": "data", "path": "/data" }]);
    let mut spec = script("volumes", COUNT);
    spec["volumes"] = mounts;
    let path = machine(&daemon, &spec)?;
    let answer = snapshot(&daemon, &path, &json!({}))?;
    refused("volumes", &answer, 409, "no-snapshot", "volumes")?;
    check("volumes", state(&daemon, &path)? == "running", &path)?;
    let counting = counter(&daemon, "counting")?;
    let id = made(&daemon, &counting, "warm")?;
    for (path, field, value) in [
        ("/v1/runs", "program", json!("tools")),
        ("/v1/runs", "args", json!(["x"])),
        ("/v1/runs", "memory", json!(1 << 28)),
        ("/v1/machines", "env", json!({ "A": "1" })),
        ("/v1/machines", "cpus", json!(1)),
        ("/v1/machines", "network", json!("tenant")),
        ("/v1/machines", "user", json!("1")),
    ] {
        let mut body = json!({ "snapshot": id });
        body[field] = value;
        let answer = post(&daemon, path, &body)?;
        let right = answer.status == 409 && answer.text("field") == field;
        check(field, right, &answer)?;
    }
    let missing = post(&daemon, "/v1/runs", &json!({ "snapshot": "none-such" }))?;
    check("no snapshot", missing.status == 404, &missing)?;
    // A process of exec has streams outside the machine's memory.
    let sleeping = {
        let socket = daemon.socket();
        thread::spawn(move || -> std::result::Result<(), String> {
            let mut command = std::process::Command::new(
                hartline_tests::hartline::binary().map_err(|error| format!("{error:?}"))?,
            );
            let host = format!("unix://{}", socket.display());
            command
                .args(["exec", "counting", "/bin/sleep", "5"])
                .env("HARTLINE_HOST", host);
            command
                .output()
                .map(drop)
                .map_err(|error| error.to_string())
        })
    };
    until(|| {
        let answer = snapshot(&daemon, &counting, &json!({}));
        answer.is_ok_and(|answer| {
            answer.text("code") == "snapshot-refused" && answer.text("detail").contains("exec")
        })
    })?;
    sleeping.join().map_err(|_| "the client panicked")??;
    snapshot(&daemon, &counting, &json!({}))?.expect(201)?;
    // A paused machine comes to no checkpoint.
    daemon
        .request("POST", &format!("{counting}/pause"), b"")?
        .expect(200)?;
    let paused = snapshot(&daemon, &counting, &json!({}))?;
    refused("paused", &paused, 409, "wrong-state", "paused")?;
    daemon
        .request("POST", &format!("{counting}/resume"), b"")?
        .expect(200)?;
    Ok(())
}

/// A machine with three vCPUs, of which two compute: its snapshots go on in runs and machines with as many. No VMM
/// waits for another run. The machine is suspended and resumed too.
pub fn of_several_vcpus() -> Result<()> {
    const SCRIPT: &str = "c() { n=0; while [ $n -lt 2000000 ]; do n=$((n+1)); done; }; \
        c & c & echo ready; read word; wait; echo $word $(/bin/busybox nproc)";
    let daemon = start("pool = 1")?;
    let mut spec = script("three", SCRIPT);
    spec["cpus"] = 3.into();
    spec["memory"] = (256 << 20).into();
    spec["interactive"] = true.into();
    let path = machine(&daemon, &spec)?;
    until(|| log(&daemon, &path).is_ok_and(|log| log == "ready\n"))
        .map_err(|_| format!("{:?}, {}", log(&daemon, &path), daemon.log()))?;
    made(&daemon, &path, "warm")?;
    for word in ["one", "two"] {
        let outcome = run(
            &daemon,
            &json!({ "snapshot": "warm", "stdin": format!("{word}\n") }),
        )?;
        let right = outcome["exit_code"] == 0 && outcome["stdout"]["text"] == format!("{word} 3\n");
        check("a run", right, &outcome)?;
    }
    let body = json!({ "snapshot": "warm", "name": "copy", "start": true });
    let copy = post(&daemon, "/v1/machines", &body)?.expect(201)?;
    check("its vCPUs", copy.json()["spec"]["cpus"] == 3, &copy)?;
    for action in ["suspend", "start"] {
        daemon
            .request("POST", &format!("{path}/{action}"), b"")?
            .expect(200)?;
    }
    await_state(&daemon, &path, "running")?;
    let shown = client(&daemon, &["attach", "three"], "last\n")?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    check("it goes on", text.ends_with("last 3\n"), &shown)
}

/// The quota is reserved before, and charged after; a full quota is an error and the machine goes on.
pub fn quota() -> Result<()> {
    // The storage is compared: no image may come meanwhile.
    let daemon = start("pool = 1\nbaseline = false")?;
    let counting = counter(&daemon, "counting")?;
    let used = || -> Result<u64> {
        let usage = daemon
            .request("GET", "/v1/tenants/default/usage", b"")?
            .expect(200)?
            .json();
        let list = usage.as_array().cloned().unwrap_or_default();
        let storage = list.iter().find(|of| of["resource"] == "storage");
        Ok(storage
            .and_then(|of| of["used"].as_u64())
            .ok_or(format!("{usage}"))?)
    };
    let before = used()?;
    let answer = snapshot(&daemon, &counting, &json!({}))?.expect(201)?;
    let size = answer.json()["size"].as_u64().unwrap_or_default();
    let after = used()?;
    check(
        "charged",
        after - before == size && size > 0,
        &(before, after, size),
    )?;
    // Room for what the snapshot has, but not for what it could have.
    let quota = json!({ "max_storage": after + size + (1 << 20) });
    let body = quota.to_string();
    daemon
        .request("PUT", "/v1/tenants/default", body.as_bytes())?
        .expect(200)?;
    let full = snapshot(&daemon, &counting, &json!({}))?;
    refused("full", &full, 409, "storage-quota", "bytes")?;
    let count = numbers(&daemon, &counting)?.len();
    await_count(&daemon, &counting, count + 3)?;
    check(
        "nothing is left",
        files(&daemon)?.len() == 1,
        &files(&daemon)?,
    )?;
    check("not charged", used()? == after, &used()?)
}

/// Runs and machines continue snapshots: with new standard input, several at once, and again from
/// their own snapshots.
pub fn continued() -> Result<()> {
    let mut daemon = start("pool = 2")?;
    let reading = reader(&daemon, "reading")?;
    let warm = made(&daemon, &reading, "warm")?;
    let outcome = run(&daemon, &json!({ "snapshot": "warm", "stdin": "one\n" }))?;
    check(
        "a run",
        outcome["stdout"]["text"] == "42 one file\n",
        &outcome,
    )?;
    thread::scope(|scope| -> Result<()> {
        let all: Vec<_> = ["a", "b", "c"]
            .map(|line| {
                let (daemon, warm) = (&daemon, &warm);
                let body = json!({ "snapshot": warm, "stdin": format!("{line}\n") });
                (
                    line,
                    scope.spawn(move || run(daemon, &body).map_err(|e| format!("{e:?}"))),
                )
            })
            .into();
        for (line, run) in all {
            let outcome = run.join().map_err(|_| "a thread panicked")??;
            let right = outcome["stdout"]["text"] == format!("42 {line} file\n");
            check("at once", right, &outcome)?;
        }
        Ok(())
    })?;
    let kept = json!({ "snapshot": warm, "stdin": "kept\n", "wait": false });
    let kept = post(&daemon, "/v1/runs", &kept)?.expect(202)?.text("id");
    let ended = daemon.request("GET", &format!("/v1/runs/{kept}?seconds=60"), b"")?;
    let right = ended.json()["outcome"]["stdout"]["text"] == "42 kept file\n";
    check("a kept run", right, &ended)?;
    let used = daemon.request("DELETE", "/v1/snapshots/warm", b"")?;
    refused("used by the run", &used, 409, "snapshot-in-use", "continue")?;
    daemon
        .request("DELETE", &format!("/v1/runs/{kept}"), b"")?
        .expect(204)?;

    let counting = counter(&daemon, "counting")?;
    made(&daemon, &counting, "counted")?;
    let from = json!({ "snapshot": "counted", "name": "next", "start": true,
        "labels": { "a": "b" } });
    let next = machine(&daemon, &from)?;
    await_count(&daemon, &next, 3)?;
    let first = numbers(&daemon, &next)?;
    let is_later = first[0] > 2 && first.windows(2).all(|pair| pair[1] == pair[0] + 1);
    check("it continues", is_later, &first)?;
    let shown = daemon.request("GET", &next, b"")?.json();
    let spec = &shown["spec"];
    let right = spec["args"] == json!(["-c", COUNT]) && spec["labels"]["a"] == "b";
    check("its spec", right && spec["memory"] == MEMORY, &shown)?;
    // Commands can be run in it, and it can be in a snapshot too.
    let command = json!({ "command": ["/bin/sh", "-c", "cat /proc/1/cmdline"] });
    let ran = post(&daemon, &format!("{next}/exec"), &command)?.expect(200)?;
    check("exec", ran.json()["exit_code"] == 0, &ran)?;
    made(&daemon, &next, "again")?;
    let last = machine(&daemon, &json!({ "snapshot": "again", "start": true }))?;
    await_count(&daemon, &last, 3)?;
    let later = numbers(&daemon, &last)?;
    check("again", later[0] > first[0], &(&first, later))?;

    // It is the same after a restart of the daemon, also of machines that were running.
    daemon.kill()?;
    daemon.restart()?;
    made(&daemon, &counting, "later")?;
    let count = numbers(&daemon, &next)?.len();
    await_count(&daemon, &next, count + 3)?;
    let outcome = run(&daemon, &json!({ "snapshot": "warm", "stdin": "two\n" }))?;
    check(
        "after a restart",
        outcome["stdout"]["text"] == "42 two file\n",
        &outcome,
    )?;
    let used = daemon.request("DELETE", "/v1/snapshots/counted", b"")?;
    refused(
        "used by a machine",
        &used,
        409,
        "snapshot-in-use",
        "machines",
    )?;
    // It is started again from the snapshot, not from where it was.
    daemon
        .request("POST", &format!("{next}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &next, "exited")?;
    daemon
        .request("POST", &format!("{next}/start"), b"")?
        .expect(200)?;
    await_count(&daemon, &next, 1)?;
    let once_more = numbers(&daemon, &next)?;
    check(
        "started again",
        once_more[0] == first[0],
        &(first, once_more),
    )
}

/// The command line.
pub fn commands() -> Result<()> {
    let daemon = start("pool = 1")?;
    let reading = reader(&daemon, "reading")?;
    let ask = |arguments: &[&str], input: &str, code: i32| -> Result<String> {
        let output = client(&daemon, arguments, input)?;
        check(
            &arguments.join(" "),
            output.status.code() == Some(code),
            &output,
        )?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let id = ask(&["snapshot", "create", "--name", "warm", "reading"], "", 0)?;
    let id = id.trim_end();
    let listed = ask(&["snapshots"], "", 0)?;
    let row = listed.lines().nth(1).unwrap_or_default();
    let machine = reading.rsplit('/').next().unwrap_or_default();
    let right = [id, "warm", machine].iter().all(|word| row.contains(word));
    check("list", right, &listed)?;
    let found = ask(&["submit", "-i", "--from", "warm"], "typed\n", 0)?;
    check("submit", found == "42 typed file\n", &found)?;
    ask(&["submit", "--from", "warm", "--cpus", "1"], "", 2)?;
    ask(&["submit", "--from", "warm", "tools"], "", 2)?;
    let made = ask(
        &["create", "--from", &id[..10], "--start", "--interactive"],
        "",
        0,
    )?;
    let made = format!("/v1/machines/{}", made.trim_end());
    await_state(&daemon, &made, "running")?;
    ask(&["snapshot", "rm", "warm"], "", 125)?;
    daemon
        .request("POST", &format!("{made}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &made, "exited")?;
    daemon.request("DELETE", &made, b"")?.expect(204)?;
    let removed = ask(&["snapshot", "rm", "warm"], "", 0)?;
    check("rm", removed == "warm\n", &removed)
}

/// Snapshots with so much memory that it is mapped, not read, once its checksums were right.
pub fn of_much_memory() -> Result<()> {
    let daemon = start("pool = 1")?;
    let text = "cd /tmp; bb=/bin/busybox; $bb dd if=/dev/zero bs=64k count=16 2>/dev/null | $bb tr '\\0' x >a; \
        cat a a a a a a a a a a >b; cat b b b b b b b b b b >f; echo ready; read line; \
        for n in 0 33 66 99; do $bb dd if=f bs=1M skip=$n count=1 2>/dev/null | $bb cmp - a && echo same; done; \
        echo y >>f; $bb stat -c %s f";
    let mut spec = script("large", text);
    spec["interactive"] = true.into();
    spec["memory"] = (256u64 << 20).into();
    let large = machine(&daemon, &spec)?;
    until(|| log(&daemon, &large).is_ok_and(|log| log == "ready\n"))?;
    made(&daemon, &large, "large")?;
    let expected = "same\nsame\nsame\nsame\n104857602\n";
    // Checksums count only for files that have settled: from the third run on they are known.
    for round in 0..4 {
        let outcome = run(&daemon, &json!({ "snapshot": "large", "stdin": "\n" }))?;
        let right = outcome["stdout"]["text"] == expected && outcome["exit_code"] == 0;
        check("the memory", right, &(round, &outcome))?;
        thread::sleep(Duration::from_millis(1100));
    }
    Ok(())
}

/// Runs get their outcome also if they end while the daemon sends them a translation.
pub fn late_translations() -> Result<()> {
    const RUNS: usize = 100;
    // A translation of busybox takes longer: a run asks for it, and gets an answer a second later.
    let daemon = Daemon::start("pool = 2\ntranslation_timeout_s = 1")?;
    push_untranslated(&daemon)?;
    let mut spec = script("reading", "echo ready; read line; echo $line");
    spec["interactive"] = true.into();
    let reading = machine(&daemon, &spec)?;
    until(|| log(&daemon, &reading).is_ok_and(|log| log == "ready\n"))?;
    made(&daemon, &reading, "warm")?;
    let work = |worker: usize| -> std::result::Result<(), String> {
        for number in 0..RUNS {
            let text = format!("{worker} {number}");
            let request = json!({ "snapshot": "warm", "stdin": format!("{text}
") });
            let outcome = run(&daemon, &request);
            let outcome = outcome.map_err(|error| format!("{error:?}, {}", daemon.log()))?;
            if outcome["stdout"]["text"] != format!("{text}\n") || outcome["exit_code"] != 0 {
                return Err(outcome.to_string());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|done| Ok(done.map_err(|_| "a panic")??))
    })
}
