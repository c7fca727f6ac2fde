//! Guests that make checkpoints unasked, again and again: a VM writes as many snapshots as were requested, and no
//! argument of a guest harms its VMM or the VMM that continues the snapshot.

#[path = "checkpoints/code.rs"]
mod code;
mod guest;

use code::MADE;
use guest::{Guest, kvm_available, run_guest};
use hartline_abi::report::ExitKind;
use hartline_vmm::snapshot::stream::{self, Record};
use hartline_vmm::snapshot::{Checkpoint, Request, Requests, Snapshot, Then, Trigger};
use hartline_vmm::{End, Stop};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// The number of snapshots that were reported.
type Reports = Arc<AtomicU32>;

/// A request for a snapshot at a signal, which nobody sends.
/// Its reports must say whether the snapshot is written.
fn request(folder: &Path, then: Then, is_written: bool) -> (Request, Reports) {
    let reports = Reports::default();
    let counted = Arc::clone(&reports);
    let request = Request {
        directory: folder.join("snapshot"),
        trigger: Trigger::Signal,
        within: None,
        then,
        report: Arc::new(move |written| {
            assert_eq!(written.is_ok(), is_written, "{written:?}");
            counted.fetch_add(1, Ordering::Relaxed);
        }),
    };
    (request, reports)
}

/// How many checkpoints of a guest succeeded.
#[track_caller]
fn succeeded(guest: &Guest) -> u32 {
    match run_guest(guest).end {
        End::Report(report) if report.kind == ExitKind::Exited as u32 => report.code,
        end => panic!("{end:?}"),
    }
}

/// Lets a guest make the checkpoints of a VM that writes a snapshot, one of which comes to `written` snapshots.
fn write(name: &str, written: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (request, reports) = request(folder.path(), Then::Continue, written == 1);
    let guest = Guest {
        snapshot: Some(request),
        ..code::guest(name)
    };
    assert_eq!(succeeded(&guest), written, "{name}");
    assert_eq!(reports.load(Ordering::Relaxed), 1, "{name}");
    let entries = fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, vec!["snapshot"; written as usize]);
    folder
}

#[test]
fn without_a_snapshot_to_write_there_is_none() {
    if kvm_available("checkpoints") {
        assert_eq!(succeeded(&code::guest("false time")), 0);
    }
}

/// The snapshot can be continued, by a guest that does the same there.
#[test]
fn one_snapshot_is_written() {
    if !kvm_available("checkpoints") {
        return;
    }
    let folder = write("right time", 1);
    let path = folder.path().join("snapshot");
    let guest = Guest {
        from: Some(Snapshot::open(&path, None).unwrap()),
        ..code::guest("right time")
    };
    assert_eq!(succeeded(&guest), 0);
}

/// With a time that no clock shows there is no snapshot, because no VM could continue it.
#[test]
fn a_false_time_makes_no_snapshot() {
    if kvm_available("checkpoints") {
        write("false time", 0);
    }
}

#[test]
fn the_vm_ends_with_its_first_checkpoint() {
    if !kvm_available("checkpoints") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (request, reports) = request(folder.path(), Then::End, true);
    let guest = Guest {
        snapshot: Some(request),
        ..code::guest("right time")
    };
    let end = run_guest(&guest).end;
    let is_written = matches!(end, End::Stopped(Stop::Snapshot { is_written: true }));
    assert!(is_written, "{end:?}");
    assert_eq!(reports.load(Ordering::Relaxed), 1);
}

/// A request, which is there from the start, and the number of checkpoints.
#[derive(Debug)]
struct Requested {
    due: Mutex<Option<(File, Then)>>,
    made: AtomicU32,
    ends: AtomicU32,
}

impl Requests for Requested {
    fn connect(&self, _checkpoint: Checkpoint) {}

    fn take(&self) -> Option<(File, Then)> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.due.lock().unwrap().take()
    }

    fn note_end(&self) -> io::Result<()> {
        self.ends.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_to_end(&self, _receiver: &mut File) -> bool {
        false
    }

    fn forget_end(&self) -> io::Result<()> {
        self.ends.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// One snapshot is sent for a request, and none without one. A guest whose VM was to end goes on if the receiver
/// does not want that.
#[test]
fn one_snapshot_is_sent_for_a_request() {
    if !kvm_available("checkpoints") {
        return;
    }
    for due in [None, Some(Then::Continue), Some(Then::End)] {
        let mut file = tempfile::tempfile().unwrap();
        let to = due.map(|then| (file.try_clone().unwrap(), then));
        let requested = Arc::new(Requested {
            due: Mutex::new(to),
            made: AtomicU32::new(0),
            ends: AtomicU32::new(0),
        });
        let guest = Guest {
            snapshots: Some(Arc::clone(&requested) as Arc<dyn Requests>),
            ..code::guest("right time")
        };
        assert_eq!(succeeded(&guest), u32::from(due.is_some()), "{due:?}");
        assert_eq!(requested.made.load(Ordering::Relaxed), MADE);
        assert_eq!(requested.ends.load(Ordering::Relaxed), 0, "{due:?}");
        file.rewind().unwrap();
        if due.is_some() {
            while !matches!(stream::read(&mut file).unwrap(), Record::Config { .. }) {}
        }
        // Nothing follows.
        assert_eq!(file.read(&mut [0]).unwrap(), 0, "{due:?}");
    }
}
