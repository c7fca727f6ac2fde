//! Replacing the program of a process: `execve`, `execveat`.

use super::files::{inode_at, read_path};
use super::{Entry, credentials};
use crate::convert::{low_i32, low_u32};
use crate::credentials::{Credentials, Identifiers, SetId};
use crate::exec::images::Images;
use crate::exec::interp::fcsr;
use crate::fs::types::Ino;
use crate::fs::volume::is_volume;
use crate::kernel::executable::{self, ElfFile};
use crate::kernel::exit::End;
use crate::kernel::loader::{self, InterpreterError, LoadError, Strings};
use crate::kernel::space::Space;
use crate::kernel::spawn::Start;
use crate::kernel::task::{Event, Wait};
use crate::kernel::{Control, Kernel};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_abi::hart::NO_RESERVATION;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use hartline_linux::mount::MS_NOSUID;
use hartline_linux::resource::RLIMIT_STACK;
use hartline_linux::signal::SIGKILL;
use hartline_linux::stat::{S_ISGID, S_ISUID};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::execve, execve), (nr::execveat, execveat)];

/// The longest argument or environment string, with its NUL (`MAX_ARG_STRLEN`).
const MAX_STRING: usize = 128 << 10;
/// The least and the most room for arguments and environment, whatever the stack limit, bytes.
const ROOM: (u64, u64) = (128 << 10, 6 << 20);
/// The length of a script's first line that is examined (`BINPRM_BUF_SIZE`), bytes.
const FIRST_LINE: usize = 256;
/// The deepest nesting of scripts whose interpreters are scripts.
const MAX_NESTING: usize = 4;

fn execve(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    repeat(kernel, |kernel| execve_once(kernel, arguments))
}

fn execveat(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    repeat(kernel, |kernel| execveat_once(kernel, arguments))
}

/// Serves a call that executes a program, maybe again. As on Linux, an error after it has ended the other
/// threads kills the process.
fn repeat(
    kernel: &mut Kernel,
    serve: impl FnOnce(&mut Kernel) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    let is_alone = kernel.progress() != 0;
    let result = serve(kernel);
    if is_alone && result.is_err_and(|error| error != Errno::ERESTARTSYS) {
        kernel.control = Control::End(End::Signaled(SIGKILL));
    }
    result
}

fn execve_once(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [path, argv, envp, ..] = *arguments;
    let path = read_path(kernel, path)?;
    let strings = strings(kernel, path, argv, envp)?;
    let (ino, file) = executable::open(kernel, AT_FDCWD, &strings.path)?;
    execute(kernel, ino, file, strings)
}

fn execveat_once(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [dirfd, path, argv, envp, flags, _] = *arguments;
    let flags = low_u32(flags);
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let ino = inode_at(kernel, dirfd, path, flags)?;
    let mut path = read_path(kernel, path)?;
    if !path.starts_with(b"/") && low_i32(dirfd) != AT_FDCWD {
        // Linux passes this name to the interpreter of a script.
        let prefix = alloc::format!("/dev/fd/{}", low_u32(dirfd)).into_bytes();
        path = match path.is_empty() {
            true => prefix,
            false => [&prefix, &b"/"[..], &path].concat(),
        };
    }
    let strings = strings(kernel, path, argv, envp)?;
    let file = executable::open_inode(kernel, ino, &strings.path)?;
    execute(kernel, ino, file, strings)
}

/// Reads the arguments and environment of the new program.
fn strings(kernel: &mut Kernel, path: Vec<u8>, argv: u64, envp: u64) -> Result<Strings, Errno> {
    let limit = kernel.process().limits[RLIMIT_STACK].rlim_cur / 4;
    let mut room = limit.clamp(ROOM.0, ROOM.1);
    let mut arguments = string_list(kernel, argv, &mut room)?;
    if arguments.is_empty() {
        // As Linux since 5.18: a program can rely on having a name.
        arguments.push(Vec::new());
    }
    Ok(Strings {
        path,
        arguments,
        environment: string_list(kernel, envp, &mut room)?,
    })
}

