//! Runs: one call that runs a program and answers with its output, either in the answer or, if the
//! run is asynchronous, on a later request.

use super::Refused;
use super::extract::{Asked, Caller, Excess, Json, Query, Target};
use super::lookup::{
    MAX_WAIT, check_network, find, find_program, find_snapshot, idempotency_key, insert, start_new,
    wait_for_end,
};
use super::outputs::{Output, Outputs as AnswerOutputs};
use super::pages::{List, Listed, Which};
use super::secrets::find_uses;
use super::spec::check_spec;
use super::started::{make_outputs, start};
use super::stream;
use super::volumes::check_mounts;
use super::webhooks::{check_sent, refuse_unkept};
use crate::Daemon;
use crate::execute::{Order, path_in_tree};
use crate::jailed::protocol::{Exits, RunResult, Traffic};
use crate::log::Reader;
use crate::problem::Problem;
use crate::store::{Kind, Machine, MachineState, Port, Program, Restart, Scope, Spec, Webhook};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hartline_vmm::report::FAILURE;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Most bytes of standard input.
const MAX_INPUT: usize = 128 << 10;
/// Default time limit of a run.
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 60_000;
/// Header with which a client may ask for an asynchronous run (RFC 7240).
const PREFER: &str = "prefer";
const RESPOND_ASYNC: &str = "respond-async";
/// The time for a deleted run to end, seconds.
const DELETE_WAIT: u64 = 10;

/// A run to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"program": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    "args": ["--version"], "memory": 134217728, "timeout_ms": 5000}))]
#[serde(try_from = "Map<String, Value>")]
pub struct RunRequest {
    #[serde(flatten)]
    pub(super) spec: Spec,
    /// A field that a request with a snapshot must not have.
    #[schema(ignore)]
    excess: Option<Excess>,
    /// Standard input of the program.
    #[schema(max_length = 131072, required = false)]
    pub(super) stdin: String,
    /// Answer when the program has ended. If false, the answer has the location of the run.
    #[schema(required = false, default = true)]
    pub(super) wait: bool,
}

/// A run to make that continues a snapshot.
#[derive(utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only described: RunRequest is read")]
struct RunOfSnapshot {
    /// Id of the snapshot, a unique begin of it, or the snapshot's name.
    #[schema(min_length = 1, max_length = 63)]
    snapshot: String,
    /// Standard input of the program from now on.
    #[schema(max_length = 131072, required = false)]
    stdin: String,
    /// Answer when the program has ended. If false, the answer has the location of the run.
    #[schema(required = false, default = true)]
    wait: bool,
    /// Time limit, milliseconds, from now on.
    #[schema(required = false, minimum = 1, maximum = 2592000000i64)]
    timeout_ms: u64,
    /// Labels of the run.
    #[schema(required = false)]
    labels: BTreeMap<String, String>,
    /// TCP ports of the host whose connections lead to ports of the run, if the snapshot's machine was
    /// in the network of its tenant.
    #[schema(required = false, max_items = 16)]
    ports: Vec<Port>,
    /// The receiver of the message that the run has ended. It must be one that is kept.
    #[schema(required = false)]
    webhook: Webhook,
}

/// A run that starts a program, or continues a snapshot.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({"snapshot": "warm", "stdin": "a line\n", "timeout_ms": 5000}))]
#[serde(untagged)]
#[expect(dead_code, reason = "only described")]
enum RunBody {
    Program(Box<RunRequest>),
    Snapshot(RunOfSnapshot),
}

impl TryFrom<Map<String, Value>> for RunRequest {
    type Error = String;

    /// Unlike serde's `flatten`, this refuses unknown fields.
    fn try_from(mut object: Map<String, Value>) -> Result<Self, Self::Error> {
        let stdin = match object.remove("stdin") {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => return Err("stdin: must be a string".to_owned()),
        };
        let wait = match object.remove("wait") {
            None => true,
            Some(Value::Bool(wait)) => wait,
            Some(_) => return Err("wait: must be true or false".to_owned()),
        };
        let Asked { spec, excess } = Asked::new(object)?;
        Ok(Self {
            spec,
            excess,
            stdin,
            wait,
        })
    }
}

