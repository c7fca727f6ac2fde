//! Requests of a hostile guest for files of the host, in the channel of volumes. Each is answered.
//! Files outside the volumes are neither revealed nor changed, read-only files are not changed, and
//! a volume with a limit stays within it.

#![no_main]

use hartline_abi::volume::{
    ANSWERED, Answer, Channel as Shared, OWNER_KEEP, Operation, Request, SUBMITTED, TIME_KEEP,
    TIME_NOW, VOLUME_DATA, VOLUME_SLOTS,
};
use hartline_devices::virtio::Memory;
use hartline_devices::volume::{Channel, Copies, Server, Space, Usage, Volume, measure};
use libfuzzer_sys::fuzz_target;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Once};
use tempfile::TempDir;

/// Bits of the first byte of an input: the first volume has a limit.
const LIMITED: u8 = 1;
/// Bytes that the limited volume may grow by.
const ROOM: u64 = 64 << 10;
/// The space that a volume with limits has left: some inputs exhaust the bytes first, some the
/// inodes.
const LEFT: Space = Space {
    bytes: ROOM,
    inodes: 8,
};
/// The longest file, and the most space allocated beyond a file's end, bytes.
const LONGEST: u64 = 16 << 20;
const UNSEEN: u64 = 1 << 20;

/// Arguments that bytes from [`FIRST_ODD`] on stand for. The byte 255 stands for the eight bytes
/// that follow.
const FIRST_ODD: u8 = 0xe0;
const ODD: [u64; 20] = [
    u64::MAX,
    u64::MAX - 1,
    1 << 63,
    i64::MAX as u64,
    1 << 62,
    OWNER_KEEP,
    1 << 32,
    1 << 31,
    VOLUME_DATA as u64,
    VOLUME_DATA as u64 + 1,
    ROOM,
    ROOM + 1,
    4096,
    256,
    0o6755,
    0o644,
    0o100_644,
    0o40_755,
    TIME_NOW,
    TIME_KEEP,
];

/// Contents of a file outside the volumes: no input contains these bytes.
static SECRET: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut bytes = [0; 32];
    let mut file = File::open("/dev/urandom").expect("random numbers");
    io::Read::read_exact(&mut file, &mut bytes).expect("random numbers");
    bytes
});

/// The rest of an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn argument(&mut self) -> u64 {
        match self.byte() {
            u8::MAX => {
                let mut bytes = [0; 8];
                let taken = self.take(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
            byte => match byte.checked_sub(FIRST_ODD) {
                Some(odd) => ODD[usize::from(odd) % ODD.len()],
                None => byte.into(),
            },
        }
    }
}

/// Directories of the host: the volumes, and `outside`.
struct Host {
    folder: TempDir,
    inside: PathBuf,
    before: Vec<Trace>,
}

/// The properties of a file that any change of it changes.
type Trace = (PathBuf, [u64; 6], [i64; 4]);

impl Host {
    fn new() -> io::Result<Self> {
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let at = |name: &str| folder.path().join(name);
        for name in ["inside/dir", "kept/dir", "outside"] {
            fs::create_dir_all(at(name))?;
        }
        fs::write(at("outside/secret"), *SECRET)?;
        for volume in ["inside", "kept"] {
            fs::write(at(volume).join("file"), "contents")?;
            symlink("../outside", at(volume).join("up"))?;
        }
        let inside = at("inside");
        Ok(Self {
            inside,
            before: traces(folder.path())?,
            folder,
        })
    }

    fn volumes(&self, has_limit: bool) -> io::Result<Vec<Volume>> {
        let used = measure(&self.inside)?;
        let limit = used.plus(LEFT);
        let first = match has_limit {
            true => {
                let directory = File::open(&self.inside)?.into();
                Volume::limited(directory, "/data", false, Usage { used, limit })
            }
            false => Volume::open(&self.inside, "/data", false)?,
        };
        let kept = Volume::open(&self.folder.path().join("kept"), "/kept", true)?;
        Ok(vec![first, kept])
    }

    /// Returns whether a file is outside all volumes.
    fn is_outside(&self, ino: u64) -> bool {
        let is_in_volume = |path: &Path| path.starts_with(self.folder.path().join("kept"));
        let mut others = self.before.iter().filter(|trace| !is_in_volume(&trace.0));
        others.any(|trace| trace.1[0] == ino)
    }

    /// Checks the invariants at the end.
    fn check(&self, most: Option<Space>) -> io::Result<()> {
        assert_eq!(self.before, traces(self.folder.path())?);
        // Directories without permissions become readable and can be deleted.
        open_up(&self.inside)?;
        let used = measure(&self.inside)?;
        let fits = |most: Space| used.bytes <= most.bytes && used.inodes <= most.inodes;
        assert!(most.is_none_or(fits), "{used:?} of {most:?}");
        Ok(())
    }
}

/// Returns the traces of the folder and its contents, except the first volume.
fn traces(folder: &Path) -> io::Result<Vec<Trace>> {
    let mut traces = Vec::new();
    let mut rest = vec![folder.to_path_buf()];
    while let Some(path) = rest.pop() {
        let data = fs::symlink_metadata(&path)?;
        if data.is_dir() {
            for entry in fs::read_dir(&path)? {
                rest.push(entry?.path());
            }
            rest.retain(|path| !path.ends_with("inside"));
        }
        let numbers = [
            data.ino(),
            data.len(),
            data.nlink(),
            data.mode().into(),
            data.uid().into(),
            data.gid().into(),
        ];
        let times = [
            data.mtime(),
            data.mtime_nsec(),
            data.ctime(),
            data.ctime_nsec(),
        ];
        traces.push((path, numbers, times));
    }
    traces.sort();
    Ok(traces)
}

