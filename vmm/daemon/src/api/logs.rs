//! The output of machines' and asynchronous runs' programs.

use super::Refused;
use super::extract::{Query, Target};
use super::lookup::find;
use crate::log::{Entry, Reader, Since, now, stamp};
use crate::problem::Problem;
use crate::store::Kind;
use axum::body::Body;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Period of the checks of a log that is followed.
const FOLLOW: Duration = Duration::from_millis(25);
/// Header with the position of the first byte of the answer.
const START: HeaderName = HeaderName::from_static("hartline-log-start");

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
    /// Position of the first byte in the output. The oldest bytes of a long output are gone; then the
    /// answer starts with the oldest byte that is left.
    #[serde(default)]
    offset: u64,
    /// Only this number of last lines, or `all`.
    #[param(pattern = "^([0-9]{1,18}|all)$")]
    tail: Option<String>,
    /// Only output since this time: a time of RFC 3339, seconds since 1970, or a duration before now
    /// such as `10m` or `1h30m`.
    since: Option<String>,
    /// Begin each line with the time of its first byte.
    #[serde(default)]
    timestamps: bool,
    /// Continue until the machine ends.
    #[serde(default)]
    follow: bool,
}

impl Log {
    /// Checks the requested part.
    ///
    /// # Errors
    /// [`Problem`] with the field's name.
    pub(super) fn start(&self) -> Result<Start, Problem> {
        let tail = match self.tail.as_deref() {
            None | Some("all") => None,
            Some(text) => match text.parse() {
                Ok(lines) => Some(lines),
                Err(_) => return Err(Problem::field("tail", "must be a number of lines, or all")),
            },
        };
        let since = self.since.as_deref().map(Since::parse).transpose();
        let since = since.map_err(|error| Problem::field("since", error))?;
        Ok(Start {
            offset: self.offset,
            tail,
            since: since.map(|since| since.at(now())),
            ..Start::default()
        })
    }
}

/// Where a reader of a log starts: what all of these allow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// Position in the output.
    offset: u64,
    /// Number of last lines.
    tail: Option<u64>,
    /// Time, nanoseconds since 1970.
    since: Option<u64>,
    /// Whether everything that is there now is left out.
    is_end: bool,
}

impl Start {
    /// What is written from now on.
    pub(super) const END: Self = Self {
        offset: 0,
        tail: None,
        since: None,
        is_end: true,
    };

    /// Takes a reader there.
    fn go(self, reader: &mut Reader) -> io::Result<()> {
        if self.is_end {
            return reader.skip_to_end();
        }
        if let Some(lines) = self.tail {
            reader.skip_to_last(lines)?;
        }
        if self.offset > 0 {
            reader.skip_to(self.offset)?;
        }
        match self.since {
            Some(time) => reader.skip_to_time(time),
            None => Ok(()),
        }
    }
}

/// Get the output of a machine's program
///
/// The daemon keeps the newest output (`log_max_size` and `log_max_files` of its configuration).
/// `Hartline-Log-Start` is the position of the answer's first byte in the output.
#[utoipa::path(get, path = "/v1/machines/{id}/logs",
    operation_id = "get_machine_logs", params(("id" = String, Path), Log),
    responses((status = 200, description = "The output",
        content_type = "application/octet-stream",
        body = Vec<u8>,
        headers(("Hartline-Log-Start" = u64))), Refused))]
pub async fn logs(target: Target, Query(which): Query<Log>) -> Result<Response, Problem> {
    answer(target, Kind::Machine, &which)
}

/// Get the output of an asynchronous run's program
///
/// As the output of a machine, while the program runs and afterwards.
#[utoipa::path(get, path = "/v1/runs/{id}/logs",
    operation_id = "get_run_logs", params(("id" = String, Path), Log),
    responses((status = 200, description = "The output",
        content_type = "application/octet-stream",
        body = Vec<u8>,
        headers(("Hartline-Log-Start" = u64))), Refused))]
pub async fn of_run(target: Target, Query(which): Query<Log>) -> Result<Response, Problem> {
    answer(target, Kind::Run, &which)
}

