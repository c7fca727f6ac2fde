//! Figures of the last hour, for the graphs of the page.

use super::exec::push;
use super::{await_state, check, key};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use serde_json::{Value, json};

/// The daemon keeps figures of each tenant, and of all together.
pub fn figures() -> Result<()> {
    let daemon = Daemon::start("pool = 2")?;
    push(&daemon)?;
    let volume = br#"{"name": "data", "size": 16777216}"#;
    daemon.request("POST", "/v1/volumes", volume)?.expect(201)?;
    let script = "while :; do echo x >/data/x; cat /data/x; sleep 1; done";
    let machine = json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", script], "name": "box",
        "volumes": [{ "volume": "data", "path": "/data" }], "start": true });
    daemon
        .request("POST", "/v1/machines", machine.to_string().as_bytes())?
        .expect(201)?;
    await_state(&daemon, "/v1/machines/box", "running")?;
    for code in ["0", "3"] {
        let run = json!({ "program": "tools", "path": "/bin/sh", "args": ["-c", format!("exit {code}")] });
        daemon
            .request("POST", "/v1/runs", run.to_string().as_bytes())?
            .expect(200)?;
    }
    let (own, other) = (
        key(&daemon, "default", "read")?,
        key(&daemon, "other", "read")?,
    );
    let ask = |key: &str, query: &str| -> Result<Answer> {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        daemon.request_with("GET", &format!("/v1/history{query}"), &headers, b"")
    };
    let sum = |samples: &Value, field: &str| -> u64 {
        let samples = samples.as_array().into_iter().flatten();
        samples.filter_map(|sample| sample[field].as_u64()).sum()
    };
    until(|| {
        let samples = daemon
            .request("GET", "/v1/history", b"")
            .map(|answer| answer.json());
        samples.is_ok_and(|samples| sum(&samples, "operations") > 0 && sum(&samples, "exits") > 0)
    })?;
    let all = daemon
        .request("GET", "/v1/history", b"")?
        .expect(200)?
        .json();
    let last = all
        .as_array()
        .and_then(|samples| samples.last())
        .cloned()
        .unwrap_or_default();
    let right =
        last["running"] == 1 && last["vcpus"] == 1 && last["memory"].as_u64() >= Some(64 << 20);
    check("the present", right, &all)?;
    check(
        "its time",
        last["span_ms"].as_u64() >= Some(9_000) && last["time_ms"].is_u64(),
        &last,
    )?;
    let ends = (sum(&all, "ended"), sum(&all, "unsuccessful"));
    check("ends", ends == (2, 1), &all)?;
    check(
        "requests",
        sum(&all, "requests") > 3 && sum(&all, "cpu_ms") > 0,
        &all,
    )?;
    let mine = ask(&own, "")?.expect(200)?.json();
    check(
        "the own tenant",
        sum(&mine, "ended") == 2 && sum(&mine, "running") > 0,
        &mine,
    )?;
    let theirs = ask(&other, "")?.expect(200)?.json();
    let fields = ["running", "memory", "ended", "operations", "cpu_ms"];
    check(
        "another tenant",
        fields.iter().all(|field| sum(&theirs, field) == 0),
        &theirs,
    )?;
    let of_tenant = daemon
        .request("GET", "/v1/history?tenant=other", b"")?
        .expect(200)?
        .json();
    check("of a tenant", sum(&of_tenant, "running") == 0, &of_tenant)?;
    let after = format!("?after_ms={}", last["time_ms"]);
    let later = ask(&own, &after)?.expect(200)?.json();
    let is_later = |sample: &Value| sample["time_ms"].as_u64() > last["time_ms"].as_u64();
    check(
        "later ones",
        later.as_array().is_some_and(|all| all.iter().all(is_later)),
        &later,
    )?;
    for (key, query, status) in [
        (&other, "?tenant=default", 403),
        (&other, "?tenant=nobody", 403),
        (&own, "?tenant=default", 200),
        (&own, "?after_ms=x", 400),
        (&own, "?after_ms=-1", 422),
        (&"hl_0_0".to_owned(), "", 401),
    ] {
        let answer = ask(key, query)?;
        check(query, answer.status == status, &answer)?;
    }
    let nobody = daemon.request("GET", "/v1/history?tenant=nobody", b"")?;
    check("no tenant", nobody.status == 404, &nobody)?;
    let headers = [("Authorization", format!("Bearer {other}"))];
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let identity = daemon
        .request_with("GET", "/v1/identity", &headers, b"")?
        .expect(200)?;
    check(
        "identity",
        identity.json() == json!({ "tenant": "other", "scope": "read" }),
        &identity,
    )
}