/// Lets this process read all directories.
fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// The guest's end of the channel.
struct Driver(NonNull<Shared>);

impl Driver {
    /// A channel that starts at a page, as memory of a guest does.
    fn layout() -> Layout {
        let layout = Layout::new::<Shared>().align_to(4096);
        layout.expect("an alignment")
    }

    fn new() -> Self {
        // SAFETY: the layout is not empty, and zeros are a valid channel.
        let memory = unsafe { alloc_zeroed(Self::layout()) };
        Self(NonNull::new(memory.cast()).expect("memory"))
    }

    /// Makes a request with these bytes.
    fn submit(&self, slot: usize, request: Request, bytes: &[u8]) {
        // SAFETY: the pointer is inside the channel, which no thread serves now.
        unsafe {
            let slot = &raw mut (*self.0.as_ptr()).slots[slot];
            let data: *mut u8 = (&raw mut (*slot).data).cast();
            data.copy_from(bytes.as_ptr(), bytes.len());
            (&raw mut (*slot).request).write(request);
            (*slot).state.store(SUBMITTED, Ordering::SeqCst);
        }
    }

    /// Returns the answer to the request in a slot, and its data.
    fn answer(&self, slot: usize) -> (Answer, &[u8]) {
        // SAFETY: the pointer is inside the channel, which no thread serves now.
        unsafe {
            let slot = &raw const (*self.0.as_ptr()).slots[slot];
            assert_eq!((*slot).state.load(Ordering::SeqCst), ANSWERED);
            let answer = (&raw const (*slot).answer).read();
            let length = usize::try_from(answer.result).unwrap_or(0).min(VOLUME_DATA);
            let data: *const u8 = (&raw const (*slot).data).cast();
            (answer, std::slice::from_raw_parts(data, length))
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and has no other user now.
        unsafe { dealloc(self.0.as_ptr().cast(), Self::layout()) };
    }
}

/// The driver that makes requests, and the server.
struct Bench {
    host: Host,
    has_limit: bool,
    driver: Driver,
    channel: Channel,
    server: Server,
    copies: Arc<Copies>,
}

fuzz_target!(|input: &[u8]| {
    limit_files();
    let mut input = Input(input);
    let has_limit = input.byte() & LIMITED != 0;
    let host = Host::new().expect("directories");
    let most = has_limit.then(|| measure(&host.inside).expect("directories").plus(LEFT));
    let copies = Arc::<Copies>::default();
    let volumes = host.volumes(has_limit).expect("volumes");
    let driver = Driver::new();
    let base = driver.0.cast();
    // SAFETY: the memory lives as long as the driver, and the channel is not used after it.
    let memory = unsafe { Memory::new(base, size_of::<Shared>(), 0, Arc::new(())) };
    let memory = memory.expect("memory");
    let mut bench = Bench {
        host,
        has_limit,
        channel: Channel::new(memory, 0).expect("a channel"),
        driver,
        server: Server::new(volumes, Arc::clone(&copies)),
        copies,
    };
    while !input.0.is_empty() {
        bench.request(&mut input);
    }
    bench.host.check(most).expect("directories");
});

impl Bench {
    /// Makes one request, and checks the answer.
    fn request(&mut self, input: &mut Input<'_>) {
        let number = input.byte();
        let slot = usize::from(input.byte()) % VOLUME_SLOTS;
        let mut args = std::array::from_fn(|_| input.argument());
        let operation = Operation::from_number(number.into());
        if operation == Some(Operation::Allocate) && !self.has_limit {
            // The host's storage is limited too.
            args[3] = args[3].min(UNSEEN);
        }
        let length = input.byte();
        let bytes = input.take(length.into());
        let request = Request {
            operation: match number {
                u8::MAX => u32::MAX,
                number => number.into(),
            },
            reserved: 0,
            args,
        };
        self.driver.submit(slot, request, bytes);
        assert!(self.server.serve_at(&self.channel, slot));
        assert!(!self.server.serve_at(&self.channel, slot));
        let (answer, data) = self.driver.answer(slot);
        assert!(answer.result >= -4095, "{request:?}: {answer:?}");
        let attributes = answer.attributes;
        assert!(attributes.node == 0 || !self.host.is_outside(attributes.ino));
        let is_secret = |part: &[u8]| part.iter().zip(&*SECRET).all(|(a, b)| a == b);
        assert!(!data.windows(SECRET.len()).any(is_secret), "{request:?}");
        if operation == Some(Operation::Copy) && answer.result >= 0 {
            let copy = self.copies.get(answer.result.unsigned_abs());
            assert_eq!(copy.map(|copy| copy.length), Some(answer.args[0]));
        }
    }
}

/// Limits the length of all files that this process writes.
fn limit_files() {
    static LIMIT: Once = Once::new();
    LIMIT.call_once(|| {
        let limit = libc::rlimit {
            rlim_cur: LONGEST,
            rlim_max: LONGEST,
        };
        // SAFETY: the signal is set to be ignored, and the pointer refers to a valid structure.
        let set = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
        };
        assert_eq!(set, 0, "a limit");
    });
}
