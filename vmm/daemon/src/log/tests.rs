use super::*;
use std::fs::{self, File};
use std::io::{Write, pipe};

const NAME: &str = "stdout";

/// A log in a directory, and its writer.
struct Log {
    directory: tempfile::TempDir,
    writer: Writer,
}

impl Log {
    fn new(files: u32, limit: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |index| File::create(path(directory.path(), NAME, index)).unwrap();
        let writer = Writer::new((0..files).map(file).collect(), limit);
        Self { directory, writer }
    }

    fn reader(&self) -> Reader {
        let reader = Reader::open(self.directory.path(), NAME).unwrap();
        reader.expect("nothing is written")
    }

    /// The text that a reader of the whole log reads after `skip`.
    fn text(&self, skip: impl FnOnce(&mut Reader)) -> String {
        let mut reader = self.reader();
        skip(&mut reader);
        rest(&mut reader)
    }
}

fn rest(reader: &mut Reader) -> String {
    let mut text = Vec::new();
    while let Some(entry) = reader.read().unwrap() {
        text.extend(entry.bytes);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn entries_have_times_and_positions() {
    let mut log = Log::new(2, 1000);
    assert!(Reader::open(log.directory.path(), NAME).unwrap().is_none());
    assert!(
        Reader::open(log.directory.path(), "other")
            .unwrap()
            .is_none()
    );
    log.writer.write(5, b"one\ntwo");
    let mut reader = log.reader();
    assert!(reader.has_times());
    assert_eq!(reader.position().unwrap(), Some(0));
    let entry = |time, position, bytes: &[u8]| Entry {
        time: Some(time),
        position,
        bytes: bytes.to_vec(),
    };
    assert_eq!(reader.read().unwrap(), Some(entry(5, 0, b"one\ntwo")));
    assert_eq!(reader.read().unwrap(), None);
    log.writer.write(7, b"\n");
    assert_eq!(reader.read().unwrap(), Some(entry(7, 7, b"\n")));
    assert_eq!(log.text(|log| log.skip_to(4).unwrap()), "two\n");
    assert_eq!(log.text(|log| log.skip_to(99).unwrap()), "");
    assert_eq!(log.text(|log| log.skip_to_time(6).unwrap()), "\n");
    assert_eq!(log.text(|log| log.skip_to_time(5).unwrap()), "one\ntwo\n");
    assert_eq!(log.text(|log| log.skip_to_end().unwrap()), "");
    reader.rewind();
    assert_eq!(rest(&mut reader), "one\ntwo\n");
    reader.rewind();
    reader.stop_at_end().unwrap();
    log.writer.write(8, b"later");
    assert_eq!(rest(&mut reader), "one\ntwo\n");
}

/// The oldest files are emptied, and a reader that follows misses nothing that it reads in time.
#[test]
fn files_rotate() {
    for files in 1..5 {
        // Three records of eight bytes.
        let limit = HEADER + 3 * (RECORD + 8);
        let mut log = Log::new(files, limit);
        let mut follower = None;
        let mut followed = String::new();
        let mut all = String::new();
        for number in 0..50_u64 {
            let line = format!("{number:07}\n");
            log.writer.write(number, line.as_bytes());
            all.push_str(&line);
            let follower = follower.get_or_insert_with(|| log.reader());
            followed.push_str(&rest(follower));
            let kept = log.text(|_| ());
            assert!(all.ends_with(&kept), "{kept:?}");
            let least = all.len().min(usize::try_from(files - 1).unwrap() * 24 + 8);
            assert!(kept.len() >= least, "{files} {number}: {kept:?}");
            let lost = (all.len() - kept.len()) as u64;
            assert_eq!(log.reader().position().unwrap(), Some(lost));
            for lines in 0..20 {
                let last = log.text(|log| log.skip_to_last(lines).unwrap());
                let length = usize::try_from(lines).unwrap() * 8;
                let expected = &kept[kept.len().saturating_sub(length)..];
                assert_eq!(last, expected, "{files} {number} {lines}");
            }
            let since = log.text(|log| log.skip_to_time(number.saturating_sub(1)).unwrap());
            assert!(kept.ends_with(&since) && since.len() <= 16, "{since:?}");
        }
        assert_eq!(followed, all, "{files}");
        for index in 0..files {
            let length = fs::metadata(path(log.directory.path(), NAME, index))
                .unwrap()
                .len();
            assert!(length <= limit, "{length}");
        }
    }
}

/// A reader that is slower than the writer goes on with the oldest output that is left.
#[test]
fn slow_readers_see_gaps() {
    let mut log = Log::new(3, HEADER + 2 * (RECORD + 8));
    log.writer.write(0, b"0000000\n");
    let mut reader = log.reader();
    reader.read().unwrap().unwrap();
    for number in 1..100 {
        log.writer
            .write(number, format!("{number:07}\n").as_bytes());
    }
    let mut position = 8;
    let mut gaps = 0;
    while let Some(entry) = reader.read().unwrap() {
        gaps += u64::from(entry.position != position);
        assert_eq!(
            entry.bytes,
            format!("{:07}\n", entry.position / 8).as_bytes()
        );
        position = entry.end();
    }
    assert_eq!((position, gaps), (800, 1));
}

#[test]
fn last_lines_are_found_in_pieces_of_any_length() {
    let text = "one\ntwo\n\nfour";
    for piece in 1..=text.len() {
        for end in ["", "\n"] {
            let mut log = Log::new(4, HEADER + 40);
            for bytes in format!("{text}{end}").as_bytes().chunks(piece) {
                log.writer.write(1, bytes);
            }
            let kept = log.text(|_| ());
            for lines in 1..6 {
                let lines_of: Vec<_> = kept.split_inclusive('\n').collect();
                let skipped = lines_of.len().saturating_sub(lines);
                let last = log.text(|log| log.skip_to_last(lines as u64).unwrap());
                assert_eq!(
                    last,
                    lines_of[skipped..].concat(),
                    "{piece} {end:?} {lines}"
                );
            }
            let most = log.text(|log| log.skip_to_last(u64::MAX).unwrap());
            assert_eq!(most, kept);
        }
    }
}

#[test]
fn files_of_earlier_versions_are_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(NAME), b"one\ntwo\nthree").unwrap();
    let open = || Reader::open(directory.path(), NAME).unwrap().unwrap();
    let mut reader = open();
    assert!(!reader.has_times());
    assert_eq!(rest(&mut reader), "one\ntwo\nthree");
    for (lines, text) in [
        (0, ""),
        (1, "three"),
        (2, "two\nthree"),
        (9, "one\ntwo\nthree"),
    ] {
        let mut reader = open();
        reader.skip_to_last(lines).unwrap();
        assert_eq!(rest(&mut reader), text, "{lines}");
    }
    let mut reader = open();
    reader.skip_to(5).unwrap();
    assert_eq!(reader.position().unwrap(), Some(5));
    assert_eq!(rest(&mut reader), "wo\nthree");
}

