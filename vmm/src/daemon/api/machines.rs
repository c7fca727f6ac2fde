//! Machines.

use super::extract::{Caller, Json, Path, Query, from_object};
use super::programs::check_limit;
use crate::daemon::Daemon;
use crate::daemon::auth::random_hex;
use crate::daemon::execute::path_in_tree;
use crate::daemon::problem::Problem;
use crate::daemon::store::{Created, Machine, MachineState, Scope, Spec};
use crate::jail::MAX_MESSAGE;
use crate::jailed::protocol::Exits;
use crate::layout::{MAX_CPUS, MAX_RAM, MIN_RAM};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;
/// Longest arguments and environment together, bytes: they go to the VMM in one message.
const MAX_STRINGS: usize = MAX_MESSAGE / 4;
const MAX_LABELS: usize = 64;
/// Longest wait of one request.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Time between two looks at a log that is followed.
const FOLLOW: Duration = Duration::from_millis(100);
/// Bytes of a log sent at a time.
const CHUNK: usize = 64 << 10;

/// A machine as the API shows it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct MachineView {
    /// Its id.
    id: String,
    /// What it runs.
    spec: Spec,
    /// Where it is in its life.
    state: MachineState,
    /// Exit code of its program.
    exit_code: Option<u8>,
    /// What went wrong; empty if nothing did.
    message: String,
    /// When it was made, milliseconds since 1970.
    created_ms: i64,
    /// When it was started last.
    started_ms: Option<i64>,
    /// When it ended last.
    ended_ms: Option<i64>,
}

impl From<Machine> for MachineView {
    fn from(machine: Machine) -> Self {
        Self {
            id: machine.id,
            spec: machine.spec,
            state: machine.state,
            exit_code: machine.result.map(|result| result.code),
            message: machine.message,
            created_ms: machine.created_ms,
            started_ms: machine.started_ms,
            ended_ms: machine.ended_ms,
        }
    }
}

type Answer = Result<axum::Json<MachineView>, Problem>;

/// Checks everything of a spec that needs no database.
///
/// # Errors
/// Names the field.
pub(super) fn check_spec(spec: &Spec) -> Result<(), Problem> {
    if !(1..=MAX_CPUS as u32).contains(&spec.cpus) {
        return Err(Problem::field(
            "cpus",
            format!("must be from 1 to {MAX_CPUS}"),
        ));
    }
    if !(MIN_RAM..=MAX_RAM).contains(&spec.memory) {
        let rule = format!("must be from {MIN_RAM} to {MAX_RAM} bytes");
        return Err(Problem::field("memory", rule));
    }
    if !spec
        .timeout_ms
        .is_none_or(|ms| (1..=MAX_TIMEOUT_MS).contains(&ms))
    {
        let rule = format!("must be from 1 to {MAX_TIMEOUT_MS}");
        return Err(Problem::field("timeout_ms", rule));
    }
    let path = spec.path.iter().map(|path| ("path", path));
    let args = spec.args.iter().map(|argument| ("args", argument));
    let env = spec
        .env
        .iter()
        .flat_map(|(name, value)| [("env", name), ("env", value)]);
    let mut length = 0;
    for (field, text) in path.chain(args).chain(env) {
        length += text.len() + 4;
        if text.contains('\0') {
            return Err(Problem::field(field, "must have no NUL"));
        }
        if length > MAX_STRINGS {
            let rule = format!("path, args and env may have {MAX_STRINGS} bytes together");
            return Err(Problem::field(field, rule));
        }
    }
    if spec.path.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::field("path", "must not be empty"));
    }
    if spec
        .env
        .keys()
        .any(|name| name.is_empty() || name.contains('='))
    {
        return Err(Problem::field(
            "env",
            "names must not be empty or contain =",
        ));
    }
    if spec.labels.len() > MAX_LABELS {
        return Err(Problem::field(
            "labels",
            format!("may be {MAX_LABELS} at most"),
        ));
    }
    Ok(())
}

