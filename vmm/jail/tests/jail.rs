//! The jail from inside: this program starts itself in one, as the daemon does, and tries
//! to get out.

use hartline_jail::{
    self as jail, CHANNEL_FD, Channel, Filters, Jail, Kind, Limits, Role, VOLUME_FD, Violation,
};
use hartline_vmm::confine::{Confine, Thread};
use hartline_vmm::platform::memory_file;
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

const UID: u32 = 0x7000_0123;
/// Mode of files that the jailed process makes.
const MODE: Mode = Mode::from_raw_mode(0o666);
/// Makes this program [start a jailed process and end](start_and_end).
const STARTER: &str = "start-and-end";
/// The maximum time for a process to end.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, jailed, role, root, uid] = &arguments[..]
        && jailed == "jailed"
    {
        return inside(role, root, uid);
    }
    if arguments.get(1).is_some_and(|mode| mode == STARTER) {
        return start_and_end();
    }
    let is_root = rustix::process::geteuid().is_root();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| {
        Trial::test(name, test).with_ignored_flag(!is_root)
    };
    let mut trials = vec![
        trial("a VMM does its work only", || works(Role::Vmm)),
        trial("a VMM stays in its volumes", || works(Role::VmmWithVolumes)),
        trial("a worker does its work only", || works(Role::Worker)),
        trial("a worker stays in a volume", || works(Role::VolumeWorker)),
        trial("it ends with its starter", ends_with_starter),
        trial("it does nothing without its starter", needs_starter),
        trial("user 0 is refused", refuses_root),
    ];
    for kind in Kind::ALL {
        let name = kind.name();
        let calls = format!("forbidden calls end {name}");
        let tricks = format!("tricks do not help {name}");
        let of_kind = [
            Trial::test(calls, move || calls_end_it(kind)),
            Trial::test(tricks, move || tricks_end_it(kind)),
        ];
        trials.extend(of_kind.map(|trial| trial.with_ignored_flag(!is_root)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Owner of the files in the volume.
const OWNER: u32 = UID + 100;

/// An empty directory, and a jailed process of this program with that directory as its root. A role
/// with volumes also gets `volume` of another directory.
fn start(role: Role, uid: u32) -> io::Result<(Vec<tempfile::TempDir>, jail::Child, Channel)> {
    let root = tempfile::tempdir()?;
    let host = tempfile::tempdir()?;
    let volume = host.path().join("volume");
    fs::create_dir(&volume)?;
    chown(&volume, Some(OWNER), Some(OWNER))?;
    let volumes = match role {
        Role::VmmWithVolumes | Role::VolumeWorker => {
            vec![jail::mount(&File::open(&volume)?, uid, false)?]
        }
        Role::Vmm | Role::Worker => Vec::new(),
    };
    let program = File::open("/proc/self/exe")?;
    let device = File::options().read(true).write(true).open("/dev/null")?;
    let is_worker = matches!(role, Role::Worker | Role::VolumeWorker);
    let device = (!is_worker).then(|| device.as_fd());
    let (child, channel) = jail::spawn(&program, role, root.path(), uid, device, &volumes)?;
    Ok((vec![root, host], child, channel))
}

/// Whether a process of this role has volumes.
fn has_volumes(role: Role) -> bool {
    matches!(role, Role::VmmWithVolumes | Role::VolumeWorker)
}

/// Receives the messages of the jailed process until its end.
fn reports(channel: &Channel) -> io::Result<Vec<String>> {
    let mut reports = Vec::new();
    loop {
        match channel.receive()?.0 {
            message if message.is_empty() => return Ok(reports),
            message => reports.push(String::from_utf8_lossy(&message).into_owned()),
        }
    }
}

fn works(role: Role) -> Result<(), Failed> {
    let (directories, child, channel) = start(role, UID)?;
    channel.send(b"work", &[])?;
    let mut reports = reports(&channel)?;
    if has_volumes(role) {
        let file = directories[1].path().join("volume/file");
        let owner = fs::metadata(file).map(|file| (file.uid(), file.gid(), file.mode() & 0o777));
        if !matches!(owner, Ok((OWNER, OWNER, 0o666))) {
            return Err(format!("owner and mode of its file: {owner:?}").into());
        }
    }
    if reports.pop().as_deref() != Some("done") {
        return Err(format!("it did not do everything: {reports:?}").into());
    }
    let expected = [
        "pid 1",
        &format!("uid {UID}"),
        "root is empty",
        "packets are written if it has a network",
    ];
    let missing: Vec<_> = expected
        .iter()
        .filter(|e| !reports.contains(&(**e).to_owned()))
        .collect();
    let is_fault = |r: &&String| r.starts_with("escape") || r.starts_with("wrong");
    let faults: Vec<_> = reports.iter().filter(is_fault).collect();
    if !missing.is_empty() || !faults.is_empty() {
        return Err(format!("missing: {missing:?}, faults: {faults:?}").into());
    }
    if !child.wait(PATIENCE) {
        return Err("it did not end".into());
    }
    Ok(())
}

/// Makes a jailed process try something on a thread of a kind. Result: its last message, and the
/// signal that ended it.
fn attempt(kind: Kind, what: &str) -> Result<(Vec<u8>, Option<i32>), Failed> {
    let role = match kind {
        Kind::Role(role) => role,
        Kind::Thread(Thread::Volumes) => Role::VmmWithVolumes,
        Kind::Thread(_) => Role::Vmm,
    };
    let (_directories, child, channel) = start(role, UID)?;
    channel.send(format!("{}\n{what}", kind.name()).as_bytes(), &[])?;
    let mut last = Vec::new();
    loop {
        match channel.receive()?.0 {
            message if message.is_empty() => break,
            message => last = message,
        }
    }
    match child.wait(PATIENCE) {
        true => Ok((last, child.ended_by())),
        false => Err(format!("{what}: it did not end").into()),
    }
}

/// Every forbidden system call ends a process, which reports its number.
fn calls_end_it(kind: Kind) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for (number, (name, call, _)) in forbidden().into_iter().enumerate() {
        if is_for_files(kind, name) {
            continue;
        }
        let (last, signal) = attempt(kind, &number.to_string())?;
        let violation = Violation::from_report(&last).and_then(|violation| violation.call);
        let expected = (i32::try_from(call)?, Some(kind));
        if signal != Some(libc::SIGSYS) || violation != Some(expected) {
            let last = String::from_utf8_lossy(&last);
            wrong.push(format!("{name}: {violation:?}, {signal:?}, {last:?}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// A process that tries to survive its violation ends too.
fn tricks_end_it(kind: Kind) -> Result<(), Failed> {
    for trick in TRICKS {
        let (last, signal) = attempt(kind, trick)?;
        // A missing stack is a fault: the process then ends by SIGSEGV.
        let ended = matches!(signal, Some(libc::SIGSYS | libc::SIGSEGV));
        if !ended || last.starts_with(b"escape") {
            let last = String::from_utf8_lossy(&last);
            return Err(format!("{trick}: {signal:?}, {last:?}").into());
        }
    }
    Ok(())
}

fn ends_with_starter() -> Result<(), Failed> {
    // The kernel's parent-death signal refers to the starting thread, which lives on here; the
    // jailed process waits for the end of the channel.
    let (_root, child, channel) = start(Role::Vmm, UID + 1)?;
    drop(channel);
    match child.wait(PATIENCE) {
        true => Ok(()),
        false => Err("it goes on without anybody".into()),
    }
}

/// A starter that ends before the process is in its jail: nobody sends it the parent-death signal then.
fn needs_starter() -> Result<(), Failed> {
    for _ in 0..20 {
        let directory = tempfile::tempdir()?;
        let (here, there) = Channel::pair()?;
        let mut starter = Command::new("/proc/self/exe");
        starter.arg(STARTER).env("TMPDIR", directory.path());
        let status = starter
            .stdin(there.as_fd().try_clone_to_owned()?)
            .status()?;
        let (_, descriptors) = here.receive()?;
        let [channel] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| "no channel")?;
        let channel = Channel::from(channel);
        // It may have ended already.
        let _ = channel.send(b"work", &[]);
        let reports = reports(&channel)?;
        // If the signal came in time, there may be nothing but the report before the jail.
        let is_right =
            |report: &String| report == "root is empty" || report.contains("hartlined has ended");
        if !status.success() || !reports.iter().all(is_right) {
            return Err(format!("{status}: {reports:?}").into());
        }
    }
    Ok(())
}

/// Starts a jailed process, passes its channel on, and ends at once.
fn start_and_end() -> ExitCode {
    let start = || -> io::Result<()> {
        let to = Channel::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (directories, child, channel) = start(Role::Worker, UID + 2)?;
        std::mem::forget((directories, child));
        to.send(b"channel", &[channel.as_fd()])
    };
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn refuses_root() -> Result<(), Failed> {
    let (_root, _child, channel) = start(Role::Vmm, 0)?;
    match &reports(&channel)?[..] {
        [.., refused] if refused.contains("user 0") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// The main function of the jailed process.
fn inside(role: &str, root: &str, uid: &str) -> ExitCode {
    // SAFETY: the process was started with this descriptor, which it takes once, here.
    let channel = Channel::from(unsafe { OwnedFd::from_raw_fd(CHANNEL_FD) });
    let report = |text: &str| {
        // There is no other channel for a failure.
        let _ = channel.send(text.as_bytes(), &[]);
    };
    let role = Role::from_name(role).expect("a role");
    let unlimited = libc::RLIM_INFINITY;
    let jail = Jail {
        role,
        root: root.into(),
        uid: uid.parse().expect("a number"),
        limits: Limits {
            descriptors: 64,
            threads: 16,
            address_space: 8 << 30,
            processor_time: unlimited,
            file_length: 1 << 20,
        },
        volumes: match role {
            Role::VmmWithVolumes | Role::VolumeWorker => {
                // SAFETY: the process was started with this descriptor, which it takes once, here.
                vec![unsafe { OwnedFd::from_raw_fd(VOLUME_FD) }]
            }
            Role::Vmm | Role::Worker => Vec::new(),
        },
    };
    // Before the jail hides the directory.
    let is_empty = || fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty() {
        report("root is empty");
    }
    let descriptors = match jail::enter(&jail) {
        Ok(descriptors) => descriptors,
        Err(error) => {
            report(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let message = channel.receive().map(|(message, _)| message);
    let message = String::from_utf8(message.unwrap_or_default()).expect("text");
    match message.split_once('\n') {
        Some((kind, what)) => {
            let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
            try_on(kind.expect("a kind"), what);
            report(&format!("escape: {what}"));
        }
        None if message.is_empty() => {}
        None => {
            let volume = (jail.volumes.first(), descriptors.as_ref());
            work(role, volume, &report);
        }
    }
    ExitCode::SUCCESS
}

/// Does what is allowed, and reports the results.
fn work(
    role: Role,
    (volume, descriptors): (Option<&OwnedFd>, Option<&OwnedFd>),
    report: &dyn Fn(&str),
) {
    report(&format!("pid {}", std::process::id()));
    let owner = match role {
        // It makes no memory files, but owns the files that it makes in its volume.
        Role::VolumeWorker => file_in_volume(volume),
        Role::Vmm | Role::VmmWithVolumes | Role::Worker => memory_file(c"mine", b""),
    };
    let owner = owner.and_then(|file| file.metadata());
    report(&format!("uid {}", owner.map_or(0, |file| file.uid())));
    if let (Some(volume), Some(descriptors)) = (volume, descriptors) {
        for escape in ways_out_of_volume(volume, descriptors) {
            report(&format!("escape: {escape}"));
        }
    }
    // Only the standard descriptors, the channel and the device may still be open.
    for fd in (5..64).filter(|_| descriptors.is_none()) {
        // SAFETY: the length is 0, so the kernel does not use the pointer.
        if unsafe { libc::read(fd, std::ptr::null_mut(), 0) } != -1 {
            report("escape: an open descriptor");
        }
    }
    for call in wrong_results() {
        report(&format!("wrong result: {call}"));
    }
    let is_worker = matches!(role, Role::Worker | Role::VolumeWorker);
    if is_worker || writes_packets() {
        report("packets are written if it has a network");
    }
    report("done");
}

/// Tries something on a thread of a kind.
fn try_on(kind: Kind, what: &str) {
    match kind {
        Kind::Role(_) => try_here(what),
        Kind::Thread(thread) => {
            let confined = || {
                Filters.confine(thread);
                try_here(what);
            };
            // A panic is not one of the expected ends by a signal.
            let _ = thread::scope(|scope| scope.spawn(confined).join());
        }
    }
}

/// Makes the forbidden call of this number, or plays a trick and then makes one.
fn try_here(what: &str) {
    let forbidden = forbidden();
    if let Some(&(_, number, arguments)) = what.parse().ok().and_then(|n: usize| forbidden.get(n)) {
        call(number, arguments);
        return;
    }
    let action = [libc::SIG_IGN as u64, 0, 0, 0];
    let action = action.as_ptr() as i64;
    let all = u64::MAX;
    let set_action = |signal: i32| {
        call(libc::SYS_rt_sigaction, [signal.into(), action, 0, 8, 0]);
    };
    match what {
        "ignore SIGSYS" => set_action(libc::SIGSYS),
        "ignore SIGSEGV" => set_action(libc::SIGSEGV),
        "block all signals" => {
            let set = (&raw const all) as i64;
            let how = libc::SIG_SETMASK.into();
            call(libc::SYS_rt_sigprocmask, [how, set, 0, 8, 0]);
        }
        "close the channel" => {
            call(libc::SYS_close, [CHANNEL_FD.into(), 0, 0, 0, 0]);
        }
        "fill the channel" => {
            let data = [1_u8; 4096];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the pointer and the length are those of `data`, which the kernel only reads and which
            // outlives the call.
            let send =
                || unsafe { libc::send(CHANNEL_FD, data.as_ptr().cast(), data.len(), flags) };
            while send() > 0 {}
        }
        "no place for a frame" => {
            // SAFETY: does not return: the call is forbidden, and the kernel finds no stack.
            unsafe {
                std::arch::asm!("xor esp, esp", "syscall", "ud2",
                    in("rax") libc::SYS_socket, options(noreturn));
            }
        }
        _ => return,
    }
    call(libc::SYS_socket, [1, 1, 0, 0, 0]);
}

/// Ways to survive a violation.
const TRICKS: [&str; 6] = [
    "ignore SIGSYS",
    "ignore SIGSEGV",
    "block all signals",
    "close the channel",
    "fill the channel",
    "no place for a frame",
];

/// Makes a system call. Result: the error number; 0: none.
fn call(number: i64, [a, b, c, d, e]: [i64; 5]) -> i32 {
    // SAFETY: refused calls touch no memory. Pointers are to NUL-terminated strings or live
    // structures, or null. If a forbidden call is made, the test fails, whatever the call did.
    match unsafe { libc::syscall(number, a, b, c, d, e) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Calls of libraries that do not end as the policy specifies.
fn wrong_results() -> Vec<&'static str> {
    let word = 1_u32;
    let word = (&raw const word) as i64;
    let flags = libc::O_CLOEXEC.into();
    let path = c"/proc/sys/vm/overcommit_memory".as_ptr() as i64;
    let cwd = libc::AT_FDCWD.into();
    let attempts = [
        ("clone3", libc::SYS_clone3, [0; 5], libc::ENOSYS),
        (
            "openat",
            libc::SYS_openat,
            [cwd, path, flags, 0, 0],
            libc::EPERM,
        ),
        (
            "TCGETS",
            libc::SYS_ioctl,
            [0, 0x5401, 0, 0, 0],
            libc::ENOTTY,
        ),
        // What `__cxa_guard_acquire` and `__cxa_guard_release` of the C++ library do.
        (
            "FUTEX_WAIT",
            libc::SYS_futex,
            [word, libc::FUTEX_WAIT.into(), 0, 0, 0],
            libc::EAGAIN,
        ),
        (
            "FUTEX_WAKE",
            libc::SYS_futex,
            [word, libc::FUTEX_WAKE.into(), 1, 0, 0],
            0,
        ),
    ];
    let wrong = attempts
        .into_iter()
        .filter(|&(_, number, arguments, error)| call(number, arguments) != error);
    wrong.map(|(name, ..)| name).collect()
}

/// Whether a call is for files of volumes. The call is then made, on nothing.
fn is_for_files(kind: Kind, name: &str) -> bool {
    let kinds = [
        Kind::Role(Role::VmmWithVolumes),
        Kind::Role(Role::VolumeWorker),
        Kind::Thread(Thread::Volumes),
    ];
    let volume_worker = kind == Kind::Role(Role::VolumeWorker);
    kinds.contains(&kind) && (name == "getdents64" || name == "mkdirat" && !volume_worker)
}

/// Whether the system call for packets of a network interface is allowed. It is made for a ring
/// that does not exist.
fn writes_packets() -> bool {
    let write = || {
        Filters.confine(Thread::Network);
        // SAFETY: no descriptor has so large a number, so the call fails before it uses a ring.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_enter, 1000, 1, 0, 0, 0) };
        let error = io::Error::last_os_error().raw_os_error();
        result == -1 && error == Some(libc::EBADF)
    };
    thread::scope(|scope| scope.spawn(write).join()).unwrap_or_default()
}

/// A file in the volume, which is created if it is missing.
fn file_in_volume(volume: Option<&OwnedFd>) -> io::Result<File> {
    let volume = volume.ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::CREATE | OFlags::RDWR;
    Ok(openat(volume, "file", flags, MODE)?.into())
}

/// Faults of the volume, and open ways out of it.
fn ways_out_of_volume(volume: &OwnedFd, descriptors: &OwnedFd) -> Vec<&'static str> {
    let open = |directory: &OwnedFd, path: &str, flags: OFlags| {
        openat(directory, path, flags, MODE).ok().map(File::from)
    };
    let identity = |file: File| file.metadata().ok().map(|file| (file.dev(), file.ino()));
    let directory = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut wrong = Vec::new();
    if open(volume, "file", OFlags::CREATE | OFlags::RDWR).is_none() {
        wrong.push("no file can be made");
    }
    // As what it is, whatever its name.
    let name = VOLUME_FD.to_string();
    let own = open(descriptors, &name, directory).and_then(identity);
    if own.is_none() {
        wrong.push("its descriptor cannot be opened anew");
    }
    // The volume has no parent directory.
    if open(volume, "..", directory).and_then(identity) != own {
        wrong.push("what is above the volume");
    }
    for path in ["../secret", "/etc/passwd", "/proc/self/status", "/dev/kvm"] {
        if open(volume, path, OFlags::RDONLY).is_some() {
            wrong.push("a file outside the volume");
        }
    }
    for path in ["../status", "../mem", "../../cpuinfo", "../root"] {
        if open(descriptors, path, OFlags::RDONLY).is_some() {
            wrong.push("more of /proc than its descriptors");
        }
    }
    wrong
}

/// A name, the number of a system call and its arguments.
type Call = (&'static str, i64, [i64; 5]);

/// System calls that lead out of the jail or prepare that, or have arguments that no kind may use.
fn forbidden() -> Vec<Call> {
    let path = |text: &'static std::ffi::CStr| text.as_ptr() as i64;
    let none = [0; 5];
    let at = |directory: i32, name| [directory.into(), path(name), 0, 0, 0];
    let cwd = libc::AT_FDCWD;
    let mut address = [0u8; 16];
    address[0] = libc::AF_INET as u8;
    let address = address.as_ptr() as i64;
    let executable = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let private = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    vec![
        ("open", libc::SYS_open, [path(c"/etc/passwd"), 0, 0, 0, 0]),
        ("openat", libc::SYS_openat, at(cwd, c"/proc/1/status")),
        ("openat of the root", libc::SYS_openat, at(cwd, c"/")),
        (
            "openat of what is above",
            libc::SYS_openat,
            at(cwd, c"../../.."),
        ),
        ("openat of a device", libc::SYS_openat, at(cwd, c"/dev/kvm")),
        ("stat by path", libc::SYS_stat, [path(c"/etc"), 0, 0, 0, 0]),
        ("getdents64", libc::SYS_getdents64, none),
        ("chdir", libc::SYS_chdir, [path(c"/proc"), 0, 0, 0, 0]),
        ("mkdirat", libc::SYS_mkdirat, at(cwd, c"/new")),
        ("mknodat", libc::SYS_mknodat, at(cwd, c"/new")),
        ("socket IPv4", libc::SYS_socket, [2, 1, 0, 0, 0]),
        ("socket unix", libc::SYS_socket, [1, 1, 0, 0, 0]),
        ("socket netlink", libc::SYS_socket, [16, 3, 0, 0, 0]),
        ("connect", libc::SYS_connect, [0, address, 16, 0, 0]),
        ("ptrace of itself", libc::SYS_ptrace, none),
        ("ptrace of another", libc::SYS_ptrace, [16, 1, 0, 0, 0]),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            [1, 0, 0, 0, 0],
        ),
        ("pidfd_open", libc::SYS_pidfd_open, [1, 0, 0, 0, 0]),
        ("kill", libc::SYS_kill, [1, 0, 0, 0, 0]),
        ("kill of everybody", libc::SYS_kill, [-1, 0, 0, 0, 0]),
        (
            "mount",
            libc::SYS_mount,
            [path(c"none"), path(c"/"), path(c"proc"), 0, 0],
        ),
        ("umount", libc::SYS_umount2, [path(c"/"), 2, 0, 0, 0]),
        (
            "pivot_root",
            libc::SYS_pivot_root,
            [path(c"."), path(c"."), 0, 0, 0],
        ),
        ("chroot", libc::SYS_chroot, [path(c"/"), 0, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [path(c"proc"), 0, 0, 0, 0]),
        (
            "unshare",
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0],
        ),
        ("setns", libc::SYS_setns, none),
        (
            "clone in a namespace",
            libc::SYS_clone,
            [libc::CLONE_NEWUSER as i64 | 17, 0, 0, 0, 0],
        ),
        ("fork", libc::SYS_fork, none),
        ("vfork", libc::SYS_vfork, none),
        (
            "execve",
            libc::SYS_execve,
            [path(c"/proc/self/exe"), 0, 0, 0, 0],
        ),
        ("execveat", libc::SYS_execveat, [0, path(c""), 0, 0, 0x1000]),
        ("setuid", libc::SYS_setuid, none),
        ("setresuid", libc::SYS_setresuid, none),
        ("capset", libc::SYS_capset, none),
        ("setrlimit", libc::SYS_setrlimit, [7, 0, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, none),
        ("perf_event_open", libc::SYS_perf_event_open, none),
        ("keyctl", libc::SYS_keyctl, none),
        ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        ("io_uring_register", libc::SYS_io_uring_register, none),
        ("userfaultfd", libc::SYS_userfaultfd, none),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, none),
        ("init_module", libc::SYS_init_module, none),
        ("kexec_load", libc::SYS_kexec_load, none),
        ("reboot", libc::SYS_reboot, none),
        (
            "sethostname",
            libc::SYS_sethostname,
            [path(c"x"), 1, 0, 0, 0],
        ),
        ("personality", libc::SYS_personality, none),
        ("iopl", libc::SYS_iopl, [3, 0, 0, 0, 0]),
        (
            "memory to execute",
            libc::SYS_mmap,
            [0, 4096, executable, private, -1],
        ),
        ("ioctl of a terminal", libc::SYS_ioctl, [0, 0x5412, 0, 0, 0]),
        (
            "another KVM ioctl",
            libc::SYS_ioctl,
            [4, 0xae04 + 0x1000, 0, 0, 0],
        ),
        ("futex of another kind", libc::SYS_futex, [0, 6, 0, 0, 0]),
        ("fcntl F_SETOWN", libc::SYS_fcntl, [3, 8, 1, 0, 0]),
        ("fcntl F_SETFL", libc::SYS_fcntl, [3, 4, 0, 0, 0]),
        ("madvise MADV_REMOVE", libc::SYS_madvise, [0, 0, 9, 0, 0]),
        ("prctl PR_SET_DUMPABLE", libc::SYS_prctl, [4, 1, 0, 0, 0]),
        ("SIGKILL to a thread", libc::SYS_tgkill, [1, 1, 9, 0, 0]),
        ("dup2 over the channel", libc::SYS_dup2, [0, 3, 0, 0, 0]),
        ("sendto elsewhere", libc::SYS_sendto, [4, 0, 0, 0x4040, 0]),
        (
            "mremap to an address",
            libc::SYS_mremap,
            [0, 4096, 4096, 3, 0],
        ),
        (
            "a handler for SIGTERM",
            libc::SYS_rt_sigaction,
            [15, path(c""), 0, 8, 0],
        ),
        ("clone of a process", libc::SYS_clone, [17, 0, 0, 0, 0]),
        (
            "code that is made",
            libc::SYS_mprotect,
            [0, 4096, executable, 0, 0],
        ),
    ]
}
