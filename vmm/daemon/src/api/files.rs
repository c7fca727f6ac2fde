//! Copies of files from and to machines, as tar files.
//!
//! The guest reads and writes the tar files ([`hartline_abi::copy`]), and the service passes the bytes
//! on without reading them. It limits their number and the time that each side takes. A task of its
//! own follows an answer, so that a client that does not read occupies no copy for ever.

use super::Refused;
use super::extract::{Query, Target};
use super::lookup::find_awake;
use super::programs::discard;
use super::stopped::Holder;
use crate::config::Config;
use crate::exec::{Control, Exec, Output};
use crate::jailed::protocol::FromProcess;
use crate::machines::MachineError;
use crate::patience::{pass, within};
use crate::printable::printable;
use crate::problem::Problem;
use crate::store::{MachineState, Scope};
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use hartline_abi::copy::{Direction, Request};
use serde::Deserialize;
use std::io;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// The media type of the tar files.
const TAR: &str = "application/x-tar";
/// Header with the type of a file.
const FILE_TYPE: HeaderName = HeaderName::from_static("hartline-file-type");
/// Pieces that wait for a slow client.
const WAITING: usize = 4;
/// Most bytes of a file's name in a message.
const MAX_NAME: usize = 4096;
/// The rule for paths.
const PATH: &str = "must be an absolute path of at most 4095 bytes without NUL";

/// The file or directory to copy.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Absolute path in the machine. With `/` at its end, it must be a directory.
    #[param(pattern = "^/[^\\x00]*$", max_length = 4095, example = "/etc/hosts")]
    path: String,
    /// Copy the file that a symbolic link leads to instead of the link. Links in a directory are
    /// copied in any case.
    #[serde(default)]
    follow: bool,
}

/// The directory to copy to.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Absolute path of a directory in the machine.
    #[param(pattern = "^/[^\\x00]*$", max_length = 4095, example = "/tmp")]
    path: String,
    /// Give the files the owners in the tar file. Otherwise root owns them.
    #[serde(default)]
    owners: bool,
}

/// The limits of a copy.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes that may follow.
    bytes: u64,
    /// Bytes that came.
    copied: u64,
    files: u64,
    /// Longest wait for each side.
    patience: Duration,
    time: Duration,
}

impl Limits {
    fn of(config: &Config) -> Self {
        Self {
            bytes: config.copy_max_size,
            copied: 0,
            files: config.copy_max_files,
            patience: Duration::from_secs(config.idle_timeout_s),
            time: Duration::from_secs(config.copy_timeout_s),
        }
    }

    /// Counts bytes.
    fn count(&mut self, bytes: usize) -> Result<(), Problem> {
        let left = self.bytes.checked_sub(bytes as u64);
        self.copied += bytes as u64;
        self.bytes = left.ok_or_else(|| Problem::copy_limit("bytes: see copy_max_size"))?;
        Ok(())
    }

    /// The machine has been silent for too long.
    fn silence(&self) -> Problem {
        let (seconds, bytes) = (self.patience.as_secs(), self.copied);
        let detail = format!("the machine was silent for {seconds} s, after {bytes} bytes");
        Problem::conflict("copy-timeout", detail)
    }

    /// The copy takes too long.
    fn too_long(&self) -> Problem {
        let detail = format!("the copy takes longer than {} s", self.time.as_secs());
        Problem::conflict("copy-timeout", detail)
    }
}

/// Checks the path in a query.
pub(super) fn check_path(path: &str) -> Result<(), Problem> {
    match path.starts_with('/') && path.len() <= 4095 && !path.contains('\0') {
        true => Ok(()),
        false => Err(Problem::field("path", PATH)),
    }
}

impl Source {
    /// Checks the fields.
    pub(super) fn check(&self) -> Result<(), Problem> {
        check_path(&self.path)
    }
}

impl Destination {
    /// Checks the fields.
    pub(super) fn check(&self) -> Result<(), Problem> {
        check_path(&self.path)
    }
}

/// A copy, and the VM that makes it if the machine does not run.
struct Copy {
    exec: Exec,
    holder: Option<Holder>,
}