fn answer(target: Target, kind: Kind, which: &Log) -> Result<Response, Problem> {
    find(&target, kind)?;
    let start = which.start()?;
    let mut reader = LogReader::new((target, kind), which.stream, start, which.follow);
    tokio::task::block_in_place(|| reader.open())?;
    if (which.timestamps || which.since.is_some()) && !reader.has_times() {
        let detail = "an earlier version of the daemon has kept this output, without times";
        return Err(Problem::conflict("no-timestamps", detail));
    }
    let position = tokio::task::block_in_place(|| reader.position())?;
    let stamps = which.timestamps.then(Stamps::default);
    let chunks = stream::try_unfold((reader, stamps), async |(mut reader, mut stamps)| {
        let entry = reader.next().await?;
        Ok::<_, io::Error>(entry.map(|entry| {
            let chunk = match &mut stamps {
                Some(stamps) => stamps.add(&entry),
                None => entry.bytes,
            };
            (chunk, (reader, stamps))
        }))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (START, position.to_string()),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

/// Puts times before lines.
#[derive(Debug, Default)]
struct Stamps {
    /// Position behind the last bytes, and whether they end a line.
    last: Option<(u64, bool)>,
}

impl Stamps {
    /// The bytes of the next entry, with the times of lines that begin in it.
    fn add(&mut self, entry: &Entry) -> Vec<u8> {
        let stamp = entry.time.map(stamp).unwrap_or_default();
        let mut stamped = Vec::with_capacity(entry.bytes.len() + stamp.len() + 1);
        let mut begins_line = match self.last {
            None => true,
            Some((position, ends_line)) => {
                let is_lost = position != entry.position;
                if is_lost && !ends_line {
                    // The rest of the line is gone.
                    stamped.push(b'\n');
                }
                is_lost || ends_line
            }
        };
        for line in entry.bytes.split_inclusive(|&byte| byte == b'\n') {
            if begins_line {
                stamped.extend_from_slice(stamp.as_bytes());
                stamped.push(b' ');
            }
            stamped.extend_from_slice(line);
            begins_line = line.ends_with(b"\n");
        }
        self.last = Some((entry.end(), begins_line));
        stamped
    }
}

/// Reads a log as it grows.
pub(super) struct LogReader {
    target: Target,
    kind: Kind,
    stream: LogStream,
    start: Start,
    /// `None` until there is output.
    reader: Option<Reader>,
    /// Start of the machine whose output is read, milliseconds since 1970.
    started: Option<i64>,
    follow: bool,
}

impl LogReader {
    /// Reads one of the outputs of a machine or run.
    pub(super) fn new(
        (target, kind): (Target, Kind),
        stream: LogStream,
        start: Start,
        follow: bool,
    ) -> Self {
        Self {
            target,
            kind,
            stream,
            start,
            reader: None,
            started: None,
            follow,
        }
    }

    /// Opens the log, if there is output.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let machines = &self.target.daemon.machines;
        if self.reader.is_none()
            && let Some(mut reader) = machines.output(&self.target.id, self.stream.name())?
        {
            // A program that writes faster than a client reads must not keep it for ever.
            if !self.follow {
                reader.stop_at_end()?;
            }
            self.start.go(&mut reader)?;
            self.reader = Some(reader);
        }
        // What comes later is new.
        self.start = Start::default();
        Ok(())
    }

    /// Whether the output has times.
    fn has_times(&self) -> bool {
        self.reader.as_ref().is_none_or(Reader::has_times)
    }

    /// The position of the next byte.
    fn position(&mut self) -> io::Result<u64> {
        let position = self.reader.as_mut().map(Reader::position).transpose()?;
        Ok(position.flatten().unwrap_or(0))
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            // Ask before reading: everything written before the end is then read.
            let active = self.is_active();
            let read = || {
                self.open()?;
                self.reader.as_mut().map_or(Ok(None), Reader::read)
            };
            if let Some(entry) = tokio::task::block_in_place(read)? {
                return Ok(Some(entry));
            }
            if !self.follow || !active {
                return Ok(None);
            }
            tokio::time::sleep(FOLLOW).await;
        }
    }

    /// Whether the machine that is read is active. After another start, it is another output.
    fn is_active(&mut self) -> bool {
        let Ok(machine) = find(&self.target, self.kind) else {
            return false;
        };
        let started = self.started.or(machine.started_ms);
        self.started = started;
        machine.state.goes_on() && (machine.started_ms == started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: u64, text: &str) -> Entry {
        Entry {
            time: Some(position * 1_000_000_000),
            position,
            bytes: text.into(),
        }
    }

    #[test]
    fn lines_get_the_times_of_their_starts() {
        let mut stamps = Stamps::default();
        let mut add = |position, text| {
            let bytes = stamps.add(&entry(position, text));
            String::from_utf8(bytes)
                .unwrap()
                .replace("1970-01-01T00:00:", "")
        };
        assert_eq!(add(1, "a\nb"), "01.000000000Z a\n01.000000000Z b");
        assert_eq!(add(4, "c"), "c");
        assert_eq!(add(5, "\n"), "\n");
        assert_eq!(add(6, "\nd"), "06.000000000Z \n06.000000000Z d");
        // The end of the line is lost.
        assert_eq!(add(20, "e\n"), "\n20.000000000Z e\n");
        assert_eq!(add(30, "f"), "30.000000000Z f");
    }

    #[test]
    fn parts_are_checked() {
        let start = |tail: Option<&str>, since: Option<&str>| {
            let [tail, since] = [tail, since].map(|text| text.map(str::to_owned));
            let log = Log {
                stream: LogStream::Stdout,
                offset: 0,
                tail,
                since,
                timestamps: false,
                follow: false,
            };
            log.start().map(|start| (start.tail, start.since))
        };
        assert_eq!(start(None, None).unwrap(), (None, None));
        assert_eq!(
            start(Some("all"), Some("1.5")).unwrap(),
            (None, Some(1_500_000_000))
        );
        let (tail, since) = start(Some("7"), Some("10m")).unwrap();
        assert_eq!(tail, Some(7));
        assert!(since.is_some_and(|since| since < now() - 599 * 1_000_000_000));
        for (tail, since) in [("-1", "0"), ("", "0"), ("1", ""), ("1", "noon")] {
            assert!(start(Some(tail), Some(since)).is_err(), "{tail} {since}");
        }
    }
}
