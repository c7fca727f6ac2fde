//! Uploads.

use super::Refused;
use super::extract::{Caller, Query, Target};
use super::pages::{List, Listed, Page};
use crate::Daemon;
use crate::auth::{hex, random_hex};
use crate::jailed::protocol::UploadKind;
use crate::library::Incoming;
use crate::patience::within;
use crate::problem::Problem;
use crate::store::{Program, ProgramState, Scope, Store};
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::StatusCode;
use futures_util::StreamExt;
use object::elf::ELFMAG as ELF_MAGIC;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

const MAX_NAME: usize = 255;
/// Most bytes of a refused upload that are still read, and the time limit for that.
const DISCARDED: usize = 16 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// A program, and the progress of its preparation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProgramStatus {
    #[serde(flatten)]
    program: Program,
    /// During translation: translated guest instructions of the present file.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions_done: Option<usize>,
    /// During translation: all guest instructions of the present file.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<usize>,
}

fn status(daemon: &Daemon, program: Program) -> axum::Json<ProgramStatus> {
    let progress = daemon.library.progress(&program.tenant, &program.id);
    axum::Json(ProgramStatus {
        program,
        instructions_done: progress.map(|(done, _)| done),
        instructions: progress.map(|(_, all)| all),
    })
}

/// List the tenant's programs, by id
#[utoipa::path(get, path = "/v1/programs", operation_id = "list_programs", params(Page),
    responses((status = 200, description = "The programs, by id", body = [Program],
        headers(("Link" = String, description = "The next page, if there is one (rel=next)"))),
    Refused))]
pub async fn list(list: List<Page>) -> Result<Listed<Program>, Problem> {
    list.page(Store::programs, |program| &program.id)
}

/// Get a program
#[utoipa::path(get, path = "/v1/programs/{id}",
    operation_id = "get_program", params(("id" = String, Path)),
    responses((status = 200, description = "The program", body = ProgramStatus), Refused))]
pub async fn get(target: Target) -> Result<axum::Json<ProgramStatus>, Problem> {
    let Target { daemon, caller, id } = target;
    let program = daemon.store.program(&caller.tenant, &id)?;
    let program = program.ok_or_else(|| Problem::not_found("program"))?;
    Ok(status(&daemon, program))
}

/// Delete a program that no machine and no snapshot uses
#[utoipa::path(delete, path = "/v1/programs/{id}",
    operation_id = "delete_program", params(("id" = String, Path)),
    responses((status = 204, description = "The program is deleted"), Refused))]
pub async fn delete(target: Target) -> Result<StatusCode, Problem> {
    let Target { daemon, caller, id } = target;
    if daemon.store.is_program_used(&caller.tenant, &id)? {
        let detail = "machines or snapshots have this program: delete them first";
        return Err(Problem::conflict("program-in-use", detail));
    }
    match daemon.library.delete(&caller.tenant, &id)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("program")),
    }
}

/// The name of an upload, and the files in it to translate.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// Name of the upload. A single program gets it as its first argument. The program may be given
    /// by its name wherever an id may, unless the name has only the digits of ids (0 to 9, a to f).
    /// Of several programs with a name, the one that was uploaded last is meant.
    #[param(min_length = 1, max_length = 255)]
    name: String,
    /// For a root file system: paths of programs to translate ahead of time, separated by commas.
    #[serde(default)]
    programs: String,
}

/// Upload a program: an ELF file, or a tar file (also with gzip) of a root file system
///
/// The daemon prepares the program after the upload. The program can run when its state is
/// `translating` or `ready`.
/// A second upload of the same bytes is the same program, with the new name.
#[utoipa::path(post, path = "/v1/programs", operation_id = "upload_program", params(Upload),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, description = "The program, which is new", body = ProgramStatus),
    (status = 200, description = "The program, which the tenant had already",
        body = ProgramStatus), Refused))]