/// The end of a run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RunOutcome {
    /// Exit code of the program; 128 plus the signal number if a signal killed it, 124 after
    /// the time limit, 125 if it could not run to its end.
    pub(super) exit_code: u8,
    /// Why the program did not end by itself; empty if it did.
    message: String,
    /// Standard output.
    stdout: Output,
    /// Standard error.
    stderr: Output,
    /// Milliseconds that the run waited for the scheduler.
    queued_ms: f64,
    /// Milliseconds from then to the start of the program.
    boot_ms: f64,
    /// Milliseconds that the program ran.
    run_ms: f64,
    /// Exits of its vCPUs to the VMM, by reason.
    exits: Exits,
    /// Exits by KVM's count.
    #[serde(skip_serializing_if = "Option::is_none")]
    kvm_exits: Option<u64>,
    /// Traffic of its network interface, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Traffic>,
}

impl RunOutcome {
    pub(super) fn new(result: RunResult, [stdout, stderr]: [Output; 2], queued_ms: f64) -> Self {
        let milliseconds = |us: u64| us as f64 / 1000.0;
        Self {
            exit_code: result.code,
            message: result.message,
            stdout,
            stderr,
            queued_ms,
            boot_ms: milliseconds(result.boot_us),
            run_ms: milliseconds(result.run_us),
            exits: result.exits,
            kvm_exits: result.kvm_exits,
            network: result.network,
        }
    }
}

/// An asynchronous run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RunStatus {
    /// Its id.
    id: String,
    /// State of the run.
    state: MachineState,
    /// The error that ended it; empty if there was none.
    message: String,
    /// The outcome, when the run has ended.
    outcome: Option<RunOutcome>,
    /// Time of the request, milliseconds since 1970.
    created_ms: i64,
    /// Time of its start.
    started_ms: Option<i64>,
    /// Time of its end.
    ended_ms: Option<i64>,
}

impl RunStatus {
    /// Reads the outputs of a run that has ended.
    fn new(daemon: &Daemon, run: Machine, outputs: &mut AnswerOutputs) -> io::Result<Self> {
        let outcome = match run.result {
            Some(result) => {
                let mut read = |name| outputs.read(daemon.machines.output(&run.id, name)?);
                let queued = run.started_ms.map_or(0, |ms| ms - run.created_ms);
                let outputs = [read("stdout")?, read("stderr")?];
                Some(RunOutcome::new(result, outputs, queued as f64))
            }
            None => None,
        };
        Ok(Self {
            id: run.id,
            state: run.state,
            message: run.message,
            outcome,
            created_ms: run.created_ms,
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
        })
    }
}

/// A run in a list, without its output.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RunEntry {
    /// Its id.
    id: String,
    /// The program, its arguments and its limits.
    spec: Spec,
    /// State of the run.
    state: MachineState,
    /// Exit code of its program.
    exit_code: Option<u8>,
    /// The error that ended it; empty if there was none.
    message: String,
    /// Time of the request, milliseconds since 1970.
    created_ms: i64,
    /// Time of its start.
    started_ms: Option<i64>,
    /// Time of its end.
    ended_ms: Option<i64>,
}

impl From<Machine> for RunEntry {
    fn from(run: Machine) -> Self {
        Self {
            id: run.id,
            spec: run.spec,
            state: run.state,
            exit_code: run.result.map(|result| result.code),
            message: run.message,
            created_ms: run.created_ms,
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
        }
    }
}

/// List the tenant's kept runs, by id
///
/// These are asynchronous runs and runs with an idempotency key.
#[utoipa::path(get, path = "/v1/runs", operation_id = "list_runs", params(Which),
    responses((status = 200, description = "The runs, by id", body = [RunEntry],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Which>) -> Result<Listed<RunEntry>, Problem> {
    list.page(Kind::Run, |_, run| RunEntry::from(run), |run| &run.id)
}

/// Run a program
///
/// The answer has the outcome, and the daemon keeps nothing. If the client disconnects, the
/// program is killed. With `"wait": false` or the header `Prefer: respond-async` the run is
/// asynchronous: the answer comes at once, and `Location` has the path of the run. With an
/// `Idempotency-Key` the run is kept too, and a repeated request gets the same answer without
/// a second run.
///
/// With the header `Accept: application/x-ndjson` each line of the answer is JSON: a `piece` of an
/// output when the program has written it, and the `outcome` as the last line. The outputs may have
/// any length. Without it, the answer has the newest 16 MiB of each output, and those of a run that is
/// kept are as long as its logs. If bytes of an output are not in the answer, its `truncated` is true,
/// and `missing` has their number.
#[utoipa::path(post, path = "/v1/runs", operation_id = "create_run", request_body = RunBody,
    params(("Prefer" = Option<String>, Header),
    ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255)),
    responses((status = 200, description = "The outcome of the run",
        content((RunOutcome = "application/json"),
        (stream::Line = "application/x-ndjson"))),
    (status = 202, description = "The asynchronous run",
        body = RunStatus, headers(("Location" = String))),
    Refused,
    (status = "5XX", description = "The daemon has failed",
        body = Problem,
        content_type = "application/problem+json")))]