/// Reads a null-terminated list of strings. `room` is the number of bytes they may still take.
fn string_list(kernel: &mut Kernel, address: u64, room: &mut u64) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = Vec::new();
    if address == 0 {
        return Ok(list);
    }
    let mut at = address;
    loop {
        let pointer: u64 = user::read(kernel.memory_mut(), at)?;
        if pointer == 0 {
            return Ok(list);
        }
        let string = user::cstr(kernel.memory_mut(), pointer, MAX_STRING);
        let string = string.map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            error => error,
        })?;
        let taken = string.len() as u64 + 1 + size_of::<u64>() as u64;
        *room = room.checked_sub(taken).ok_or(Errno::E2BIG)?;
        list.push(string);
        at = at.checked_add(8).ok_or(Errno::EFAULT)?;
    }
}

/// Returns a script's interpreter and its argument, from the script's first line.
fn script_line(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = bytes
        .get(..FIRST_LINE)
        .unwrap_or(bytes)
        .strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n');
    let line = line[..end.unwrap_or(line.len())].trim_ascii();
    let blank = |&byte: &u8| byte == b' ' || byte == b'\t';
    match line.iter().position(blank) {
        None => Some((line, None)),
        Some(at) => Some((&line[..at], Some(line[at..].trim_ascii()))),
    }
}

/// Follows scripts to the program that interprets them.
fn resolve_scripts(
    kernel: &mut Kernel,
    mut found: (Ino, ElfFile),
    strings: &mut Strings,
) -> Result<(Ino, ElfFile), Errno> {
    for _ in 0..=MAX_NESTING {
        let Some((interpreter, argument)) = script_line(&found.1.bytes) else {
            return Ok(found);
        };
        if interpreter.is_empty() {
            return Err(Errno::ENOEXEC);
        }
        let mut arguments = Vec::from([interpreter.to_vec()]);
        arguments.extend(argument.map(<[u8]>::to_vec));
        arguments.push(core::mem::replace(&mut strings.path, interpreter.to_vec()));
        arguments.extend(strings.arguments.drain(..).skip(1));
        strings.arguments = arguments;
        found = executable::open(kernel, AT_FDCWD, &strings.path)?;
    }
    Err(Errno::ELOOP)
}

/// Makes the running process execute `file`.
fn execute(
    kernel: &mut Kernel,
    ino: Ino,
    file: ElfFile,
    mut strings: Strings,
) -> Result<u64, Errno> {
    let (ino, file) = resolve_scripts(kernel, (ino, file), &mut strings)?;
    let program = file.program().map_err(|_| Errno::ENOEXEC)?;
    if program.entry().is_none() {
        return Err(Errno::ENOEXEC);
    }
    let interpreter = loader::open_interpreter(kernel, &program);
    let interpreter = interpreter.map_err(|error| match error {
        LoadError::Interpreter {
            why: InterpreterError::File(error),
            ..
        } => error,
        LoadError::Memory(error) => error,
        _ => Errno::ELIBBAD,
    })?;
    let (cred, is_secure) = kernel
        .process()
        .credentials()
        .after_execve(set_id(kernel, ino)?);
    let memory = kernel.memory().sibling().map_err(|_| Errno::ENOMEM)?;
    // The old program cannot be resumed from here on.
    // The call is repeated while it waits below.
    let former = match kernel.progress() {
        0 => kernel.task().tid.into(),
        former => former,
    };
    kernel.end_other_threads();
    if kernel.has_awaited_threads() {
        // As on Linux. Like a wait for children, it ends when a tracer has waited for a thread.
        return Err(kernel.block_killable(Wait::for_event(Event::Child), former));
    }
    let images = Images::new(kernel.host.boot().variant);
    let space = Space::new(memory, images);
    let space = kernel.spaces.insert(space);
    kernel.forget_sequences();
    kernel.replace_space(space);
    kernel.give_memory_back();
    forget_program(kernel);
    take_rights(kernel, cred, is_secure);
    executable::set(kernel, ino);
    let (mut io, process) = kernel.io();
    io.vfs.unshare_files(process);
    io.close_on_exec(process);
    kernel.control = match loader::load_files(kernel, &file, interpreter.as_ref(), strings) {
        Ok(()) => {
            kernel.note_exec();
            kernel.prepare_core(kernel.process().pid);
            kernel.stop_after_exec(former);
            Control::Replaced
        }
        // As on Linux, an error after the point of no return kills the process.
        Err(_) => Control::End(End::Signaled(SIGKILL)),
    };
    Ok(0)
}

