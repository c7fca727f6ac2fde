//! Volumes with limits: costs of files, and the depth of directories.

use super::cost::MAX_DEPTH;
use super::tests::{Host, index};
use super::*;
use hartline_abi::volume::{Answer, Operation};
use std::fs;
use std::sync::Arc;

/// Cost of a file, directory or link with a short name, without its contents.
const EACH: u64 = cost::NODE + 576;
/// Keeps an owner.
const ANY: u64 = u64::MAX;

/// Space of `bytes`, with more inodes than a test creates.
fn room(bytes: u64) -> Space {
    let inodes = 1 << 20;
    Space { bytes, inodes }
}

#[test]
fn a_volume_with_a_limit_holds_no_more() {
    const NO_ROOM: i64 = -libc::ENOSPC as i64;
    const ROOM: u64 = EACH + 10_000;
    let mut host = Host::limited("limit", room(ROOM));
    // The directory `dir`, two links, and `file`.
    let inodes = 4;
    let bytes = 4 * EACH + 8;
    assert_eq!(
        measure(&host.path("inside")).unwrap(),
        Space { bytes, inodes }
    );
    let root = host.root();
    let new = |host: &mut Host, operation, name: &str| {
        let any = u64::MAX;
        let args = [root, name.len() as u64, 0o700, any, any];
        host.call(operation, &args, name.as_bytes())
    };
    let create = |host: &mut Host, name| new(host, Operation::Create, name);
    let node = create(&mut host, "a").attributes.node;
    let bytes = vec![7; 10_000];
    let result = |answer: Answer| answer.result;
    let all = host.call(Operation::Write, &[node, 0, 10_000, 0], &bytes);
    assert_eq!(result(all), 10_000);
    for (operation, args) in [
        (Operation::Write, &[node, 10_000, 1, 0][..]),
        (Operation::Write, &[node, 0, 1, 1]),
        (Operation::Write, &[node, 1, 10_000, 0]),
        (Operation::Truncate, &[node, 10_001]),
        (Operation::Truncate, &[node, i64::MAX.cast_unsigned()]),
        (Operation::Allocate, &[node, 0, 0, 10_001]),
    ] {
        assert_eq!(
            result(host.call(operation, args, b"x")),
            NO_ROOM,
            "{args:?}"
        );
    }
    let unseen = libc::FALLOC_FL_KEEP_SIZE.unsigned_abs().into();
    let unseen = host.call(Operation::Allocate, &[node, unseen, 0, 1 << 30], b"");
    assert_eq!(result(unseen), -i64::from(libc::EOPNOTSUPP));
    let over = host.call(Operation::Write, &[node, 9_999, 1, 0], b"y");
    assert_eq!(result(over), 1, "no more than there was");
    for operation in [Operation::Create, Operation::MakeDirectory] {
        assert_eq!(result(new(&mut host, operation, "b")), NO_ROOM);
    }
    // A removal makes room.
    assert_eq!(
        result(host.call(Operation::Truncate, &[node, 5_000], b"")),
        0
    );
    assert_eq!(result(new(&mut host, Operation::MakeDirectory, "d")), 0);
    assert_eq!(result(create(&mut host, "b")), NO_ROOM);
    let removed = host.call(Operation::RemoveDirectory, &[root, 1], b"d");
    assert_eq!(result(removed), 0);
    assert_eq!(
        result(create(&mut host, "b")),
        NO_ROOM,
        "the guest knows it"
    );
    let known = host.look_up(root, "a").unwrap().node;
    assert_eq!(known, node);
    // A file without a name counts as long as it can be written.
    assert_eq!(result(host.call(Operation::Unlink, &[root, 1], b"a")), 0);
    assert_eq!(result(create(&mut host, "b")), NO_ROOM);
    assert_eq!(result(host.call(Operation::Forget, &[node], b"")), 0);
    let b = create(&mut host, "b").attributes.node;
    assert_eq!(result(host.call(Operation::Truncate, &[b, 5_000], b"")), 0);
    // A replaced file does not count.
    let renamed = host.call(Operation::Rename, &[root, 1, root, 4, 0], b"bfile");
    assert_eq!(result(renamed), 0);
    let bytes = 4 * EACH + 5_000;
    assert_eq!(
        measure(&host.path("inside")).unwrap(),
        Space { bytes, inodes }
    );
    let c = create(&mut host, "c").attributes.node;
    // The space of `file`, without this file and the directory that the guest knows.
    let rest = ROOM + 8 - 5_000 - EACH - cost::NODE;
    assert_eq!(
        result(host.call(Operation::Truncate, &[c, rest + 1], b"")),
        NO_ROOM
    );
    assert_eq!(result(host.call(Operation::Truncate, &[c, rest], b"")), 0);
    let told = host.call(Operation::FileSystem, &[root], b"").args;
    assert_eq!((told[2], told[3]), (0, 0), "nothing is free");
}

