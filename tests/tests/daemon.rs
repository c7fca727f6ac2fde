//! hartlined: requests, tenants, machines that outlive the daemon, and failures. The daemon must be
//! started by root, so other users list these tests as ignored.

#[path = "daemon/browser.rs"]
mod browser;
#[path = "daemon/commands.rs"]
mod commands;
#[path = "daemon/connections.rs"]
mod connections;
#[path = "daemon/core_dumps.rs"]
mod core_dumps;
#[path = "daemon/damage.rs"]
mod damage;
#[path = "daemon/debugged.rs"]
mod debugged;
#[path = "daemon/debugger.rs"]
mod debugger;
#[path = "daemon/described.rs"]
mod described;
#[path = "daemon/exec.rs"]
mod exec;
#[path = "daemon/faults.rs"]
mod faults;
#[path = "daemon/files.rs"]
mod files;
#[path = "daemon/history.rs"]
mod history;
#[path = "daemon/input.rs"]
mod input;
#[path = "daemon/kept.rs"]
mod kept;
#[path = "daemon/large_files.rs"]
mod large_files;
#[path = "daemon/lists.rs"]
mod lists;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/machine_terminals.rs"]
mod machine_terminals;
#[path = "daemon/machines.rs"]
mod machines;
#[path = "daemon/made_code.rs"]
mod made_code;
#[path = "daemon/monitoring.rs"]
mod monitoring;
#[path = "daemon/names.rs"]
mod names;
#[path = "daemon/network_snapshots.rs"]
mod network_snapshots;
#[path = "daemon/networks.rs"]
mod networks;
#[path = "daemon/operating.rs"]
mod operating;
#[path = "daemon/pages.rs"]
mod pages;
#[path = "daemon/place.rs"]
mod place;
#[path = "daemon/ports.rs"]
mod ports;
#[path = "daemon/privileges.rs"]
mod privileges;
#[path = "daemon/python_client.rs"]
mod python_client;
#[path = "daemon/requests.rs"]
mod requests;
#[path = "daemon/restarts.rs"]
mod restarts;
#[path = "daemon/run_resources.rs"]
mod run_resources;
#[path = "daemon/secrets.rs"]
mod secrets;
#[path = "daemon/snapshot_age.rs"]
mod snapshot_age;
#[path = "daemon/snapshot_events.rs"]
mod snapshot_events;
#[path = "daemon/snapshot_faults.rs"]
mod snapshot_faults;
#[path = "daemon/snapshots.rs"]
mod snapshots;
#[path = "daemon/statistics.rs"]
mod statistics;
#[path = "daemon/stopped_files.rs"]
mod stopped_files;
#[path = "daemon/suspended.rs"]
mod suspended;
#[path = "daemon/suspended_faults.rs"]
mod suspended_faults;
#[path = "daemon/tenants.rs"]
mod tenants;
#[path = "daemon/terminals.rs"]
mod terminals;
#[path = "daemon/ui.rs"]
mod ui;
#[path = "daemon/violations.rs"]
mod violations;
#[path = "daemon/volumes.rs"]
mod volumes;
#[path = "daemon/wakeups.rs"]
mod wakeups;
#[path = "daemon/warm.rs"]
mod warm;
#[path = "daemon/webhooks.rs"]
mod webhooks;

use hartline_tests::daemon::{Daemon, until};
use hartline_tests::suite::Suite;
use hartline_tests::tar::tar;
use hartline_tests::{Result, compile, paths};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

