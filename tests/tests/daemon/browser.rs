//! The page at `/ui/` in Chromium.

use super::connections::address;
use super::exec::tools;
use super::ui::CONFIGURATION;
use super::{check, key};
use hartline_tests::browser::{Browser, Key};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::{Result, paths};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// With this variable, the test in a browser writes the pictures of the documentation.
const WRITE: &str = "HARTLINE_WRITE_PICTURES";
/// For how long the daemon works before pictures of its graphs are made.
const WORK: Duration = Duration::from_secs(240);

/// Text that would run if it became markup.
const MARKUP: &str = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script>";

/// What a browser shows, and does, with the page.
pub fn page(root: &Path) -> Result<()> {
    let daemon = Daemon::start(CONFIGURATION)?;
    let (acme, other) = (
        key(&daemon, "acme", "write")?,
        key(&daemon, "other", "write")?,
    );
    prepare(&daemon, &acme, "shop")?;
    prepare(&daemon, &other, "secret-of-the-other")?;
    let admin = key(&daemon, "default", "admin")?;
    let mut browser = Browser::start(root, (1024, 768))?;
    let shown = show(&mut browser, &daemon, [&acme, &other, &admin]);
    let log = browser.end();
    shown.map_err(|error| format!("{}\n{log}", error.message().unwrap_or("failed")).into())
}

/// Sends a request of a tenant.
fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &Value) -> Result<Answer> {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    daemon.request_with(method, path, &headers, body.as_bytes())
}

/// Makes a machine with a shell on a terminal, one that logs text like markup, and a run.
fn prepare(daemon: &Daemon, key: &str, name: &str) -> Result<()> {
    let upload = tools()?;
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str())];
    let encoded: String = MARKUP.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/v1/programs?name={encoded}");
    let id = daemon
        .request_with("POST", &path, &headers, &upload)?
        .expect(201)?
        .text("id");
    let is_packed = || {
        let program = ask(
            daemon,
            key,
            "GET",
            &format!("/v1/programs/{id}"),
            &Value::Null,
        );
        program
            .is_ok_and(|program| ["ready", "translating"].contains(&program.text("state").as_str()))
    };
    until(is_packed)?;
    let shell = json!({ "program": id, "path": "/bin/sh", "args": ["-i"], "name": name,
        "interactive": true, "terminal": {}, "env": { "PS1": "prompt> " }, "start": true });
    ask(daemon, key, "POST", "/v1/machines", &shell)?.expect(201)?;
    let script = format!("echo '{MARKUP}'; echo to-stderr >&2; sleep 100000");
    let logs = json!({ "program": id, "path": "/bin/sh", "args": ["-c", script],
        "name": format!("{name}.logs"), "labels": { "a": MARKUP }, "start": true });
    ask(daemon, key, "POST", "/v1/machines", &logs)?.expect(201)?;
    let run = json!({ "program": id, "path": "/bin/sh", "args": ["-c", "echo of the run; exit 3"],
        "wait": false });
    ask(daemon, key, "POST", "/v1/runs", &run)?.expect(202)?;
    Ok(())
}

/// A part of the page that the address names, without a reload.
fn go_to(browser: &mut Browser, part: &str, title: &str) -> Result<()> {
    browser.value(&format!("location.hash = '#/{part}'; 0"))?;
    browser.until(&format!(
        "document.querySelector('h1')?.textContent === {}",
        json!(title)
    ))
}

/// Checks that the page is usable: no horizontal scrolling, and names for all controls.
fn is_usable(browser: &mut Browser, part: &str) -> Result<()> {
    let width = browser.value("document.documentElement.scrollWidth")?;
    check(
        &format!("{part}: width"),
        width.as_u64() <= Some(1024),
        &width,
    )?;
    let nameless = browser.nameless()?;
    check(
        &format!("{part}: controls without names"),
        nameless.is_empty(),
        &nameless,
    )
}

fn sign_in(browser: &mut Browser, key: &str) -> Result<()> {
    browser.until("document.activeElement?.id === 'key'")?;
    browser.write(key)?;
    browser.press(Key::Enter)
}