/// Files do not move between volumes with limits, where they would not count.
#[test]
fn nothing_moves_between_volumes_with_limits() {
    let mut host = Host::new("between");
    fs::create_dir(host.path("other")).unwrap();
    let volume = |name: &str| {
        let directory = fs::File::open(host.path(name)).unwrap().into();
        let usage = Usage {
            used: Space::default(),
            limit: room(1 << 20),
        };
        Volume::limited(directory, "/data", false, usage)
    };
    let volumes = ["inside", "other"].map(volume).into();
    host.server = Server::new(volumes, Arc::clone(&host.copies));
    let [one, other] = [0, 1].map(|n| host.call(Operation::Root, &[n], b"").attributes.node);
    let file = host.look_up(one, "file").unwrap().node;
    let refused = -i64::from(libc::EXDEV);
    let renamed = host.call(Operation::Rename, &[one, 4, other, 1, 0], b"filex");
    assert_eq!(renamed.result, refused);
    let linked = host.call(Operation::Link, &[other, 1, file], b"x");
    assert_eq!(linked.result, refused);
    let within = host.call(Operation::Rename, &[one, 4, one, 1, 0], b"filex");
    assert_eq!(within.result, 0);
}

/// A request with names as data, one after the other.
fn request(host: &mut Host, operation: Operation, args: &[u64], names: &[&str]) -> i64 {
    host.call(operation, args, names.concat().as_bytes()).result
}

fn make(host: &mut Host, operation: Operation, directory: u64, name: &str) -> Result<u64, i64> {
    let args = [directory, name.len() as u64, 0o700, ANY, ANY];
    let answer = host.call(operation, &args, name.as_bytes());
    match answer.result {
        0 => Ok(answer.attributes.node),
        error => Err(error),
    }
}

fn used(host: &Host) -> Space {
    host.server.files.limits.of(0).unwrap().used
}

/// Checks that the usage is at least the measured space. Returns the measured space.
fn check_all_counts(host: &Host, what: &str) -> Space {
    let (used, there) = (used(host), measure(&host.path("inside")).unwrap());
    let counts = used.bytes >= there.bytes && used.inodes >= there.inodes;
    assert!(counts, "{what}: {used:?} of {there:?}");
    there
}

/// Files, directories, links and files without a name count, up to the limit.
#[test]
fn a_volume_with_a_limit_has_no_more_inodes() {
    const NO_ROOM: i64 = -libc::ENOSPC as i64;
    let (bytes, inodes) = (1 << 20, 4);
    let mut host = Host::limited("inodes", Space { bytes, inodes });
    let root = host.root();
    let told = |host: &mut Host| {
        let told = host.call(Operation::FileSystem, &[root], b"").args;
        [told[4], told[5]]
    };
    assert_eq!(told(&mut host), [8, 4]);
    let a = make(&mut host, Operation::Create, root, "a").unwrap();
    let d = make(&mut host, Operation::MakeDirectory, root, "d").unwrap();
    let args = [root, 1, 1, ANY, ANY];
    let linked = request(&mut host, Operation::SymbolicLink, &args, &["l", "a"]);
    assert_eq!(linked, 0);
    let args = [root, 0, 0o600, ANY, ANY];
    let unnamed = host.call(Operation::CreateUnnamed, &args, b"");
    assert_eq!(unnamed.result, 0);
    assert_eq!(told(&mut host), [8, 0]);
    for operation in [Operation::Create, Operation::MakeDirectory] {
        assert_eq!(make(&mut host, operation, d, "x"), Err(NO_ROOM));
    }
    // A further name needs no inode.
    assert_eq!(request(&mut host, Operation::Link, &[d, 1, a], &["b"]), 0);
    assert_eq!(request(&mut host, Operation::Unlink, &[root, 1], &["a"]), 0);
    assert_eq!(make(&mut host, Operation::Create, d, "x"), Err(NO_ROOM));
    // Files and directories without a name count until they are forgotten.
    let forget = |host: &mut Host, node| request(host, Operation::Forget, &[node], &[]);
    assert_eq!(forget(&mut host, unnamed.attributes.node), 0);
    assert_eq!(told(&mut host), [8, 1]);
    assert_eq!(request(&mut host, Operation::Unlink, &[d, 1], &["b"]), 0);
    assert_eq!(told(&mut host), [8, 1]);
    assert_eq!(forget(&mut host, a), 0);
    assert_eq!(told(&mut host), [8, 2]);
    let removed = request(&mut host, Operation::RemoveDirectory, &[root, 1], &["d"]);
    assert_eq!(removed, 0);
    assert_eq!(told(&mut host), [8, 2]);
    assert_eq!(forget(&mut host, d), 0);
    assert_eq!(told(&mut host), [8, 3]);
    check_all_counts(&host, "at the end");
}

