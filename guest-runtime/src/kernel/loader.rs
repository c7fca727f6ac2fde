//! Program loading: the segments of the program and its program interpreter, and the initial stack.

use crate::convert::{low_u32, to_usize};
use crate::credentials::Credentials;
use crate::fs::inode::MAY_EXEC;
use crate::fs::types::Ino;
use crate::fs::walk::Options;
use crate::kernel::Kernel;
use crate::kernel::executable::{self, ElfFile};
use crate::kernel::stack::{Auxiliary, InitialStack};
use crate::kernel::waiting;
use crate::mm::user;
use crate::mm::{Backing, Label, MapLocation, MapRequest, MappedFile, Protection, VmFlags};
use alloc::borrow::Cow;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use hartline_abi::boot::{BootInfo, FileEntry, NO_PROGRAM};
use hartline_abi::elf::{ElfError, PROGRAM_HEADER_SIZE, Program, ProgramType, Segment};
use hartline_abi::layout::{PAGE_SIZE, USER_END};
use hartline_abi::secret;
use hartline_linux::auxvec::{
    AT_BASE, AT_EGID, AT_ENTRY, AT_EUID, AT_GID, AT_PHDR, AT_PHENT, AT_PHNUM, AT_SECURE, AT_UID,
};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::AT_FDCWD;
use hartline_linux::mount::MS_RDONLY;
use hartline_linux::resource::RLIMIT_STACK;
use hartline_linux::syscall::nr;

/// Load address of position-independent programs: two thirds of the user space, as on Linux.
const DYNAMIC_BASE: u64 = USER_END / 3 * 2;
/// Top of the program's stack. The page above separates it from the end of user space.
const STACK_TOP: u64 = USER_END - PAGE_SIZE;
/// Smallest and largest stack, whatever the limit is, bytes.
const STACK_SIZES: (u64, u64) = (128 << 10, 1 << 30);
/// Least distance from the top of the stack to the `mmap` area, bytes.
const MAP_GAP: u64 = 128 << 20;
/// Least unmapped range below the stack (`stack_guard_gap`), bytes.
const STACK_GUARD: u64 = 1 << 20;

/// `li a7, __NR_rt_sigreturn; ecall`: what signal handlers return to.
static TRAMPOLINE: [u8; 8] = {
    /// `li a7, 0`, whose number is the upper 12 bits.
    const LI_A7: u32 = 0x893;
    let [a, b, c, d] = (LI_A7 | low_u32(nr::rt_sigreturn) << 20).to_le_bytes();
    [a, b, c, d, 0x73, 0, 0, 0]
};

/// The reason why the program cannot be started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// It is neither in the root file system nor in a volume, or it is not executable.
    #[error("{}", reason(*.0))]
    File(Errno),
    /// Its working directory cannot be entered.
    #[error("the working directory cannot be entered: {0}")]
    Directory(Errno),
    /// A secret cannot be written.
    #[error("a secret cannot be written to /run/secrets: {0}")]
    Secret(Errno),
    /// The arguments for a program of a snapshot cannot be written.
    #[error("the arguments cannot be written to /run/hartline/arguments: {0}")]
    GivenArguments(Errno),
    /// Not an ELF file that can be loaded.
    #[error("the program cannot be loaded: {0}")]
    Elf(#[from] ElfError),
    /// Its program interpreter cannot be loaded.
    #[error("the program interpreter {path} cannot be loaded: {why}")]
    Interpreter {
        /// Path of the interpreter, as the program names it.
        path: alloc::string::String,
        /// The reason.
        why: InterpreterError,
    },
    /// A shared object.
    #[error("the program has no entry point")]
    NoEntry,
    /// Its memory cannot be mapped.
    #[error("the program's memory cannot be mapped: {0}")]
    Memory(#[from] Errno),
    /// Arguments and environment take more than a quarter of the stack.
    #[error("arguments and environment of {0} bytes do not fit the stack")]
    Arguments(usize),
    /// The boot information of the VMM is wrong.
    #[error("the boot information is wrong: {0}")]
    Boot(&'static str),
}

/// The reason why a program interpreter cannot be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InterpreterError {
    /// It is not in the root file system.
    #[error("{0}")]
    File(Errno),
    /// It is not an ELF file that can be loaded.
    #[error("{0}")]
    Elf(ElfError),
    /// It has no entry point.
    #[error("it has no entry point")]
    NoEntry,
}

/// Explains why a file cannot be executed, in words.
fn reason(error: Errno) -> Cow<'static, str> {
    match error {
        Errno::ENOENT => "no such file in the root file system or a volume".into(),
        Errno::ENOTDIR => "not a directory on the way to it".into(),
        Errno::EACCES => "is not an executable file".into(),
        Errno::ELOOP => "too many symbolic links on the way to it".into(),
        error => format!("cannot be executed: {error}").into(),
    }
}

