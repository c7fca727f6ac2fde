//! Boot information for the runtime.

use crate::devices::{Attached, DiskName};
use crate::layout::{self, Guest};
use crate::platform::{self, Vcpu};
use crate::timers::GuestClock;
use hartline_abi::boot::{
    ARGUMENTS_SIZE, BootInfo, FileEntry, MAX_FILES, NetSettings, Shared, VsockSettings,
};
use hartline_abi::chaos::Settings;
use hartline_abi::console::STREAMS;
use hartline_abi::layout::SHARED_BASE;
use hartline_abi::limits::MAX_DISKS;
use hartline_abi::secret;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::io::{self, IsTerminal};
use std::mem::offset_of;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default soft limit of the program's stack, bytes, as in Linux.
const STACK_LIMIT: u64 = 8 << 20;

/// The reason why the boot information could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Arguments and environment are too long.
    #[error("arguments and environment take {length} bytes, more than {ARGUMENTS_SIZE}: pass less")]
    ArgumentsTooLong {
        /// Length of arguments and environment, bytes.
        length: usize,
    },
    /// There are too many of one kind of thing.
    #[error("{count} {what} are too many")]
    TooMany {
        /// The things: "arguments", "volumes".
        what: &'static str,
        /// Their number.
        count: usize,
    },
    /// A string contains a NUL byte.
    #[error("an argument or environment string contains a NUL byte")]
    Nul,
    /// The host returns no random bytes.
    #[error("random bytes: {0}")]
    Random(io::Error),
    /// KVM or the host refused.
    #[error(transparent)]
    Platform(#[from] platform::Error),
}

/// The program, with its arguments and environment.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Its inode in the root file system tree; 0: none.
    pub program: u32,
    /// Path of the program as it sees it.
    pub path: Vec<u8>,
    /// `argv`, from `argv[0]`.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=value` strings.
    pub environment: Vec<Vec<u8>>,
    /// User and group of the program in its VM, by default root.
    pub user: (u32, u32),
    /// Host name of the VM; empty: the runtime's default.
    pub host_name: Vec<u8>,
    /// Working directory, an absolute path; empty: `/`.
    pub directory: Vec<u8>,
    /// Whether the root file system is mounted read-only.
    pub read_only: bool,
    /// Secrets that the program finds in `/run/secrets`: their names, and their contents.
    pub secrets: Vec<Secret>,
    /// Size of the terminal that the program has, lines and characters of a line; its bytes go through
    /// [`Spawner`](crate::spawn::Spawner). 0: it has the standard streams of this process.
    pub terminal: [u16; 2],
}

/// A secret. Its contents are not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: Vec<u8>,
    /// Its contents.
    pub contents: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_ascii();
        write!(formatter, "Secret({name})")
    }
}