fn show(browser: &mut Browser, daemon: &Daemon, [acme, other, admin]: [&str; 3]) -> Result<()> {
    let pictures = std::env::var_os(WRITE).map(|_| paths::repository().join("docs"));
    browser.go(&format!("http://{}/ui", address(daemon)?))?;
    sign_in(browser, "hl_0_0")?;
    browser.until_shown("The key is not valid.")?;
    let complaints = browser.complaints()?;
    let is_refusal = complaints.len() == 1 && complaints[0].contains("401");
    check("a wrong key", is_refusal, &complaints)?;
    is_usable(browser, "sign-in")?;
    sign_in(browser, acme)?;
    browser.until_shown("acme (write)")?;
    let is_kept = browser.value("sessionStorage.length === 1 && localStorage.length === 0")?;
    check(
        "the key is kept for this tab only",
        is_kept == true,
        &is_kept,
    )?;

    lists(browser)?;
    keyboard(browser)?;
    log(browser)?;
    terminal(browser, daemon, acme)?;
    actions(browser, daemon, acme)?;
    graphs(browser)?;
    let complaints = browser.complaints()?;
    check("complaints", complaints.is_empty(), &complaints)?;

    browser.click("button", "Sign out")?;
    browser.until("sessionStorage.length === 0")?;
    sign_in(browser, other)?;
    browser.until_shown("other (write)")?;
    go_to(browser, "machines", "Machines")?;
    browser.until_shown("secret-of-the-other")?;
    let text = browser.value("document.body.innerText")?;
    let has = |name| text.as_str().is_some_and(|text| text.contains(name));
    check("another tenant's machine", !has("shop"), &text)?;

    let reading = key(daemon, "other", "read")?;
    browser.click("button", "Sign out")?;
    sign_in(browser, &reading)?;
    browser.until_shown("other (read)")?;
    browser.until_shown("secret-of-the-other")?;
    let buttons = browser.value("document.querySelectorAll('main button').length")?;
    check(
        "buttons of a key that may only read",
        buttons == 0,
        &buttons,
    )?;

    browser.click("button", "Sign out")?;
    sign_in(browser, admin)?;
    browser.until_shown("default (admin)")?;
    administrator(browser)?;
    let complaints = browser.complaints()?;
    check("complaints", complaints.is_empty(), &complaints)?;
    if let Some(folder) = pictures {
        take_pictures(browser, daemon, (acme, &folder))?;
    }
    violations(browser)
}

/// The lists of the tenant's objects, without those of others.
fn lists(browser: &mut Browser) -> Result<()> {
    go_to(browser, "machines", "Machines")?;
    browser.until("document.querySelectorAll('tbody tr').length === 2")?;
    browser.until_shown("shop.logs")?;
    browser.until_shown(MARKUP)?;
    let text = browser.value("document.body.innerText")?;
    let is_foreign = text.as_str().is_none_or(|text| text.contains("secret"));
    check("another tenant's machine", !is_foreign, &text)?;
    is_usable(browser, "machines")?;
    go_to(browser, "runs", "Runs")?;
    browser.until_shown("exited (3)")?;
    is_usable(browser, "runs")?;
    let run = short_id(browser)?;
    browser.click("tbody a", &run)?;
    browser.until_shown("of the run")?;
    go_to(browser, "programs", "Programs")?;
    browser.until_shown(MARKUP)?;
    is_usable(browser, "programs")?;
    go_to(browser, "tenants", "Tenant acme")?;
    browser.until_shown("Storage")?;
    is_usable(browser, "tenants")?;
    for part in ["", "#/nothing", "#/machines/%/log", "#/machines/nothing"] {
        browser.value(&format!("location.hash = '{part}'; 0"))?;
        browser.until("document.querySelector('h1') !== null")?;
    }
    browser.until_shown("there is no such machine")?;
    // The console shows these refused requests too.
    let complaints = browser.complaints()?;
    let are_refusals = complaints.iter().all(|complaint| complaint.contains("404"));
    check("refused requests", are_refusals, &complaints)
}

