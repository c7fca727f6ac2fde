//! Errors, as callers see them.

use hartline_embed::{CallError, LoadError, ResetError, RunError, StartError, TemplateError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `hartline_status` of the header.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// An argument is wrong. Nothing was done.
    Argument = 1,
    /// There is no such sandbox, or it was ended.
    NoSandbox = 2,
    /// The sandbox was started before, or was not.
    State = 3,
    /// The program or snapshot cannot be loaded or translated.
    Load = 4,
    /// The VM cannot be started, or the program does not wait for calls.
    Start = 5,
    /// The function returned an error number.
    Function = 6,
    /// There was no answer in time.
    Late = 7,
    /// The program has ended.
    Ended = 8,
    /// An earlier call failed.
    Poisoned = 9,
    /// The output is longer than its buffer.
    Room = 10,
    /// A function of the host calls or resets the sandbox that has called it.
    Nested = 11,
    /// A function of the host has not returned.
    Waiting = 12,
    /// The VM cannot be used any more.
    Lost = 13,
    /// The sandbox, template or clone is in another process.
    Forked = 14,
    /// A bug of this library.
    Bug = 15,
    /// There is no such template, or it was freed.
    NoTemplate = 16,
    /// There is no such clone, or it was ended.
    NoClone = 17,
    /// The host has no descriptors or memory left for the streams of a run.
    Streams = 18,
}

/// An error with its text.
#[derive(Debug)]
pub struct Failure {
    /// Its kind.
    pub status: Status,
    /// Its text.
    pub text: String,
    /// The error number of a function; otherwise 0.
    pub errno: i32,
}

impl Failure {
    /// An error of a kind.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            errno: 0,
        }
    }

    /// A wrong argument.
    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::Argument, text)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let status = match &error {
            CallError::Name(_) | CallError::Length(_) => Status::Argument,
            CallError::Function(_) => Status::Function,
            CallError::Late => Status::Late,
            CallError::Ended(_) => Status::Ended,
            CallError::Poisoned => Status::Poisoned,
            CallError::Nested => Status::Nested,
            CallError::Platform(_) => Status::Lost,
        };
        let errno = match &error {
            CallError::Function(errno) => *errno,
            _ => 0,
        };
        Self {
            status,
            text: error.to_string(),
            errno,
        }
    }
}

impl From<ResetError> for Failure {
    fn from(error: ResetError) -> Self {
        let status = match &error {
            ResetError::NotReady => Status::State,
            ResetError::Nested => Status::Nested,
            ResetError::Waiting => Status::Waiting,
            ResetError::Ended(_) | ResetError::Impossible(_) => Status::Lost,
        };
        Self::new(status, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let status = match &error {
            LoadError::Ram(_) => Status::Argument,
            _ => Status::Load,
        };
        Self::new(status, error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let status = match &error {
            StartError::Load(_) | StartError::Translation(_) => Status::Load,
            _ => Status::Start,
        };
        Self::new(status, error.to_string())
    }
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        Self::new(Status::Load, error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let text = match &error {
            // A clone has no calls.
            RunError::Ended(CallError::Ended(why)) => format!("the clone cannot run: {why}"),
            _ => error.to_string(),
        };
        Self::new(Status::Lost, text)
    }
}

/// What a thread can ask for after a function of this library.
#[derive(Default)]
struct Last {
    /// The last error.
    text: CString,
    errno: i32,
    /// The reason for the end of the last run.
    message: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Changes what the thread can ask for.
fn change(change: impl FnOnce(&mut Last)) {
    // A thread that ends has no place for it any more.
    let _ = LAST.try_with(|last| change(&mut last.borrow_mut()));
}

/// A text for C: bytes that are 0 are left out.
fn c_text(mut text: String) -> CString {
    text.retain(|character| character != '\0');
    CString::new(text).unwrap_or_default()
}

/// Keeps the reason for the end of a run.
pub fn keep_message(message: String) {
    change(|last| last.message = c_text(message));
}

/// The pointer to a text of this thread.
fn shown(text: impl FnOnce(&Last) -> &CString) -> *const c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| text(&last.borrow()).as_ptr())
        .unwrap_or(NONE.as_ptr())
}

/// Does the work of a function of this library. Result: its status, for the caller.
pub fn guard(work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    // Nothing uses what a panic left half done: values behind locks change in one step, so the next user of a lock finds
    // a whole one.
    let result = catch_unwind(AssertUnwindSafe(work));
    let failure = match result {
        Ok(Ok(())) => return Status::Ok as i32,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Status::Bug, "a bug: the library has panicked"),
    };
    change(|last| {
        last.text = c_text(failure.text);
        last.errno = failure.errno;
    });
    failure.status as i32
}

/// `hartline_last_error` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_last_error() -> *const c_char {
    shown(|last| &last.text)
}

/// `hartline_last_message` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_last_message() -> *const c_char {
    shown(|last| &last.message)
}

/// `hartline_last_errno` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_last_errno() -> i32 {
    LAST.try_with(|last| last.borrow().errno).unwrap_or(0)
}