/// Whatever a compromised VMM writes, reading ends.
#[test]
fn files_of_others_do_no_harm() {
    let header = |number: u64| [&MAGIC[..], &number.to_le_bytes()].concat();
    let record = |length: u32, bytes: &[u8]| {
        let head = Head {
            time: u64::MAX,
            position: u64::MAX,
            length,
        };
        [&head.to_bytes()[..], bytes].concat()
    };
    let contents = [
        header(u64::MAX),
        header(0),
        MAGIC.to_vec(),
        [header(u64::MAX), record(2, b"ab")].concat(),
        [header(1), record(u32::MAX, b"ab")].concat(),
        [header(1), record(3, b"ab")].concat(),
        [header(1), record(0, b""), record(0, b"")].concat(),
        [header(1), record(2, b"ab"), vec![0xff; 100]].concat(),
    ];
    for first in &contents {
        for second in &contents {
            let directory = tempfile::tempdir().unwrap();
            for (index, bytes) in [(0, first), (1, second)] {
                fs::write(path(directory.path(), NAME, index), bytes).unwrap();
            }
            let Some(mut reader) = Reader::open(directory.path(), NAME).unwrap() else {
                continue;
            };
            assert!(rest(&mut reader).len() <= 4);
            reader.skip_to_last(3).unwrap();
            reader.skip_to_time(1).unwrap();
            reader.skip_to(u64::MAX).unwrap();
            assert!(
                reader
                    .read()
                    .unwrap()
                    .is_none_or(|entry| entry.bytes.len() <= 2)
            );
        }
    }
}

/// A disk without room loses output, and nothing else.
#[test]
fn bytes_without_room_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let file = File::create(path(directory.path(), NAME, 0)).unwrap();
    let limit = HEADER + RECORD + 4;
    let mut writer = Writer::new(vec![file, full], limit);
    for (time, bytes) in [(1, b"aaaa"), (2, b"bbbb"), (3, b"cccc")] {
        writer.write(time, bytes);
    }
    let mut reader = Reader::open(directory.path(), NAME).unwrap().unwrap();
    assert_eq!(rest(&mut reader), "aaaa");
}