/// Further names of a file use a volume's space as files do.
#[test]
fn names_count() {
    let mut host = Host::limited("names", room(1 << 20));
    let root = host.root();
    let file = host.look_up(root, "file").unwrap().node;
    let mut names = 0;
    let refused = loop {
        let name = format!("{names:0>255}");
        match request(&mut host, Operation::Link, &[root, 255, file], &[&name]) {
            0 => names += 1,
            error => break error,
        }
        assert!(names < 10_000);
    };
    assert_eq!(refused, -i64::from(libc::ENOSPC));
    check_all_counts(&host, "names");
    // The host's directory has at most as many bytes of blocks as the limit.
    let directory = fs::metadata(host.path("inside")).unwrap();
    assert!(directory.len() < 1 << 20, "{directory:?}");
    // The removal of a name makes room for one.
    let unlink = |host: &mut Host, name: &str| {
        let args = [root, name.len() as u64];
        request(host, Operation::Unlink, &args, &[name])
    };
    let name = format!("{:0>255}", names - 1);
    let other = "n".repeat(255);
    for _ in 0..3 {
        assert_eq!(unlink(&mut host, &name), 0);
        let args = [root, 255, file];
        assert_eq!(request(&mut host, Operation::Link, &args, &[&other]), 0);
        let args = [root, 255, root, 255, 0];
        let renamed = request(&mut host, Operation::Rename, &args, &[&other, &name]);
        assert_eq!(renamed, 0);
    }
}

/// File systems keep the blocks of a directory when names are removed. The blocks count.
#[test]
fn blocks_of_directories_count() {
    let mut host = Host::limited("blocks", room(4 << 20));
    let root = host.root();
    let file = host.look_up(root, "file").unwrap().node;
    let directory = make(&mut host, Operation::MakeDirectory, root, "big").unwrap();
    let names: Vec<_> = (0..1000).map(|n| format!("{n:0>255}")).collect();
    for name in &names {
        let args = [directory, 255, file];
        assert_eq!(request(&mut host, Operation::Link, &args, &[name]), 0);
    }
    for name in &names {
        let args = [directory, 255];
        assert_eq!(request(&mut host, Operation::Unlink, &args, &[name]), 0);
    }
    let size = fs::metadata(host.path("inside/big")).unwrap().len();
    assert_eq!(used(&host), measure(&host.path("inside")).unwrap());
    assert!(used(&host).bytes >= size);
    let args = [root, 3];
    assert_eq!(
        request(&mut host, Operation::RemoveDirectory, &args, &["big"]),
        0
    );
    assert!(used(&host).bytes >= size, "the guest knows it");
    assert_eq!(request(&mut host, Operation::Forget, &[directory], &[]), 0);
    assert_eq!(used(&host), measure(&host.path("inside")).unwrap());
}