/// The text of the first link in a list.
fn short_id(browser: &mut Browser) -> Result<String> {
    let text = browser.value("document.querySelector('tbody a').textContent")?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}

/// Links are reached and followed without a mouse.
fn keyboard(browser: &mut Browser) -> Result<()> {
    go_to(browser, "programs", "Programs")?;
    let mut stops = 0;
    while browser.value("document.activeElement.textContent")? != "Runs" {
        stops += 1;
        check("stops of the tabulator", stops < 40, &stops)?;
        browser.press(Key::Tab)?;
    }
    browser.press(Key::Enter)?;
    browser.until("document.querySelector('h1').textContent === 'Runs'")
}

/// The log of a machine, whose text stays text.
fn log(browser: &mut Browser) -> Result<()> {
    go_to(browser, "machines", "Machines")?;
    browser.click("tbody a", "shop.logs")?;
    browser.until_shown("Exits per operation")?;
    is_usable(browser, "details")?;
    browser.click("nav a", "Log")?;
    let log = "document.querySelector('pre.log')";
    browser.until(&format!(
        "{log}?.textContent === {}",
        json!(format!("{MARKUP}\n"))
    ))?;
    is_usable(browser, "log")?;
    browser.value("document.querySelector('section select').value = 'stderr'; 0")?;
    browser
        .value("document.querySelector('section select').dispatchEvent(new Event('change')); 0")?;
    browser.until(&format!("{log}.textContent === 'to-stderr\\n'"))?;
    let children = browser.value(&format!("{log}.children.length"))?;
    check("elements in the log", children == 0, &children)?;
    let hacked = browser.value("typeof window.hacked")?;
    check("text that ran", hacked == "undefined", &hacked)
}

/// The text of the terminal, as a screen reader reads it.
const SCREEN: &str = "[...document.querySelectorAll('.xterm-accessibility [role=listitem]')]\
    .map((line) => line.textContent.replaceAll('\\u00a0', ' ').trimEnd()).join('\\n')";

/// The terminal of the program and of a command, which follows the size of the page.
fn terminal(browser: &mut Browser, daemon: &Daemon, acme: &str) -> Result<()> {
    go_to(browser, "machines/shop/terminal", "shop")?;
    let sees = |text: &str| format!("{SCREEN}.includes({})", json!(text));
    browser.click("button", "Attach to the program")?;
    is_connected(browser)?;
    browser.write("echo $((40+2))-of-the-program")?;
    browser.press(Key::Enter)?;
    browser.until(&sees("\n42-of-the-program"))?;
    is_usable(browser, "terminal")?;
    // Another client's output arrives too: the terminal is the program's own.
    let log = ask(daemon, acme, "GET", "/v1/machines/shop/logs", &Value::Null)?;
    let text = String::from_utf8_lossy(&log.body).into_owned();
    check("its log", text.contains("42-of-the-program"), &text)?;
    browser.click("button", "Disconnect")?;
    browser.click("button", "Run in a terminal")?;
    is_connected(browser)?;
    let rows = "document.querySelectorAll('.xterm-accessibility [role=listitem]').length";
    let first = browser.value(rows)?;
    is_size(browser, &first, "one")?;
    browser.resize((1024, 1000))?;
    browser.until(&format!("{rows} > {first}"))?;
    let second = browser.value(rows)?;
    is_size(browser, &second, "two")?;
    browser.resize((1024, 768))?;
    browser.write("exit 7")?;
    browser.press(Key::Enter)?;
    browser.until_shown("Ended with exit code 7")
}

/// Waits until the terminal is connected and a shell has written its prompt.
fn is_connected(browser: &mut Browser) -> Result<()> {
    browser.until("document.querySelector('section [role=status]').textContent === 'Connected'")?;
    browser.until(&format!("{SCREEN}.includes('prompt>')"))
}

