//! The output of machines' programs.

use super::extract::{Query, Target};
use super::lookup::find;
use crate::problem::Problem;
use crate::store::Kind;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hartline_jail::MAX_OUTPUT;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Period of the checks of a log that is followed.
const FOLLOW: Duration = Duration::from_millis(25);
/// Bytes of a log sent at a time.
const CHUNK: usize = 64 << 10;

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

impl LogStream {
    /// Name of the output's file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The requested part of a log.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The output.
    #[serde(default)]
    #[param(inline)]
    stream: LogStream,
    /// Offset of the first byte.
    #[serde(default)]
    #[param(maximum = 16777216)]
    offset: u64,
    /// Continue until the machine ends.
    #[serde(default)]
    follow: bool,
}

/// Get the output of a machine's program
#[utoipa::path(get, path = "/v1/machines/{id}/logs", params(("id" = String, Path), Log),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn logs(target: Target, Query(log): Query<Log>) -> Result<Response, Problem> {
    if log.offset > MAX_OUTPUT {
        let rule = format!("must be at most {MAX_OUTPUT}: no log is longer");
        return Err(Problem::field("offset", rule));
    }
    find(&target, Kind::Machine)?;
    let reader = LogReader::new(target, log.stream, log.offset, log.follow);
    let chunks = stream::try_unfold(reader, async |mut reader| {
        let chunk = reader.next().await?;
        Ok::<_, std::io::Error>(chunk.map(|chunk| (chunk, reader)))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(chunks)).into_response())
}

/// Reads a log as it grows.
pub(super) struct LogReader {
    target: Target,
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    follow: bool,
}

impl LogReader {
    /// Reads one of a machine's outputs from the byte `offset` on.
    pub(super) fn new(target: Target, stream: LogStream, offset: u64, follow: bool) -> Self {
        Self {
            path: target.daemon.machines.file(&target.id, stream.name()),
            target,
            file: None,
            offset,
            follow,
        }
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            // Ask before reading: everything written before the end is then read.
            let machine = find(&self.target, Kind::Machine);
            let active = machine.is_ok_and(|machine| machine.state.is_active());
            if self.file.is_none()
                && let Ok(mut file) = File::open(&self.path).await
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