pub async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    Json(mut request): Json<RunRequest>,
) -> Result<Response, Problem> {
    caller.needs(Scope::Write)?;
    let program = prepare(&daemon, &caller, &mut request)?;
    let key = idempotency_key(&headers)?;
    let answers_at_once = !request.wait || prefers_async(&headers);
    if answers_at_once || key.is_some() {
        let turn = daemon.repeats.enter(&caller.tenant, key).await;
        // The transaction waits for the disk.
        let submit = || submit(&daemon, &caller, &request, &program, key);
        let run = tokio::task::block_in_place(submit)?;
        drop(turn);
        return match answers_at_once {
            true => accepted(&daemon, run),
            false => {
                let id = run.id;
                outcome(&Target { daemon, caller, id }).await
            }
        };
    }
    refuse_unkept(&request.spec)?;
    let outputs = make_outputs(request.stdin.as_bytes())?;
    let order = Order::new(&request.spec, &program, &daemon.library, false).await?;
    let started = start(&daemon, &caller, &request.spec, (order, outputs)).await?;
    if stream::is_wanted(&headers) {
        return Ok(stream::answer(daemon, started)?);
    }
    let ended = started.end(&daemon).await?;
    let mut outputs = AnswerOutputs::default();
    let mut read = |file| outputs.read(Some(Reader::ring(file)));
    let [stdout, stderr] = ended.outputs;
    let read = tokio::task::block_in_place(|| Ok::<_, io::Error>([read(stdout)?, read(stderr)?]));
    let outcome = RunOutcome::new(ended.result, read?, ended.queued_ms);
    // Outputs that a client has not read take memory of the run.
    outputs.respond(&outcome, ended.permit)
}

/// Checks a request, completes its spec, and finds its program.
///
/// # Errors
/// The problem to answer with.
pub(super) fn prepare(
    daemon: &Daemon,
    caller: &Caller,
    request: &mut RunRequest,
) -> Result<Program, Problem> {
    check(request)?;
    find_snapshot(daemon, caller, (&mut request.spec, request.excess))?;
    let program = find_program(daemon, caller, &mut request.spec)?;
    check_mounts(daemon, caller, &request.spec)?;
    find_uses(daemon, caller, &request.spec)?;
    check_sent(daemon, &request.spec)?;
    check_network(daemon, &request.spec)?;
    Ok(program)
}

/// Checks everything of a request that needs no database, and sets default values.
fn check(request: &mut RunRequest) -> Result<(), Problem> {
    request.spec.timeout_ms.get_or_insert(DEFAULT_TIMEOUT_MS);
    if request.spec.interactive {
        let detail = "no client can attach to a run: make a machine";
        return Err(Problem::conflict("not-interactive", detail));
    }
    if request.spec.terminal.is_some() {
        let detail = "a run has no terminal: make a machine";
        return Err(Problem::conflict("no-terminal", detail));
    }
    if request.spec.restart != Restart::No {
        let detail = "a run is not restarted: make a machine";
        return Err(Problem::conflict("no-restart", detail));
    }
    if request.spec.core_limit.is_some() {
        let detail = "a run keeps no core dump: make a machine";
        return Err(Problem::conflict("no-core-dump", detail));
    }
    if request.spec.auto_remove {
        let detail = "a run that is kept is deleted by a request or by its age: make a machine";
        return Err(Problem::conflict("no-auto-remove", detail));
    }
    if request.spec.idle_timeout_s.is_some() {
        let detail = "a run is not suspended: make a machine";
        return Err(Problem::conflict("no-suspension", detail));
    }
    if request.stdin.len() > MAX_INPUT {
        let rule = format!("must be at most {MAX_INPUT} bytes");
        return Err(Problem::field("stdin", rule));
    }
    check_spec(&request.spec)
}