/// Starts a copy in a machine of the caller, which needs the same right as for commands.
async fn start(target: &Target, request: Request<'_>) -> Result<Copy, Problem> {
    target.caller.needs(Scope::Write)?;
    let machine = find_awake(target).await?;
    if !machine.state.is_active() && !machine.spec.volumes.is_empty() {
        let path = String::from_utf8_lossy(request.path);
        let place = (&*path, request.direction != Direction::Write);
        let holder = Holder::start(target, &machine, place).await?;
        return Ok(Copy {
            exec: Exec::copy(&holder.requests, request)?,
            holder: Some(holder),
        });
    }
    // The spawner is asked for a descriptor.
    let copy = tokio::task::block_in_place(|| target.daemon.machines.copy(&machine, request));
    let exec = copy.map_err(|error| match error {
        MachineError::State(state) => {
            let advice = match state {
                MachineState::Paused => "resume it first",
                state if state.is_active() => "wait until it runs",
                _ => "start it first",
            };
            Problem::conflict("wrong-state", format!("{error}: {advice}"))
        }
        error => error.into(),
    })?;
    Ok(Copy { exec, holder: None })
}

/// Ends the VM of a copy, if there is one: then other machines may use the volumes.
async fn release(holder: Option<Holder>) {
    if let Some(holder) = holder {
        holder.end().await;
    }
}

/// The problem of a copy that did not succeed. `name` is the file, if there is one.
fn failed(error: i32, path: &str, name: &str, direction: Direction) -> Problem {
    let place = if name.is_empty() { path } else { name };
    // The guest chooses the number: it may be none of Linux's.
    match (error, direction) {
        (libc::ENOENT, _) if name.is_empty() => Problem::not_found("file or directory"),
        (libc::EINVAL, Direction::Write) => {
            let detail = match name {
                "" => "the body is not a tar file".to_owned(),
                name => format!("the body is not a valid tar file: after {name}"),
            };
            Problem::bad_request(detail)
        }
        (libc::E2BIG, _) => Problem::copy_limit("files: see copy_max_files"),
        (libc::EOPNOTSUPP, Direction::Write) => {
            let detail = format!("{place}: members of this kind are not supported");
            Problem::conflict("copy-failed", detail)
        }
        (libc::EOPNOTSUPP, _) => {
            let detail = format!("{place}: files of /proc and /sys cannot be copied");
            Problem::conflict("copy-failed", detail)
        }
        (libc::EAGAIN, _) => {
            let detail = "too many commands and copies run in the machine";
            Problem::conflict("copy-failed", detail)
        }
        (error, _) => {
            let text = io::Error::from_raw_os_error(error).to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            Problem::conflict("copy-failed", format!("{place}: {text}"))
        }
    }
}

/// Waits for the end of a copy. Result: the exit code.
async fn end(
    control: &Control,
    errors: &mut Output,
    (path, direction): (&str, Direction),
) -> Result<u8, Problem> {
    let fails = |detail: &str| Err(Problem::conflict("copy-failed", detail));
    match control.last().await {
        Some(Ok(FromProcess::Exited(code))) => Ok(code),
        Some(Ok(FromProcess::Failed(error))) => {
            let mut name = errors.next().await?;
            name.truncate(MAX_NAME);
            let name = String::from_utf8_lossy(&name);
            Err(failed(error, path, &printable(&name), direction))
        }
        Some(Ok(FromProcess::TooMany)) => fails("too many commands and copies run in the machine"),
        Some(Err(_)) => fails("the VMM sent an invalid message"),
        None => fails(
            "the machine has ended, or an earlier version of the daemon started it and it does not \
            copy files",
        ),
    }
}

/// Get the type of a file in a running machine, or in a volume of any machine
#[utoipa::path(head, path = "/v1/machines/{id}/files", operation_id = "get_file_type",
    params(("id" = String, Path), Source),
    responses((status = 200, description = "The file exists", headers(("Hartline-File-Type" = String,
        description = "`file`, `directory`, `link` or `other`"))), Refused))]
pub async fn stat(target: Target, Query(source): Query<Source>) -> Result<Response, Problem> {
    source.check()?;
    let limits = Limits::of(&target.daemon.config());
    let request = Request {
        direction: Direction::Stat,
        follow: source.follow,
        owners: false,
        entries: 0,
        path: source.path.as_bytes(),
    };
    let Copy { exec, holder } = start(&target, request).await?;
    let Exec {
        outputs: [_, mut errors],
        control,
        ..
    } = exec;
    let place = (source.path.as_str(), Direction::Stat);
    let ended = within(limits.patience, end(&control, &mut errors, place)).await;
    release(holder).await;
    let kind = match ended.map_err(|_| limits.silence())?? {
        0o10 => "file",
        0o4 => "directory",
        0o12 => "link",
        _ => "other",
    };
    Ok([(FILE_TYPE, kind)].into_response())
}

/// A part of an answer.
enum Part {
    Bytes(Bytes),
    /// The archive is complete, or it cannot be.
    End(Result<(), Problem>),
}