/// Waits until the terminal of the command has this number of lines, which arrives at some time.
fn is_size(browser: &mut Browser, rows: &Value, word: &str) -> Result<()> {
    browser.write(&format!(
        "until set $(stty size); test $1 = {rows}; do sleep 1; done; echo $((20+1))-{word}"
    ))?;
    browser.press(Key::Enter)?;
    browser.until(&format!("{SCREEN}.includes('21-{word}')"))
}

/// The graphs of the last hour, which has a sample after ten seconds.
fn graphs(browser: &mut Browser) -> Result<()> {
    go_to(browser, "overview", "The last hour")?;
    let drawn = "[...document.querySelectorAll('figure > svg path.plot')].filter((path) => path.getAttribute('d'))";
    browser.until(&format!("{drawn}.length > 5"))?;
    browser.until(
        "document.querySelector('figure svg').getAttribute('aria-label').includes('running')",
    )?;
    let texts = browser.value("[...document.querySelectorAll('figure svg text')].length")?;
    check("texts of the axes", texts.as_u64() > Some(40), &texts)?;
    is_usable(browser, "overview")
}

/// The buttons of a machine, and the error of a request that is refused.
fn actions(browser: &mut Browser, daemon: &Daemon, acme: &str) -> Result<()> {
    let state = |name: &str, wanted: &str| {
        let path = format!("/v1/machines/{name}");
        let found =
            || ask(daemon, acme, "GET", &path, &Value::Null).map(|found| found.text("state"));
        until(|| found().is_ok_and(|state| state == wanted))
    };
    go_to(browser, "machines/shop/details", "shop")?;
    browser.click("button", "Pause")?;
    state("shop", "paused")?;
    browser.click("button", "Resume")?;
    state("shop", "running")?;
    go_to(browser, "machines", "Machines")?;
    browser.click("button", "Stop shop.logs")?;
    state("shop.logs", "exited")?;
    browser.click("button", "Delete shop.logs")?;
    browser.until_shown("Delete shop.logs with its output?")?;
    browser.click("dialog button", "Cancel")?;
    browser.until("document.querySelector('dialog') === null")?;
    state("shop.logs", "exited")?;
    browser.click("button", "Delete shop.logs")?;
    browser.click("dialog button", "Delete")?;
    browser.until("document.querySelectorAll('tbody tr').length === 1")?;
    browser.click("button", "Kill shop")?;
    browser.click("dialog button", "Kill")?;
    state("shop", "exited")?;
    browser.until_shown("exited (137)")?;
    let complaints = browser.complaints()?;
    check("complaints", complaints.is_empty(), &complaints)?;
    // The program is in use: the page shows the daemon's reason.
    go_to(browser, "programs", "Programs")?;
    browser.click("button", &format!("Delete {MARKUP}"))?;
    browser.click("dialog button", "Delete")?;
    browser.until_shown("machines or snapshots have this program: delete them first")?;
    let complaints = browser.complaints()?;
    let is_refusal = complaints.len() == 1 && complaints[0].contains("409");
    check("a refused request", is_refusal, &complaints)
}

/// An administrator sees all tenants, and acts for one of them, also in a terminal.
fn administrator(browser: &mut Browser) -> Result<()> {
    go_to(browser, "tenants", "Tenants")?;
    browser.until("document.querySelectorAll('tbody tr').length === 3")?;
    is_usable(browser, "tenants")?;
    browser.click("tbody a", "other")?;
    browser.until_shown("Use of the tenant's quotas")?;
    browser.value("document.getElementById('tenant').value = 'other'; 0")?;
    browser.value("document.getElementById('tenant').dispatchEvent(new Event('change')); 0")?;
    go_to(
        browser,
        "machines/secret-of-the-other/terminal",
        "secret-of-the-other",
    )?;
    browser.click("button", "Attach to the program")?;
    is_connected(browser)
}