/// Whether a client requests an asynchronous run.
fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
}

/// Makes an asynchronous run. The run is on the disk when this returns.
fn submit(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    request: &RunRequest,
    program: &Program,
    key: Option<&str>,
) -> Result<Machine, Problem> {
    path_in_tree(&request.spec, program)?;
    let kind = (Kind::Run, None, MachineState::Created);
    let input = (&request.stdin, request.stdin.len());
    let (run, is_new) = insert(daemon, caller, kind, &request.spec, input, key)?;
    // A run that is only created was refused, and could not be deleted: the disk was full. It is not
    // acknowledged before it is queued, because the next daemon would delete it.
    if !is_new && run.state != MachineState::Created {
        return Ok(run);
    }
    if let Err(error) = daemon
        .machines
        .keep_input(&run.id, request.stdin.as_bytes())
    {
        daemon.machines.unmake(&run.id)?;
        return Err(error.into());
    }
    start_new(daemon, &run)
}

/// The answer with the location of a run.
fn accepted(daemon: &Daemon, run: Machine) -> Result<Response, Problem> {
    let headers = [
        (header::LOCATION, format!("/v1/runs/{}", run.id)),
        (
            header::HeaderName::from_static("preference-applied"),
            RESPOND_ASYNC.to_owned(),
        ),
    ];
    let mut outputs = AnswerOutputs::default();
    let status = tokio::task::block_in_place(|| RunStatus::new(daemon, run, &mut outputs))?;
    let status = outputs.respond(&status, ())?;
    Ok((StatusCode::ACCEPTED, headers, status).into_response())
}

/// The outcome of a kept run, once the run has ended.
async fn outcome(target: &Target) -> Result<Response, Problem> {
    let run = loop {
        let run = find(target, Kind::Run)?;
        if !run.state.is_active() {
            break run;
        }
        wait_for_end(target, Kind::Run, MAX_WAIT).await?;
    };
    let result = RunResult::not_run(FAILURE, run.message.clone());
    let run = Machine {
        result: run.result.or(Some(result)),
        ..run
    };
    let mut outputs = AnswerOutputs::default();
    let status = || RunStatus::new(&target.daemon, run, &mut outputs);
    let status = tokio::task::block_in_place(status)?;
    outputs.respond(&status.outcome, ())
}

/// The longest wait.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Longest wait for the end, seconds; then the answer has the present state.
    #[serde(default)]
    #[param(minimum = 0, maximum = 300)]
    seconds: u64,
}

/// Get an asynchronous run, with its output if it has ended
#[utoipa::path(get, path = "/v1/runs/{id}",
    operation_id = "get_run", params(("id" = String, Path), Wait),
    responses((status = 200, description = "The run", body = RunStatus), Refused))]
pub async fn get(target: Target, Query(wait): Query<Wait>) -> Result<Response, Problem> {
    wait_for_end(&target, Kind::Run, wait.seconds).await?;
    let run = find(&target, Kind::Run)?;
    let mut outputs = AnswerOutputs::default();
    let status = || RunStatus::new(&target.daemon, run, &mut outputs);
    let status = tokio::task::block_in_place(status)?;
    outputs.respond(&status, ())
}

/// Delete an asynchronous run, and end it first if necessary
#[utoipa::path(delete, path = "/v1/runs/{id}",
    operation_id = "delete_run", params(("id" = String, Path)),
    responses((status = 204, description = "The run is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    let run = find(&target, Kind::Run)?;
    let machines = &target.daemon.machines;
    if run.state.is_active() {
        tokio::task::block_in_place(|| machines.kill(&run))?;
        wait_for_end(&target, Kind::Run, DELETE_WAIT).await?;
    }
    let run = find(&target, Kind::Run)?;
    tokio::task::block_in_place(|| machines.delete(&run))?;
    Ok(StatusCode::NO_CONTENT)
}
