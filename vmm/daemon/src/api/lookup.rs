//! Common parts of the handlers of machines and of runs: finding them, making them, and waiting for
//! their end.

use super::extract::{Caller, Excess, Target};
use super::spec::check_publisher;
use crate::Daemon;
use crate::auth::random_hex;
use crate::machines::{MachineError, inodes};
use crate::network::NetworkError;
use crate::problem::Problem;
use crate::store::{
    Created, Kind, MAX_KEYS, Machine, MachineState, NetworkKind, NewMachine, Program, Scope, Spec,
};
use axum::http::HeaderMap;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_IDEMPOTENCY_KEY: usize = 255;
/// Longest wait of one request, seconds.
pub const MAX_WAIT: u64 = 300;

/// Finds the caller's machine or run by its id. Those of other tenants are not found.
///
/// # Errors
/// The caller has none of this id, or the database failed.
pub fn find(target: &Target, kind: Kind) -> Result<Machine, Problem> {
    let found = target.daemon.store.machine(&target.id)?;
    let tenant = &target.caller.tenant;
    let own = found.filter(|machine| machine.tenant == *tenant && machine.kind == kind);
    own.ok_or_else(|| {
        Problem::not_found(match kind {
            Kind::Machine => "machine",
            Kind::Run => "run",
        })
    })
}

/// How long to wait until a suspended machine goes on.
const RESUMED: Duration = Duration::from_secs(30);
/// Period of the checks whether it does.
const LOOK: Duration = Duration::from_millis(20);

/// Finds the caller's machine. If it is suspended, it is started, and found when it runs.
///
/// # Errors
/// The caller has none of this id, it cannot be started, or the database failed.
pub async fn find_awake(target: &Target) -> Result<Machine, Problem> {
    let machine = find(target, Kind::Machine)?;
    if machine.state != MachineState::Suspended {
        return Ok(machine);
    }
    target.caller.needs(Scope::Write)?;
    // The transaction waits for the disk.
    match tokio::task::block_in_place(|| target.daemon.machines.start(&machine)) {
        // Another request has started it.
        Ok(_) | Err(MachineError::State(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let asked = Instant::now();
    loop {
        let machine = find(target, Kind::Machine)?;
        match machine.state {
            // Without the snapshot, its guest has been entered.
            _ if machine.state.is_active()
                && machine.suspended.is_some()
                && asked.elapsed() < RESUMED =>
            {
                tokio::time::sleep(LOOK).await;
            }
            MachineState::Suspended => {
                let detail = format!("the machine stays suspended: {}", machine.message);
                return Err(Problem::conflict("wrong-state", detail));
            }
            _ => return Ok(machine),
        }
    }
}

/// The id of the caller's object with this name, or the only one whose id begins with this text. If
/// there is none, the same text, which is then not found. Hexadecimal digits are an id and no name:
/// the id of a later object must not take the place of a name.
///
/// # Errors
/// Several objects have such an id, or the database failed.
pub fn complete(
    daemon: &Daemon,
    caller: &Caller,
    object: Object,
    given: String,
) -> Result<String, Problem> {
    let (tenant, store) = (&caller.tenant, &daemon.store);
    if !given.bytes().all(is_digit) {
        let named = match object {
            Object::Machine => store.machine_named(tenant, &given)?,
            Object::Program => store.program_named(tenant, &given)?,
            Object::Snapshot => store.snapshot_named(tenant, &given)?,
            Object::Run => None,
        };
        return Ok(named.unwrap_or(given));
    }
    if given.is_empty() || given.len() >= object.length() {
        return Ok(given);
    }
    let mut found = match object {
        Object::Machine => store.machine_ids(tenant, Kind::Machine, &given)?,
        Object::Run => store.machine_ids(tenant, Kind::Run, &given)?,
        Object::Program => store.program_ids(tenant, &given)?,
        Object::Snapshot => store.snapshot_ids(tenant, &given)?,
    };
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(given),
        (Some(id), true) => Ok(id),
        (Some(_), false) => {
            let what = object.name();
            let detail = format!("several {what}s have ids that begin with {given}");
            Err(Problem::conflict("ambiguous-id", detail))
        }
    }
}

/// Whether ids have this digit.
fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The rule for names of machines.
const NAME: &str = "a name has 1 to 63 letters, digits, underscores, dots and hyphens, begins with a \
    letter, a digit or an underscore, and has more than the digits of ids (0 to 9, a to f)";

/// Checks the name of a new machine.
///
/// # Errors
/// [`Problem`] with the rule.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let mut bytes = name.bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_valid = name.len() <= 63
        && !name.bytes().all(is_digit)
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || b".-".contains(&byte));
    match is_valid {
        true => Ok(()),
        false => Err(Problem::field("name", NAME)),
    }
}