type Test = fn() -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("runs", requests::runs),
    ("root file systems", requests::root_file_systems),
    ("bad requests", requests::bad_requests),
    ("bad uploads", requests::bad_uploads),
    ("tenants", tenants::tenants),
    ("tenants that are deleted", tenants::deletion),
    ("machines", machines::machines),
    ("machines outlive it", machines::machines_outlive_it),
    ("machines that are removed", run_resources::removed),
    ("restart policies", restarts::policies),
    ("restarts after failures", restarts::after_failures),
    ("idempotency", machines::idempotency),
    (
        "idempotency after a refusal",
        machines::repeated_after_refusal,
    ),
    ("what is left", machines::what_is_left),
    ("command line", commands::command_line),
    ("commands for machines", commands::for_machines),
    ("service", commands::service),
    ("limits demanded", commands::limits_demanded),
    ("many connections", faults::many_connections),
    ("slow clients", faults::slow_clients),
    ("half requests", faults::half_requests),
    ("half uploads", faults::half_uploads),
    ("logs that rotate", logs::rotation),
    ("logs with times", logs::times),
    ("logs before the start", logs::before_the_start),
    ("outputs of runs", logs::outputs_of_runs),
    ("copies of files", files::of_all_kinds),
    ("copies of large files", large_files::of_large_files),
    ("copies and limits", large_files::limits),
    ("copies on a busy host", wakeups::of_a_sleeping_machine),
    (
        "copies and machines that do not run",
        stopped_files::of_volumes,
    ),
    ("ids of others", faults::ids_of_others),
    ("replayed keys", faults::replayed_keys),
    ("deleted while running", faults::deleted_while_running),
    ("tar tricks", faults::tar_tricks),
    ("VMM killed", faults::vmm_killed),
    ("waiting VMMs killed", faults::pool_killed),
    ("killed under load", faults::killed_under_load),
    ("its description", described::description_holds),
    ("Python client", python_client::works),
    ("lists and events", lists::lists),
    ("short ids", lists::short_ids),
    ("metrics", monitoring::figures),
    ("history", history::figures),
    ("page: its files", ui::files),
    ("page: keys of WebSockets", ui::keys),
    ("metrics in rules and dashboard", monitoring::rules),
    ("names of machines", names::of_machines),
    ("names of programs", names::of_programs),
    ("pages with links", pages::links),
    ("pages of runs", pages::of_runs),
    ("pages that the client follows", pages::followed),
    ("rate limit", lists::rate_limit),
    ("input of runs", input::of_runs),
    ("input of runs: a gibibyte", input::long),
    ("input of runs: refused", input::refused),
    ("input of runs: lost clients", input::lost_clients),
    ("asynchronous runs", kept::asynchronous_runs),
    ("images on demand", kept::images_on_demand),
    ("code made at run time", made_code::is_translated),
    ("place of programs", place::of_programs),
    ("place of programs in volumes", place::in_volumes),
    ("place of programs of hartline run", place::of_run),
    ("run before the translation", kept::before_the_translation),
    ("workers that are killed", kept::killed_workers),
    ("garbage collection", kept::garbage_collection),
    ("snapshots", snapshots::of_machines),
    ("snapshots that are refused", snapshots::refusals),
    ("snapshots: quota", snapshots::quota),
    ("snapshots: several vCPUs", snapshots::of_several_vcpus),
    ("snapshots that are continued", snapshots::continued),
    ("snapshots: late translations", snapshots::late_translations),
    ("snapshots: commands", snapshots::commands),
    ("snapshots: much memory", snapshots::of_much_memory),
    ("snapshots: events", snapshot_events::events),
    ("runs from a snapshot again and again", warm::repeated),
    (
        "runs from a snapshot: memory that a fork wipes",
        warm::wiped,
    ),
    (
        "runs from a snapshot: VMMs that are given up",
        warm::given_up,
    ),
    (
        "runs from a snapshot: a tenant that ends",
        warm::of_a_tenant,
    ),
    ("runs from a snapshot: VMMs that end", warm::ended),
    (
        "runs from a snapshot: VMMs that are not kept",
        warm::not_kept,
    ),
    ("snapshots: restore times", snapshot_events::restores),
    ("snapshots: age", snapshot_age::collected),
    ("suspended machines", suspended::goes_on),
    ("suspended machines: shown", suspended::is_shown),
    ("suspended machines: ends", suspended::ends),
    ("suspended machines: time limit", suspended::time_limit),
    ("suspended machines: refusals", suspended::refusals),
    ("suspended machines: idle", suspended::idle),
    ("suspended machines: input", suspended::unread_input),
    ("suspended machines: commands", suspended::commands),
    (
        "suspended machines: killed daemon",
        suspended_faults::killed_daemon,
    ),
    (
        "suspended machines: killed at the start",
        suspended_faults::killed_at_the_start,
    ),
    (
        "suspended machines: failed starts",
        suspended_faults::failed_starts,
    ),
    ("suspended machines: full disk", suspended_faults::full_disk),
    ("snapshots: network", network_snapshots::continued),
    (
        "snapshots: addresses in the network",
        network_snapshots::addresses,
    ),
    ("suspended machines: ports", network_snapshots::clients),
    (
        "suspended machines: ports of a killed daemon",
        network_snapshots::killed_daemon,
    ),
    (
        "suspended machines: ports, failed starts",
        network_snapshots::failed_starts,
    ),
    ("suspended machines: idle ports", network_snapshots::idle),
    ("snapshots: no answer", snapshot_faults::unanswered),
    ("snapshots: killed VMMs", snapshot_faults::killed_vmms),
    ("snapshots: full disk", snapshot_faults::full_disk),
    (
        "snapshots that are left, or damaged",
        snapshot_faults::left_and_damaged,
    ),
    ("volumes", volumes::volumes),
    ("volumes of others", volumes::of_others),
    ("volumes: every operation", volumes::operations),
    ("volumes of runs", run_resources::volumes),
    (
        "volumes of runs: command line",
        run_resources::volumes_of_the_command,
    ),
    ("secrets", secrets::are_given),
    ("secrets that are refused", secrets::refused),
    (
        "secrets of other root file systems",
        secrets::of_other_roots,
    ),
    ("secrets: command line", secrets::of_the_command_line),
    ("webhooks", webhooks::tell_ends),
    ("webhooks that wait", webhooks::wait_for_receivers),
    ("webhooks that are refused", webhooks::refused),
    ("webhooks over TLS", webhooks::over_tls),
    ("networks", networks::networks),
    ("networks with IPv6", networks::ipv6),
    ("networks with exceptions", networks::exceptions),
    ("networks: limits that change", networks::limits),
    ("published ports", ports::published),
    ("ports that are refused", ports::refused),
    ("published ports: limits of connections", ports::limited),
    ("published ports of runs", run_resources::ports),
    ("dedicated processors", kept::dedicated_processors),
    ("privileges", privileges::of_each_process),
    ("wrong units", privileges::wrong_units),
    ("service killed", privileges::service_killed),
    ("spawner killed", privileges::spawner_killed),
    ("data that only root reaches", privileges::closed_directory),
    ("data of an earlier version", privileges::earlier_version),
    ("attach", connections::attach),
    ("attach: early", connections::attach_early),
    ("core dumps", core_dumps::kept),
    ("core dumps: of snapshots", core_dumps::continued),
    ("core dumps: limits", core_dumps::limits),
    ("core dumps: refused", core_dumps::refused),
    ("debugger: sessions", debugger::session),
    ("debugger: vanishes", debugger::vanished),
    ("debugger: refused", debugger::refused),
    ("debugger: a crash", debugger::crash),
    ("exec", exec::commands),
    ("exec: refused requests", exec::refused),
    ("exec: while the machine ends", exec::while_it_ends),
    ("exec: command line", exec::command_line),
    ("exec: input that is not read", exec::unread_input),
    ("exec: several at once", exec::at_once),
    ("exec: ends", exec::ends),
    ("exec: sizes of terminals", terminals::sizes),
    ("exec: jobs on a terminal", terminals::jobs),
    ("exec: an editor", terminals::editor),
    ("exec: a terminal hangs up", terminals::hang_up),
    ("exec: terminals are restored", terminals::restored),
    ("exec: terminals without keys", terminals::without_keys),
    ("terminals of machines", machine_terminals::shell),
    ("terminals of machines: detach", machine_terminals::detach),
    (
        "terminals of machines: without keys",
        machine_terminals::without_keys,
    ),
    ("terminals of machines: refused", machine_terminals::refused),
    ("TLS", connections::tls),
    (
        "certificate that is renewed",
        connections::renewed_certificate,
    ),
    ("configuration that is reloaded", operating::reload),
    ("invalid configuration", operating::invalid_configuration),
    ("started at once after a kill", operating::started_at_once),
    ("long output", operating::long_output),
    ("backup", operating::backup),
    ("full disk", damage::full_disk),
    ("ends on a full disk", damage::ends_on_a_full_disk),
    ("no room for translations", damage::full_images),
    ("long translation", damage::long_translation),
    ("VMM that crashes", damage::crash),
    ("VMM that is killed before it begins", damage::killed_before),
    ("VMM that hangs", damage::hang),
    ("forbidden system call", violations::forbidden_call),
    (
        "forbidden system call without its number",
        violations::without_number,
    ),
];