/// The caller's machine of an id. What belongs to others is not there.
fn find(daemon: &Daemon, caller: &Caller, id: &str) -> Result<Machine, Problem> {
    let machine = daemon.store.machine(id)?;
    let own = machine.filter(|machine| machine.tenant == caller.tenant);
    own.ok_or_else(|| Problem::not_found("machine"))
}

/// Which machines.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Those after this id.
    #[serde(default)]
    after: String,
    /// So many at most.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000)]
    limit: u32,
    /// Those in this state.
    state: Option<MachineState>,
    /// Those with this label, as `name=value`.
    #[param(pattern = "^[^=]+=.*$")]
    label: Option<String>,
}

fn default_limit() -> u32 {
    100
}

/// The machines of the tenant, by id
#[utoipa::path(get, path = "/v1/machines", params(Which),
    responses((status = 200, body = [MachineView]),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Query(which): Query<Which>,
) -> Result<axum::Json<Vec<MachineView>>, Problem> {
    caller.needs(Scope::Read)?;
    check_limit(which.limit)?;
    let label = which.label.as_ref().map(|label| label.split_once('='));
    if label.is_some_and(|label| label.is_none()) {
        return Err(Problem::field("label", "needs the form name=value"));
    }
    let label = label.flatten();
    let mut found = Vec::new();
    let mut after = which.after;
    // Labels are looked at here: page after page until there are enough.
    loop {
        let (tenant, state) = (&caller.tenant, which.state);
        let page = daemon.store.machines(tenant, &after, state, which.limit)?;
        let last = page.last().map(|machine| machine.id.clone());
        let wanted = page.into_iter().filter(|machine| {
            label.is_none_or(|(name, value)| {
                machine
                    .spec
                    .labels
                    .get(name)
                    .is_some_and(|own| own == value)
            })
        });
        found.extend(wanted.map(MachineView::from));
        match last {
            Some(last) if found.len() < which.limit as usize => after = last,
            _ => break,
        }
    }
    found.truncate(which.limit as usize);
    Ok(axum::Json(found))
}

/// A machine to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Map<String, Value>")]
pub struct MachineRequest {
    #[serde(flatten)]
    spec: Spec,
    /// Start it too.
    #[schema(required = false)]
    start: bool,
}

impl TryFrom<Map<String, Value>> for MachineRequest {
    type Error = String;

    /// Unlike serde's own `flatten` this refuses fields that nobody knows.
    fn try_from(mut object: Map<String, Value>) -> Result<Self, Self::Error> {
        let start = match object.remove("start") {
            None => false,
            Some(Value::Bool(start)) => start,
            Some(_) => return Err("start: must be true or false".to_owned()),
        };
        let spec = from_object(object)?;
        Ok(Self { spec, start })
    }
}

/// Make a machine, and start it if that is wanted
///
/// The same request again with the same `Idempotency-Key` makes no second one.
#[utoipa::path(post, path = "/v1/machines", request_body = MachineRequest,
    params(("Idempotency-Key" = Option<String>, Header, max_length = 255)),
    responses((status = 201, body = MachineView), (status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    Json(request): Json<MachineRequest>,
) -> Result<(StatusCode, axum::Json<MachineView>), Problem> {
    caller.needs(Scope::Write)?;
    check_spec(&request.spec)?;
    let spec = &request.spec;
    let program = daemon.store.program(&caller.tenant, &spec.program)?;
    let program = program.ok_or_else(|| Problem::not_found("program"))?;
    path_in_tree(spec, &program)?;
    let key = headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str());
    let key = key.transpose().map_err(Problem::bad_request)?;
    let text = serde_json::to_vec(&(spec, request.start)).map_err(Problem::internal)?;
    let hash = Sha256::digest(text);
    let id = random_hex::<16>().map_err(Problem::internal)?;
    let idempotency = key.map(|key| (key, &hash[..]));
    let tenant = &caller.tenant;
    // Queued from the first: a daemon that ends now finds it so.
    let state = match request.start {
        true => MachineState::Queued,
        false => MachineState::Created,
    };
    match daemon
        .store
        .create_machine(&id, tenant, spec, state, idempotency)?
    {
        Created::Before(machine) => Ok((StatusCode::OK, axum::Json(machine.into()))),
        Created::Conflict => {
            let detail = "this idempotency key was used for another request";
            Err(Problem::conflict("idempotency-conflict", detail))
        }
        Created::New(machine) => {
            daemon.events.publish(&machine);
            if request.start {
                daemon.machines.admit(&machine)?;
            }
            Ok((StatusCode::CREATED, axum::Json(machine.into())))
        }
    }
}