/// Kinds of objects with ids.
#[derive(Debug, Clone, Copy)]
pub enum Object {
    /// A machine.
    Machine,
    /// A run.
    Run,
    /// A program.
    Program,
    /// A snapshot of a machine.
    Snapshot,
}

impl Object {
    /// The kind of object that a path of the API names, if its objects have ids.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/")?;
        match rest.split('/').next()? {
            "machines" => Some(Self::Machine),
            "runs" => Some(Self::Run),
            "programs" => Some(Self::Program),
            "snapshots" => Some(Self::Snapshot),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Run => "run",
            Self::Program => "program",
            Self::Snapshot => "snapshot",
        }
    }

    /// Digits of an id.
    fn length(self) -> usize {
        match self {
            Self::Machine | Self::Run | Self::Snapshot => 32,
            Self::Program => 64,
        }
    }
}

/// Finds the caller's program that a spec names, whose whole id the spec has then.
///
/// # Errors
/// The caller has no such program, or the database failed.
pub fn find_program(daemon: &Daemon, caller: &Caller, spec: &mut Spec) -> Result<Program, Problem> {
    let id = std::mem::take(&mut spec.program);
    spec.program = complete(daemon, caller, Object::Program, id)?;
    let program = daemon.store.program(&caller.tenant, &spec.program)?;
    program.ok_or_else(|| Problem::not_found("program"))
}

/// Finds the caller's snapshot that a spec names, if it names one. The spec then has its whole id, and
/// its program with its place, memory and kind of network. `excess` is a field that the request has too, and must not.
///
/// # Errors
/// The caller has no such snapshot, there is such a field, or the database failed.
pub fn find_snapshot(
    daemon: &Daemon,
    caller: &Caller,
    (spec, excess): (&mut Spec, Option<Excess>),
) -> Result<(), Problem> {
    let Some(id) = spec.snapshot.take() else {
        return Ok(());
    };
    if let Some(Excess(field)) = excess {
        return Err(Problem::not_with_snapshot(field));
    }
    let id = complete(daemon, caller, Object::Snapshot, id)?;
    let found = daemon.store.snapshot(&id)?;
    let own = found.filter(|snapshot| snapshot.tenant == caller.tenant);
    let snapshot = own.ok_or_else(|| Problem::not_found("snapshot"))?;
    tokio::task::block_in_place(|| daemon.snapshots.note_use(&id))?;
    let asked = std::mem::replace(spec, snapshot.spec);
    spec.snapshot = Some(id);
    spec.timeout_ms = asked.timeout_ms;
    spec.labels = asked.labels;
    spec.interactive = asked.interactive;
    spec.cpu_class = asked.cpu_class;
    spec.ports = asked.ports;
    spec.restart = asked.restart;
    spec.auto_remove = asked.auto_remove;
    spec.idle_timeout_s = asked.idle_timeout_s;
    spec.webhook = asked.webhook;
    Ok(())
}

/// Refuses a spec with a network if networks are not available, ports without a network, and ports that
/// the operator does not allow.
///
/// # Errors
/// The reason why there are none.
pub fn check_network(daemon: &Daemon, spec: &Spec) -> Result<(), Problem> {
    check_publisher(spec)?;
    daemon.machines.ports().check(spec)?;
    match spec.network {
        NetworkKind::None => Ok(()),
        NetworkKind::Tenant => {
            let unavailable = daemon.networks.check().map_err(NetworkError::from);
            unavailable.map_err(Problem::from)
        }
    }
}