/// The bytes of a read-only file of the VM.
///
/// # Safety
/// The VMM has mapped the file as its entry says, and never unmaps it.
#[must_use]
pub unsafe fn file_bytes(file: &FileEntry) -> Option<&'static [u8]> {
    if file.length == 0 {
        return None;
    }
    // SAFETY: the caller's contract.
    Some(unsafe { core::slice::from_raw_parts(file.address as *const u8, to_usize(file.length)) })
}

/// Loads the first program, and sets the hart to its first instruction.
///
/// # Errors
/// The reason why it cannot be started.
pub fn load(kernel: &mut Kernel) -> Result<(), LoadError> {
    let boot = kernel.host.boot();
    let (strings, place) = Strings::take(kernel, boot)?;
    settle(kernel, boot, &place)?;
    let file = first_program(kernel, boot.program, &strings.path)?;
    let interpreter = open_interpreter(kernel, &file.program()?)?;
    // Without an inode in the root file system the program has no `/proc/self/exe`.
    if let Ok(ino) = resolve(kernel, &strings.path) {
        executable::set(kernel, ino);
    }
    load_files(kernel, &file, interpreter.as_ref(), strings)
}

/// Where the first program finds itself, as the VMM says; empty for the default.
struct Place {
    host_name: Vec<u8>,
    directory: Vec<u8>,
    /// Names and contents of secrets.
    secrets: Vec<(&'static [u8], &'static [u8])>,
}

/// Sets the host name, secrets, the working directory, and whether the root can be changed.
fn settle(kernel: &mut Kernel, boot: &BootInfo, place: &Place) -> Result<(), LoadError> {
    if !place.host_name.is_empty() {
        kernel.names.node = String::from_utf8_lossy(&place.host_name).into_owned();
    }
    for (name, contents) in &place.secrets {
        let (vfs, process) = kernel.file_state();
        vfs.add_secret(process, name, contents)
            .map_err(LoadError::Secret)?;
    }
    if !place.directory.is_empty() {
        enter(kernel, &place.directory).map_err(LoadError::Directory)?;
    }
    if boot.read_only != 0 {
        let top = kernel.vfs.fs.mounts().top();
        if let Some(root) = kernel.vfs.fs.mount_mut(top) {
            root.flags |= MS_RDONLY;
        }
    }
    Ok(())
}

/// Makes a directory the working directory of the running process.
///
/// # Errors
/// As chdir(2).
pub(crate) fn enter(kernel: &mut Kernel, path: &[u8]) -> Result<(), Errno> {
    let ino = resolve(kernel, path)?;
    let (vfs, process) = kernel.file_state();
    let attributes = vfs.fs.attributes(ino, process)?;
    if !attributes.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    attributes.check(&process.cred, MAY_EXEC)?;
    vfs.fs.retain(ino);
    vfs.fs.release(process.set_cwd(ino));
    Ok(())
}

/// The first program: none, or the inode of the tree that the VMM has found, or, if that is 0, the file at
/// `path`, which may be in a volume.
fn first_program(kernel: &mut Kernel, inode: u32, path: &[u8]) -> Result<ElfFile, LoadError> {
    if inode == NO_PROGRAM {
        return Ok(waiting::file());
    }
    if inode == 0 {
        let found = executable::open(kernel, AT_FDCWD, path);
        return found.map(|(_, file)| file).map_err(LoadError::File);
    }
    let bytes = kernel.vfs.fs.origin_bytes(inode);
    Ok(ElfFile {
        path: Rc::from(path),
        inode: Some(inode),
        bytes: Cow::Borrowed(bytes.ok_or(LoadError::Boot("no program"))?),
    })
}

/// The inode at a path.
fn resolve(kernel: &mut Kernel, path: &[u8]) -> Result<Ino, Errno> {
    let (vfs, process) = kernel.file_state();
    let options = Options::following(true);
    vfs.resolve(process, AT_FDCWD, path, options)?.existing()
}