/// The policy holds, and its violations would have been found.
fn violations(browser: &mut Browser) -> Result<()> {
    let before = browser.complaints()?;
    check("complaints", before.is_empty(), &before)?;
    browser.value(
        "{ const style = document.createElement('style'); style.textContent = 'p { color: red }'; \
            document.head.append(style); }",
    )?;
    let told = browser.complaints()?;
    let is_told = told.iter().any(|complaint| complaint.contains("style-src"));
    check("an inline style", is_told, &told)?;
    let markup =
        browser.value("try { document.body.innerHTML = '<p>x'; 'set' } catch { 'refused' }")?;
    check("text as markup", markup == "refused", &markup)
}

/// The pictures of docs/ui.md. The daemon works for some minutes, so that its graphs show something.
fn take_pictures(
    browser: &mut Browser,
    daemon: &Daemon,
    (acme, folder): (&str, &Path),
) -> Result<()> {
    let file = |name: &str| folder.join(format!("ui-{name}.png"));
    let programs = ask(daemon, acme, "GET", "/v1/programs", &Value::Null)?.json();
    let program = programs[0]["id"].as_str().unwrap_or_default();
    let volume = json!({ "name": "data", "size": 16777216 });
    ask(daemon, acme, "POST", "/v1/volumes", &volume)?.expect(201)?;
    let script = "while :; do echo x >>/data/log; wc -l </data/log; sleep 1; done";
    let start = |name: &str, script: &str, more: Value| {
        let mut machine = json!({ "program": program, "path": "/bin/sh", "args": ["-c", script],
            "name": name, "start": true });
        for (field, value) in more.as_object().into_iter().flatten() {
            machine[field] = value.clone();
        }
        ask(daemon, acme, "POST", "/v1/machines", &machine)?.expect(201)
    };
    let upload = tools()?;
    let bearer = format!("Bearer {acme}");
    let headers = [("Authorization", bearer.as_str())];
    daemon
        .request_with("POST", "/v1/programs?name=tools.tar", &headers, &upload)?
        .expect(200)?;
    start(
        "worker",
        script,
        json!({ "volumes": [{ "volume": "data", "path": "/data" }] }),
    )?;
    start("batch-7", "exit 3", json!({}))?;
    start("idle", "sleep 100000", json!({ "memory": 268435456 }))?;
    ask(
        daemon,
        acme,
        "POST",
        "/v1/machines/shop/start",
        &Value::Null,
    )?
    .expect(200)?;
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < WORK {
        count += 1;
        let code = if count % 7 == 0 { "exit 1" } else { "exit 0" };
        let run = json!({ "program": program, "path": "/bin/sh", "args": ["-c", code] });
        ask(daemon, acme, "POST", "/v1/runs", &run)?.expect(200)?;
        thread::sleep(Duration::from_millis(
            200 + 2000 * u64::from(begun.elapsed() > WORK / 2),
        ));
    }
    browser.value("document.getElementById('tenant').value = 'acme'; 0")?;
    browser.value("document.getElementById('tenant').dispatchEvent(new Event('change')); 0")?;
    browser.resize((1024, 640))?;
    browser.set_scheme("light")?;
    go_to(browser, "machines", "Machines")?;
    browser.until_shown("worker")?;
    browser.picture(&file("machines"))?;
    go_to(browser, "machines/shop/terminal", "shop")?;
    browser.click("button", "Run in a terminal")?;
    is_connected(browser)?;
    browser.write("id; stty size; tty")?;
    browser.press(Key::Enter)?;
    browser.until(&format!("{SCREEN}.includes('/dev/pts/')"))?;
    browser.picture(&file("terminal"))?;
    go_to(browser, "machines/worker/details", "worker")?;
    // Two readings make the first point.
    browser.until(
        "document.querySelector('figure > svg path.plot')?.getAttribute('d').split('L').length > 5",
    )?;
    browser.resize((1024, 900))?;
    browser.picture(&file("machine"))?;
    browser.set_scheme("dark")?;
    go_to(browser, "overview", "The last hour")?;
    browser.until("document.querySelector('figure > svg path.plot').getAttribute('d') !== ''")?;
    browser.picture(&file("overview"))
}