/// The idempotency key of a request, if it has one.
///
/// # Errors
/// There are several, or the key is not text, empty or too long.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = keys.next().map(|key| key.to_str());
    let key = key.transpose().map_err(Problem::bad_request)?;
    let is_valid = |key: &str| (1..=MAX_IDEMPOTENCY_KEY).contains(&key.len());
    if !key.is_none_or(is_valid) || keys.next().is_some() {
        let detail =
            format!("a request has one idempotency key of 1 to {MAX_IDEMPOTENCY_KEY} bytes");
        return Err(Problem::bad_request(detail));
    }
    Ok(key)
}

/// Makes a machine or a run in the database. Result: whether it is new. `extra` is the part of the
/// request besides the spec: another request may not use the same idempotency key. `input` is the
/// length of its standard input, bytes.
///
/// # Errors
/// The key was used for another request, the name is in use, or the database failed.
pub fn insert(
    daemon: &Daemon,
    caller: &Caller,
    (kind, name, state): (Kind, Option<&str>, MachineState),
    spec: &Spec,
    (extra, input): (&impl Serialize, usize),
    key: Option<&str>,
) -> Result<(Machine, bool), Problem> {
    let text = serde_json::to_vec(&(spec, extra)).map_err(Problem::internal)?;
    let hash = Sha256::digest(text);
    let id = random_hex::<16>().map_err(Problem::internal)?;
    let new = NewMachine {
        id: &id,
        tenant: &caller.tenant,
        kind,
        spec,
        name,
        state,
        idempotency: key.map(|key| (key, &hash[..])),
        input: input as u64,
        inodes: inodes(daemon.machines.log_job(), spec),
    };
    match daemon.store.create_machine(&new)? {
        Created::New(machine) => Ok((machine, true)),
        Created::Before(machine) if machine.kind == kind => Ok((machine, false)),
        Created::NameInUse => {
            let detail = format!("another machine has the name {}", name.unwrap_or_default());
            Err(Problem::conflict("name-in-use", detail))
        }
        Created::TooManyKeys => Err(Problem::too_many_keys(MAX_KEYS)),
        Created::Before(_) | Created::Conflict => {
            let detail = "this idempotency key was used for another request";
            Err(Problem::conflict("idempotency-conflict", detail))
        }
    }
}

/// Starts a new machine or run. If it is refused, it is deleted.
///
/// # Errors
/// The reason for the refusal.
pub fn start_new(daemon: &Daemon, machine: &Machine) -> Result<Machine, Problem> {
    let started = match machine.state {
        MachineState::Queued => daemon.machines.admit(machine).map(|()| machine.clone()),
        _ => daemon.machines.start(machine),
    };
    started.map_err(|error| {
        if let Err(error) = daemon.machines.unmake(&machine.id) {
            tracing::error!(machine = %machine.id, "{error}");
        }
        error.into()
    })
}

/// Waits until a machine or a run has ended, is gone, or `seconds` have passed.
///
/// # Errors
/// `seconds` is too long.
pub async fn wait_for_end(target: &Target, kind: Kind, seconds: u64) -> Result<(), Problem> {
    if seconds > MAX_WAIT {
        let rule = format!("must be at most {MAX_WAIT}");
        return Err(Problem::field("seconds", rule));
    }
    // Subscribes before the first check, so that no event is missed.
    let mut events = target.daemon.events.subscribe(&target.caller.tenant);
    let ended = async {
        while find(target, kind).is_ok_and(|machine| machine.state.goes_on()) {
            // An event of this machine, or a gap in the events.
            while events
                .recv()
                .await
                .is_ok_and(|event| !event.is_of_machine(&target.id))
            {}
        }
    };
    // The caller reports the machine's state whether it has ended or not.
    let _ = tokio::time::timeout(Duration::from_secs(seconds), ended).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_no_ids() {
        for name in ["web", "web-1", "_", "0x", "Cafe", "a.b_c", &"z".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "cafe",
            "0",
            "12ab",
            "-x",
            ".x",
            "a b",
            "a/b",
            "\u{e4}",
            &"z".repeat(64),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
