//! Lists come page by page, with links to the next page.

use super::commands::client;
use super::{check, start};
use hartline_tests::Result;
use hartline_tests::daemon::{Answer, Daemon, until};
use serde_json::{Value, json};

/// The address of the next page.
fn next(answer: &Answer) -> Option<String> {
    let mut lines = answer.head.lines();
    let link = lines.find_map(|line| line.strip_prefix("link: <"))?;
    let (address, relation) = link.split_once('>')?;
    (relation == "; rel=\"next\"").then(|| address.to_owned())
}

/// The values of a field of all entries of a list, and the number of pages.
fn follow(daemon: &Daemon, path: &str, field: &str) -> Result<(Vec<String>, usize)> {
    let (mut all, mut pages, mut path) = (Vec::new(), 0, Some(path.to_owned()));
    while let Some(page) = path {
        let answer = daemon.request("GET", &page, b"")?.expect(200)?;
        let entries = answer.json();
        let values = entries.as_array().into_iter().flatten();
        let text = |entry: &Value| entry[field].as_str().unwrap_or_default().to_owned();
        all.extend(values.map(text));
        pages += 1;
        path = next(&answer);
    }
    Ok((all, pages))
}

/// Asks for an object to be made. Result: its id.
fn post(daemon: &Daemon, path: &str, request: &Value) -> Result<String> {
    let made = daemon.request("POST", path, request.to_string().as_bytes())?;
    match made.status {
        201 | 202 => Ok(made.text("id")),
        _ => Err(format!("{made:?}").into()),
    }
}

pub fn links() -> Result<()> {
    let (daemon, program) = start()?;
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let machine = |number: u32| {
        let request = json!({ "program": program, "labels": { "a b": (number % 2).to_string() } });
        post(&daemon, "/v1/machines", &request)
    };
    let machines = (0..6).map(machine).collect::<Result<Vec<_>>>()?;
    let odd = machines.iter().skip(1).step_by(2).cloned().collect();
    let path = "/v1/machines?limit=2&label=a%20b%3D1";
    let found = follow(&daemon, path, "id")?;
    check("with a label", found == (sorted(odd), 2), &found)?;
    let all = sorted(machines.clone());
    for (limit, pages) in [(1, 6), (4, 2), (6, 1), (1000, 1)] {
        let found = follow(&daemon, &format!("/v1/machines?limit={limit}"), "id")?;
        check("machines", found == (all.clone(), pages), &found)?;
    }
    for name in ["a", "b", "c"] {
        let request = json!({ "name": name, "size": 1 << 20 });
        post(&daemon, "/v1/volumes", &request)?;
    }
    let found = follow(&daemon, "/v1/volumes?limit=2", "name")?;
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    check("volumes", found == (names, 2), &found)?;
    let found = follow(&daemon, "/v1/programs?limit=1", "id")?;
    check("programs", found == (vec![program], 1), &found)
}

/// `GET /v1/runs`, and `hartline runs`.
pub fn of_runs() -> Result<()> {
    let (daemon, program) = start()?;
    let submit = |argument: &str| {
        let request = json!({ "program": program, "args": [argument], "wait": false,
            "labels": { "kind": argument } });
        post(&daemon, "/v1/runs", &request)
    };
    let mut ended = vec![submit("exit")?, submit("exit")?];
    ended.sort();
    let spin = submit("spin")?;
    let ids = |query: &str| follow(&daemon, &format!("/v1/runs?{query}"), "id");
    until(|| ids("state=exited").is_ok_and(|found| found == (ended.clone(), 1)))?;
    check("page by page", ids("limit=1")?.1 == 3, &ended)?;
    for query in ["label=kind=spin", "state=running"] {
        until(|| ids(query).is_ok_and(|found| found.0 == [spin.clone()]))?;
    }
    for (query, count) in [
        ("program=service", 3),
        (&format!("program={}", &program[..9]), 3),
        ("program=nothing", 0),
    ] {
        check(query, ids(query)?.0.len() == count, &query)?;
    }
    let listed = daemon.request("GET", "/v1/runs?state=exited&limit=1", b"")?;
    let entry = &listed.json()[0];
    let right = entry["exit_code"] == 7 && entry["spec"]["args"] == json!(["exit"]);
    check("an entry", right && entry.get("outcome").is_none(), &entry)?;
    for (query, status) in [("limit=0", 422), ("label=x", 422), ("name=x", 400)] {
        let refused = daemon.request("GET", &format!("/v1/runs?{query}"), b"")?;
        check(query, refused.status == status, &refused)?;
    }
    let output = client(&daemon, &["runs", "--filter", "state=exited"], "")?;
    let table = String::from_utf8(output.stdout)?;
    let shown = ended.iter().all(|id| table.contains(&id[..12])) && !table.contains("spin");
    check("its table", shown && table.lines().count() == 3, &table)?;
    let path = format!("/v1/runs/{spin}");
    daemon.request("DELETE", &path, b"")?.expect(204)?;
    check(
        "no machines",
        follow(&daemon, "/v1/machines", "id")?.0.is_empty(),
        &"found",
    )
}

/// The client follows the links: it asks for a thousand entries at a time.
pub fn followed() -> Result<()> {
    let (daemon, program) = start()?;
    let request = json!({ "program": program });
    for _ in 0..1001 {
        post(&daemon, "/v1/machines", &request)?;
    }
    let output = client(&daemon, &["ps", "--quiet"], "")?;
    let count = String::from_utf8(output.stdout)?.lines().count();
    check("all of them", count == 1001, &count)
}
