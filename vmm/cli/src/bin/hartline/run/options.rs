//! The command line of `hartline run`.

use super::calls;
use super::network::{self, Net};
use super::snapshot;
use super::vsock::{self, Vsock};
use crate::debug_dir::DebugDirectories;
use crate::gdb_listener::{Address, DEFAULT_ADDRESS, Lost};
use crate::place::{Environment, Place};
use anyhow::{Context, anyhow, bail, ensure};
use hartline_abi::boot::DISK_NAME;
use hartline_abi::limits::MAX_DISKS;
use hartline_abi::volume::MAX_VOLUMES;
use hartline_aot::technique::Technique;
use hartline_cli::command_line::Mistake;
use hartline_devices::net::user::Forward;
use hartline_embed::images;
use hartline_vmm::affinity;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::layout::{MAX_CPUS, MAX_RAM, MIN_RAM};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `hartline run`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hartline run [OPTIONS] PROGRAM [ARGS]...\n       hartline run [OPTIONS] --from DIR [ARGS]..."
)]
pub struct Arguments {
    /// Root file system: a directory, a tar file or an EROFS image; PROGRAM is a path inside it
    #[arg(long, value_name = "DIR|TAR|EROFS")]
    pub rootfs: Option<PathBuf>,

    /// Mount a file or directory of the host for reading and writing, or with :ro only for reading.
    /// At /dev/NAME, a file or block device of the host becomes a block device; rate=BYTES and
    /// ops=REQUESTS, after the same colon, limit it per second
    #[arg(
        short = 'v',
        long = "volume",
        value_name = "HOST:GUEST[:ro][,rate=…][,ops=…]",
        value_parser = parse_volume
    )]
    pub volumes: Vec<Volume>,

    /// Only PATH, HOME and TERM are inherited.
    #[command(flatten)]
    pub environment: Environment,

    #[command(flatten)]
    pub place: Place,

    /// Connect standard input to the program; this is always so
    #[arg(short, long)]
    pub interactive: bool,

    /// Demand that standard input is a terminal; the program uses it as its own in any case
    #[arg(short, long)]
    pub tty: bool,

    /// Keep nothing of the VM; this is always so
    #[arg(long)]
    pub rm: bool,

    /// Memory of the VM (suffixes K, M, G); the host allocates it when the program touches it
    #[arg(
        short = 'm',
        long = "mem",
        visible_alias = "memory",
        value_name = "SIZE",
        default_value = "2G",
        value_parser = parse_size
    )]
    pub memory: u64,

    /// Number of vCPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub cpus: u32,

    /// Pin threads to CPUs of the host: the list has one CPU for each vCPU, and one more for all
    /// other threads of the VM; a CPU may be in the list more than once
    #[arg(long, value_name = "LIST", value_parser = parse_processors)]
    pub pin: Option<Processors>,

    /// Network: none; user, through sockets of this process; or a TAP interface of the host.
    /// Without ip=ADDRESS/PREFIX, a TAP interface gets its addresses by DHCP. queues=N (at most
    /// --cpus; the interface needs multi_queue of ip tuntap) uses N threads for packets. rate=BYTES
    /// and ops=PACKETS limit each direction per second. poll=MICROSECONDS is how long the rings are
    /// polled before sleeping
    #[arg(
        long,
        value_name = "none|user|tap:NAME[,ip=…][,gw=…][,mac=…][,queues=…][,rate=…][,ops=…][,poll=…]",
        default_value = "none",
        value_parser = network::parse
    )]
    pub net: Net,

    /// Forward a port of the host to the program (default ADDRESS: 127.0.0.1); implies --net user
    #[arg(
        short = 'p',
        long = "publish",
        value_name = "[ADDRESS:]HOST:GUEST[/tcp|/udp]",
        value_parser = network::parse_forward
    )]
    pub ports: Vec<Forward>,

    /// Connect AF_VSOCK sockets of the program with Unix sockets of the host. A client that
    /// connects to PATH and sends "CONNECT PORT" is connected to that port of the program. A
    /// connection of the program to port P of the host (CID 2) goes to PATH_P
    #[arg(
        long,
        value_name = "cid=N,socket=PATH[,poll=MICROSECONDS]",
        value_parser = vsock::parse
    )]
    pub vsock: Option<Vsock>,

    #[command(flatten)]
    pub snapshots: snapshot::Options,

    #[command(flatten)]
    pub calls: calls::Options,

    /// Translate without a technique, to measure its effect (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub disable: Vec<Technique>,

    /// Delivery of device interrupts to the guest
    #[arg(long, value_enum, default_value = "auto")]
    pub interrupts: Interrupts,

    /// End the program after running this many seconds, with exit code 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,

    /// Print statistics to standard error at the end
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    pub stats: Option<StatsFormat>,

    /// Write the names of all functions for perf (default file: /tmp/perf-PID.map)
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true
    )]
    pub perf_map: Option<Option<PathBuf>>,

    /// Write the code of all functions for perf inject --jit, with source lines: DIR/jit-PID.dump
    /// (default: the current directory)
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "."
    )]
    pub jitdump: Option<PathBuf>,

    /// Check the runtime's data structures, and translated code against the interpreter; slow
    #[arg(long, hide = true)]
    pub check: bool,

    /// Print system calls as strace(1) does, on standard error or to FILE
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true
    )]
    pub strace: Option<Option<PathBuf>>,

    /// Print the call stack below each system call of --strace, with source lines
    #[arg(short = 'k', long, requires = "strace")]
    pub stack_trace: bool,

    /// Write a time line for Perfetto: system calls, context switches, exits, translations, packets and
    /// block requests
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strace", "from"])]
    pub trace: Option<PathBuf>,

    /// Write a core dump to FILE if a signal such as SIGSEGV ends a process; implies --precise
    #[arg(long, value_name = "FILE")]
    pub core: Option<PathBuf>,

    /// Wait for a debugger (gdb-multiarch, "target remote") before the first instruction, or with
    /// --from before the program continues, at ADDRESS:PORT or the socket PATH (127.0.0.1:1234).
    /// With --precise, all registers are known at faults
    #[arg(
        long,
        value_name = "ADDRESS:PORT|PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_ADDRESS,
        conflicts_with = "directory"
    )]
    pub gdb: Option<Address>,

    /// What happens if the debugger's connection breaks
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "continue",
        requires = "gdb"
    )]
    pub gdb_lost: Lost,

    #[command(flatten)]
    pub debug: DebugDirectories,

    /// Write a profile: FILE.pb.gz or FILE.pprof for pprof, FILE.folded or FILE.txt for flame graphs, any
    /// other for speedscope or the Firefox Profiler
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,

    /// Show source lines and inlined functions in the profile; each sample takes longer
    #[arg(long, requires = "profile")]
    pub profile_lines: bool,

    /// CPU time between samples of the profile, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1", value_parser = parse_period)]
    pub profile_period: Duration,

    /// Use the precise variant of translations, whose faults are exact; slower
    #[arg(long, conflicts_with = "interpret")]
    pub precise: bool,

    /// Interpret everything, translate nothing
    #[arg(long, hide = true)]
    pub interpret: bool,

    /// Code that the baseline translator translates
    #[arg(
        long,
        hide = true,
        value_enum,
        default_value = "auto",
        env = "HARTLINE_BASELINE"
    )]
    pub baseline: Baseline,

    /// Whether to keep the packed root file system in the cache for later runs (auto: that of an archive
    /// or image, if packing takes long)
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        env = "HARTLINE_KEEP_TREE"
    )]
    pub keep_tree: Keep,

    /// The riscv64 program and its arguments; with --from, arguments only. Options of hartline come first
    // One argument, so that everything after the program belongs to it, also what looks like an
    // option of hartline.
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "from",
        trailing_var_arg = true
    )]
    pub command: Vec<OsString>,
}

