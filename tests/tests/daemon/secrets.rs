//! Secrets: who gets them, and where they are not.

use super::commands::client;
use super::{await_state, check, tar};
use hartline_tests::daemon::{Answer, Daemon};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, paths};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A value that is found wherever it is.
const VALUE: &str = "fx3o-value-of-a-secret-9qz1";

fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

fn put(daemon: &Daemon, name: &str, contents: &[u8]) -> Result<Answer> {
    let headers = [("Content-Type", "application/octet-stream")];
    daemon.request_with("PUT", &format!("/v1/secrets/{name}"), &headers, contents)
}

/// A daemon with the program `tools`, which is busybox.
fn start() -> Result<Daemon> {
    let daemon = Daemon::start("pool = 1")?;
    daemon.give_image(&paths::busybox())?;
    let busybox = fs::read(paths::busybox())?;
    daemon.push_packed("name=tools", &tar(&[("bin/busybox", b'0', "", &busybox)]))?;
    Ok(daemon)
}

/// A request that runs a script with secrets.
fn script(script: &str, secrets: &Value) -> Value {
    json!({ "program": "tools", "path": "/bin/busybox", "args": ["sh", "-c", script],
        "secrets": secrets })
}

fn prints(daemon: &Daemon, request: &Value, output: &str) -> Result<()> {
    let outcome = post(daemon, "/v1/runs", request)?.expect(200)?.json();
    check(output, outcome["stdout"]["text"] == output, &outcome)
}

/// Files below a directory that contain a text. A file that the daemon renames meanwhile may be missed: then all are
/// read again.
fn containing(directory: &Path, text: &str) -> Result<Vec<String>> {
    fs::metadata(directory)?;
    loop {
        match search(directory, text) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return Ok(found?),
        }
    }
}

fn search(directory: &Path, text: &str) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            found.extend(search(&path, text)?);
        } else if kind.is_file() {
            let bytes = fs::read(&path)?;
            if bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
            {
                found.push(path.display().to_string());
            }
        }
    }
    Ok(found)
}

pub fn are_given() -> Result<()> {
    let daemon = start()?;
    put(&daemon, "token", b"old")?.expect(201)?;
    put(&daemon, "token", VALUE.as_bytes())?.expect(204)?;
    put(&daemon, "key.pem", b"\0\xff\n")?.expect(201)?;
    let both = json!([{ "secret": "token" }, { "secret": "key.pem", "file": "tls" },
        { "secret": "token", "env": "TOKEN" }]);
    // What the program prints is kept on the disk, so it prints the value backwards.
    let test = "b=/bin/busybox; cd /run/secrets; $b rev token; echo; echo $TOKEN | $b rev; \
        $b od -An -tx1 tls; $b stat -c '%a %u %n' *";
    let backwards: String = VALUE.chars().rev().collect();
    let expected = |user: &str| {
        format!("{backwards}\n{backwards}\n 00 ff 0a\n400 {user} tls\n400 {user} token\n")
    };
    prints(&daemon, &script(test, &both), &expected("0"))?;
    let mut request = script(test, &both);
    request["user"] = "1000:7".into();
    request["read_only"] = true.into();
    prints(&daemon, &request, &expected("1000"))?;
    // A machine gets the contents at its start; commands in it get the same environment.
    let mut idle = script("while :; do /bin/busybox sleep 1; done", &both);
    idle["start"] = true.into();
    let machine = post(&daemon, "/v1/machines", &idle)?.expect(201)?;
    let machine = format!("/v1/machines/{}", machine.text("id"));
    await_state(&daemon, &machine, "running")?;
    let command = json!({ "command": ["/bin/busybox", "sh", "-c", test] });
    let ended = post(&daemon, &format!("{machine}/exec"), &command)?.expect(200)?;
    let output = ended.json()["stdout"]["text"].clone();
    check("a command", output == expected("0"), &ended)?;
    let used = daemon.request("DELETE", "/v1/secrets/token", b"")?;
    check("in use", used.text("code") == "secret-in-use", &used)?;
    let snapshot = post(&daemon, &format!("{machine}/snapshots"), &json!({}))?;
    check(
        "no snapshot",
        snapshot.text("code") == "no-snapshot",
        &snapshot,
    )?;

    let listed = daemon.request("GET", "/v1/secrets", b"")?.expect(200)?;
    let names: Vec<_> = listed
        .json()
        .as_array()
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let names: Vec<_> = names.iter().map(|secret| secret["name"].clone()).collect();
    check("list", names == [json!("key.pem"), json!("token")], &listed)?;
    // The value is in no answer, no log and no file of the daemon.
    let shown = daemon.request("GET", &machine, b"")?;
    check(
        "the machine",
        shown.json()["spec"]["secrets"] == both,
        &shown,
    )?;
    check("log", !daemon.log().contains(VALUE), &daemon.log())?;
    let files = containing(&daemon.data(), VALUE)?;
    check("files", files.is_empty(), &files)
}