/// A test with the programs of Prometheus in a folder.
type MonitoringTest = (&'static str, fn(&Path) -> Result<()>);

const MONITORING: [MonitoringTest; 2] = [
    ("metrics by promtool", monitoring::by_promtool),
    ("metrics by Prometheus", monitoring::by_prometheus),
];

fn main() -> ExitCode {
    let mut suite = Suite::of_waiting_tests();
    for (name, test) in TESTS {
        suite.add_root_kvm(*name, test);
    }
    for (name, test) in MONITORING {
        match paths::monitoring() {
            Some(programs) => suite.add_root_kvm(name, move || test(&programs)),
            None => suite.add_unless(name, "skipped: Prometheus was not fetched", || Ok(())),
        }
    }
    let name = "page in a browser";
    match paths::browser() {
        Some(root) => suite.add_root_kvm(name, move || browser::page(&root)),
        None => suite.add_unless(name, "skipped: Chromium was not fetched", || Ok(())),
    }
    suite.add(
        "Python client: types and style",
        python_client::types_and_style,
    );
    suite.run()
}

/// Starts a daemon with the service program. Result: the daemon and the program's id.
fn start() -> Result<(Daemon, String)> {
    start_with("pool = 2")
}

/// Starts a daemon with another configuration.
fn start_with(configuration: &str) -> Result<(Daemon, String)> {
    let daemon = Daemon::start(configuration)?;
    let program = push(&daemon)?;
    Ok((daemon, program))
}

fn push(daemon: &Daemon) -> Result<String> {
    let program = daemon.push("name=service", &fs::read(compile::service()?)?)?;
    match (program["state"].as_str(), program["message"].as_str()) {
        (Some("ready"), Some("")) => Ok(program["id"].as_str().unwrap_or_default().to_owned()),
        _ => Err(format!("{program}, {}", daemon.log()).into()),
    }
}

/// Runs a program; the request must succeed.
fn run(daemon: &Daemon, request: &Value) -> Result<Value> {
    let body = request.to_string();
    Ok(daemon
        .request("POST", "/v1/runs", body.as_bytes())?
        .expect(200)?
        .json())
}

/// Makes and starts a machine. Result: its path in the API.
fn machine(daemon: &Daemon, program: &str, args: &[&str]) -> Result<String> {
    let body = json!({ "program": program, "args": args, "start": true }).to_string();
    let made = daemon
        .request("POST", "/v1/machines", body.as_bytes())?
        .expect(201)?;
    Ok(format!("/v1/machines/{}", made.text("id")))
}

/// Makes a tenant, if there is none, and a key for it.
fn key(daemon: &Daemon, tenant: &str, scope: &str) -> Result<String> {
    let path = format!("/v1/tenants/{tenant}");
    daemon.request("PUT", &path, b"{}")?.expect(200)?;
    let body = json!({ "scope": scope, "label": "test" }).to_string();
    let made = daemon.request("POST", &format!("{path}/keys"), body.as_bytes())?;
    Ok(made.expect(201)?.text("key"))
}

fn state(daemon: &Daemon, machine: &str) -> Result<String> {
    let answer = daemon.request("GET", machine, b"")?.expect(200)?;
    Ok(answer.text("state"))
}

fn await_state(daemon: &Daemon, machine: &str, wanted: &str) -> Result<()> {
    until(|| state(daemon, machine).is_ok_and(|state| state == wanted)).map_err(|_| {
        let answer = daemon.request("GET", machine, b"");
        format!("not {wanted}: {answer:?}, {}", daemon.log()).into()
    })
}

fn check(what: &str, is: bool, found: &impl std::fmt::Debug) -> Result<()> {
    match is {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}").into()),
    }
}