/// After any requests the usage is at least the measured space. If the guest knows no file, they are
/// equal.
#[test]
fn what_counts_is_what_is_there() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    // Depending on the round, bytes or inodes reach the limit first.
    let bytes = 300 << 10;
    let mut host = Host::limited("random-names", Space { bytes, inodes: 40 });
    let root = host.root();
    let operations = [
        Operation::Create,
        Operation::CreateUnnamed,
        Operation::MakeDirectory,
        Operation::SymbolicLink,
        Operation::Link,
        Operation::Unlink,
        Operation::RemoveDirectory,
        Operation::Rename,
        Operation::Rename,
        Operation::Truncate,
        Operation::Forget,
        Operation::Lookup,
    ];
    let mut nodes = vec![root];
    let mut done = 0;
    for step in 0..6000 {
        let operation = operations[index(random(operations.len() as u64))];
        let [directory, node] = [0; 2].map(|_| nodes[index(random(nodes.len() as u64))]);
        let [one, two] = [0; 2].map(|_| {
            let length = [1, 7, 255][index(random(3))];
            ["a", "b", "c", "d", "e", "f"][index(random(6))].repeat(length)
        });
        let (first, second) = (one.len() as u64, two.len() as u64);
        let (args, names) = match operation {
            Operation::Link => ([directory, first, node, 0, 0], vec![&one]),
            Operation::Rename => {
                let flags = [0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE];
                let flags = flags[index(random(3))];
                let args = [directory, first, node, second, flags.into()];
                (args, vec![&one, &two])
            }
            Operation::Truncate => ([node, random(20_000), 0, 0, 0], vec![]),
            Operation::SymbolicLink => ([directory, first, second, ANY, ANY], vec![&one, &two]),
            // The guest keeps knowing the root.
            Operation::Forget if node == root => continue,
            Operation::Forget => ([node, 0, 0, 0, 0], vec![]),
            _ => ([directory, first, 0o700, ANY, ANY], vec![&one]),
        };
        let text: String = names.into_iter().map(String::as_str).collect();
        let answer = host.call(operation, &args, text.as_bytes());
        done += u32::from(answer.result == 0);
        match operation {
            Operation::Forget if answer.result == 0 => nodes.retain(|&other| other != node),
            _ if answer.result == 0 && answer.attributes.node != 0 => {
                nodes.push(answer.attributes.node);
            }
            _ => {}
        }
        nodes.sort_unstable();
        nodes.dedup();
        let there = check_all_counts(&host, &format!("step {step}: {operation:?} {args:?}"));
        if random(200) == 0 {
            for node in nodes.drain(..).filter(|&node| node != root) {
                assert_eq!(request(&mut host, Operation::Forget, &[node], &[]), 0);
            }
            nodes.push(root);
            assert_eq!(used(&host), there, "step {step}: nothing is known");
        }
    }
    assert!(done > 500, "{done} requests did something");
}

/// The depth of directories has a limit for all requests.
#[test]
fn directories_are_not_too_deep() {
    const TOO_DEEP: i64 = -libc::ENAMETOOLONG as i64;
    let mut host = Host::limited("deep", room(64 << 20));
    let root = host.root();
    let chain = |host: &mut Host, from: u64, levels: usize| {
        (0..levels).fold(from, |at, _| {
            make(host, Operation::MakeDirectory, at, "d").unwrap()
        })
    };
    let moved = |host: &mut Host, from: (u64, &str), to: (u64, &str), flags: u32| {
        let lengths = [from.1, to.1].map(|name| name.len() as u64);
        let args = [from.0, lengths[0], to.0, lengths[1], flags.into()];
        request(host, Operation::Rename, &args, &[from.1, to.1])
    };
    let last = chain(&mut host, root, MAX_DEPTH);
    let deepest = make(&mut host, Operation::MakeDirectory, last, "d");
    assert_eq!(deepest, Err(TOO_DEEP));
    // Files have the depth of their directory.
    make(&mut host, Operation::Create, last, "file").unwrap();
    let other = make(&mut host, Operation::MakeDirectory, root, "other").unwrap();
    assert_eq!(
        moved(&mut host, (root, "other"), (last, "other"), 0),
        TOO_DEEP
    );
    assert_eq!(moved(&mut host, (root, "file"), (last, "g"), 0), 0);
    // A tree counts with its contents, also with those that were created after its lookup.
    let middle = (0..MAX_DEPTH - 4).fold(root, |at, _| host.look_up(at, "d").unwrap().node);
    let inner = chain(&mut host, other, 3);
    assert_eq!(moved(&mut host, (root, "other"), (middle, "other"), 0), 0);
    assert_eq!(
        make(&mut host, Operation::MakeDirectory, inner, "x"),
        Err(TOO_DEEP)
    );
    assert_eq!(moved(&mut host, (middle, "other"), (root, "other"), 0), 0);
    make(&mut host, Operation::MakeDirectory, inner, "x").unwrap();
    assert_eq!(
        moved(&mut host, (root, "other"), (middle, "other"), 0),
        TOO_DEEP
    );
    // An exchange checks both directories.
    let exchange = libc::RENAME_EXCHANGE;
    make(&mut host, Operation::MakeDirectory, middle, "flat").unwrap();
    for (from, to) in [
        ((root, "other"), (middle, "flat")),
        ((middle, "flat"), (root, "other")),
    ] {
        assert_eq!(moved(&mut host, from, to, exchange), TOO_DEEP);
    }
    let name = ["d"; 3].join("/");
    fs::remove_dir(host.path(&format!("inside/other/{name}/x"))).unwrap();
    assert_eq!(
        moved(&mut host, (root, "other"), (middle, "flat"), exchange),
        0
    );
    // A move that does not increase the depth is allowed.
    assert_eq!(moved(&mut host, (last, "file"), (last, "f"), 0), 0);
    assert_eq!(moved(&mut host, (root, "other"), (root, "renamed"), 0), 0);
}