impl Arguments {
    /// Returns the path of the program as it was given.
    pub fn program(&self) -> &Path {
        self.command.first().map_or(Path::new(""), Path::new)
    }
}

/// A `--volume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Path on the host.
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
    /// Whether `:ro` was given.
    pub read_only: bool,
    /// Most bytes, and requests, a second of a block device; 0: no limit.
    pub limits: [u64; 2],
}

impl Volume {
    /// The name in `/dev` of the guest, if the volume is a block device there.
    pub fn disk(&self) -> Option<&str> {
        let name = self.guest.strip_prefix("/dev/")?;
        (!name.is_empty() && !name.contains('/')).then_some(name)
    }
}

/// Value of `--pin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors(pub Vec<u32>);

impl fmt::Display for Processors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        formatter.write_str(&numbers.join(","))
    }
}

/// Values of `--interrupts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Interrupts {
    /// The best mode that this host supports
    Auto,
    /// Pending word read at safepoints
    Safepoint,
    /// Posted interrupts of APICv or AVIC
    Posted,
    /// Injected by KVM, with exits
    Injected,
}

/// Values of `--keep-tree`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Keep {
    /// Those of archives and images, if packing takes 50 ms or more
    Auto,
    /// Also if it is fast, and those of directories whose files no program writes through a mapping
    Always,
    /// Never, and pack it anew
    Never,
}

