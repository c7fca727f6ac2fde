//! `hartline_options` of the header.

use crate::border::{structure, text, texts};
use crate::failure::Failure;
use hartline_embed::{Options, Outputs};
use std::ffi::{OsStr, c_char};
use std::fs::OpenOptions;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

/// All code is interpreted.
pub const INTERPRET: u32 = 1;
/// The C library's allocator gets settings for the whole process.
pub const TUNE_ALLOCATOR: u32 = 2;

/// `struct hartline_options` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawOptions {
    /// Length of the structure that the caller knows.
    pub size: usize,
    /// Arguments after the program's name.
    pub arguments: *const *const c_char,
    /// Their number.
    pub argument_count: usize,
    /// The environment.
    pub environment: *const *const c_char,
    /// The number of its variables.
    pub environment_count: usize,
    /// The root file system, or NULL.
    pub rootfs: *const c_char,
    /// The directory of the cache, or NULL.
    pub cache: *const c_char,
    /// Length of RAM, bytes, or 0.
    pub ram: u64,
    /// The longest time of the start, ms, or 0.
    pub start_limit_ms: u64,
    /// The descriptor for the program's standard output, or -1.
    pub output: i32,
    /// The descriptor for its standard error, or -1.
    pub error: i32,
    /// `HARTLINE_INTERPRET` and `HARTLINE_TUNE_ALLOCATOR` of the header.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

impl Default for RawOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            arguments: ptr::null(),
            argument_count: 0,
            environment: ptr::null(),
            environment_count: 0,
            rootfs: ptr::null(),
            cache: ptr::null(),
            ram: 0,
            start_limit_ms: 0,
            output: -1,
            error: -1,
            flags: 0,
            reserved: 0,
        }
    }
}

/// The options that a caller gave. NULL: the default ones.
///
/// # Errors
/// A field is wrong.
///
/// # Safety
/// If it is not NULL, it points to a `struct hartline_options` of the header, whose pointers are as [`text`] and
/// [`texts`] need them, and whose descriptors are the caller's.
pub unsafe fn read(raw: *const RawOptions) -> Result<Options, Failure> {
    if raw.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: it is the structure of the header, as the caller promises.
    let raw = unsafe { structure(raw, "the options", "HARTLINE_OPTIONS") }?;
    if raw.flags & !(INTERPRET | TUNE_ALLOCATOR) != 0 || raw.reserved != 0 {
        return Err(Failure::argument("the options: unknown flags"));
    }
    let mut options = Options::default();
    let own = |texts: Vec<&OsStr>| texts.into_iter().map(OsStr::to_owned).collect();
    // SAFETY: as the caller promises.
    unsafe {
        options.arguments = own(texts(raw.arguments, raw.argument_count, "the arguments")?);
        options.environment = own(texts(
            raw.environment,
            raw.environment_count,
            "the environment",
        )?);
        options.rootfs = path(raw.rootfs, "the root file system")?;
        options.cache = path(raw.cache, "the cache")?;
    }
    if raw.ram != 0 {
        options.ram = raw.ram;
    }
    if raw.start_limit_ms != 0 {
        options.start_limit = limit(raw.start_limit_ms);
    }
    options.interprets = raw.flags & INTERPRET != 0;
    options.tunes_allocator = raw.flags & TUNE_ALLOCATOR != 0;
    // SAFETY: the caller keeps its descriptors open during this call.
    options.outputs = unsafe { outputs(raw.output, raw.error) }?;
    Ok(options)
}

/// Duplicates of descriptors for standard output and standard error; -1: output is discarded.
///
/// # Errors
/// As [`output`].
///
/// # Safety
/// As [`output`].
pub unsafe fn outputs(output: i32, error: i32) -> Result<Outputs, Failure> {
    Ok(match (output, error) {
        (-1, -1) => Outputs::Discard,
        // SAFETY: as the caller promises.
        _ => Outputs::Files(unsafe { [self::output(output)?, self::output(error)?] }),
    })
}

/// A limit: `u64::MAX` is none.
pub fn limit(ms: u64) -> Option<Duration> {
    (ms != u64::MAX).then(|| Duration::from_millis(ms))
}

/// The limit of a call or run.
///
/// # Errors
/// It is 0.
pub fn run_limit(ms: u64) -> Result<Option<Duration>, Failure> {
    match ms {
        0 => {
            let text = "the limit: 0 ms: must be at least 1, or HARTLINE_NO_LIMIT";
            Err(Failure::argument(text))
        }
        _ => Ok(limit(ms)),
    }
}

/// A path of the caller, or none. `what` names it.
///
/// # Errors
/// As [`text`], but for NULL.
///
/// # Safety
/// As [`text`], or NULL.
pub unsafe fn path(path: *const c_char, what: &str) -> Result<Option<PathBuf>, Failure> {
    if path.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    Ok(Some(PathBuf::from(unsafe { text(path, what) }?)))
}

/// A duplicate of a descriptor for output; -1: one that discards output.
///
/// # Errors
/// It is not an open descriptor, or the host has none left.
///
/// # Safety
/// The descriptor is the caller's.
pub unsafe fn output(number: i32) -> Result<OwnedFd, Failure> {
    if number == -1 {
        let null = OpenOptions::new().write(true).open("/dev/null");
        let failed = |error| Failure::argument(format!("output: /dev/null: {error}"));
        return null.map(Into::into).map_err(failed);
    }
    // SAFETY: as the caller promises.
    unsafe { descriptor(number, "output") }
}

/// A duplicate of a descriptor. `what` names it.
///
/// # Errors
/// It is not an open descriptor, or the host has none left.
///
/// # Safety
/// The descriptor is the caller's.
pub unsafe fn descriptor(number: i32, what: &str) -> Result<OwnedFd, Failure> {
    if number < 0 {
        return Err(Failure::argument(format!("{what}: descriptor {number}")));
    }
    // SAFETY: it is not -1, and stays open during this call, as the caller promises. If it is not open, the
    // duplication fails.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let failed = |error| Failure::argument(format!("{what}: descriptor {number}: {error}"));
    descriptor.try_clone_to_owned().map_err(failed)
}