/// Loads a program and its program interpreter into the empty address space of the running process,
/// and sets the hart to the first instruction.
///
/// # Errors
/// The reason why it cannot be started; parts of it may be loaded then.
pub(crate) fn load_files(
    kernel: &mut Kernel,
    file: &ElfFile,
    interpreter: Option<&ElfFile>,
    strings: Strings,
) -> Result<(), LoadError> {
    let program = file.program()?;
    let entry = program.entry().ok_or(LoadError::NoEntry)?;
    let bias = dynamic_bias(&program);
    let limits = kernel.process().memory_limits();
    kernel.memory_mut().set_limits(limits);
    map_file(kernel, file, &program, bias)?;
    let (_, end) = program.address_range();
    let stack = map_stack(kernel, end + bias)?;
    let interpreter = interpreter.map(|file| load_interpreter(kernel, file));
    let interpreter = interpreter.transpose()?;
    map_trampoline(kernel)?;
    let at = Locations {
        bias,
        interpreter: interpreter.as_ref().map_or(0, |loaded| loaded.bias),
    };
    let sp = fill_stack(kernel, &program, strings, at, stack)?;
    let hart = kernel.hart();
    hart.pc
        .set(interpreter.map_or(entry + bias, |loaded| loaded.entry));
    hart.set_x(2, sp);
    Ok(())
}

/// Load biases of the program's files: load address minus link-time address.
struct Locations {
    bias: u64,
    interpreter: u64,
}

/// A loaded program interpreter.
struct Interpreter {
    bias: u64,
    entry: u64,
}

/// Opens and checks the program interpreter that a program names.
///
/// # Errors
/// The reason why it cannot be loaded.
pub(crate) fn open_interpreter(
    kernel: &mut Kernel,
    program: &Program<'_>,
) -> Result<Option<ElfFile>, LoadError> {
    let Some(path) = program.interpreter() else {
        return Ok(None);
    };
    let failed = |why| LoadError::Interpreter {
        path: alloc::string::String::from_utf8_lossy(path).into_owned(),
        why,
    };
    let file = executable::open(kernel, AT_FDCWD, path);
    let (_, file) = file.map_err(|error| failed(InterpreterError::File(error)))?;
    let interpreter = file.program();
    let interpreter = interpreter.map_err(|error| failed(InterpreterError::Elf(error)))?;
    match interpreter.entry() {
        Some(_) => Ok(Some(file)),
        None => Err(failed(InterpreterError::NoEntry)),
    }
}

/// Loads a program interpreter at the highest address for mappings.
fn load_interpreter(kernel: &mut Kernel, file: &ElfFile) -> Result<Interpreter, LoadError> {
    let program = file.program()?;
    let entry = program.entry().ok_or(LoadError::NoEntry)?;
    let bias = match program.program_type() {
        ProgramType::Exec => 0,
        ProgramType::Dyn => reserve(kernel, &program)?,
    };
    map_file(kernel, file, &program, bias)?;
    Ok(Interpreter {
        bias,
        entry: entry.wrapping_add(bias),
    })
}

/// Reserves addresses for a file that may be loaded anywhere; returns its bias.
fn reserve(kernel: &mut Kernel, program: &Program<'_>) -> Result<u64, LoadError> {
    let (low, high) = program.address_range();
    let low = low & !(PAGE_SIZE - 1);
    let align = alignment(program);
    let length = (high - low).next_multiple_of(PAGE_SIZE) + (align - PAGE_SIZE);
    let start = kernel.memory_mut().map(MapRequest {
        location: MapLocation::Hint(0),
        length,
        protection: Protection::NONE,
        shared: false,
        no_reserve: true,
        backing: Backing::Zero,
        label: Label::None,
        flags: VmFlags::NONE,
    })?;
    kernel.memory_mut().unmap(start, length)?;
    let remainder = low & (align - 1);
    let from = (start - remainder).next_multiple_of(align) + remainder;
    Ok(from.wrapping_sub(low))
}

/// Largest alignment of a segment, at least a page.
fn alignment(program: &Program<'_>) -> u64 {
    let aligns = program.segments().map(|segment| segment.align);
    aligns.max().unwrap_or(1).max(PAGE_SIZE)
}

/// Load address minus link-time address of the program itself.
fn dynamic_bias(program: &Program<'_>) -> u64 {
    match program.program_type() {
        ProgramType::Exec => 0,
        ProgramType::Dyn => {
            let align = alignment(program);
            let (low, _) = program.address_range();
            (DYNAMIC_BASE & !(align - 1)).wrapping_sub(low & !(align - 1))
        }
    }
}

