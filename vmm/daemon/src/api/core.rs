//! Core dumps of machines.

use super::Refused;
use super::extract::Target;
use super::lookup::find;
use crate::problem::Problem;
use crate::store::{Kind, Scope};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::fs::File;
use std::io::{self, Read};

/// Most bytes of a part of the answer.
const PART: u64 = 64 << 10;

/// Get the core dump of a machine
///
/// The answer is an ELF file for debuggers of riscv64 programs: the first core dump of the machine's
/// last start that left one. It has the program's memory, so a key needs the scope `write`.
#[utoipa::path(get, path = "/v1/machines/{id}/core",
    operation_id = "get_machine_core", params(("id" = String, Path)),
    responses((status = 200, description = "The core dump", body = Vec<u8>,
        content_type = "application/octet-stream"), Refused))]
pub async fn core(target: Target) -> Result<Response, Problem> {
    target.caller.needs(Scope::Write)?;
    let machine = find(&target, Kind::Machine)?;
    let open = || {
        let Some(file) = target.daemon.machines.core(&machine.id)? else {
            return Ok(None);
        };
        let length = file.metadata()?.len();
        Ok::<_, io::Error>(Some((file, length)))
    };
    let opened = tokio::task::block_in_place(open).map_err(Problem::internal)?;
    let (file, length) = opened.ok_or_else(|| Problem::not_found("core dump of this machine"))?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, Body::from_stream(parts(file, length))).into_response())
}

/// The bytes of a file, while they are sent.
fn parts(file: File, length: u64) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((file, length), async |(file, left)| {
        if left == 0 {
            return Ok(None);
        }
        let mut part = Vec::new();
        let read = tokio::task::block_in_place(|| {
            let mut part_of_file = (&file).take(left.min(PART));
            part_of_file.read_to_end(&mut part)
        })?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left.saturating_sub(read as u64);
        Ok(Some((Bytes::from(part), (file, left))))
    })
}