pub fn refused() -> Result<()> {
    let mut daemon = start()?;
    put(&daemon, "token", VALUE.as_bytes())?.expect(201)?;
    put(&daemon, "binary", b"a\0b")?.expect(201)?;
    for (name, contents, status) in [
        ("-x", "a", 422),
        (".x", "a", 422),
        ("a%2Fb", "a", 422),
        (&*"x".repeat(64), "a", 422),
        ("empty", "", 422),
        ("long", &*"x".repeat(65_537), 422),
        ("longer", &*"x".repeat(300_000), 413),
    ] {
        let refused = put(&daemon, name, contents.as_bytes())?;
        check(name, refused.status == status, &refused)?;
    }
    put(&daemon, "longest", "x".repeat(65_536).as_bytes())?.expect(201)?;
    let many: Vec<_> = (0..33)
        .map(|n| json!({ "secret": "token", "env": format!("A{n}") }))
        .collect();
    let large: Vec<_> = (0..5)
        .map(|n| json!({ "secret": "longest", "file": format!("f{n}") }))
        .collect();
    for (secrets, status, code) in [
        (json!([{ "secret": "none" }]), 404, "not-found"),
        (json!([{ "secret": "../x" }]), 422, "invalid-field"),
        (
            json!([{ "secret": "token", "file": "a/b" }]),
            422,
            "invalid-field",
        ),
        (
            json!([{ "secret": "token", "file": ".." }]),
            422,
            "invalid-field",
        ),
        (
            json!([{ "secret": "token", "env": "A=B" }]),
            422,
            "invalid-field",
        ),
        (
            json!([{ "secret": "token", "env": "" }]),
            422,
            "invalid-field",
        ),
        (
            json!([{ "secret": "token", "value": "x" }]),
            422,
            "invalid-field",
        ),
        (
            json!([{ "secret": "token" }, { "secret": "token" }]),
            409,
            "secret-twice",
        ),
        (
            json!([{ "secret": "binary", "env": "A" }]),
            409,
            "unusable-secret",
        ),
        (json!(many), 422, "invalid-field"),
        (json!(large), 409, "unusable-secret"),
    ] {
        let refused = post(&daemon, "/v1/runs", &script("exit", &secrets))?;
        let is_right = refused.status == status && refused.text("code") == code;
        check(&secrets.to_string(), is_right, &refused)?;
    }
    let body = json!({ "name": "data", "size": 1 << 20 });
    post(&daemon, "/v1/volumes", &body)?.expect(201)?;
    let mut hidden = script("exit", &json!([{ "secret": "token" }]));
    hidden["volumes"] = json!([{ "volume": "data", "path": "/run/secrets" }]);
    let refused = post(&daemon, "/v1/runs", &hidden)?;
    check("hidden", refused.text("code") == "secrets-hidden", &refused)?;
    // Secrets of one tenant are not those of another.
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let other = [("Hartline-Tenant", "other")];
    let list = daemon.request_with("GET", "/v1/secrets", &other, b"")?;
    check("none", list.body == b"[]", &list)?;
    let missing = daemon.request_with("DELETE", "/v1/secrets/token", &other, b"")?;
    check("not found", missing.status == 404, &missing)?;

    // Under another key they cannot be used, and say what to do.
    daemon.terminate()?;
    fs::remove_file(daemon.data().join("secrets.key"))?;
    daemon.restart()?;
    let mut start = script("exit", &json!([{ "secret": "token" }]));
    let refused = post(&daemon, "/v1/runs", &start)?;
    let told = refused.text("detail").contains("secrets.key");
    check("another key", told && refused.status == 409, &refused)?;
    start["start"] = true.into();
    let machine = post(&daemon, "/v1/machines", &start)?.expect(201)?;
    let machine = format!("/v1/machines/{}", machine.text("id"));
    await_state(&daemon, &machine, "failed")?;
    let failed = daemon.request("GET", &machine, b"")?;
    check(
        "why",
        failed.text("message").contains("secrets.key"),
        &failed,
    )?;
    put(&daemon, "token", b"new")?.expect(204)?;
    let test = script(
        "/bin/busybox cat /run/secrets/token",
        &json!([{ "secret": "token" }]),
    );
    prints(&daemon, &test, "new")
}