/// A machine of the tenant
#[utoipa::path(get, path = "/v1/machines/{id}", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn get(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Read)?;
    Ok(axum::Json(find(&daemon, &caller, &id)?.into()))
}

/// Delete a machine that is not running, and its output
#[utoipa::path(delete, path = "/v1/machines/{id}", params(("id" = String, Path)),
    responses((status = 204),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn delete(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    daemon.machines.delete(&machine)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Start a machine, or start it again
#[utoipa::path(post, path = "/v1/machines/{id}/start", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn start(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    Ok(axum::Json(daemon.machines.start(&machine)?.into()))
}

/// Ask the program to end (`SIGTERM`); two seconds later it is ended
#[utoipa::path(post, path = "/v1/machines/{id}/stop", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn stop(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    daemon.machines.stop(&machine)?;
    Ok(axum::Json(find(&daemon, &caller, &id)?.into()))
}

/// End a machine by force
#[utoipa::path(post, path = "/v1/machines/{id}/kill", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn kill(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    daemon.machines.kill(&machine)?;
    Ok(axum::Json(find(&daemon, &caller, &id)?.into()))
}

/// Give a running machine no more processor time
#[utoipa::path(post, path = "/v1/machines/{id}/pause", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn pause(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    Ok(axum::Json(
        daemon.machines.set_paused(machine, true)?.into(),
    ))
}

/// Let a paused machine go on
#[utoipa::path(post, path = "/v1/machines/{id}/resume", params(("id" = String, Path)),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn resume(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.needs(Scope::Write)?;
    let machine = find(&daemon, &caller, &id)?;
    Ok(axum::Json(
        daemon.machines.set_paused(machine, false)?.into(),
    ))
}

/// How long to wait.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Seconds; after them the machine is answered as it is.
    #[serde(default = "default_wait")]
    #[param(minimum = 0, maximum = 300)]
    seconds: u64,
}

fn default_wait() -> u64 {
    30
}

/// Wait until a machine has ended
#[utoipa::path(get, path = "/v1/machines/{id}/wait", params(("id" = String, Path), Wait),
    responses((status = 200, body = MachineView),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn wait(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(wait): Query<Wait>,
) -> Answer {
    caller.needs(Scope::Read)?;
    if wait.seconds > MAX_WAIT.as_secs() {
        let rule = format!("must be at most {}", MAX_WAIT.as_secs());
        return Err(Problem::field("seconds", rule));
    }
    // Before looking, so that nothing is missed.
    let mut events = daemon.events.subscribe();
    let ended = async {
        while find(&daemon, &caller, &id).is_ok_and(|machine| machine.state.is_active()) {
            // An event of this machine, or of so many that some were missed.
            while events.recv().await.is_ok_and(|event| event.machine != id) {}
        }
    };
    // Whether it has ended or not, it is told as it is now.
    let _ = tokio::time::timeout(Duration::from_secs(wait.seconds), ended).await;
    Ok(axum::Json(find(&daemon, &caller, &id)?.into()))
}

/// One of a program's outputs.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which part of a log.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Which output.
    #[serde(default)]
    #[param(inline)]
    stream: LogStream,
    /// From this byte on.
    #[serde(default)]
    offset: u64,
    /// Go on until the machine has ended.
    #[serde(default)]
    follow: bool,
}