/// Values of `--baseline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Baseline {
    /// No code
    Off,
    /// Code that a program reaches before LLVM has translated it
    Auto,
    /// Whole files, also if LLVM has translated them, before they are executed
    Whole,
    /// Whole files; LLVM translates nothing
    Only,
}

impl From<Baseline> for images::Baseline {
    fn from(baseline: Baseline) -> Self {
        match baseline {
            Baseline::Off => Self::Off,
            Baseline::Auto => Self::Auto,
            Baseline::Whole => Self::Whole,
            Baseline::Only => Self::Only,
        }
    }
}

/// Values of `--stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StatsFormat {
    /// Human-readable text
    Table,
    /// One JSON object
    Json,
}

impl Arguments {
    /// Refuses values that are not implemented, rather than ignore them.
    ///
    /// # Errors
    /// The error names the option and its value.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_numbers().map_err(Mistake::from)?;
        ensure!(
            !self.tty || io::stdin().is_terminal(),
            "--tty: standard input is not a terminal"
        );
        self.interrupt_mode(&self.net)?;
        if let Some(pin) = &self.pin {
            check_processors(&pin.0, self.cpus).with_context(|| format!("--pin {pin}"))?;
        }
        Ok(())
    }

    /// Checks numbers that do not depend on the host.
    fn check_numbers(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=MAX_CPUS).contains(&(self.cpus as usize)),
            "--cpus {}: must be between 1 and {MAX_CPUS}",
            self.cpus
        );
        self.net.check_queues(self.cpus)?;
        let disks = self.volumes.iter().filter_map(Volume::disk).count();
        ensure!(
            disks <= MAX_DISKS,
            "--volume: {disks} block devices: must be at most {MAX_DISKS}"
        );
        let volumes = self.volumes.len() - disks;
        ensure!(
            volumes <= MAX_VOLUMES,
            "--volume: {volumes} volumes: must be at most {MAX_VOLUMES}"
        );
        Ok(())
    }

    /// The interrupt mode of devices, of which `net` is one.
    ///
    /// # Errors
    /// This host does not support the mode.
    pub fn interrupt_mode(&self, net: &Net) -> anyhow::Result<Mode> {
        let mode = match self.interrupts {
            Interrupts::Auto if *net == Net::None && self.vsock.is_none() => Mode::Safepoint,
            Interrupts::Auto => Mode::best(),
            Interrupts::Safepoint => Mode::Safepoint,
            Interrupts::Posted => Mode::Posted,
            Interrupts::Injected => Mode::Injected,
        };
        mode.check()
            .with_context(|| format!("--interrupts {mode}"))?;
        Ok(mode)
    }
}

