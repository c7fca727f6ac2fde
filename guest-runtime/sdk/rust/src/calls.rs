//! Calls in both directions: functions of the program that the host calls, and functions of the host.

use crate::errno::Errno;
use crate::system_call::{self, HostFunction, Serve, address, address_mut, operation};
use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError, RwLock, TryLockError};

/// Longest input and longest output of a function, bytes.
pub const MAX_DATA: usize = 65472;
/// Longest name of a function, bytes.
pub const MAX_NAME: usize = 64;
/// Most functions of a program.
pub const MAX_EXPORTS: usize = 256;

/// An exported function. It is never dropped, because an export has no end.
type Function = &'static (dyn Fn(&[u8], &mut Vec<u8>) -> Result<(), Errno> + Send + Sync);

static EXPORTS: RwLock<BTreeMap<Box<[u8]>, Function>> = RwLock::new(BTreeMap::new());

/// The thread that serves has it.
static SERVING: Mutex<()> = Mutex::new(());

/// Exports a function under a name of 1 to [`MAX_NAME`] bytes.
///
/// The function receives the input, at most [`MAX_DATA`] bytes, and an empty vector for its output. It returns
/// an error number if it fails; then what it wrote is discarded. It fails with [`Errno::E2BIG`] if its output is
/// longer than [`MAX_DATA`], and with [`Errno::ENOTRECOVERABLE`] if it panics. The panic's message goes to the
/// standard error, as usual, and the program serves the next call. So data that the function shares with later
/// calls must be valid after a panic too; a [`Mutex`] is poisoned. In a program built with `panic = "abort"`,
/// a panic ends the program.
///
/// ```
/// use hartline_sdk::{Errno, call, export};
///
/// let prefix = String::from("hello ");
/// export("greet", move |input: &[u8], output: &mut Vec<u8>| {
///     output.extend(prefix.bytes().chain(input.iter().copied()));
///     Ok(())
/// })?;
/// let mut output = Vec::new();
/// call("greet", b"world", &mut output)?;
/// assert_eq!(output, b"hello world");
/// # Ok::<(), Errno>(())
/// ```
///
/// # Errors
/// [`Errno::EINVAL`]: the name is empty or too long. [`Errno::EEXIST`]: there is a function of this name already.
/// [`Errno::ENOSPC`]: there are [`MAX_EXPORTS`] functions already.
pub fn export<F>(name: &str, function: F) -> Result<(), Errno>
where
    F: Fn(&[u8], &mut Vec<u8>) -> Result<(), Errno> + Send + Sync + 'static,
{
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Errno::EINVAL);
    }
    let mut exports = EXPORTS.write().unwrap_or_else(PoisonError::into_inner);
    if exports.contains_key(name.as_bytes()) {
        return Err(Errno::EEXIST);
    }
    if exports.len() == MAX_EXPORTS {
        return Err(Errno::ENOSPC);
    }
    exports.insert(name.as_bytes().into(), Box::leak(Box::new(function)));
    Ok(())
}

/// Calls an exported function of this program, on the calling thread, as the host would. `output` then has the
/// function's output and nothing else; after an error it is empty.
///
/// # Errors
/// [`Errno::ENOENT`]: there is no such function. [`Errno::E2BIG`]: the input or the output is longer than
/// [`MAX_DATA`]. [`Errno::ENOTRECOVERABLE`]: the function panicked. Otherwise the function's error.
pub fn call(name: &str, input: &[u8], output: &mut Vec<u8>) -> Result<(), Errno> {
    call_bytes(name.as_bytes(), input, output)
}