/// A root file system in which the directory of the files is none, or is a link.
pub fn of_other_roots() -> Result<()> {
    let daemon = start()?;
    put(&daemon, "token", VALUE.as_bytes())?.expect(201)?;
    let busybox = fs::read(paths::busybox())?;
    let program = ("bin/busybox", b'0', "", &busybox[..]);
    let cat = |program: &str| {
        let secrets = json!([{ "secret": "token" }]);
        let mut request = script("/bin/busybox cat /run/secrets/token", &secrets);
        request["program"] = program.into();
        post(&daemon, "/v1/runs", &request)
    };
    for (name, member) in [
        ("file", ("run", b'0', "", &b"x"[..])),
        ("file-below", ("run/secrets", b'0', "", b"x")),
        ("link", ("run", b'2', "/etc", b"")),
        ("link-below", ("run/secrets", b'2', "..", b"")),
        (
            "taken",
            ("run/secrets/token", b'0', "", b"of the root file system"),
        ),
    ] {
        daemon.push_packed(&format!("name={name}"), &tar(&[program, member]))?;
        let outcome = cat(name)?.expect(200)?.json();
        let told = outcome["message"].as_str().unwrap_or_default();
        let is_right = outcome["exit_code"] == 125 && told.contains("secret");
        check(name, is_right && outcome["stdout"]["text"] == "", &outcome)?;
    }
    // A tenant takes its secrets with it.
    let other = [
        ("Hartline-Tenant", "other"),
        ("Content-Type", "application/octet-stream"),
    ];
    for _ in 0..2 {
        daemon
            .request("PUT", "/v1/tenants/other", b"{}")?
            .expect(200)?;
        let list = daemon.request_with("GET", "/v1/secrets", &other[..1], b"")?;
        check("none", list.body == b"[]", &list)?;
        daemon
            .request_with("PUT", "/v1/secrets/token", &other, b"value")?
            .expect(201)?;
        daemon
            .request("DELETE", "/v1/tenants/other", b"")?
            .expect(204)?;
    }
    Ok(())
}

pub fn of_the_command_line() -> Result<()> {
    let daemon = start()?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("contents");
    fs::write(&file, "of a file")?;
    let file = file.display().to_string();
    let succeeds = |arguments: &[&str], input: &str, expected: &str| {
        let output = client(&daemon, arguments, input)?;
        let is_right = output.status.success() && output.stdout == expected.as_bytes();
        check(&arguments.join(" "), is_right, &output)
    };
    succeeds(&["secret", "set", "one"], "of stdin", "one\n")?;
    succeeds(&["secret", "set", "two", "--file", &file], "", "two\n")?;
    succeeds(&["secrets"], "", "NAME\none\ntwo\n")?;
    let test = "echo $A; /bin/busybox cat /run/secrets/one /run/secrets/b";
    let options = [
        "--secret",
        "one",
        "--secret",
        "two,target=b",
        "--secret",
        "two,type=env,target=A",
    ];
    let program = ["--path", "/bin/busybox", "tools", "sh", "-c", test];
    let submit = [&["submit"], &options[..], &program].concat();
    succeeds(&submit, "", "of a file\nof stdinof a file")?;
    let empty = client(&daemon, &["secret", "set", "three"], "")?;
    check("empty", empty.status.code() == Some(125), &empty)?;
    succeeds(&["secret", "rm", "one", "two"], "", "one\ntwo\n")?;
    succeeds(&["secrets"], "", "NAME\n")
}