fn parse_volume(text: &str) -> anyhow::Result<Volume> {
    let is_option = |part: &str| {
        let mut names = ["rate=", "ops="].into_iter();
        ["ro", "rw"].contains(&part) || names.any(|name| part.starts_with(name))
    };
    // Paths may contain colons.
    let (rest, options) = match text.rsplit_once(':') {
        Some((rest, last)) if last.split(',').all(is_option) => (rest, last),
        _ => (text, ""),
    };
    let (mut read_only, mut limits) = (false, [0; 2]);
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("rate", value)) => limits[0] = network::parse_limit(value)?,
            Some(("ops", value)) => limits[1] = network::parse_limit(value)?,
            _ => read_only |= option == "ro",
        }
    }
    let is_both = ["ro", "rw"].map(|name| options.split(',').any(|option| option == name));
    ensure!(is_both != [true; 2], "ro and rw exclude each other");
    let (host, guest) = rest
        .split_once(':')
        .context("needs the form HOST:GUEST[:ro|:rw]")?;
    ensure!(!host.is_empty(), "the path on the host is empty");
    ensure!(
        guest.starts_with('/'),
        "the path in the guest must start with /"
    );
    let volume = Volume {
        host: host.into(),
        guest: guest.into(),
        read_only,
        limits,
    };
    ensure!(
        limits == [0; 2] || volume.disk().is_some(),
        "rate and ops need a block device, at /dev/NAME"
    );
    if let Some(name) = volume.disk() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        ensure!(
            name.len() <= DISK_NAME && name.bytes().all(is_plain),
            "the name of a block device must have at most {DISK_NAME} letters and digits"
        );
    }
    Ok(volume)
}

/// Parses numbers and ranges in the syntax of taskset(1).
fn parse_processors(text: &str) -> anyhow::Result<Processors> {
    let number = |text: &str| {
        let number = text.parse().ok();
        let number = number.filter(|number| *number < hartline_vmm::affinity::MAX_CPUS);
        number.with_context(|| format!("{text:?}: not a CPU number"))
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => all.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                ensure!(first <= last, "{part} is empty");
                all.extend(first..=last);
            }
        }
    }
    Ok(Processors(all))
}

/// Checks that there are processors for `cpus` vCPUs, and that this process may use them.
fn check_processors(processors: &[u32], cpus: u32) -> anyhow::Result<()> {
    let (needed, given) = (cpus as usize + 1, processors.len());
    if given != needed {
        let rule = "one for each vCPU (--cpus) and one for all other threads";
        let mistake = anyhow!("{given} CPUs: must be {needed}, {rule}");
        return Err(Mistake::from(mistake).into());
    }
    let usable = affinity::of_this_thread().context("cannot read the CPU affinity")?;
    match processors.iter().find(|number| !usable.contains(number)) {
        None => Ok(()),
        Some(number) => {
            bail!("CPU {number} does not exist, or this process may not use it: see taskset -p $$")
        }
    }
}

fn parse_size(text: &str) -> anyhow::Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        Some(b't' | b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .context("not a number of bytes (suffixes: K, M, G, T)")?;
    let size = number
        .checked_mul(1 << shift)
        .filter(|n| (MIN_RAM..=MAX_RAM).contains(n));
    size.context("must be from 64M to 252G")
}

fn parse_period(text: &str) -> anyhow::Result<Duration> {
    let milliseconds: f64 = text.parse().context("not a number of milliseconds")?;
    ensure!(
        (0.1..=10_000.0).contains(&milliseconds),
        "must be from 0.1 to 10000 milliseconds"
    );
    Ok(Duration::from_secs_f64(milliseconds / 1000.0))
}

