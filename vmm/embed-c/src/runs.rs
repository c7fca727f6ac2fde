//! `hartline_run` and `hartline_run_end` of the header.

use crate::failure::{Failure, Status};
use crate::options::{descriptor, output};
use crate::{RawReset, border};
use hartline_embed::{Captures, Cause, Output, RunEnd, Streams, input_of};
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

/// `struct hartline_run` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawRun {
    /// Length of the structure that the caller knows.
    pub size: usize,
    /// Bytes of standard input, or NULL.
    pub input: *const c_void,
    /// Their number.
    pub input_length: usize,
    /// The buffer for standard output, or NULL.
    pub output: *mut c_void,
    /// Its length.
    pub output_room: usize,
    /// The buffer for standard error, or NULL.
    pub error: *mut c_void,
    /// Its length.
    pub error_room: usize,
    /// The descriptor for standard input, or -1.
    pub input_file: i32,
    /// The descriptor for standard output, or -1.
    pub output_file: i32,
    /// The descriptor for standard error, or -1.
    pub error_file: i32,
    /// 0.
    pub reserved: u32,
}

impl Default for RawRun {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            input: ptr::null(),
            input_length: 0,
            output: ptr::null_mut(),
            output_room: 0,
            error: ptr::null_mut(),
            error_room: 0,
            input_file: -1,
            output_file: -1,
            error_file: -1,
            reserved: 0,
        }
    }
}

/// `hartline_cause` of the header.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// The program itself.
    Exited = 0,
    /// A signal.
    Signaled = 1,
    /// The time limit.
    TimeLimit = 2,
    /// The program could not run to its end.
    Failed = 3,
}

/// `struct hartline_run_end` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawRunEnd {
    /// An [`EndCause`].
    pub cause: u32,
    /// The exit code.
    pub code: i32,
    /// The signal, or 0.
    pub signal: i32,
    /// Always 0.
    pub reserved: u32,
    /// The bytes in the buffer for standard output.
    pub output_length: usize,
    /// The bytes in the buffer for standard error.
    pub error_length: usize,
    /// The bytes that the program has written to standard output, if it had a buffer.
    pub output_total: u64,
    /// The bytes that the program has written to standard error, if it had a buffer.
    pub error_total: u64,
    /// The reset after it.
    pub reset: RawReset,
}

/// A run, and where its output goes.
pub struct Run {
    raw: RawRun,
    /// The outputs, if buffers get them.
    captures: Option<Captures>,
}

fn failed(error: io::Error) -> Failure {
    Failure::new(Status::Streams, format!("the streams of the run: {error}"))
}

impl Run {
    /// The run that a caller wants, with its streams. NULL: without input, and output is discarded.
    ///
    /// # Errors
    /// A field is wrong, or the host has no descriptors or memory left.
    ///
    /// # Safety
    /// If it is not NULL, it points to a `struct hartline_run` of the header, whose input can be read, and whose descriptors
    /// are the caller's.
    pub unsafe fn read(raw: *const RawRun) -> Result<(Self, Streams), Failure> {
        let mut own = RawRun::default();
        if !raw.is_null() {
            // SAFETY: it is the structure of the header, as the caller promises.
            own = unsafe { border::structure(raw, "the run", "HARTLINE_RUN") }?;
        }
        if own.reserved != 0 {
            return Err(Failure::argument("the run: reserved is not 0"));
        }
        border::check_buffer(own.output, own.output_room, "the output")?;
        border::check_buffer(own.error, own.error_room, "the error output")?;
        // SAFETY: as the caller promises.
        let input = unsafe { own.input() }?;
        let files = [own.output_file, own.error_file];
        let rooms = [own.output_room, own.error_room];
        let (captures, streams) = match (rooms == [0; 2], files == [-1; 2]) {
            (false, false) => {
                let text = "the run: one output has a buffer, and one has a descriptor: give both buffers, or both descriptors";
                return Err(Failure::argument(text));
            }
            (false, true) => {
                let captures = Captures::new(rooms).map_err(failed)?;
                let streams = captures.streams(input).map_err(failed)?;
                (Some(captures), streams)
            }
            (true, _) => {
                let streams = Streams {
                    input,
                    // SAFETY: the caller keeps its descriptors open during this call.
                    outputs: unsafe { [output(own.output_file)?, output(own.error_file)?] },
                    output_limit: u64::MAX,
                };
                (None, streams)
            }
        };
        let run = Self { raw: own, captures };
        Ok((run, streams))
    }

    /// Writes the outputs to the caller's buffers. Result: the end for the caller.
    ///
    /// # Errors
    /// The host cannot read the output.
    ///
    /// # Safety
    /// The buffers of the run can be written.
    pub unsafe fn deliver(self, end: &RunEnd) -> Result<RawRunEnd, Failure> {
        let (cause, signal) = match end.cause {
            Cause::Exited => (EndCause::Exited, 0),
            Cause::Signal(signal) => (EndCause::Signaled, signal),
            Cause::TimeLimit => (EndCause::TimeLimit, 0),
            Cause::Failed => (EndCause::Failed, 0),
        };
        let outputs = match self.captures {
            None => [Output::default(), Output::default()],
            Some(captures) => captures.take().map_err(failed)?,
        };
        let raw = &self.raw;
        let buffers = [(raw.output, raw.output_room), (raw.error, raw.error_room)];
        for (output, (buffer, room)) in outputs.iter().zip(buffers) {
            // SAFETY: as the caller promises.
            unsafe { border::deliver(&output.bytes, buffer, room, "the output") }?;
        }
        let [output, error] = outputs;
        Ok(RawRunEnd {
            cause: cause as u32,
            code: end.code.into(),
            signal: signal.into(),
            reserved: 0,
            output_length: output.bytes.len(),
            error_length: error.bytes.len(),
            output_total: output.total,
            error_total: error.total,
            reset: end.reset.into(),
        })
    }
}

impl RawRun {
    /// The standard input; `None`: it is empty.
    ///
    /// # Safety
    /// The input can be read, and the descriptor is the caller's.
    unsafe fn input(&self) -> Result<Option<OwnedFd>, Failure> {
        // SAFETY: as the caller promises.
        let bytes = unsafe { border::bytes(self.input, self.input_length, "the input") }?;
        match (bytes, self.input_file) {
            ([], -1) => Ok(None),
            (bytes, -1) => input_of(bytes).map(Some).map_err(failed),
            // SAFETY: as the caller promises.
            ([], file) => unsafe { descriptor(file, "input") }.map(Some),
            _ => {
                let text = "the run: the input has bytes and a descriptor: give one of them";
                Err(Failure::argument(text))
            }
        }
    }
}