fn call_bytes(name: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<(), Errno> {
    output.clear();
    let result = invoke(name, input, output);
    if result.is_err() {
        output.clear();
    }
    result
}

fn invoke(name: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<(), Errno> {
    if input.len() > MAX_DATA {
        return Err(Errno::E2BIG);
    }
    // The lock is free while the function runs, which may export others.
    let exports = EXPORTS.read().unwrap_or_else(PoisonError::into_inner);
    let function = exports.get(name).copied();
    drop(exports);
    let function = function.ok_or(Errno::ENOENT)?;
    // The output is discarded after a panic. The function is responsible for all else (`export`).
    match catch_unwind(AssertUnwindSafe(|| function(input, output))) {
        Ok(result) => result?,
        Err(payload) => {
            discard(payload);
            return Err(Errno::ENOTRECOVERABLE);
        }
    }
    match output.len() <= MAX_DATA {
        true => Ok(()),
        false => Err(Errno::E2BIG),
    }
}

/// Drops the value of a panic, which may panic again: then that value stays.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

/// Serves calls of the host on the calling thread, for ever. When it is first called, the VM's state becomes the
/// one that resets put back.
///
/// # Errors
/// [`Errno::ENOSYS`]: this is not Hartline. [`Errno::ENOTCONN`]: the host makes no calls. [`Errno::EBUSY`]: a
/// thread serves already, or this is called by an exported function that the host has called.
pub fn serve() -> Result<Infallible, Errno> {
    let _serving = match SERVING.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(Errno::EBUSY),
    };
    // The pages exist before the state that the VM is reset to.
    let mut buffer = vec![1; MAX_NAME + MAX_DATA];
    let mut output = vec![1; MAX_DATA];
    output.clear();
    let mut result = Ok(());
    loop {
        let mut request = Serve {
            output: address(&output),
            output_length: output.len() as u64,
            status: result.map_or_else(|error: Errno| -i64::from(error.number()), |()| 0),
            buffer: address_mut(buffer.as_mut_ptr()),
            buffer_length: buffer.len() as u64,
            ..Serve::default()
        };
        // SAFETY: the lengths are those of the vectors, which nothing else uses meanwhile.
        match unsafe { system_call::with(operation::SERVE, &mut request) } {
            Ok(_) => {}
            // The host has the reply already: it is not sent again.
            Err(error) if error.number() == libc::EINTR => continue,
            Err(error) => return Err(error),
        }
        let (name, input) = parts(&buffer, &request).ok_or(Errno::EIO)?;
        result = call_bytes(name, input, &mut output);
    }
}

/// The name and the input in the buffer; `None` if their lengths exceed it.
fn parts<'a>(buffer: &'a [u8], request: &Serve) -> Option<(&'a [u8], &'a [u8])> {
    let name = usize::try_from(request.name_length).ok()?;
    let input = usize::try_from(request.input_length).ok()?;
    let (name, rest) = buffer.split_at_checked(name)?;
    Some((name, rest.get(..input)?))
}

/// Calls a function of the host, on any thread, and waits for it. `output` then has the function's output, at most
/// [`MAX_DATA`] bytes, and nothing else; after an error it is empty. A vector that was the output before needs no
/// new memory.
///
/// # Errors
/// [`Errno::ENOSYS`]: this is not Hartline. [`Errno::ENOTCONN`]: the host has no functions. [`Errno::ENOENT`]: it
/// has no such function. [`Errno::E2BIG`]: the name is longer than [`MAX_NAME`], or the input or the output
/// longer than [`MAX_DATA`]. Otherwise the function's error.
pub fn call_host(name: &str, input: &[u8], output: &mut Vec<u8>) -> Result<(), Errno> {
    output.clear();
    output.reserve(MAX_DATA);
    let mut request = HostFunction {
        name: address(name.as_bytes()),
        name_length: name.len() as u64,
        input: address(input),
        input_length: input.len() as u64,
        output: address_mut(output.as_mut_ptr()),
        output_length: MAX_DATA as u64,
    };
    // SAFETY: the lengths are those of the slices and of the room in the vector, which nothing else uses
    // meanwhile.
    let length = unsafe { system_call::with(operation::CALL_HOST, &mut request) }?;
    let length = usize::try_from(length).map_or(MAX_DATA, |length| length.min(MAX_DATA));
    // SAFETY: the vector has room for them, and the system call has written them.
    unsafe { output.set_len(length) };
    Ok(())
}

/// A number that changes with each reset, and that is another one in each VM that continues a snapshot, so that
/// random numbers and connections can be made anew. It is 0 on other systems than Hartline.
#[must_use]
pub fn generation() -> u64 {
    system_call::generation().unwrap_or(0)
}

/// Keeps a word at the [`generation`], so that the program can poll it without a system call: it has the new number before the program
/// continues. A process has one such word, which its children have too.
///
/// # Errors
/// `ENOSYS`: this is not Hartline.
pub fn keep_generation(word: &'static AtomicU64) -> Result<(), Errno> {
    system_call::keep_generation(word)
}

#[cfg(test)]
mod tests;
