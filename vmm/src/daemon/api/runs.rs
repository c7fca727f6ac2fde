//! One call that runs a program and has its output for an answer.

use super::extract::{Caller, Json, from_object};
use super::machines::check_spec;
use crate::daemon::Daemon;
use crate::daemon::execute::{self, Order, Outputs};
use crate::daemon::problem::Problem;
use crate::daemon::scheduler::Resources;
use crate::daemon::store::{Scope, Spec};
use crate::jailed::protocol::{Exits, RunResult};
use crate::platform::memory_file;
use axum::extract::State;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of each output that a run answers with.
const MAX_OUTPUT: u64 = 1 << 20;
/// Most bytes of standard input.
const MAX_INPUT: usize = 128 << 10;
/// How long a run may take if its request does not say.
const DEFAULT_TIMEOUT_MS: u64 = 60_000;
/// How long a run may be asked to take.
const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// How much longer than its program a VMM may take.
const VMM_PATIENCE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Map<String, Value>")]
pub struct RunRequest {
    #[serde(flatten)]
    spec: Spec,
    /// Standard input of the program.
    #[schema(max_length = 131072, required = false)]
    stdin: String,
}

impl TryFrom<Map<String, Value>> for RunRequest {
    type Error = String;

    /// Unlike serde's own `flatten` this refuses fields that nobody knows.
    fn try_from(mut object: Map<String, Value>) -> Result<Self, Self::Error> {
        let stdin = match object.remove("stdin") {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => return Err("stdin: must be a string".to_owned()),
        };
        let spec = from_object(object)?;
        Ok(Self { spec, stdin })
    }
}

/// What a program wrote to one of its outputs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Output {
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes in base64, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// There was more than these.
    truncated: bool,
}

/// How a run ended.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RunOutcome {
    /// Exit code of the program; 128 and the signal's number if a signal ended it, 124
    /// after its time, 125 if it could not be run to its end.
    exit_code: u8,
    /// Why it did not end by itself; empty if it did.
    message: String,
    /// Standard output.
    stdout: Output,
    /// Standard error.
    stderr: Output,
    /// Milliseconds that it waited for its turn.
    queued_ms: f64,
    /// Milliseconds from its turn until the program was entered.
    boot_ms: f64,
    /// Milliseconds from then to its end.
    run_ms: f64,
    /// Exits of its vCPUs to the VMM, by reason.
    exits: Exits,
    /// Exits that KVM counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    kvm_exits: Option<u64>,
}

/// Run a program and wait for its end
///
/// Nothing is kept of it. If the caller goes away the program is ended.
#[utoipa::path(post, path = "/v1/runs", request_body = RunRequest,
    responses((status = 200, body = RunOutcome),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = "5XX", body = Problem, content_type = "application/problem+json")))]
pub async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(mut request): Json<RunRequest>,
) -> Result<axum::Json<RunOutcome>, Problem> {
    caller.needs(Scope::Write)?;
    let timeout_ms = request.spec.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout_ms > MAX_TIMEOUT_MS {
        let rule = format!("must be at most {MAX_TIMEOUT_MS} for a run");
        return Err(Problem::field("timeout_ms", rule));
    }
    request.spec.timeout_ms = Some(timeout_ms);
    check_spec(&request.spec)?;
    if request.stdin.len() > MAX_INPUT {
        let rule = format!("must be at most {MAX_INPUT} bytes");
        return Err(Problem::field("stdin", rule));
    }
    let spec = &request.spec;
    let program = daemon.store.program(&caller.tenant, &spec.program)?;
    let program = program.ok_or_else(|| Problem::not_found("program"))?;
    let library = &daemon.library;
    let order = tokio::task::block_in_place(|| Order::new(spec, &program, library, false))?;
    let quota = daemon.store.tenant(&caller.tenant)?;
    let quota = quota.map(|tenant| tenant.quota).unwrap_or_default();
    let need = Resources {
        cpus: spec.cpus.into(),
        memory: spec.memory,
    };
    let asked = Instant::now();
    let turn = daemon.scheduler.queue(&caller.tenant, quota, need)?;
    let permit = turn.await.map_err(Problem::internal)?;
    let queued = asked.elapsed();

    let outputs = make_outputs(request.stdin.as_bytes())?;
    let vmm = daemon.pool.take().await?;
    order.send(&vmm, &outputs).await?;
    let patience = Duration::from_millis(timeout_ms) + VMM_PATIENCE;
    let result = tokio::time::timeout(patience, execute::result(&vmm)).await;
    // Its process ends by itself, and is ended if it does not.
    drop((vmm, permit));
    let result = match result {
        Ok(Ok(result)) => result,
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            failed("the VMM ended without a result: it crashed or was killed")
        }
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => failed("the VMM did not answer and was ended"),
    };
    daemon.metrics.count_run(result.code);
    let milliseconds = |us: u64| us as f64 / 1000.0;
    Ok(axum::Json(RunOutcome {
        exit_code: result.code,
        message: result.message,
        stdout: read_output(outputs.output)?,
        stderr: read_output(outputs.error)?,
        queued_ms: queued.as_secs_f64() * 1000.0,
        boot_ms: milliseconds(result.boot_us),
        run_ms: milliseconds(result.run_us),
        exits: result.exits,
        kvm_exits: result.kvm_exits,
    }))
}

/// The result of a run whose VMM gave none.
fn failed(message: &str) -> RunResult {
    RunResult {
        code: crate::report::FAILURE,
        message: message.to_owned(),
        boot_us: 0,
        run_us: 0,
        exits: Exits::default(),
        kvm_exits: None,
    }
}

/// Files in memory for a program's descriptors.
fn make_outputs(input: &[u8]) -> io::Result<Outputs> {
    let mut input = memory_file(c"stdin", input)?;
    input.rewind()?;
    Ok(Outputs {
        input,
        output: memory_file(c"stdout", b"")?,
        error: memory_file(c"stderr", b"")?,
        result: memory_file(c"result", b"")?,
    })
}

fn read_output(mut file: File) -> io::Result<Output> {
    let truncated = file.metadata()?.len() > MAX_OUTPUT;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    let (text, base64) = match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
    };
    Ok(Output {
        text,
        base64,
        truncated,
    })
}