/// Copy files from a running machine, or from a volume of any machine
///
/// The answer is a tar file (GNU format) with the file, or with the directory and everything in it.
/// The names begin with the last component of the path; if that is not a name, they begin with `./`.
/// The machine makes the tar file: unpack it as a file of a stranger. If the copy fails after the
/// begin of the answer, the connection breaks before the answer's end.
#[utoipa::path(get, path = "/v1/machines/{id}/files", operation_id = "copy_from_machine",
    params(("id" = String, Path), Source),
    responses((status = 200, description = "The files", body = Vec<u8>, content_type = "application/x-tar"),
    Refused))]
pub async fn read(target: Target, Query(source): Query<Source>) -> Result<Response, Problem> {
    source.check()?;
    let limits = Limits::of(&target.daemon.config());
    let request = Request {
        direction: Direction::Read,
        follow: source.follow,
        owners: false,
        entries: limits.files,
        path: source.path.as_bytes(),
    };
    let copy = start(&target, request).await?;
    let (sender, mut receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        tokio::select! {
            // Nobody reads the answer any more.
            () = sender.closed() => {}
            () = send(copy, source.path, limits, &sender) => {}
        }
    });
    match receiver.recv().await {
        Some(Part::Bytes(first)) => {
            let body = Body::from_stream(parts(first, receiver));
            Ok(([(header::CONTENT_TYPE, TAR)], body).into_response())
        }
        Some(Part::End(Err(problem))) => Err(problem),
        Some(Part::End(Ok(()))) | None => {
            Err(Problem::conflict("copy-failed", "the machine sent nothing"))
        }
    }
}

/// The body of an answer.
fn parts(first: Bytes, receiver: Receiver<Part>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((Some(first), Some(receiver)), async |(first, receiver)| {
        let mut receiver = receiver?;
        if let Some(first) = first {
            return Some((Ok(first), (None, Some(receiver))));
        }
        match receiver.recv().await {
            Some(Part::Bytes(bytes)) => Some((Ok(bytes), (None, Some(receiver)))),
            Some(Part::End(Ok(()))) => None,
            // The connection breaks, so that the client does not take a part for the whole.
            Some(Part::End(Err(problem))) => {
                tracing::info!("a copy has failed: {}", problem.detail());
                let error = io::Error::other(problem.detail().to_owned());
                Some((Err(error), (None, None)))
            }
            None => {
                let error = io::Error::other("the client is too slow");
                Some((Err(error), (None, None)))
            }
        }
    })
}

/// Sends the parts of an answer. A client that is too slow gets no end.
async fn send(copy: Copy, path: String, limits: Limits, sender: &Sender<Part>) {
    let Copy { exec, holder } = copy;
    let patience = limits.patience;
    let result = match within(limits.time, pass_on(exec, &path, limits, sender)).await {
        Ok(Some(result)) => result,
        // The client is too slow, or has gone.
        Ok(None) => return,
        Err(_) => Err(limits.too_long()),
    };
    release(holder).await;
    let _ = within(patience, sender.send(Part::End(result))).await;
}

/// Passes bytes on to the end of the copy; `None` if the client does not take them.
async fn pass_on(
    exec: Exec,
    path: &str,
    mut limits: Limits,
    sender: &Sender<Part>,
) -> Option<Result<(), Problem>> {
    let Exec {
        input: _input,
        outputs: [mut output, mut errors],
        control,
    } = exec;
    let bytes = async {
        loop {
            let bytes = match within(limits.patience, output.next()).await {
                Err(_) => return Err(Some(limits.silence())),
                Ok(bytes) => bytes.map_err(|error| Some(error.into()))?,
            };
            if bytes.is_empty() {
                return Ok(());
            }
            limits.count(bytes.len()).map_err(Some)?;
            let sent = within(limits.patience, sender.send(Part::Bytes(bytes.into()))).await;
            sent.ok().and_then(Result::ok).ok_or(None)?;
        }
    };
    let end = async {
        let ended = end(&control, &mut errors, (path, Direction::Read)).await;
        ended.map_err(Some)
    };
    match tokio::try_join!(bytes, end) {
        Ok(_) => Some(Ok(())),
        Err(problem) => problem.map(Err),
    }
}

