//! Errors, as callers see them.

use hartline_embed::{CallError, LoadError, ResetError, StartError};
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
    /// The program cannot be loaded or translated.
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
    /// The sandbox is in another process.
    Forked = 14,
    /// A bug of this library.
    Bug = 15,
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

/// The last error of a thread.
struct Last {
    text: CString,
    errno: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { text: CString::default(), errno: 0 });
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
    let Failure {
        status,
        mut text,
        errno,
    } = failure;
    text.retain(|character| character != '\0');
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(Last { text, errno }));
    status as i32
}

/// `hartline_last_error` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_last_error() -> *const c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| last.borrow().text.as_ptr())
        .unwrap_or(NONE.as_ptr())
}

/// `hartline_last_errno` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_last_errno() -> i32 {
    LAST.try_with(|last| last.borrow().errno).unwrap_or(0)
}