/// Parses a time in seconds, more than 0.
///
/// # Errors
/// The text is no such number.
pub fn parse_seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().context("not a number of seconds")?;
    let duration = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero());
    duration.context("must be more than 0 seconds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn what_follows_the_program_belongs_to_it() {
        let words = ["run", "--cpus", "2", "prog", "-e", "x", "--", "--mem"];
        let line = Line::try_parse_from(words).unwrap();
        assert_eq!(line.arguments.program(), Path::new("prog"));
        assert_eq!(line.arguments.command, words[3..]);
        let line = Line::try_parse_from(["run", "--", "--prog", "-v"]).unwrap();
        assert_eq!(line.arguments.command, ["--prog", "-v"]);
        assert!(Line::try_parse_from(["run", "--prog"]).is_err());
        assert!(Line::try_parse_from(["run", "--cpus", "2"]).is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("2G").unwrap(), 2 << 30);
        assert_eq!(parse_size("64m").unwrap(), 64 << 20);
        assert_eq!(parse_size("134217728").unwrap(), 128 << 20);
        let large = parse_size("1T").unwrap_err().to_string();
        assert_eq!(large, "must be from 64M to 252G");
        for bad in [
            "",
            "G",
            "1T",
            "63M",
            "300G",
            "-1",
            "18446744073709551615G",
            "1e9",
            "٣M",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn volumes() {
        let volume = parse_volume("data:/srv/data:ro").unwrap();
        assert_eq!(
            (volume.host, volume.guest),
            ("data".into(), "/srv/data".into())
        );
        assert!(volume.read_only);
        let written = parse_volume("data:/srv/data:rw").unwrap();
        assert_eq!(written.guest, "/srv/data");
        assert!(!written.read_only && parse_volume("data:/x:ro,rw").is_err());
        assert!(!parse_volume("/a:/b").unwrap().read_only);
        let disk = parse_volume("disk.img:/dev/vda").unwrap();
        assert_eq!(disk.disk(), Some("vda"));
        assert_eq!((disk.read_only, disk.limits), (false, [0; 2]));
        let disk = parse_volume("disk.img:/dev/vda:rate=5M,ro,ops=100").unwrap();
        assert_eq!(disk.disk(), Some("vda"));
        assert_eq!((disk.read_only, disk.limits), (true, [5_000_000, 100]));
        assert_eq!(parse_volume("/a:/dev/shm/x").unwrap().disk(), None);
        assert_eq!(parse_volume("/a:/b:c").unwrap().guest, "/b:c");
        for bad in [
            "",
            "/a",
            ":/b",
            "/a:b:ro",
            "/a:ro",
            "/a:/dev/v.a",
            "/a:/b:rate=5",
            "/a:/dev/vda:rate=0",
            "/a:/dev/vda:ro,ops=x",
        ] {
            assert!(parse_volume(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors() {
        let list = |text| parse_processors(text).map(|processors| processors.0);
        assert_eq!(list("3").unwrap(), [3]);
        assert_eq!(list("0-2,5,1").unwrap(), [0, 1, 2, 5, 1]);
        assert_eq!(parse_processors("0-1,1").unwrap().to_string(), "0,1,1");
        for bad in [
            "",
            ",",
            "1,",
            "-1",
            "2-1",
            "1-",
            "0-4000000000",
            "1024",
            "a",
        ] {
            assert!(list(bad).is_err(), "{bad}");
        }
        let first = affinity::of_this_thread().unwrap()[0];
        assert!(check_processors(&[first; 3], 2).is_ok());
        assert!(check_processors(&[first; 2], 2).is_err());
        assert!(check_processors(&[first; 4], 2).is_err());
        assert!(check_processors(&[first, 1023], 1).is_err());
    }

    #[test]
    fn periods() {
        assert_eq!(parse_period("0.5").unwrap(), Duration::from_micros(500));
        for bad in ["0", "0.09", "1e5", "-1", "nan", "1ms"] {
            assert!(parse_period(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.5").unwrap(), Duration::from_millis(500));
        for bad in ["0", "-1", "nan", "inf", "1e300", "x"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