/// Copy files to a running machine, or to a volume of any machine
///
/// The body is a tar file, which is unpacked below the directory. No member leaves the directory: it
/// is the root of all paths and links in the tar file. Existing directories keep their owners,
/// permissions and times; other existing files are replaced. Missing directories above a member are
/// made. If the copy fails, the members before the one that failed stay.
#[utoipa::path(put, path = "/v1/machines/{id}/files", operation_id = "copy_to_machine",
    params(("id" = String, Path), Destination),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "The files are in the machine"), Refused))]
pub async fn write(
    target: Target,
    Query(destination): Query<Destination>,
    body: Body,
) -> Result<StatusCode, Problem> {
    destination.check()?;
    let limits = Limits::of(&target.daemon.config());
    let request = Request {
        direction: Direction::Write,
        follow: true,
        owners: destination.owners,
        entries: limits.files,
        path: destination.path.as_bytes(),
    };
    let mut body = body.into_data_stream();
    let copied = match start(&target, request).await {
        Ok(Copy { exec, holder }) => {
            let copy = receive(exec, &destination.path, limits, &mut body);
            let copied = within(limits.time, copy).await;
            release(holder).await;
            copied.unwrap_or_else(|_| Err(limits.too_long()))
        }
        Err(problem) => Err(problem),
    };
    if copied.is_err() {
        discard(&mut body).await;
    }
    copied.map(|()| StatusCode::NO_CONTENT)
}

/// Passes a body on to a copy, and waits for its end.
async fn receive(
    exec: Exec,
    path: &str,
    limits: Limits,
    body: &mut BodyDataStream,
) -> Result<(), Problem> {
    let Exec {
        input,
        outputs: [_output, mut errors],
        control,
    } = exec;
    tokio::select! {
        // An end that is known counts more than a time that has passed.
        biased;
        ended = end(&control, &mut errors, (path, Direction::Write)) => ended.map(drop),
        problem = feed(input, limits, body) => Err(problem),
    }
}

/// Passes a body on. Result: why the copy does not end.
async fn feed(mut input: UnixStream, mut limits: Limits, body: &mut BodyDataStream) -> Problem {
    let patience = limits.patience;
    loop {
        let chunk = match within(patience, body.next()).await {
            Ok(None) => break,
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) => return Problem::bad_request(format!("the body: {error}")),
            Err(_) => {
                let seconds = patience.as_secs();
                return Problem::bad_request(format!("no byte came for {seconds} s"));
            }
        };
        if let Err(problem) = limits.count(chunk.len()) {
            return problem;
        }
        match within(patience, input.write_all(&chunk)).await {
            Ok(Ok(())) => {}
            // The copy has ended, and the reason follows.
            Ok(Err(_)) => break,
            Err(_) => return limits.silence(),
        }
    }
    // If this fails, the copy has ended too.
    let _ = input.shutdown().await;
    pass(patience).await;
    limits.silence()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_bounded() {
        assert!(check_path("/").is_ok() && check_path("/a b\n").is_ok());
        let long = format!("/{}", "x".repeat(4095));
        for path in ["", "a", "/a\0", &long] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        assert!(check_path(&long[..4095]).is_ok());
    }

    #[test]
    fn problems_name_the_file() {
        let told = |error, name, direction| {
            let problem = failed(error, "/path", name, direction);
            (
                problem.detail().to_owned(),
                problem.into_response().status().as_u16(),
            )
        };
        for (error, name, direction, status, text) in [
            (
                libc::ENOENT,
                "",
                Direction::Read,
                404,
                "there is no such file or directory",
            ),
            (
                libc::ENOENT,
                "a",
                Direction::Write,
                409,
                "a: No such file or directory",
            ),
            (
                libc::EACCES,
                "",
                Direction::Read,
                409,
                "/path: Permission denied",
            ),
            (
                libc::EROFS,
                "",
                Direction::Write,
                409,
                "/path: Read-only file system",
            ),
            (
                libc::EINVAL,
                "",
                Direction::Write,
                400,
                "the body is not a tar file",
            ),
            (
                libc::E2BIG,
                "a",
                Direction::Read,
                413,
                "a copy has a limited number of files: see copy_max_files",
            ),
            (
                libc::EAGAIN,
                "",
                Direction::Read,
                409,
                "too many commands and copies run in the machine",
            ),
            (
                i32::MIN,
                "a",
                Direction::Read,
                409,
                "a: Unknown error -2147483648",
            ),
        ] {
            assert_eq!(told(error, name, direction), (text.to_owned(), status));
        }
    }

    #[test]
    fn bytes_are_counted() {
        let mut limits = Limits::of(&Config {
            copy_max_size: 10,
            ..Config::default()
        });
        assert!(limits.count(10).is_ok());
        assert!(limits.count(1).is_err());
    }
}