/// Maps all segments of a file, and its translation.
fn map_file(
    kernel: &mut Kernel,
    file: &ElfFile,
    program: &Program<'_>,
    bias: u64,
) -> Result<(), LoadError> {
    for segment in program.segments() {
        map_segment(kernel, file, &segment, bias)?;
    }
    let (low, high) = program.address_range();
    kernel.admit_code(low.wrapping_add(bias)..high.wrapping_add(bias));
    Ok(())
}

fn map_segment(
    kernel: &mut Kernel,
    file: &ElfFile,
    segment: &Segment,
    bias: u64,
) -> Result<(), LoadError> {
    let vaddr = segment.vaddr.wrapping_add(bias);
    let start = vaddr & !(PAGE_SIZE - 1);
    let file_end = vaddr + segment.file_size;
    let end = vaddr
        .checked_add(segment.mem_size)
        .filter(|&end| end <= USER_END)
        .ok_or(Errno::ENOMEM)?
        .next_multiple_of(PAGE_SIZE);
    let protection = segment_protection(segment);
    let mut at = start;
    if segment.file_size != 0 {
        let from = segment.file_offset & !(PAGE_SIZE - 1);
        let cut = segment.file_offset + segment.file_size;
        // A segment without a zeroed part shows the file's next bytes in its last page, as on
        // Linux.
        let to = match segment.mem_size > segment.file_size {
            true => cut,
            false => cut.next_multiple_of(PAGE_SIZE).min(file.bytes.len() as u64),
        };
        let part = to_usize(from)..to_usize(to);
        let backing = match &file.bytes {
            Cow::Borrowed(bytes) => Backing::File(bytes.get(part.clone()).unwrap_or_default()),
            Cow::Owned(_) => Backing::Zero,
        };
        at = file_end.next_multiple_of(PAGE_SIZE);
        kernel.memory_mut().map(MapRequest {
            location: MapLocation::Fixed(start),
            length: at - start,
            protection,
            shared: false,
            no_reserve: true,
            backing,
            label: Label::File(MappedFile {
                path: file.path.clone(),
                offset: from,
                inode: file.inode,
                read_only: false,
            }),
            flags: VmFlags::NONE,
        })?;
        if let Cow::Owned(bytes) = &file.bytes {
            let contents = bytes.get(part).unwrap_or_default();
            kernel
                .memory_mut()
                .fill(start, contents)
                .map_err(Errno::from)?;
        }
    }
    if at < end {
        kernel.memory_mut().map(MapRequest {
            location: MapLocation::Fixed(at),
            length: end - at,
            protection,
            shared: false,
            no_reserve: false,
            backing: Backing::Zero,
            label: Label::None,
            flags: VmFlags::NONE,
        })?;
    }
    Ok(())
}

fn segment_protection(segment: &Segment) -> Protection {
    let flag = |set, protection| if set { protection } else { Protection::NONE };
    flag(segment.read, Protection::READ)
        .union(flag(segment.write, Protection::WRITE))
        .union(flag(segment.execute, Protection::EXECUTE))
}

/// Maps the stack and sets the layout; returns the stack's range.
fn map_stack(kernel: &mut Kernel, brk: u64) -> Result<core::ops::Range<u64>, LoadError> {
    let limit = kernel.process().limits[RLIMIT_STACK].rlim_cur;
    let size = limit.clamp(STACK_SIZES.0, STACK_SIZES.1);
    let size = size & !(PAGE_SIZE - 1);
    kernel.memory_mut().map(MapRequest {
        location: MapLocation::Fixed(STACK_TOP - size),
        length: size,
        protection: Protection::READ_WRITE,
        shared: false,
        no_reserve: true,
        backing: Backing::Zero,
        label: Label::Stack,
        flags: VmFlags::NONE,
    })?;
    let gap = MAP_GAP.max(size + STACK_GUARD);
    kernel.memory_mut().set_layout(brk, STACK_TOP - gap);
    Ok(STACK_TOP - size..STACK_TOP)
}

fn map_trampoline(kernel: &mut Kernel) -> Result<(), LoadError> {
    let trampoline = kernel.memory_mut().map(MapRequest {
        location: MapLocation::Hint(0),
        length: PAGE_SIZE,
        protection: Protection::READ_EXECUTE,
        shared: false,
        no_reserve: true,
        backing: Backing::File(&TRAMPOLINE),
        label: Label::Trampoline,
        flags: VmFlags::NONE,
    })?;
    kernel.process_mut().signals.trampoline = trampoline;
    Ok(())
}