impl Arguments {
    /// All strings in the order of [`Shared::arguments`], each NUL-terminated, and the secrets.
    fn encode(&self) -> Result<Vec<u8>, Error> {
        let strings = || {
            [&self.path, &self.host_name, &self.directory]
                .into_iter()
                .chain(&self.arguments)
                .chain(&self.environment)
        };
        let secrets = self.secrets.iter();
        let secrets = secrets.map(|secret| secret.contents.len() + secret.name.len() + 8);
        let length: usize = strings().map(|s| s.len() + 1).chain(secrets).sum();
        if length > ARGUMENTS_SIZE {
            return Err(Error::ArgumentsTooLong { length });
        }
        let mut bytes = Vec::with_capacity(length);
        for string in strings() {
            if string.contains(&0) {
                return Err(Error::Nul);
            }
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        for Secret { name, contents } in &self.secrets {
            let header = secret::header(name, contents);
            bytes.extend(header.ok_or(Error::ArgumentsTooLong { length })?);
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(contents);
        }
        Ok(bytes)
    }
}

/// What the host does for the guest beside the files and the devices.
#[derive(Debug, Clone, Copy)]
pub struct Services {
    /// Number of volumes.
    pub volumes: usize,
    /// Number of interrupt vectors.
    pub vectors: u32,
    /// The kinds of the standard streams.
    pub console: [u32; STREAMS],
    /// It starts processes in the VM.
    pub spawns: bool,
    /// It has a file for a core dump.
    pub core: bool,
    /// A debugger controls the first process.
    pub debug: bool,
    /// It calls functions of the program.
    pub exports: bool,
    /// No standard stream is a terminal.
    pub no_terminals: bool,
}

/// Fills the shared pages. `monotonic` is the time at which the guest's `CLOCK_MONOTONIC` starts, ns;
/// `None`: the host's. Result: the clock of the guest.
///
/// # Errors
/// [`Error`].
pub fn write(
    (guest, files): (&Guest, &[layout::GuestFile<'_>]),
    vcpu: &Vcpu,
    arguments: &Arguments,
    services: Services,
    (net, devices, chaos): (NetSettings, &Attached, Settings),
    (cpus, interpret_only, variant, strace, checkpoint): (u32, bool, u32, u32, u32),
    monotonic: Option<u64>,
) -> Result<GuestClock, Error> {
    let strings = arguments.encode()?;
    let number =
        |what, count: usize| u32::try_from(count).map_err(|_| Error::TooMany { what, count });
    guest
        .shared
        .write(offset_of!(Shared, arguments) as u64, &strings)?;
    let mut info = BootInfo {
        version: hartline_abi::ABI_VERSION,
        cpus,
        ram_length: guest.ram.length(),
        ram_free: guest.placement.ram_free,
        page_table: guest.page_table,
        exception_frame: crate::supervisor::EXCEPTION_FRAME,
        files: [FileEntry {
            address: 0,
            length: 0,
        }; MAX_FILES],
        tsc_hz: vcpu.tsc_hz()?,
        tsc_boot: 0,
        realtime_ns: 0,
        monotonic_ns: 0,
        seed: seed(chaos)?,
        interpret_only: interpret_only.into(),
        variant,
        strace,
        uid: arguments.user.0,
        gid: arguments.user.1,
        terminals: terminals(services.no_terminals),
        console: services.console,
        argument_count: number("arguments", arguments.arguments.len())?,
        environment_count: number("environment variables", arguments.environment.len())?,
        arguments_length: number("bytes of arguments", strings.len())?,
        program: arguments.program,
        volumes: number("volumes", services.volumes)?,
        read_only: arguments.read_only.into(),
        vectors: services.vectors,
        spawns: services.spawns.into(),
        terminal: arguments.terminal.map(u32::from),
        checkpoint,
        net,
        vsock: vsock_settings(devices),
        disks: [DiskName::default(); MAX_DISKS],
        stack_limit: STACK_LIMIT,
        chaos,
        secrets: number("secrets", arguments.secrets.len())?,
        core: services.core.into(),
        debug: services.debug.into(),
        exports: services.exports.into(),
    };
    let addresses = &guest.placement.file_addresses;
    for ((entry, &address), file) in info.files.iter_mut().zip(addresses).zip(files) {
        *entry = FileEntry {
            address,
            length: file.length,
        };
    }
    for (entry, disk) in info.disks.iter_mut().zip(&devices.disks) {
        *entry = disk.name;
    }
    info.tsc_boot = vcpu.tsc()?;
    info.realtime_ns = realtime_ns();
    info.monotonic_ns = monotonic.unwrap_or_else(monotonic_ns);
    let clock = GuestClock::new(info.tsc_hz, info.monotonic_ns);
    guest
        .shared
        .write_value(offset_of!(Shared, boot) as u64, info)?;
    Ok(clock)
}

fn vsock_settings(devices: &Attached) -> VsockSettings {
    let polling = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    devices
        .sockets
        .as_ref()
        .map_or_else(VsockSettings::default, |sockets| VsockSettings {
            present: 1,
            reserved: 0,
            polling_ns: polling(sockets.polling),
        })
}

/// Address of the shared pages in the guest: the runtime's argument.
pub const SHARED_ADDRESS: u64 = SHARED_BASE;

fn seed(chaos: Settings) -> Result<[u8; 64], Error> {
    let mut seed = [0; 64];
    if chaos.kinds != 0 {
        // The same seed repeats a run, so the program's random bytes must be the same too.
        seed[..8].copy_from_slice(&chaos.seed.to_le_bytes());
        return Ok(seed);
    }
    // Not from /dev/urandom: a jailed VMM has no files.
    match getrandom(&mut seed, GetRandomFlags::empty()) {
        // The kernel fills so few bytes, or none.
        Ok(_) => Ok(seed),
        Err(error) => Err(Error::Random(error.into())),
    }
}

/// The standard streams of a program that are terminals, a bit for each. A program with
/// streams of its own has none of this process that could be one.
pub(crate) fn terminals(has_own_streams: bool) -> u32 {
    if has_own_streams {
        return 0;
    }
    let is_terminal = [
        io::stdin().is_terminal(),
        io::stdout().is_terminal(),
        io::stderr().is_terminal(),
    ];
    is_terminal
        .iter()
        .rev()
        .fold(0, |set, &bit| set << 1 | u32::from(bit))
}

fn realtime_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes the local structure, which outlives it, and every kernel has this
    // clock. `rustix` asks the kernel for the vDSO first, which a jailed VMM may not.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_encoded_in_order() {
        let arguments = Arguments {
            program: 0,
            path: b"/bin/p".to_vec(),
            arguments: vec![b"p".to_vec(), vec![]],
            environment: vec![b"A=1".to_vec()],
            host_name: b"vm".to_vec(),
            ..Default::default()
        };
        assert_eq!(arguments.encode().unwrap(), b"/bin/p\0vm\0\0p\0\0A=1\0");
    }

    #[test]
    fn bad_arguments_are_refused() {
        let with = |argument: Vec<u8>| Arguments {
            arguments: vec![argument],
            ..Default::default()
        };
        assert!(matches!(with(b"a\0b".to_vec()).encode(), Err(Error::Nul)));
        let long = with(vec![b'x'; ARGUMENTS_SIZE]).encode();
        assert!(matches!(long, Err(Error::ArgumentsTooLong { .. })));
    }
}
