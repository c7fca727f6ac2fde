//! The functions of the header for sandboxes.

use crate::failure::{Failure, Status, guard};
use crate::handles::{Entry, Origin, SANDBOXES, TEMPLATES};
use crate::options::{RawOptions, run_limit};
use crate::{RawReset, border, options};
use hartline_embed::{MAX_DATA, Program, Sandbox};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// `hartline_host_function` of the header.
pub type HostFunction = unsafe extern "C" fn(
    user: *mut c_void,
    input: *const c_void,
    length: usize,
    output: *mut c_void,
    room: usize,
) -> i64;

/// `hartline_create` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_create(
    path: *const c_char,
    raw: *const RawOptions,
    sandbox: *mut u64,
) -> i32 {
    guard(|| {
        let place = border::place(sandbox, "the place for the sandbox")?;
        // SAFETY: it can be written, as the caller promises. 0 is no sandbox.
        unsafe { place.write(0) };
        // SAFETY: as the caller promises.
        let path = unsafe { border::text(path, "the program's path") }?;
        // SAFETY: as the caller promises.
        let options = unsafe { options::read(raw) }?;
        let program = Program::load(Path::new(path), options)?;
        let handle = SANDBOXES.add(Entry::new(Origin::Program(Box::new(program))));
        // SAFETY: as above.
        unsafe { place.write(handle) };
        Ok(())
    })
}

/// `hartline_create_from` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_create_from(
    loaded: u64,
    output: i32,
    error: i32,
    sandbox: *mut u64,
) -> i32 {
    guard(|| {
        let place = border::place(sandbox, "the place for the sandbox")?;
        // SAFETY: it can be written, as the caller promises. 0 is no sandbox.
        unsafe { place.write(0) };
        let template = TEMPLATES.find(loaded)?;
        // SAFETY: the descriptors are the caller's, as it promises.
        let outputs = unsafe { options::outputs(output, error) }?;
        let handle = SANDBOXES.add(Entry::new(Origin::Template(template, outputs)));
        // SAFETY: as above.
        unsafe { place.write(handle) };
        Ok(())
    })
}

/// The caller's pointer of a host function.
struct User(*mut c_void);

// SAFETY: this library only passes the pointer on. The header demands that it may be used by any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    /// Calls the function of the caller with a buffer for its output.
    fn call(
        &self,
        function: HostFunction,
        input: &[u8],
        buffer: &mut [u8],
    ) -> Result<Vec<u8>, i32> {
        // SAFETY: input and buffer have these lengths and outlive the call. The caller of `hartline_register` promises
        // the rest.
        let result = unsafe {
            function(
                self.0,
                input.as_ptr().cast(),
                input.len(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        match usize::try_from(result) {
            Ok(length) => buffer.get(..length).map(<[u8]>::to_vec).ok_or(libc::EIO),
            Err(_) => Err(i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO)),
        }
    }
}

/// `hartline_register` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_register(
    sandbox: u64,
    name: *const c_char,
    function: Option<HostFunction>,
    user: *mut c_void,
) -> i32 {
    guard(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { border::name(name) }?;
        let function = function.ok_or_else(|| Failure::argument("the function: NULL"))?;
        let entry = SANDBOXES.find(sandbox)?;
        let user = User(user);
        let buffer = Mutex::new(Vec::new());
        entry.exports.register(name, move |input| {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.resize(MAX_DATA, 0);
            user.call(function, input, &mut buffer)
        });
        Ok(())
    })
}

/// `hartline_start` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_start(sandbox: u64) -> i32 {
    guard(|| {
        let entry = SANDBOXES.find(sandbox)?;
        let origin = entry.origin.lock();
        let origin = origin.unwrap_or_else(PoisonError::into_inner).take();
        let origin =
            origin.ok_or_else(|| Failure::new(Status::State, "the sandbox was started before"))?;
        let exports = entry.exports.clone();
        let started = match origin {
            Origin::Program(program) => Sandbox::start_with(&program, exports),
            Origin::Template(template, outputs) => {
                Sandbox::clone_with(&template, &outputs, exports)
            }
        }?;
        // Nobody else has what it runs, so nobody else sets it.
        let _ = entry.sandbox.set(started);
        Ok(())
    })
}

/// `hartline_call` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_call(
    sandbox: u64,
    name: *const c_char,
    input: *const c_void,
    length: usize,
    output: *mut c_void,
    room: usize,
    output_length: *mut usize,
    limit_ms: u64,
) -> i32 {
    guard(|| {
        let place = border::place(output_length, "the place for the output's length")?;
        // SAFETY: it can be written, as the caller promises.
        unsafe { place.write(0) };
        // SAFETY: as the caller promises.
        let name = unsafe { border::name(name) }?;
        // SAFETY: as the caller promises.
        let input = unsafe { border::input(input, length) }?;
        border::check_buffer(output, room, "the output")?;
        let limit = run_limit(limit_ms)?;
        let entry = SANDBOXES.find(sandbox)?;
        let result = entry.started()?.call(name, input, limit)?;
        // SAFETY: as above.
        unsafe { place.write(result.len()) };
        // SAFETY: as the caller promises.
        unsafe { border::deliver(&result, output, room, "the output") }
    })
}

/// `hartline_reset` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_reset(sandbox: u64, result: *mut RawReset) -> i32 {
    guard(|| {
        if !result.is_aligned() {
            return Err(Failure::argument("the place for the result: not aligned"));
        }
        let entry = SANDBOXES.find(sandbox)?;
        let reset = entry.started()?.reset()?;
        if !result.is_null() {
            // SAFETY: it can be written, as the caller promises.
            unsafe { result.write(reset.into()) };
        }
        Ok(())
    })
}

/// `hartline_warnings` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_warnings(
    sandbox: u64,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guard(|| {
        let find = || Ok(SANDBOXES.find(sandbox)?.started()?.warnings());
        // SAFETY: as the caller promises.
        unsafe { write_lines(find, text, room, length) }
    })
}

/// Writes warnings to the caller.
///
/// # Errors
/// There are none, as `find` says; a pointer is wrong; there is too little room.
///
/// # Safety
/// If the pointers are not NULL, `room` bytes of text and the length can be written there.
pub unsafe fn write_lines(
    find: impl FnOnce() -> Result<Vec<String>, Failure>,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    let place = border::place(length, "the place for the length")?;
    // SAFETY: it can be written, as the caller promises.
    unsafe { place.write(0) };
    border::check_buffer(text.cast(), room, "the text")?;
    let lines = find()?.join("\n");
    // SAFETY: as above.
    unsafe { place.write(lines.len()) };
    // SAFETY: as the caller promises.
    unsafe { border::deliver(lines.as_bytes(), text.cast(), room, "the text") }
}

/// `hartline_end` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_end(sandbox: u64) -> i32 {
    guard(|| {
        let entry = SANDBOXES.take(sandbox)?;
        // Also one that is being started.
        entry.exports.end();
        entry.sandbox.get().inspect(|sandbox| sandbox.end());
        Ok(())
    })
}
