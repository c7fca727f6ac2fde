//! A shell whose snapshot the clones continue.

use crate::snapshot::{self, options};
use hartline_abi::layout::PAGE_SIZE;
use hartline_embed::{RunEnd, Streams, Template, WarmClone};
use hartline_vmm::platform::memory_file;
use hartline_vmm::snapshot::Trigger;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// No run takes so long on a busy machine.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The files of all tests: the cache, and a snapshot of a shell that is about to read its first line.
pub fn files() -> &'static TempDir {
    static FILES: OnceLock<TempDir> = OnceLock::new();
    FILES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        write_snapshot(directory.path());
        directory
    })
}

fn write_snapshot(directory: &Path) {
    let busybox =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.debian/riscv64/usr/bin/busybox");
    let snapshot = directory.join("shell");
    snapshot::write(&busybox, &[b"sh"], Trigger::Stdin, directory, &snapshot);
}

pub fn template() -> Arc<Template> {
    let directory = files().path();
    let template = Template::load(&directory.join("shell"), options(directory));
    Arc::new(template.unwrap())
}

/// A file with contents, at its start.
pub fn file(contents: &str) -> File {
    let mut file = memory_file(c"input", contents.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

/// Runs a script. Result: its end, and its outputs.
pub fn run(clone: &WarmClone, script: &str) -> (RunEnd, [String; 2]) {
    let outputs = [(); 2].map(|()| file(""));
    let streams = Streams {
        input: Some(file(script).into()),
        outputs: outputs
            .each_ref()
            .map(|file| file.try_clone().unwrap().into()),
        output_limit: u64::MAX,
    };
    let end = clone.run(streams, PATIENCE).unwrap();
    let texts = outputs.map(|mut file| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    });
    (end, texts)
}

/// Open descriptors, threads, and bytes in memory of this process.
pub fn measure() -> [u64; 3] {
    let count = |directory| fs::read_dir(directory).unwrap().count() as u64;
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        pages * PAGE_SIZE,
    ]
}
