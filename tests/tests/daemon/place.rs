//! Where a program finds itself: user, home, directory, host name, and a root that it may write to.

use super::commands::client;
use super::{await_state, check, run, tar};
use hartline_tests::daemon::Daemon;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, paths, process};
use serde_json::{Value, json};
use std::fs;

/// Prints all of them, writes to the root, and listens on a port below 1024.
const SCRIPT: &str = "b=/bin/busybox; $b id -u; $b id -g; pwd; $b hostname; \
    echo $HOME $($b env | $b sed -n s/^HOSTNAME=//p) $A; \
    $b touch /new 2>/dev/null && echo written; $b httpd -p 127.0.0.1:80 2>/dev/null && echo listens; \
    echo end";

/// Fields of the request, or options, and the output.
type Row = (Value, &'static [&'static str], &'static str);

pub fn of_programs() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    daemon.give_image(&paths::busybox())?;
    let busybox = fs::read(paths::busybox())?;
    let archive = tar(&[
        ("bin/busybox", b'0', "", &busybox),
        ("tmp", b'5', "", b""),
        ("root", b'5', "", b""),
    ]);
    daemon.push_packed("name=tools", &archive)?;
    let script = json!(["sh", "-c", SCRIPT]);
    let request = || json!({ "program": "tools", "path": "/bin/busybox", "args": script });
    let rows: [Row; 4] = [
        (
            json!({}),
            &[],
            "0\n0\n/\nhartline\n/root hartline\nwritten\nlistens\nend\n",
        ),
        (
            json!({ "user": "1000:7", "workdir": "/tmp", "hostname": "web-1" }),
            &[
                "--user",
                "1000:7",
                "--workdir",
                "/tmp",
                "--hostname",
                "web-1",
            ],
            "1000\n7\n/tmp\nweb-1\n/ web-1\nend\n",
        ),
        (
            json!({ "user": "5", "env": { "A": "given", "HOME": "/tmp" } }),
            &["-u", "5", "-e", "A=given", "-e", "HOME=/tmp"],
            "5\n0\n/\nhartline\n/tmp hartline given\nend\n",
        ),
        (
            json!({ "read_only": true, "workdir": "/root" }),
            &["--read-only", "-w", "/root"],
            "0\n0\n/root\nhartline\n/root hartline\nlistens\nend\n",
        ),
    ];
    for (fields, options, expected) in rows {
        let mut request = request();
        for (name, value) in fields.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        let outcome = run(&daemon, &request)?;
        let right = outcome["stdout"]["text"] == expected;
        check(&fields.to_string(), right, &outcome)?;
        let command = [
            &[
                "submit",
                "--rm",
                "--memory",
                "128M",
                "--path",
                "/bin/busybox",
            ],
            options,
            &["tools", "sh", "-c", SCRIPT],
        ];
        let output = client(&daemon, &command.concat(), "")?;
        check("submitted", output.stdout == expected.as_bytes(), &output)?;
    }
    let mut nowhere = request();
    nowhere["workdir"] = "/nowhere".into();
    let outcome = run(&daemon, &nowhere)?;
    let told = outcome["message"].as_str().unwrap_or_default();
    let right = outcome["exit_code"] == 125 && told.contains("working directory");
    check("no such directory", right, &outcome)?;
    for (field, value) in [("user", "root"), ("workdir", "tmp"), ("hostname", "a b")] {
        let mut wrong = request();
        wrong[field] = value.into();
        let refused = daemon.request("POST", "/v1/runs", wrong.to_string().as_bytes())?;
        let right = refused.status == 422 && refused.text("field") == field;
        check(field, right, &refused)?;
    }
    Ok(())
}

/// The program owns what it makes in a volume, whatever user it is.
pub fn in_volumes() -> Result<()> {
    const SCRIPT: &str = "cd /x; b=/bin/busybox; $b mkdir $1; umask 077; echo one >$1/f; \
        echo two >>$1/f; $b stat -c %u:%g $1 $1/f; $b chown $2 $1/f && $b cat $1/f";
    let daemon = Daemon::start("pool = 1")?;
    daemon.give_image(&paths::busybox())?;
    let busybox = fs::read(paths::busybox())?;
    let archive = tar(&[("bin/busybox", b'0', "", &busybox)]);
    daemon.push_packed("name=tools", &archive)?;
    let volume = json!({ "name": "data", "size": 4 << 20 }).to_string();
    daemon
        .request("POST", "/v1/volumes", volume.as_bytes())?
        .expect(201)?;
    for (user, owner) in [("0", "0:0"), ("1000:7", "1000:7")] {
        let body = json!({ "program": "tools", "path": "/bin/busybox", "user": user, "start": true,
            "args": ["sh", "-c", SCRIPT, "sh", format!("of-{user}"), owner],
            "volumes": [{ "volume": "data", "path": "/x" }] });
        let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
        let machine = format!("/v1/machines/{}", made.expect(201)?.text("id"));
        await_state(&daemon, &machine, "exited")?;
        let log = daemon.request("GET", &format!("{machine}/logs"), b"")?;
        let expected = format!("{owner}\n{owner}\none\ntwo\n");
        check(user, log.body == expected.as_bytes(), &log)?;
    }
    Ok(())
}

/// `hartline run` has the same options.
pub fn of_run() -> Result<()> {
    let root = Scratch::new()?;
    for name in ["bin", "tmp"] {
        fs::create_dir(root.path().join(name))?;
    }
    fs::copy(paths::busybox(), root.path().join("bin/busybox"))?;
    let file = root.path().join("tmp/variables");
    fs::write(&file, "# comment\nA=file\nB=file\n")?;
    let run = |options: &[&str], expected: &str| -> Result<()> {
        let mut command = hartline_tests::hartline::command("run")?;
        command.args(["--interpret", "-i", "--rm", "-m", "128M", "--rootfs"]);
        command.arg(root.path()).args(options).arg("/bin/busybox");
        let outcome = process::run(command.args(["sh", "-c", SCRIPT]), b"")?;
        let right = outcome.code == 0 && outcome.stdout_text() == expected;
        check(&options.join(" "), right, &outcome)
    };
    run(&[], "0\n0\n/\nhartline\n/\nwritten\nlistens\nend\n")?;
    let variables = file.display().to_string();
    let options = [
        "-u",
        "9",
        "-w",
        "/tmp",
        "--hostname",
        "vm",
        "--env-file",
        &variables,
    ];
    run(&options, "9\n0\n/tmp\nvm\n/ vm file\nend\n")?;
    let options = ["--read-only", "--env-file", &variables, "-e", "A=given"];
    run(&options, "0\n0\n/\nhartline\n/ given\nlistens\nend\n")?;
    let mut command = hartline_tests::hartline::command("run")?;
    let outcome = process::run(command.args(["-t", "/bin/true"]), b"")?;
    let told = outcome.stderr_text();
    check(
        "no terminal",
        outcome.code == 125 && told.contains("not a terminal"),
        &told,
    )
}
