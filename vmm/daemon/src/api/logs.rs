//! The output of machines' programs.

use super::extract::{Query, Target};
use super::lookup::find;
use crate::problem::Problem;
use crate::store::Kind;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hartline_devices::console::log;
use hartline_jail::MAX_OUTPUT;
use serde::Deserialize;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

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

/// Which part of a log.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Which output.
    #[serde(default)]
    #[param(inline)]
    stream: LogStream,
    /// From this byte of the output on. The oldest bytes of a long output are gone: what is left of
    /// it comes then.
    #[serde(default)]
    offset: u64,
    /// Go on until the machine has ended.
    #[serde(default)]
    follow: bool,
}

/// Output of the program
#[utoipa::path(get, path = "/v1/machines/{id}/logs", params(("id" = String, Path), Log),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn logs(target: Target, Query(which): Query<Log>) -> Result<Response, Problem> {
    find(&target, Kind::Machine)?;
    let reader = LogReader::new(target, which.stream, which.offset, which.follow);
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
    /// End of the output when it was opened, unless it is followed.
    end: Option<u64>,
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
            end: None,
            follow,
        }
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            // Ask before reading: everything written before the end is then read.
            let machine = find(&self.target, Kind::Machine);
            let active = machine.is_ok_and(|machine| machine.state.is_active());
            if self.file.is_none() {
                self.file = File::open(&self.path).ok();
            }
            if let Some(file) = &self.file {
                if self.end.is_none() && !self.follow {
                    self.end = Some(log::extent(file, MAX_OUTPUT)?.end);
                }
                let mut chunk = vec![0; CHUNK];
                let read = || log::read(file, MAX_OUTPUT, self.offset, &mut chunk);
                let (at, count) = tokio::task::block_in_place(read)?;
                // A program that writes faster than a client reads must not keep it for ever.
                if count > 0 && self.end.is_none_or(|end| at < end) {
                    self.offset = at + count as u64;
                    chunk.truncate(count);
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
