//! Good and bad requests against a file.

use super::request::{IO_ERROR, OK, Request, Served, UNSUPPORTED};
use super::*;
use crate::virtio::tests::{contents, filled};
use crate::virtio::{Buffers, DeviceError};
use hartline_abi::virtio::{BlockHeader, BlockRange, SECTOR};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};

/// A file, deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, sectors: u64) -> Self {
        let name = format!("hartline-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::create(&path).unwrap();
        file.set_len(sectors * SECTOR).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves a request with a header, device-readable and device-writable buffers, and a status.
/// Returns the status and the number of written bytes.
fn ask(
    image: &Image,
    (kind, sector): (u32, u64),
    data: &[&[u8]],
    into: &mut [&mut [u8]],
) -> Result<(u8, u32), DeviceError> {
    let header = BlockHeader { kind, sector }.to_bytes();
    // The header is cut into two buffers.
    let (first, second) = header.split_at(5);
    let mut parts = vec![first, second];
    parts.extend(data);
    let readable = parts.len();
    parts.extend(into.iter().map(|bytes| &**bytes));
    parts.push(&[0xff]);
    let mut buffers = filled(&parts);
    let mut request = Request::new(buffers.clone(), readable)?;
    let counters = Counters::default();
    let written = match request.try_serve(image, &counters) {
        Served::Done(written) => written,
        Served::InProgress | Served::WouldBlock => request.serve(image, &counters),
    };
    let mut written_to = contents(&buffers.split_off(readable));
    let status = written_to.pop().unwrap();
    let mut rest = &written_to[..];
    for bytes in into {
        let (now, later) = rest.split_at(bytes.len());
        bytes.copy_from_slice(now);
        rest = later;
    }
    Ok((status, written))
}

const SECTOR_BYTES: usize = 512;
const _: () = assert!(SECTOR_BYTES as u64 == SECTOR);

#[test]
fn sectors_are_written_and_read() {
    let file = Scratch::new("write", 16);
    let image = Image::open(&file.0, false).unwrap();
    let data: Vec<u8> = (0..=250).cycle().take(3 * SECTOR_BYTES).collect();
    let (a, b) = data.split_at(700);
    let out = (VIRTIO_BLK_T_OUT, 13);
    let result = ask(&image, out, &[a, b], &mut []);
    assert_eq!(result, Ok((OK, 1)));
    let mut back = vec![0; data.len()];
    let (a, b) = back.split_at_mut(1);
    let result = ask(&image, (VIRTIO_BLK_T_IN, 13), &[], &mut [a, b]);
    assert_eq!(result, Ok((OK, u32::try_from(data.len()).unwrap() + 1)));
    assert_eq!(back, data);
    let flushed = ask(&image, (VIRTIO_BLK_T_FLUSH, 0), &[], &mut []);
    assert_eq!(flushed, Ok((OK, 1)));
    let mut name = [0; 20];
    ask(&image, (VIRTIO_BLK_T_GET_ID, 0), &[], &mut [&mut name]).unwrap();
    assert!(name.starts_with(b"hartline\0"));
}

/// A read that must wait for storage is started by the first attempt and completed by a later one, if
/// the host's file system supports that.
#[test]
fn a_read_in_progress_is_completed_later() {
    const SECTORS: u64 = 2048;
    let file = Scratch::new("begun", SECTORS);
    let host = File::options().write(true).open(&file.0).unwrap();
    let data = vec![7; usize::try_from(SECTORS * SECTOR).unwrap()];
    host.write_all_at(&data, 0).unwrap();
    host.sync_all().unwrap();
    rustix::fs::fadvise(&host, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let image = Image::open(&file.0, true).unwrap();
    let header = BlockHeader {
        kind: VIRTIO_BLK_T_IN,
        sector: SECTORS / 2,
    }
    .to_bytes();
    let mut buffers = filled(&[&header, &[0; 8 * SECTOR_BYTES], &[0xff]]);
    let mut request = Request::new(buffers.clone(), 1).unwrap();
    let counters = Counters::default();
    let start = Instant::now();
    loop {
        match request.try_serve(&image, &counters) {
            Served::Done(written) => {
                assert_eq!(written as usize, 8 * SECTOR_BYTES + 1);
                break;
            }
            Served::InProgress => assert!(start.elapsed() < Duration::from_secs(10)),
            // This file system cannot read without waiting.
            Served::WouldBlock => return,
        }
    }
    let mut expected = vec![7; 8 * SECTOR_BYTES];
    expected.push(OK);
    assert_eq!(contents(&buffers.split_off(1)), expected);
    assert_eq!(counters.read().reads, 1);
}

#[test]
fn requests_outside_or_in_parts_of_sectors_fail() {
    let file = Scratch::new("outside", 8);
    let image = Image::open(&file.0, false).unwrap();
    let sector = [7; SECTOR_BYTES];
    for (at, data) in [
        (8, &sector[..]),
        (u64::MAX, &sector),
        (u64::MAX / SECTOR, &sector),
        (0, &sector[1..]),
    ] {
        let result = ask(&image, (VIRTIO_BLK_T_OUT, at), &[data], &mut []);
        assert_eq!(result, Ok((IO_ERROR, 1)), "{at}");
    }
    let result = ask(&image, (77, 0), &[], &mut []);
    assert_eq!(result, Ok((UNSUPPORTED, 1)));
    // No header and no status.
    let result = Request::new(Buffers::default(), 0);
    assert_eq!(result.err(), Some(DeviceError::Buffer));
    assert_eq!(fs::metadata(&file.0).unwrap().len(), 8 * SECTOR);
}

#[test]
fn a_file_that_shrinks_gives_errors() {
    let file = Scratch::new("shrinks", 8);
    let image = Image::open(&file.0, false).unwrap();
    let other = File::options().write(true).open(&file.0).unwrap();
    other.set_len(3 * SECTOR).unwrap();
    let mut back = [0; 2 * SECTOR_BYTES];
    let whole = ask(&image, (VIRTIO_BLK_T_IN, 1), &[], &mut [&mut back]);
    assert_eq!(whole.map(|(status, _)| status), Ok(OK));
    let part = ask(&image, (VIRTIO_BLK_T_IN, 2), &[], &mut [&mut back]);
    assert_eq!(part, Ok((IO_ERROR, 1)));
}

#[test]
fn ranges_are_discarded_or_zeroed() {
    let file = Scratch::new("ranges", 64);
    let image = Image::open(&file.0, false).unwrap();
    let host = File::options()
        .read(true)
        .write(true)
        .open(&file.0)
        .unwrap();
    let range = |sector, sectors, flags| {
        BlockRange {
            sector,
            sectors,
            flags,
        }
        .to_bytes()
    };
    for (kind, flags) in [
        (VIRTIO_BLK_T_DISCARD, 0),
        (VIRTIO_BLK_T_WRITE_ZEROES, 0),
        (VIRTIO_BLK_T_WRITE_ZEROES, 1),
    ] {
        host.write_all_at(&[7; 64 * SECTOR_BYTES], 0).unwrap();
        let ranges = [range(0, 8, flags), range(24, 16, flags)];
        let result = ask(&image, (kind, 0), &[&ranges[0], &ranges[1]], &mut []);
        assert_eq!(result, Ok((OK, 1)));
        let mut bytes = [0; 64 * SECTOR_BYTES];
        host.read_exact_at(&mut bytes, 0).unwrap();
        let sums = [0, 8, 24, 40].map(|at: usize| bytes[at * SECTOR_BYTES]);
        assert_eq!(sums, [0, 7, 0, 7]);
    }
    for bad in [range(60, 5, 0), range(u64::MAX, 1, 0), range(0, 1, 2)] {
        let request = (VIRTIO_BLK_T_WRITE_ZEROES, 0);
        let (status, _) = ask(&image, request, &[&bad], &mut []).unwrap();
        assert_ne!(status, OK);
    }
    let (status, _) = ask(&image, (VIRTIO_BLK_T_DISCARD, 0), &[&[0; 15]], &mut []).unwrap();
    assert_eq!(status, IO_ERROR);
}

#[test]
fn images_have_one_writer() {
    let file = Scratch::new("lock", 1);
    let writer = Image::open(&file.0, false).unwrap();
    for read_only in [false, true] {
        let other = Image::open(&file.0, read_only);
        assert!(matches!(other, Err(ImageError::Busy { .. })));
    }
    drop(writer);
    let reader = Image::open(&file.0, true).unwrap();
    let _another = Image::open(&file.0, true).unwrap();
    assert!(Image::open(&file.0, false).is_err());
    let sector = [7; SECTOR_BYTES];
    let result = ask(&reader, (VIRTIO_BLK_T_OUT, 0), &[&sector], &mut []);
    assert_eq!(result, Ok((IO_ERROR, 1)));
    let empty = Scratch::new("empty", 0);
    assert!(matches!(
        Image::open(&empty.0, true),
        Err(ImageError::Kind { .. })
    ));
    assert!(Image::open(&std::env::temp_dir(), true).is_err());
}