pub async fn upload(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Query(upload): Query<Upload>,
    body: Body,
) -> Result<(StatusCode, axum::Json<ProgramStatus>), Problem> {
    caller.needs(Scope::Write)?;
    check_text("name", &upload.name)?;
    let programs: Vec<String> = upload
        .programs
        .split(',')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    check_text("programs", &upload.programs)?;
    let most = daemon.config().max_upload;
    let mut incoming = daemon.library.receive(&caller.tenant);
    let temporary = Temporary(daemon.library.temporary(
        &random_hex::<16>().map_err(|error| Problem::internal(format!("random bytes: {error}")))?,
    ));
    let patience = Duration::from_secs(daemon.config().idle_timeout_s);
    let limits = (&mut incoming, most, patience);
    let mut body = body.into_data_stream();
    let received = receive(&mut body, &temporary.0, limits).await;
    if received.is_err() {
        discard(&mut body).await;
    }
    let received = received?;
    if received.kind == UploadKind::Elf && !programs.is_empty() {
        return Err(Problem::field("programs", "the upload is one program"));
    }
    let new = Program {
        tenant: caller.tenant.clone(),
        id: received.id,
        name: upload.name,
        kind: received.kind,
        size: received.size,
        tree_size: 0,
        programs,
        state: ProgramState::Packing,
        message: String::new(),
        problem: String::new(),
        files: Vec::new(),
        created_ms: 0,
    };
    let library = &daemon.library;
    let added = tokio::task::block_in_place(|| {
        // From now on the upload counts as a program.
        drop(incoming);
        library.add(&temporary.0, &new)
    });
    let (program, is_new) = added?;
    let code = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((code, status(&daemon, program)))
}

fn check_text(field: &str, text: &str) -> Result<(), Problem> {
    let most = if field == "name" { MAX_NAME } else { 4096 };
    if text.len() > most || text.contains('\0') || field == "name" && text.is_empty() {
        let rule = format!("must have 1 to {most} bytes and no NUL");
        return Err(Problem::field(field, rule));
    }
    Ok(())
}

/// A file that is deleted when this is dropped, if it still exists.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Usually the file was renamed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads the rest of a refused body, if it is short. A connection that is closed with unread bytes
/// is reset, so the client might not see the answer.
pub(super) async fn discard(body: &mut BodyDataStream) {
    let rest = async {
        let mut left = DISCARDED;
        while left > 0
            && let Some(Ok(chunk)) = body.next().await
        {
            left = left.saturating_sub(chunk.len());
        }
    };
    // A client that is too slow may miss the answer.
    let _ = tokio::time::timeout(DISCARD_TIME, rest).await;
}

/// A completely received upload.
struct Received {
    id: String,
    size: u64,
    kind: UploadKind,
}

/// Writes a body to a file.
async fn receive(
    body: &mut BodyDataStream,
    path: &std::path::Path,
    (incoming, most, patience): (&mut Incoming, u64, Duration),
) -> Result<Received, Problem> {
    let mut file = File::create_new(path).await?;
    let (mut hash, mut size, mut start) = (Sha256::new(), 0, Vec::new());
    loop {
        let chunk = within(patience, body.next()).await;
        let chunk = chunk.map_err(|_| {
            Problem::bad_request(format!("no byte came for {} s", patience.as_secs()))
        })?;
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|error| Problem::bad_request(format!("the body: {error}")))?;
        size += chunk.len() as u64;
        if size > most {
            return Err(Problem::too_large(most));
        }
        if let Some(left) = incoming.grow(size)? {
            return Err(Problem::too_large(left));
        }
        let missing = ELF_MAGIC.len() - start.len();
        start.extend_from_slice(&chunk[..missing.min(chunk.len())]);
        hash.update(&chunk);
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    if size == 0 {
        return Err(Problem::bad_request("the body is empty"));
    }
    let kind = match start == ELF_MAGIC {
        true => UploadKind::Elf,
        false => UploadKind::Rootfs,
    };
    let id = hex(&hash.finalize());
    Ok(Received { id, size, kind })
}
