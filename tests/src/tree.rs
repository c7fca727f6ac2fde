//! Root directories for guests: made once, copied where a run may change them.

use crate::compile::check;
use crate::{Result, paths};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is deleted when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty directory.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = paths::work().join(format!("scratch-{}-{number}", std::process::id()));
        // A killed process with the same process id may have left it behind.
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Copies `original` with all its metadata.
    ///
    /// # Errors
    /// The directory cannot be copied.
    pub fn copy_of(original: &Path) -> Result<Self> {
        let scratch = Self::new()?;
        let mut copy = Command::new("cp");
        check(
            copy.args(["-a", "--reflink=auto"])
                .arg(original.join("."))
                .arg(&scratch.path),
        )?;
        Ok(scratch)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-over files are a nuisance, not a failure.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Fills `root` with the files that the busybox and file tests work on. Contents,
/// permissions and times are the same every time.
///
/// # Errors
/// A file cannot be made, or a compressor is missing.
pub fn populate(root: &Path) -> Result<()> {
    for folder in [
        "bin",
        "etc",
        "tmp",
        "data/tree/a/b/c",
        "data/tree/empty",
        "scratch",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(paths::busybox(), root.join("bin/busybox"))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:A User:/home:/bin/sh\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nuser:x:1000:\n")?;
    let data = root.join("data");
    fs::write(data.join("words.txt"), words(3000))?;
    fs::write(data.join("table.csv"), table(2000))?;
    fs::write(data.join("numbers.txt"), numbers(5000))?;
    fs::write(data.join("binary.bin"), bytes(300_000, 1))?;
    fs::write(data.join("other.bin"), other_binary())?;
    fs::write(data.join("old.txt"), "alpha\nbeta\ngamma\ndelta\nepsilon\n")?;
    fs::write(
        data.join("new.txt"),
        "alpha\nBETA\ngamma\ninserted\nepsilon\n",
    )?;
    fs::write(
        data.join("tabs.txt"),
        "a\tbb\tccc\n\tindented\n  \tmixed\t\tend\n",
    )?;
    fs::write(data.join("dos.txt"), "one\r\ntwo\r\nthree\r\n")?;
    fs::write(data.join("change.patch"), PATCH)?;
    fill_tree(&data.join("tree"))?;
    compress(&data)?;
    // One time stamp for all files, so that listings and archives compare equal.
    let mut touch = Command::new("find");
    touch
        .arg(root)
        .args(["-exec", "touch", "-h", "-d", "@1700000000", "{}", "+"]);
    check(&mut touch)
}

const PATCH: &str = "--- old.txt\n+++ new.txt\n@@ -1,5 +1,5 @@\n alpha\n-beta\n+BETA\n gamma\n-delta\n+inserted\n epsilon\n";

fn fill_tree(tree: &Path) -> Result<()> {
    for (number, name) in [
        "a/one.txt",
        "a/b/two.txt",
        "a/b/c/three.dat",
        "four.txt",
        "a/.hidden",
    ]
    .iter()
    .enumerate()
    {
        fs::write(tree.join(name), bytes(1000 * number + 1, number as u64))?;
    }
    fs::write(tree.join("script.sh"), "#!/bin/sh\nexit 0\n")?;
    fs::set_permissions(tree.join("script.sh"), fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(tree.join("four.txt"), fs::Permissions::from_mode(0o400))?;
    for (target, name) in [
        ("a/one.txt", "link"),
        ("nowhere", "dangling"),
        ("../..", "a/up"),
    ] {
        if !tree.join(name).is_symlink() {
            symlink(target, tree.join(name))?;
        }
    }
    if !tree.join("a/hard.txt").exists() {
        fs::hard_link(tree.join("a/one.txt"), tree.join("a/hard.txt"))?;
    }
    Ok(())
}

/// Compresses the data with this machine's tools.
fn compress(data: &Path) -> Result<()> {
    let script = "set -e
        gzip -9nkf words.txt; bzip2 -kf words.txt; xz -kf -6 words.txt; xz -kf -6 binary.bin
        xz --format=lzma -c words.txt > words.lzma
        tar --sort=name --owner=0 --group=0 --mtime=@1700000000 -cf tree.tar tree
        gzip -nkf tree.tar; xz -kf tree.tar
        (cd tree && find . -type f | sort | cpio --quiet --reproducible -o -H newc) > tree.cpio";
    check(Command::new("sh").args(["-c", script]).current_dir(data))
}

/// Returns `count` bytes of a linear congruential generator.
pub fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn other_binary() -> Vec<u8> {
    let mut other = bytes(300_000, 1);
    other[123_456] ^= 0x40;
    other.truncate(299_000);
    other
}

/// Returns lines of words, some of them repeated, with punctuation and mixed case.
fn words(lines: usize) -> String {
    const WORDS: [&str; 16] = [
        "the",
        "Quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "a",
        "lazy",
        "dog",
        "RISC-V",
        "hart",
        "42",
        "translation",
        "virtual",
        "Machine",
        "end.",
    ];
    let noise = bytes(lines * 12, 7);
    let mut text = String::new();
    for line in noise.chunks(12) {
        let length = 3 + usize::from(line[0] % 9);
        let parts: Vec<&str> = line[1..]
            .iter()
            .take(length)
            .map(|n| WORDS[usize::from(n % 16)])
            .collect();
        let _ = writeln!(text, "{}", parts.join(" "));
    }
    text
}

fn table(lines: usize) -> String {
    let noise = bytes(lines * 3, 9);
    let mut text = String::from("id,name,amount,city\n");
    for (number, line) in noise.chunks(3).enumerate() {
        let city = ["Oslo", "Lima", "Accra", "Kyoto", "Quito"][usize::from(line[2] % 5)];
        let _ = writeln!(
            text,
            "{number},user{},{}.{:02},{city}",
            line[0],
            line[1],
            line[2] % 100
        );
    }
    text
}

fn numbers(lines: usize) -> String {
    let noise = bytes(lines * 4, 11);
    noise.chunks(4).fold(String::new(), |mut text, line| {
        let value = i32::from_le_bytes([line[0], line[1], line[2], line[3]]);
        let _ = writeln!(text, "{}", value % 100_000);
        text
    })
}
