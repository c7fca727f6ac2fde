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
use std::io;
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

/// The requested part of a log.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The output.
    #[serde(default)]
    #[param(inline)]
    stream: LogStream,
    /// Offset of the first byte. The oldest bytes of a long output are gone; then the answer starts with
    /// the oldest byte that is left.
    #[serde(default)]
    offset: u64,
    /// Start this number of lines before the end, instead of at `offset`.
    tail: Option<u64>,
    /// Continue until the machine ends.
    #[serde(default)]
    follow: bool,
}

/// Get the output of a machine's program
#[utoipa::path(get, path = "/v1/machines/{id}/logs", params(("id" = String, Path), Log),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn logs(target: Target, Query(which): Query<Log>) -> Result<Response, Problem> {
    find(&target, Kind::Machine)?;
    let mut reader = LogReader::new(target, which.stream, which.offset, which.follow);
    if let Some(lines) = which.tail {
        reader.skip_to_last(lines)?;
    }
    let chunks = stream::try_unfold(reader, async |mut reader| {
        let chunk = reader.next().await?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, reader)))
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

    /// Goes on with the last `lines` lines that are there now.
    ///
    /// # Errors
    /// Any I/O error of the host.
    fn skip_to_last(&mut self, lines: u64) -> io::Result<()> {
        match File::open(&self.path) {
            Ok(file) => {
                self.offset = tokio::task::block_in_place(|| last_lines(&file, lines))?;
                Ok(())
            }
            // The program has not started.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
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
                let (at, mut count) = tokio::task::block_in_place(read)?;
                // A program that writes faster than a client reads must not keep it for ever.
                if let Some(end) = self.end {
                    let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
                    count = count.min(left);
                }
                if count > 0 {
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

/// The place in an output where its last `lines` lines begin.
fn last_lines(file: &File, lines: u64) -> io::Result<u64> {
    let there = log::extent(file, MAX_OUTPUT)?;
    let (mut end, mut found) = (there.end, 0);
    if lines == 0 {
        return Ok(end);
    }
    let mut chunk = vec![0; CHUNK];
    while end > there.start {
        let start = there.start.max(end.saturating_sub(CHUNK as u64));
        let mut at = start;
        let mut bytes = Vec::with_capacity(CHUNK);
        while at < end {
            let length = usize::try_from(end - at).map_or(CHUNK, |length| length.min(CHUNK));
            let (place, count) = log::read(file, MAX_OUTPUT, at, &mut chunk[..length])?;
            if place != at || count == 0 {
                // The program has replaced what is before this place.
                return Ok(place);
            }
            bytes.extend_from_slice(&chunk[..count]);
            at += count as u64;
        }
        for (index, byte) in bytes.iter().enumerate().rev() {
            // A line begins behind the end of another one.
            let next = start + index as u64 + 1;
            if *byte == b'\n' && next < there.end {
                found += 1;
                if found == lines {
                    return Ok(next);
                }
            }
        }
        end = start;
    }
    Ok(there.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_lines_are_found() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(last_lines(&file, 3).unwrap(), 0);
        file.write_all(b"one\ntwo\nthree").unwrap();
        for (lines, place) in [(0, 13), (1, 8), (2, 4), (3, 0), (4, 0), (u64::MAX, 0)] {
            assert_eq!(last_lines(&file, lines).unwrap(), place, "{lines}");
        }
        file.write_all(b"\n").unwrap();
        assert_eq!(last_lines(&file, 1).unwrap(), 8);
        // Lines that are longer than a chunk, and one that ends with it.
        let long = [vec![b'x'; 3 * CHUNK - 15], vec![b'\n'], vec![b'y'; 9]].concat();
        file.write_all(&long).unwrap();
        let end = 14 + long.len() as u64;
        for (lines, place) in [(1, end - 9), (2, 14), (3, 8), (5, 0)] {
            assert_eq!(last_lines(&file, lines).unwrap(), place, "{lines}");
        }
    }
}