#[test]
fn a_thread_records_what_comes_through_pipes() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["stdout", "stderr"];
    let (pipes, outputs): (Vec<_>, Vec<_>) = names
        .map(|name| {
            let (reader, pipe) = pipe().unwrap();
            let file = File::create(path(directory.path(), name, 0)).unwrap();
            (pipe, (reader, Writer::new(vec![file], 1 << 20)))
        })
        .into_iter()
        .unzip();
    let before = now();
    let recorder = Recorder::start(outputs.try_into().unwrap(), || ()).unwrap();
    let long = vec![b'x'; 300_000];
    for (mut pipe, text) in pipes.iter().zip([&long[..], b"error\n"]) {
        pipe.write_all(text).unwrap();
    }
    // The pipes are still open.
    recorder.finish();
    for (name, text) in names.iter().zip([&long[..], b"error\n"]) {
        let mut reader = Reader::open(directory.path(), name).unwrap().unwrap();
        let entry = reader.read().unwrap().unwrap();
        assert!(
            entry
                .time
                .is_some_and(|time| (before..=now()).contains(&time))
        );
        let all = String::from_utf8(entry.bytes).unwrap() + &rest(&mut reader);
        assert!(all.as_bytes() == text, "{name}: {} bytes", all.len());
    }
}

/// Another writer goes on where one has stopped, in any file, also after a record that is not complete.
#[test]
fn logs_are_continued() {
    let limit = HEADER + 3 * (RECORD + 8);
    for lines in 0..12_u64 {
        let mut log = Log::new(3, limit);
        let mut all = String::new();
        for number in 0..20_u64 {
            if number == lines {
                let open = |index| {
                    let mut options = File::options();
                    let path = path(log.directory.path(), NAME, index);
                    options.read(true).write(true).open(path).unwrap()
                };
                let mut files: Vec<File> = (0..3).map(open).collect();
                if lines % 2 == 1 {
                    let current = usize::try_from((lines - 1) / 3 % 3).unwrap();
                    let end = files[current].metadata().unwrap().len();
                    std::os::unix::fs::FileExt::write_all_at(&files[current], b"torn", end)
                        .unwrap();
                }
                log.writer = Writer::continued(std::mem::take(&mut files), limit).unwrap();
            }
            let line = format!("{number:07}\n");
            log.writer.write(number, line.as_bytes());
            all.push_str(&line);
            let kept = log.text(|_| ());
            assert!(all.ends_with(&kept), "{lines} {number}: {kept:?}");
            assert!(kept.len() >= all.len().min(2 * 24 + 8), "{lines} {number}");
            let lost = (all.len() - kept.len()) as u64;
            assert_eq!(log.reader().position().unwrap(), Some(lost));
        }
    }
}

#[test]
fn times_are_read_and_written() {
    assert_eq!(stamp(0), "1970-01-01T00:00:00.000000000Z");
    assert_eq!(
        stamp(1_709_164_799_000_000_007),
        "2024-02-28T23:59:59.000000007Z"
    );
    assert_eq!(stamp(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    let second = 1_000_000_000;
    for (text, since) in [
        ("0", Since::Time(0)),
        ("1709164799", Since::Time(1_709_164_799 * second)),
        ("1.5", Since::Time(1_500_000_000)),
        ("1.000000001", Since::Time(1_000_000_001)),
        ("1970-01-01T00:00:01Z", Since::Time(second)),
        ("1970-01-01T01:00:01.25+01:00", Since::Time(1_250_000_000)),
        ("1960-01-01T00:00:00Z", Since::Time(0)),
        ("10m", Since::Ago(600 * second)),
        ("1h30m", Since::Ago(5400 * second)),
        ("1.5s", Since::Ago(1_500_000_000)),
        ("5ms20us3ns", Since::Ago(5_020_003)),
        ("0s", Since::Ago(0)),
        ("99999999999", Since::Time(u64::MAX)),
        ("9999999h9999999h", Since::Ago(u64::MAX)),
    ] {
        assert_eq!(Since::parse(text), Ok(since), "{text}");
    }
    for text in [
        "",
        "-5m",
        "m",
        "5x",
        "5m5",
        "1.m",
        ".5s",
        "1.0000000001",
        "yesterday",
        "2024-02-28",
        "99999999999999999999",
        "5m ",
        "1e3",
    ] {
        assert_eq!(Since::parse(text), Err(InvalidTime), "{text}");
    }
    assert_eq!(Since::Ago(10).at(100), 90);
    assert_eq!(Since::Ago(10).at(5), 0);
    assert_eq!(Since::Time(7).at(5), 7);
}