/// The program's path, arguments and environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strings {
    /// The path as given.
    pub path: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
}

impl Strings {
    /// Copies the strings from the shared pages.
    fn take(kernel: &Kernel, boot: &BootInfo) -> Result<(Strings, Place), LoadError> {
        let shared = kernel.host.shared().as_ptr();
        // SAFETY: the VMM wrote the strings before the vCPU started, and does not change them.
        let bytes = unsafe { &*core::ptr::addr_of!((*shared).arguments) };
        let bytes = bytes
            .get(..boot.arguments_length as usize)
            .ok_or(LoadError::Boot("length of the arguments"))?;
        let mut rest = bytes;
        let mut next = || {
            let missing = LoadError::Boot("arguments are missing");
            let end = rest.iter().position(|&byte| byte == 0).ok_or(missing)?;
            let string = rest[..end].to_vec();
            rest = &rest[end + 1..];
            Ok::<_, LoadError>(string)
        };
        let path = next()?;
        let (host_name, directory) = (next()?, next()?);
        let strings = Strings {
            path,
            arguments: (0..boot.argument_count)
                .map(|_| next())
                .collect::<Result<_, _>>()?,
            environment: (0..boot.environment_count)
                .map(|_| next())
                .collect::<Result<_, _>>()?,
        };
        let place = Place {
            host_name,
            directory,
            secrets: (0..boot.secrets)
                .map(|_| secret::take(&mut rest).ok_or(LoadError::Boot("a secret is missing")))
                .collect::<Result<_, _>>()?,
        };
        Ok((strings, place))
    }
}

/// Writes the arguments of a VM that continues a snapshot to `/run/hartline/arguments`.
///
/// # Errors
/// The boot information is wrong, or the file cannot be written.
pub fn give_arguments(kernel: &mut Kernel) -> Result<(), LoadError> {
    let (strings, _) = Strings::take(kernel, kernel.host.boot())?;
    let arguments = strings.arguments.iter();
    let contents: Vec<u8> =
        (arguments.flat_map(|argument| argument.iter().copied().chain([0]))).collect();
    let (vfs, process) = kernel.file_state();
    vfs.set_arguments(process, &contents)
        .map_err(LoadError::GivenArguments)
}

/// Writes the initial stack; returns the stack pointer.
fn fill_stack(
    kernel: &mut Kernel,
    program: &Program<'_>,
    strings: Strings,
    at: Locations,
    stack: core::ops::Range<u64>,
) -> Result<u64, LoadError> {
    let mut random = [0; 16];
    kernel.random.fill(&mut random);
    let headers = program.headers_vaddr().map_or(0, |vaddr| vaddr + at.bias);
    let entry = program.entry().map_or(0, |vaddr| vaddr + at.bias);
    let process = kernel.process();
    let Credentials { user, group, .. } = *process.credentials();
    let vector = [
        Auxiliary(AT_PHDR, headers),
        Auxiliary(AT_PHENT, PROGRAM_HEADER_SIZE as u64),
        Auxiliary(AT_PHNUM, u64::from(program.header_count())),
        Auxiliary(AT_BASE, at.interpreter),
        Auxiliary(AT_ENTRY, entry),
        Auxiliary(AT_UID, u64::from(user.real)),
        Auxiliary(AT_EUID, u64::from(user.effective)),
        Auxiliary(AT_GID, u64::from(group.real)),
        Auxiliary(AT_EGID, u64::from(group.effective)),
        Auxiliary(AT_SECURE, u64::from(process.is_secure)),
    ];
    let built = InitialStack::build(
        stack.end,
        &strings.path,
        &strings.arguments,
        &strings.environment,
        random,
        &vector,
    );
    if built.bytes.len() as u64 > (stack.end - stack.start) / 4 {
        return Err(LoadError::Arguments(built.bytes.len()));
    }
    user::write_bytes(kernel.memory_mut(), built.sp, &built.bytes)?;
    let base = strings.path.rsplit(|&byte| byte == b'/').next();
    let name = base.unwrap_or_default();
    let length = name.len().min(15);
    let task = kernel.task_mut();
    task.name = [0; 16];
    task.name[..length].copy_from_slice(&name[..length]);
    let process = kernel.process_mut();
    process.arguments = built.arguments;
    process.environment = built.environment;
    process.auxiliary = built.auxiliary;
    process.executable = strings.path;
    Ok(built.sp)
}