/// Executes the first program of a process that the host has started: the first file of its
/// candidates that may be executed.
///
/// # Errors
/// As execve(2) and chdir(2); `EACCES` rather than `ENOENT` if there is a file that may not be
/// executed.
pub(super) fn start(kernel: &mut Kernel, start: &Start) -> Result<(), Errno> {
    if !start.directory.is_empty() {
        loader::enter(kernel, &start.directory)?;
    }
    let mut why = Errno::ENOENT;
    for path in start.candidates() {
        match executable::open(kernel, AT_FDCWD, &path) {
            Ok((ino, file)) => {
                let strings = Strings {
                    path,
                    arguments: start.arguments.clone(),
                    environment: start.environment.clone(),
                };
                return execute(kernel, ino, file, strings).map(drop);
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(Errno::EACCES) => why = Errno::EACCES,
            Err(error) => return Err(error),
        }
    }
    Err(why)
}

/// Returns the owners whose rights the file `ino` gives. Files of volumes give none, as on a
/// file system with `MS_NOSUID`: the host decides about their owners and modes.
fn set_id(kernel: &Kernel, ino: Ino) -> Result<SetId, Errno> {
    /// `S_ISGID` has another meaning in a file that its group cannot execute.
    const SET_GROUP: u32 = S_ISGID | 0o010;
    let process = kernel.process();
    let is_refused = kernel.vfs.fs.has_mount_flag(ino, MS_NOSUID) || kernel.is_traced_by_user();
    if process.no_new_privileges || is_volume(ino) || is_refused {
        return Ok(SetId::default());
    }
    let attributes = kernel.vfs.fs.attributes(ino, &process.files)?;
    let has = |bits: u32| attributes.mode & bits == bits;
    Ok(SetId {
        user: has(S_ISUID).then_some(attributes.uid),
        group: has(SET_GROUP).then_some(attributes.gid),
    })
}

/// Gives the running process the credentials of its new program.
fn take_rights(kernel: &mut Kernel, cred: Credentials, is_secure: bool) {
    let is_plain = |ids: Identifiers| ids.real == ids.effective;
    let process = kernel.process_mut();
    let dumpable = u64::from(is_plain(cred.user) && is_plain(cred.group));
    process.files.set_dumpable(dumpable);
    process.is_secure = is_secure;
    if is_secure {
        process.parent_death_signal = 0;
    }
    credentials::set(kernel, cred);
}

/// Resets the state that the new program does not inherit.
fn forget_program(kernel: &mut Kernel) {
    kernel.signals().reset();
    kernel.process_mut().timers.posix.clear();
    kernel.process_mut().has_executed = true;
    kernel.task_mut().clear_child_tid = 0;
    kernel.task_mut().robust_list = [0; 2];
    kernel.task_mut().retry = None;
    let hart = kernel.hart();
    hart.x.set([0; 32]);
    hart.f.set([0; 32]);
    hart.reservation.set(NO_RESERVATION);
    hart.resume.set(0);
    fcsr::fcsr_reset(hart);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_of_scripts() {
        let line = |text: &'static str| script_line(text.as_bytes());
        assert_eq!(line("#!/bin/sh\necho"), Some((&b"/bin/sh"[..], None)));
        let with_argument = Some((&b"/bin/sh"[..], Some(&b"-e x"[..])));
        assert_eq!(line("#! /bin/sh \t-e x \n"), with_argument);
        assert_eq!(line("#!/bin/sh"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(line("#!\n"), Some((&b""[..], None)));
        assert_eq!(line("\x7fELF"), None);
        assert_eq!(line(""), None);
    }
}
