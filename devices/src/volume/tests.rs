//! Honest and hostile requests in a folder beside files that no guest may access.

use super::channel::Data;
use super::pool::{Pool, Work};
use super::*;
use crate::virtio::{DeviceError, Guest};
use hartline_abi::volume::{
    Answer, NodeAttributes, OPEN_WRITE, Operation, ROOT_READ_ONLY, Request, SET_CREATE,
    VOLUME_DATA, VOLUME_SLOTS,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// A folder of the host with `inside`, which is the volume, and `outside`.
pub(super) struct Host {
    folder: PathBuf,
    channel: Channel,
    pub server: Server,
    pub copies: Arc<Copies>,
}

impl Host {
    pub fn new(name: &str) -> Self {
        Self::with(name, false)
    }

    fn with(name: &str, read_only: bool) -> Self {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("hartline-volume-{name}-{process}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("inside/dir")).unwrap();
        fs::create_dir_all(folder.join("outside")).unwrap();
        fs::write(folder.join("outside/secret"), "secret").unwrap();
        fs::write(folder.join("inside/file"), "contents").unwrap();
        symlink("../outside", folder.join("inside/up")).unwrap();
        symlink("/etc/passwd", folder.join("inside/absolute")).unwrap();
        let volume = Volume::open(&folder.join("inside"), "/data", read_only).unwrap();
        let copies = Arc::<Copies>::default();
        Self {
            folder,
            channel: Channel::anonymous(),
            server: Server::new(vec![volume], Arc::clone(&copies)),
            copies,
        }
    }

    /// A volume whose limit is its contents and `room`.
    pub fn limited(name: &str, room: Space) -> Self {
        let mut host = Self::new(name);
        let inside = host.path("inside");
        let used = measure(&inside).unwrap();
        let usage = Usage {
            used,
            limit: used.plus(room),
        };
        let directory = fs::File::open(inside).unwrap().into();
        let volume = Volume::limited(directory, "/data", false, usage);
        host.server = Server::new(vec![volume], Arc::clone(&host.copies));
        host
    }

    fn data(&self) -> Data<'_> {
        self.channel.slot(0).data()
    }

    pub fn call(&mut self, operation: Operation, args: &[u64], bytes: &[u8]) -> Answer {
        let mut request = Request {
            operation: operation as u32,
            ..Request::default()
        };
        request.args[..args.len()].copy_from_slice(args);
        let data = self.channel.slot(0).data();
        data.put(bytes);
        self.server.serve(&request, data)
    }

    pub fn root(&mut self) -> u64 {
        let answer = self.call(Operation::Root, &[0], b"");
        assert_eq!(answer.result, 5);
        assert_eq!(self.data().get(0, 5).unwrap(), b"/data");
        answer.attributes.node
    }

    pub fn look_up(&mut self, directory: u64, name: &str) -> Result<NodeAttributes, i32> {
        let args = [directory, name.len() as u64];
        let answer = self.call(Operation::Lookup, &args, name.as_bytes());
        match answer.result {
            0 => Ok(answer.attributes),
            error => Err((-error).try_into().unwrap()),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A random number as an index.
pub(super) fn index(number: u64) -> usize {
    number.try_into().unwrap()
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn files_are_made_written_and_read() {
    let mut host = Host::new("files");
    let root = host.root();
    let made = host.call(
        Operation::Create,
        &[root, 3, 0o6640, u64::MAX, u64::MAX],
        b"new",
    );
    assert_eq!(made.result, 0);
    let node = made.attributes.node;
    // Set-user-ID and set-group-ID are removed.
    let mode = fs::metadata(host.path("inside/new")).unwrap().mode();
    assert_eq!(mode & 0o6000, 0);
    let written = host.call(Operation::Write, &[node, 2, 4, 0], b"data");
    assert_eq!((written.result, written.args[0]), (4, 6));
    let written = host.call(Operation::Write, &[node, 0, 3, 1], b"end");
    assert_eq!((written.result, written.args[0]), (3, 9));
    assert_eq!(fs::read(host.path("inside/new")).unwrap(), b"\0\0dataend");
    assert_eq!(host.call(Operation::Truncate, &[node, 4], b"").result, 0);
    assert_eq!(host.call(Operation::Read, &[node, 1, 100], b"").result, 3);
    assert_eq!(host.data().get(0, 3).unwrap(), b"\0da");
    assert_eq!(host.call(Operation::Sync, &[node, 1], b"").result, 0);
    let attributes = host
        .call(Operation::SetMode, &[node, 0o4755], b"")
        .attributes;
    assert_eq!((attributes.mode & 0o7777, attributes.size), (0o755, 4));
    // The file exists without a name as long as the guest knows it.
    assert_eq!(host.call(Operation::Unlink, &[root, 3], b"new").result, 0);
    assert_eq!(
        host.call(Operation::Attributes, &[node], b"")
            .attributes
            .nlink,
        0
    );
    assert_eq!(host.call(Operation::Read, &[node, 0, 100], b"").result, 4);
    assert_eq!(host.call(Operation::Forget, &[node], b"").result, 0);
    assert_eq!(
        host.call(Operation::Read, &[node, 0, 1], b"").result,
        -i64::from(libc::ESTALE)
    );
}

#[test]
fn nothing_changes_in_a_read_only_volume() {
    let mut host = Host::with("read-only", true);
    let root = host.call(Operation::Root, &[0], b"");
    assert_eq!(root.args[0], ROOT_READ_ONLY);
    let root = root.attributes.node;
    let file = host.look_up(root, "file").unwrap().node;
    let dir = host.look_up(root, "dir").unwrap().node;
    assert_eq!(host.call(Operation::Open, &[file, 0], b"").result, 0);
    assert_eq!(host.call(Operation::Read, &[file, 0, 8], b"").result, 8);
    let none = u64::MAX;
    for (operation, args, bytes) in [
        (Operation::Open, &[file, OPEN_WRITE][..], &b""[..]),
        (Operation::Write, &[file, 0, 4, 0], b"text"),
        (Operation::Truncate, &[file, 0], b""),
        (Operation::Allocate, &[file, 0, 0, 9], b""),
        (Operation::SetMode, &[file, 0o777], b""),
        (Operation::SetOwner, &[file, 1, 1], b""),
        (Operation::SetTimes, &[dir, 1, 0, 1, 0], b""),
        (Operation::Create, &[dir, 1, 0o644, none, none], b"x"),
        (Operation::CreateUnnamed, &[dir, 0, 0o644, none, none], b""),
        (Operation::MakeDirectory, &[dir, 1, 0o755, none, none], b"x"),
        (Operation::SymbolicLink, &[dir, 1, 1, none, none], b"xy"),
        (Operation::Link, &[dir, 1, file], b"x"),
        (Operation::Rename, &[root, 4, dir, 1, 0], b"filex"),
        (Operation::Unlink, &[root, 4], b"file"),
        (Operation::RemoveDirectory, &[root, 3], b"dir"),
    ] {
        let answer = host.call(operation, args, bytes);
        assert_eq!(answer.result, -i64::from(libc::EROFS), "{operation:?}");
    }
    assert_eq!(fs::read(host.path("inside/file")).unwrap(), b"contents");
    assert_eq!(fs::read_dir(host.path("inside/dir")).unwrap().count(), 0);
}

#[test]
fn copies_stay_as_they_are() {
    let mut host = Host::new("copies");
    let root = host.root();
    let file = host.look_up(root, "file").unwrap().node;
    let copies = Arc::clone(&host.copies);
    let contents = |number: i64| {
        let copy = copies.get(number.cast_unsigned()).unwrap();
        assert!(copy.file.set_len(1).is_err());
        let mut bytes = vec![0; copy.length.try_into().unwrap()];
        copy.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let first = host.call(Operation::Copy, &[file], b"");
    assert_eq!((first.result, first.args[0]), (0, 8));
    // Equal contents are copied once, also if the file's times do not prove that they are equal.
    assert_eq!(host.call(Operation::Copy, &[file], b"").result, 0);
    fs::write(host.path("inside/file"), "CONTENTS").unwrap();
    let second = host.call(Operation::Copy, &[file], b"");
    assert_eq!(second.result, 1);
    assert_eq!(contents(0), b"contents");
    assert_eq!(contents(1), b"CONTENTS");
    fs::write(host.path("inside/file"), "").unwrap();
    let refused = |host: &mut Host, node| {
        let answer = host.call(Operation::Copy, &[node], b"");
        i32::try_from(-answer.result).unwrap()
    };
    assert_eq!(refused(&mut host, file), libc::ENOEXEC);
    assert_eq!(refused(&mut host, root), libc::EISDIR);
    assert_eq!(refused(&mut host, 999), libc::ESTALE);
    assert!(copies.get(2).is_none());
}

#[test]
fn extended_attributes_are_those_of_users() {
    let mut host = Host::new("extended");
    let root = host.root();
    let file = host.look_up(root, "file").unwrap().node;
    let link = host.look_up(root, "up").unwrap().node;
    let set = |host: &mut Host, node, name: &str, value: &str| {
        let args = [node, name.len() as u64, value.len() as u64, SET_CREATE];
        let bytes = [name, value].concat();
        let answer = host.call(Operation::SetExtended, &args, bytes.as_bytes());
        i32::try_from(-answer.result).unwrap()
    };
    assert_eq!(set(&mut host, file, "user.a", "value"), 0);
    assert_eq!(set(&mut host, file, "user.a", "value"), libc::EEXIST);
    assert_eq!(set(&mut host, link, "user.a", "value"), libc::EPERM);
    for name in [
        "security.capability",
        "trusted.a",
        "system.posix_acl_access",
    ] {
        assert_eq!(set(&mut host, file, name, "value"), libc::EOPNOTSUPP);
    }
    assert_eq!(host.call(Operation::ListExtended, &[file], b"").result, 7);
    assert_eq!(host.data().get(0, 7).unwrap(), b"user.a\0");
    let got = host.call(Operation::GetExtended, &[file, 6], b"user.a");
    assert_eq!(got.result, 5);
    assert_eq!(host.data().get(0, 5).unwrap(), b"value");
    let remove = |host: &mut Host| host.call(Operation::RemoveExtended, &[file, 6], b"user.a");
    assert_eq!(remove(&mut host).result, 0);
    assert_eq!(remove(&mut host).result, -i64::from(libc::ENODATA));
    assert_eq!(host.call(Operation::ListExtended, &[link], b"").result, 0);
    assert_eq!(
        host.call(Operation::GetExtended, &[file, 9999], b"").result,
        -i64::from(libc::ERANGE)
    );
}

#[test]
fn one_file_is_one_node() {
    let mut host = Host::new("nodes");
    let root = host.root();
    let file = host.look_up(root, "file").unwrap().node;
    assert_eq!(host.look_up(root, "file").unwrap().node, file);
    assert_eq!(
        host.call(Operation::Link, &[root, 5, file], b"other")
            .result,
        0
    );
    let other = host.look_up(root, "other").unwrap();
    assert_eq!((other.node, other.nlink), (file, 2));
    let renamed = host.call(Operation::Rename, &[root, 5, root, 3, 0], b"othernew");
    assert_eq!(renamed.result, 0);
    assert_eq!(host.look_up(root, "new").unwrap().node, file);
    assert_eq!(host.look_up(root, "other"), Err(libc::ENOENT));
}

#[test]
fn directories_are_listed_from_any_cookie() {
    let mut host = Host::new("directories");
    let root = host.root();
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let length = host
            .call(Operation::ReadDirectory, &[root, cookie], b"")
            .result;
        if length == 0 {
            break;
        }
        let entries = host.data().get(0, length.cast_unsigned()).unwrap();
        // Only the first entry: the next call continues behind it.
        cookie = u64::from_le_bytes(entries[8..16].try_into().unwrap());
        let name = entries[19..].split(|&b| b == 0).next().unwrap().to_vec();
        names.push(String::from_utf8(name).unwrap());
    }
    names.sort();
    assert_eq!(names, [".", "..", "absolute", "dir", "file", "up"]);
}

#[test]
fn names_lead_nowhere_else() {
    let mut host = Host::new("names");
    let root = host.root();
    for name in [
        "..",
        ".",
        "",
        "a/b",
        "../outside",
        "/etc",
        "dir/../..",
        "up/secret",
        "x\0y",
    ] {
        assert_eq!(host.look_up(root, name), Err(libc::EINVAL), "{name:?}");
    }
    let long = "x".repeat(256);
    assert_eq!(host.look_up(root, &long), Err(libc::ENAMETOOLONG));
    // Links are found and not followed. The guest resolves their targets.
    for (name, target) in [("up", &b"../outside"[..]), ("absolute", b"/etc/passwd")] {
        let link = host.look_up(root, name).unwrap();
        assert_eq!(link.mode & libc::S_IFMT, libc::S_IFLNK);
        let length = host.call(Operation::ReadLink, &[link.node], b"").result;
        assert_eq!(host.data().get(0, length.cast_unsigned()).unwrap(), target);
        for operation in [Operation::Read, Operation::ReadDirectory, Operation::Open] {
            let answer = host.call(operation, &[link.node, 0, 10], b"");
            assert_eq!(answer.result, -i64::from(libc::ELOOP));
        }
        let inside = host.look_up(link.node, "secret");
        assert_eq!(inside, Err(libc::ENOTDIR));
        let made = host.call(Operation::Create, &[link.node, 1, 0o644, 0, 0], b"x");
        assert_eq!(made.result, -i64::from(libc::ENOTDIR));
        let target = host.call(
            Operation::Create,
            &[root, name.len() as u64, 0o644],
            name.as_bytes(),
        );
        assert_eq!(target.result, -i64::from(libc::EEXIST));
    }
}

#[test]
fn special_files_are_not_opened() {
    let mut host = Host::new("special");
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
    mknodat(CWD, host.path("inside/fifo"), kind, mode, 0).unwrap();
    let root = host.root();
    let fifo = host.look_up(root, "fifo").unwrap().node;
    for (operation, write) in [
        (Operation::Open, 0),
        (Operation::Open, 1),
        (Operation::Read, 0),
    ] {
        let answer = host.call(operation, &[fifo, write, 1], b"");
        assert_eq!(answer.result, -i64::from(libc::ENXIO));
    }
}

/// While the host swaps a folder for a link to another one, no request reaches the target of the
/// link.
#[test]
fn swapped_folders_lead_nowhere_else() {
    let mut host = Host::new("race");
    let root = host.root();
    let (inside, outside) = (host.path("inside"), host.path("outside"));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let (real, away, link) = (inside.join("dir"), inside.join("away"), inside.join("link"));
            symlink(&outside, &link).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&real, &away).unwrap();
                fs::rename(&link, &real).unwrap();
                fs::rename(&real, &link).unwrap();
                fs::rename(&away, &real).unwrap();
            }
        })
    };
    let (mut rounds, mut found) = (0, 0);
    // On a busy host the other thread may pause for long at a time without the folder.
    let patience = Instant::now() + Duration::from_secs(60);
    while rounds < 20_000 || found == 0 && Instant::now() < patience {
        rounds += 1;
        let Ok(directory) = host.look_up(root, "dir") else {
            continue;
        };
        assert!(host.look_up(directory.node, "secret").is_err());
        found += u32::from(directory.mode & libc::S_IFMT == libc::S_IFDIR);
        host.call(Operation::Create, &[directory.node, 1, 0o644], b"x");
        host.call(Operation::Unlink, &[directory.node, 1], b"x");
        host.call(Operation::Forget, &[directory.node], b"");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(found > 0);
    let left: Vec<_> = fs::read_dir(host.path("outside")).unwrap().collect();
    assert_eq!(left.len(), 1);
}

/// The server answers any request, and nothing outside the volume changes.
#[test]
fn random_requests_stay_inside() {
    let mut host = Host::new("random");
    host.root();
    let outside = host.path("outside/secret");
    let before = fs::metadata(&outside).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    const NAMES: [&[u8]; 8] = [
        b"file",
        b"dir",
        b"up",
        b"..",
        b"a",
        b"b",
        b"../outside/secret",
        b"",
    ];
    for _ in 0..30_000 {
        let mut bytes = NAMES[index(random(8))].to_vec();
        let first = bytes.len() as u64;
        bytes.extend_from_slice(NAMES[index(random(8))]);
        let odd = [0, 1, u64::MAX, 1 << 63, VOLUME_DATA as u64, 0o100_644];
        let mut args = [0; 6].map(|_: u64| match random(3) {
            0 => random(20),
            1 => odd[index(random(6))],
            _ => first,
        });
        args[0] = random(12);
        // No roots of other volumes, and no lengths that would fill the disk.
        if matches!(args[2], 3..) && args[2] > 1 << 30 {
            args[2] = 1 << 20;
        }
        let number = u32::try_from(random(28)).unwrap();
        let large = matches!(
            Operation::from_number(number),
            Some(Operation::Truncate | Operation::Allocate)
        );
        if large {
            args = args.map(|arg| arg.min(1 << 20));
        }
        let write = Operation::from_number(number) == Some(Operation::Write);
        if write {
            args[1] = args[1].min(1 << 20);
        }
        let data = host.channel.slot(0).data();
        data.put(&bytes);
        let request = Request {
            operation: number,
            reserved: 0,
            args,
        };
        let answer = host.server.serve(&request, data);
        assert!(answer.result >= -4095, "{request:?}");
    }
    let after = fs::metadata(&outside).unwrap();
    assert_eq!(
        (
            before.ino(),
            before.mtime_nsec(),
            before.ctime_nsec(),
            before.len()
        ),
        (
            after.ino(),
            after.mtime_nsec(),
            after.ctime_nsec(),
            after.len()
        )
    );
    assert_eq!(after.permissions().mode(), before.permissions().mode());
    let folder: Vec<_> = fs::read_dir(&host.folder)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(folder.len(), 2, "{folder:?}");
    // The guest may have made the directory unreadable.
    let _ = fs::set_permissions(host.path("inside"), fs::Permissions::from_mode(0o755));
}

/// Counts interrupts.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

impl Guest for Counter {
    fn interrupt(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn fail(&self, error: DeviceError) {
        panic!("{error}");
    }
}

fn guest() -> Arc<dyn Guest> {
    Arc::new(Counter::default())
}

/// Submits a request in a slot, as a guest does.
fn submit(channel: &Channel, volumes: &Volumes, slot: usize, operation: Operation, args: &[u64]) {
    let mut request = Request {
        operation: operation as u32,
        ..Request::default()
    };
    request.args[..args.len()].copy_from_slice(args);
    channel.slot(slot).submit(request);
    if channel.take_server_waits() {
        volumes.notify();
    }
}

/// Waits for the answer in a slot.
fn await_answer(channel: &Channel, slot: usize) -> Answer {
    let start = Instant::now();
    loop {
        if let Some(answer) = channel.slot(slot).answered() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no answer");
        thread::yield_now();
    }
}

/// Ends the worker, also when a test fails.
struct Finish<'a>(&'a Volumes);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[test]
fn slow_requests_do_not_delay_others() {
    let mut host = Host::new("long");
    let root = host.root();
    let node = host.look_up(root, "file").unwrap().node;
    let channel = host.channel.clone();
    let counter = Arc::new(Counter::default());
    let guest = Arc::clone(&counter) as Arc<dyn Guest>;
    let mut pool = Pool::new(&channel, &guest);
    let volumes = Volumes::default();
    let gate = Arc::new(Barrier::new(2));
    submit(&channel, &volumes, 1, Operation::Sync, &[node]);
    assert!(pool.is_new(1));
    pool.submit(1, Work::Gate(Arc::clone(&gate)));
    // A guest that submits the slot again does not get a second thread.
    submit(&channel, &volumes, 1, Operation::Sync, &[node]);
    assert!(!pool.is_new(1) && !pool.is_any_new());
    // Other slots are served.
    submit(&channel, &volumes, 2, Operation::Sync, &[node]);
    let slot = channel.slot(2);
    let work = host.server.begin(&slot.request(), slot.data()).unwrap_err();
    pool.submit(2, work);
    assert_eq!(await_answer(&channel, 2).result, 0);
    assert!(channel.slot(1).answered().is_none());
    assert_eq!(counter.0.load(Ordering::SeqCst), 0, "not requested");
    channel.enable_interrupt();
    gate.wait();
    assert_eq!(await_answer(&channel, 1).result, 7);
    drop(pool);
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
}

#[test]
fn tasks_have_slots_of_their_own() {
    let mut host = Host::new("slots");
    let root = host.root();
    let node = host.look_up(root, "file").unwrap().node;
    let volumes = Volumes::default();
    let server = std::mem::replace(&mut host.server, Server::new(Vec::new(), Arc::default()));
    let channel = host.channel.clone();
    thread::scope(|scope| {
        let _finish = Finish(&volumes);
        scope.spawn(|| volumes.serve(&channel, server, &guest(), &|| ()));
        let stale = -i64::from(libc::ESTALE);
        let invalid = -i64::from(libc::EINVAL);
        for (operation, args, expected) in [
            (Operation::Read, [node, 2, 100], 6),
            (Operation::Read, [node, 8, 100], 0),
            (Operation::Read, [node, u64::MAX, 1], invalid),
            (Operation::Read, [node + 1000, 0, 1], stale),
            (Operation::Sync, [node, 1, 0], 0),
            (Operation::Sync, [root, 0, 0], 0),
            (Operation::Sync, [node + 1000, 0, 0], stale),
            // An honest guest does not submit this here. It is harmless.
            (Operation::Root, [0, 0, 0], 5),
        ] {
            for slot in 1..VOLUME_SLOTS {
                submit(&channel, &volumes, slot, operation, &args);
            }
            for slot in 1..VOLUME_SLOTS {
                let result = await_answer(&channel, slot).result;
                assert_eq!(result, expected, "{operation:?} {args:?}");
            }
        }
    });
    submit(&channel, &volumes, 1, Operation::Sync, &[node]);
    assert!(channel.slot(1).answered().is_none(), "the worker has ended");
}

/// Each answer belongs to the last request, also if the slot's thread has served it.
#[test]
fn no_request_is_served_twice() {
    let mut host = Host::new("once");
    let root = host.root();
    let node = host.look_up(root, "file").unwrap().node;
    let volumes = Volumes::default();
    let server = std::mem::replace(&mut host.server, Server::new(Vec::new(), Arc::default()));
    let channel = host.channel.clone();
    let counted = AtomicU32::new(0);
    let count = || _ = counted.fetch_add(1, Ordering::SeqCst);
    const ROUNDS: u32 = 5000;
    thread::scope(|scope| {
        let _finish = Finish(&volumes);
        scope.spawn(|| volumes.serve(&channel, server, &guest(), &count));
        for round in 0..ROUNDS {
            // The slot's thread finds that a directory cannot be read.
            for (node, expected) in [(root, -i64::from(libc::EISDIR)), (node, 8)] {
                submit(&channel, &volumes, 1, Operation::Read, &[node, 0, 100]);
                assert_eq!(await_answer(&channel, 1).result, expected, "round {round}");
            }
        }
    });
    assert_eq!(counted.load(Ordering::SeqCst), 2 * ROUNDS);
}

#[test]
fn the_thread_serves_sleeps_and_ends() {
    let mut host = Host::new("thread");
    let volumes = Arc::new(Volumes::default());
    let server = std::mem::replace(&mut host.server, Server::new(Vec::new(), Arc::default()));
    let channel = host.channel.clone();
    let served = Arc::new(AtomicU32::new(0));
    let thread = {
        let volumes = Arc::clone(&volumes);
        let served = Arc::clone(&served);
        let channel = channel.clone();
        let count = move || _ = served.fetch_add(1, Ordering::Relaxed);
        thread::spawn(move || volumes.serve(&channel, server, &guest(), &count))
    };
    for round in 0..50 {
        // Sometimes long enough for the worker to sleep.
        thread::sleep(Duration::from_millis(if round % 10 == 0 { 5 } else { 0 }));
        submit(&channel, &volumes, 0, Operation::Root, &[]);
        let slot = channel.slot(0);
        assert!(volumes.wait(&|| slot.is_submitted(), &|| false));
        assert_eq!(channel.slot(0).answered().unwrap().result, 5);
    }
    volumes.finish();
    thread.join().unwrap();
    assert_eq!(served.load(Ordering::Relaxed), 50);
    // After the end of the worker, `wait` does not wait.
    assert!(!volumes.wait(&|| true, &|| false));
}