/// What the program wrote
#[utoipa::path(get, path = "/v1/machines/{id}/logs", params(("id" = String, Path), Log),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn logs(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(log): Query<Log>,
) -> Result<Response, Problem> {
    caller.needs(Scope::Read)?;
    find(&daemon, &caller, &id)?;
    let name = match log.stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    };
    let reader = LogReader {
        path: daemon.machines.file(&id, name),
        daemon,
        caller,
        id,
        file: None,
        offset: log.offset,
        follow: log.follow,
    };
    let chunks = stream::try_unfold(reader, async |mut reader| {
        let chunk = reader.next().await?;
        Ok::<_, std::io::Error>(chunk.map(|chunk| (chunk, reader)))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(chunks)).into_response())
}

/// Reads a log as it grows.
struct LogReader {
    daemon: Arc<Daemon>,
    caller: Caller,
    id: String,
    path: std::path::PathBuf,
    file: Option<tokio::fs::File>,
    offset: u64,
    follow: bool,
}

impl LogReader {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            // Asked before reading: what is written until its end is read.
            let machine = find(&self.daemon, &self.caller, &self.id);
            let active = machine.is_ok_and(|machine| machine.state.is_active());
            if self.file.is_none()
                && let Ok(mut file) = tokio::fs::File::open(&self.path).await
            {
                file.seek(std::io::SeekFrom::Start(self.offset)).await?;
                self.file = Some(file);
            }
            if let Some(file) = &mut self.file {
                let mut chunk = Vec::with_capacity(CHUNK);
                if file.read_buf(&mut chunk).await? > 0 {
                    return Ok(Some(chunk));
                }
            }
            if !self.follow || !active {
                return Ok(None);
            }
            tokio::time::sleep(FOLLOW).await;
        }
    }
}

/// What a machine uses, or used.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Stats {
    /// Processor time of the running VMM, milliseconds.
    cpu_ms: Option<u64>,
    /// Memory of the running VMM, with the guest's, bytes.
    memory: Option<u64>,
    /// Milliseconds from the start until the program was entered, once it has ended.
    boot_ms: Option<f64>,
    /// Milliseconds that the program ran, once it has ended.
    run_ms: Option<f64>,
    /// Exits of its vCPUs to the VMM, once it has ended.
    exits: Option<Exits>,
    /// Exits that KVM counted, once it has ended.
    kvm_exits: Option<u64>,
}

/// What a machine uses while it runs, and used when it has ended
#[utoipa::path(get, path = "/v1/machines/{id}/stats", params(("id" = String, Path)),
    responses((status = 200, body = Stats),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn stats(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<axum::Json<Stats>, Problem> {
    caller.needs(Scope::Read)?;
    let machine = find(&daemon, &caller, &id)?;
    let mut stats = Stats::default();
    if let Some((cpu_ms, memory)) = daemon.machines.pid(&id).and_then(usage) {
        (stats.cpu_ms, stats.memory) = (Some(cpu_ms), Some(memory));
    }
    if let Some(result) = machine.result {
        let milliseconds = |us: u64| Some(us as f64 / 1000.0);
        stats.boot_ms = milliseconds(result.boot_us);
        stats.run_ms = milliseconds(result.run_us);
        stats.exits = Some(result.exits);
        stats.kvm_exits = result.kvm_exits;
    }
    Ok(axum::Json(stats))
}

/// Processor time in milliseconds and resident memory in bytes of a process (proc(5)).
fn usage(pid: i32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // SAFETY: no memory is involved.
    let (ticks, page) = unsafe {
        (
            libc::sysconf(libc::_SC_CLK_TCK),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let (ticks, page) = (u64::try_from(ticks).ok()?, u64::try_from(page).ok()?);
    let time = fields.get(11)? + fields.get(12)?;
    Some((time * 1000 / ticks.max(1), fields.get(21)? * page))
}
