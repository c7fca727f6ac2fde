//! Metrics, and the alert rules and the dashboard that use them.

use super::{await_state, check, connections, machine, run, start, start_with};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, paths, process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn metrics(daemon: &Daemon) -> Result<String> {
    let answer = daemon.request("GET", "/metrics", b"")?.expect(200)?;
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    check("type", answer.head.contains(kind), &answer.head)?;
    Ok(String::from_utf8(answer.body)?)
}

/// The value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The kinds of all metrics by their names.
fn kinds(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines();
    let kinds = lines.filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    kinds.collect()
}

/// The name of the metric that a sample belongs to, if there is one.
fn metric_of<'a>(kinds: &BTreeMap<&'a str, &'a str>, sample: &'a str) -> Option<&'a str> {
    let suffixes = [
        ("_total", "counter"),
        ("_info", "info"),
        ("_bucket", "histogram"),
        ("_sum", "histogram"),
        ("_count", "histogram"),
        ("", "gauge"),
    ];
    suffixes.into_iter().find_map(|(suffix, kind)| {
        let name = sample.strip_suffix(suffix)?;
        kinds
            .get(name)
            .is_some_and(|found| *found == kind)
            .then_some(name)
    })
}

/// Every kind of figure is there, with the right number, in the form of OpenMetrics.
pub fn figures() -> Result<()> {
    let (daemon, program) = start()?;
    for args in [json!([]), json!(["exit"]), json!(["exit"])] {
        run(&daemon, &json!({ "program": program, "args": args }))?;
    }
    let body = json!({ "program": program, "args": ["exit"], "restart": "on-failure:1",
        "start": true });
    let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
    let failing = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    await_state(&daemon, &failing, "exited")?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    daemon
        .request("GET", "/v1/machines/nothing", b"")?
        .expect(404)?;
    daemon.request("GET", "/nowhere/else", b"")?.expect(404)?;
    let text = metrics(&daemon)?;
    for (series, expected) in [
        (r#"hartline_runs_total{outcome="success"}"#, 1.0),
        (r#"hartline_runs_total{outcome="nonzero"}"#, 2.0),
        (r#"hartline_runs_total{outcome="timeout"}"#, 0.0),
        (r#"hartline_machine_ends_total{outcome="nonzero"}"#, 2.0),
        ("hartline_machine_restarts_total", 1.0),
        (
            r#"hartline_tenant_ends_total{tenant="default",kind="run",outcome="nonzero"}"#,
            2.0,
        ),
        (
            r#"hartline_tenant_machines{tenant="default",kind="machine",state="running"}"#,
            1.0,
        ),
        (
            r#"hartline_tenant_machines{tenant="default",kind="machine",state="exited"}"#,
            1.0,
        ),
        (r#"hartline_queue_seconds_count{kind="run"}"#, 3.0),
        (r#"hartline_queue_seconds_count{kind="machine"}"#, 3.0),
        (r#"hartline_boot_seconds_count{kind="run"}"#, 3.0),
        (r#"hartline_program_seconds_count{kind="machine"}"#, 2.0),
        ("hartline_vms_running", 1.0),
        ("hartline_unwritten_ends", 0.0),
        (
            r#"hartline_http_request_seconds_count{method="POST",route="/v1/runs",status="200"}"#,
            3.0,
        ),
        (
            r#"hartline_http_request_seconds_count{method="GET",route="/v1/machines/{id}",status="404"}"#,
            1.0,
        ),
        (
            r#"hartline_http_request_seconds_count{method="GET",route="other",status="404"}"#,
            1.0,
        ),
    ] {
        check(series, value(&text, series) == Some(expected), &text)?;
    }
    for series in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        r#"hartline_vm_exits_total{reason="calls"}"#,
        "hartline_vm_kvm_exits_total",
        "hartline_disk_size_bytes",
        "hartline_disk_free_bytes",
        "hartline_image_bytes",
        "hartline_memory_bytes",
    ] {
        let found = value(&text, series);
        check(series, found.is_some_and(|value| value > 0.0), &text)?;
    }
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let build = text
        .lines()
        .find(|line| line.starts_with("hartline_build_info{"));
    check(
        "build",
        build.is_some_and(|line| line.contains(&version)),
        &text,
    )?;
    let kinds = kinds(&text);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        check(name, metric_of(&kinds, name).is_some(), &line)?;
    }
    for name in kinds.keys() {
        check(name, text.contains(&format!("# HELP {name} ")), &text)?;
    }
    check("its end", text.ends_with("\n# EOF\n"), &text)?;
    // What clients choose is no label: a tenant could make any number of series.
    let made_up = text.contains("nowhere") || text.contains(&failing);
    check("made up", !made_up, &text)
}

/// The names of metrics in expressions.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(move |c| !is_name(c));
    words.filter(|word| word.starts_with("hartline_") || word.starts_with("process_"))
}

/// Rules and dashboard use only metrics that there are.
pub fn rules() -> Result<()> {
    let (daemon, program) = start()?;
    run(&daemon, &json!({ "program": program }))?;
    machine(&daemon, &program, &["exit"])?;
    let text = metrics(&daemon)?;
    let folder = paths::repository().join("deploy/monitoring");
    let dashboard: Value = serde_json::from_slice(&fs::read(folder.join("dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().ok_or("no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array());
    let targets = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let alerts = fs::read_to_string(folder.join("alerts.yml"))?;
    let used: BTreeSet<&str> = targets.chain([alerts.as_str()]).flat_map(names).collect();
    check("many", used.len() > 25, &used)?;
    let kinds = kinds(&text);
    let missing: Vec<_> = used
        .iter()
        .filter(|name| metric_of(&kinds, name).is_none())
        .collect();
    check("missing", missing.is_empty(), &missing)?;
    // Each panel has its own place.
    let places = panels.iter().map(|panel| panel["gridPos"].to_string());
    let places: BTreeSet<_> = places.collect();
    check("places", places.len() == panels.len(), &places)
}

/// The metrics in the older format, which promtool checks.
fn classic(text: &str) -> String {
    let kinds = kinds(text);
    let lines = text.lines().filter(|line| *line != "# EOF");
    let convert = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (hash, word, name, rest) = (words.next(), words.next(), words.next(), words.next());
        let (Some("#"), Some(word), Some(name), Some(rest)) = (hash, word, name, rest) else {
            return line.to_owned();
        };
        match *kinds.get(name).unwrap_or(&"") {
            "counter" => format!("# {word} {name}_total {rest}"),
            "info" => format!("# {word} {name}_info {}", rest.replace("info", "gauge")),
            _ => line.to_owned(),
        }
    };
    lines.map(|line| convert(line) + "\n").collect()
}

/// promtool accepts the metrics, the rules and the configuration, and the rules pass their tests.
pub fn by_promtool(programs: &Path) -> Result<()> {
    let (daemon, program) = start()?;
    run(&daemon, &json!({ "program": program }))?;
    let metrics = classic(&metrics(&daemon)?);
    let folder = paths::repository().join("deploy/monitoring");
    for (arguments, input) in [
        (["check", "metrics", "--extended"], metrics.as_str()),
        (["check", "rules", "alerts.yml"], ""),
        (["test", "rules", "alerts-test.yml"], ""),
        (["check", "config", "prometheus.yml"], ""),
    ] {
        let mut promtool = Command::new(programs.join("promtool"));
        promtool.args(arguments).current_dir(&folder);
        if arguments[1] == "config" {
            // The key is not there.
            promtool.arg("--syntax-only");
        }
        let outcome = process::run(&mut promtool, input.as_bytes())?;
        check(arguments[1], outcome.code == 0, &outcome)?;
    }
    Ok(())
}

/// A process that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer of Prometheus to a query.
fn query(port: u16, expression: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let head = format!(
        "GET /api/v1/query?query={expression} HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
    Ok(serde_json::from_str(body)?)
}

/// Prometheus reads the metrics over TCP with a key.
pub fn by_prometheus(programs: &Path) -> Result<()> {
    let (daemon, program) = start_with("pool = 1\nlisten = '127.0.0.1:0'")?;
    run(&daemon, &json!({ "program": program }))?;
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "admin"}"#)?;
    let folder = Scratch::new()?;
    let key = folder.path().join("key");
    fs::write(&key, made.expect(201)?.text("key"))?;
    let configuration = folder.path().join("prometheus.yml");
    fs::write(
        &configuration,
        format!(
            "scrape_configs:\n- job_name: hartline\n  scrape_interval: 1s\n  authorization:\n    \
             credentials_file: {}\n  static_configs:\n  - targets: ['{}']\n",
            key.display(),
            connections::address(&daemon)?
        ),
    )?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let log = fs::File::create(folder.path().join("log"))?;
    let _prometheus = Ended(
        Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!(
                "--storage.tsdb.path={}/data",
                folder.path().display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?,
    );
    let value = |expression: &str| -> Option<String> {
        let answer = query(port, expression).ok()?;
        let value = answer.pointer("/data/result/0/value/1")?;
        Some(value.as_str()?.to_owned())
    };
    let told = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    until(|| value("up").as_deref() == Some("1")).map_err(|_| told())?;
    for (expression, expected) in [
        ("sum(hartline_runs_total)", "1"),
        ("hartline_build_info", "1"),
        ("sum(hartline_boot_seconds_count)", "1"),
        ("count(process_open_fds)", "1"),
    ] {
        until(|| value(expression).as_deref() == Some(expected))
            .map_err(|_| format!("{expression}: {:?}, {}", value(expression), told()))?;
    }
    Ok(())
}
