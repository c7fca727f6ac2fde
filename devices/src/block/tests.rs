//! Requests, good and bad, against a file.

use super::request::Served;
use super::*;
use crate::virtio::Chain;
use hartline_abi::virtio::{BlockHeader, BlockRange, block_request, block_status};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

/// A file of so many sectors, deleted when dropped.
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

/// Makes a request with a header, and buffers of the guest: those that are read, and those that
/// are written, the last byte being the status. Result: that, and how much was written.
fn ask(
    image: &Image,
    (kind, sector): (u32, u64),
    data: &[&[u8]],
    into: &mut [&mut [u8]],
) -> Result<(u8, u32), DeviceError> {
    let mut header = BlockHeader { kind, sector }.to_bytes();
    let mut status = [0xff];
    let io = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // The header is cut, as a guest may do it.
    let (first, second) = header.split_at_mut(5);
    let mut buffers = vec![io(first), io(second)];
    let mut data: Vec<Vec<u8>> = data.iter().map(|bytes| bytes.to_vec()).collect();
    buffers.extend(data.iter_mut().map(|bytes| io(bytes)));
    let readable = buffers.len();
    buffers.extend(into.iter_mut().map(|bytes| io(bytes)));
    buffers.push(io(&mut status));
    let chain = Chain {
        head: 0,
        length: 0,
        readable,
        buffers,
    };
    // SAFETY: the buffers outlive the request.
    let mut request = unsafe { Request::of(&chain) }?;
    let counters = Counters::default();
    let written = match request.serve_now(image, &counters) {
        Served::Done(written) => written,
        Served::Soon | Served::NotNow => request.serve(image, &counters),
    };
    Ok((status[0], written))
}

const SECTOR_BYTES: usize = SECTOR as usize;

#[test]
fn sectors_are_written_and_read() {
    let file = Scratch::new("write", 16);
    let image = Image::open(&file.0, false).unwrap();
    let data: Vec<u8> = (0..3 * SECTOR_BYTES).map(|n| (n % 251) as u8).collect();
    let (a, b) = data.split_at(700);
    let out = (block_request::OUT, 13);
    let result = ask(&image, out, &[a, b], &mut []);
    assert_eq!(result, Ok((block_status::OK, 1)));
    let mut back = vec![0; data.len()];
    let (a, b) = back.split_at_mut(1);
    let result = ask(&image, (block_request::IN, 13), &[], &mut [a, b]);
    assert_eq!(result, Ok((block_status::OK, data.len() as u32 + 1)));
    assert_eq!(back, data);
    let flushed = ask(&image, (block_request::FLUSH, 0), &[], &mut []);
    assert_eq!(flushed, Ok((block_status::OK, 1)));
    let mut name = [0; 20];
    ask(&image, (block_request::GET_ID, 0), &[], &mut [&mut name]).unwrap();
    assert!(name.starts_with(b"hartline\0"));
}

/// A read for which storage has to be waited is begun by the first attempt, and done by a later
/// one, if the host's file system can do that.
#[test]
fn a_read_that_was_begun_is_done_later() {
    const SECTORS: u64 = 2048;
    let file = Scratch::new("begun", SECTORS);
    let host = File::options().write(true).open(&file.0).unwrap();
    let data = vec![7; (SECTORS * SECTOR) as usize];
    host.write_all_at(&data, 0).unwrap();
    host.sync_all().unwrap();
    // SAFETY: no memory is involved.
    let forgotten =
        unsafe { libc::posix_fadvise(host.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(forgotten, 0);
    let image = Image::open(&file.0, true).unwrap();
    let mut header = BlockHeader {
        kind: block_request::IN,
        sector: SECTORS / 2,
    }
    .to_bytes();
    let (mut into, mut status) = ([0; 8 * SECTOR_BYTES], [0xff]);
    let io = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let chain = Chain {
        head: 0,
        length: 0,
        readable: 1,
        buffers: vec![io(&mut header), io(&mut into), io(&mut status)],
    };
    // SAFETY: the buffers outlive the request.
    let mut request = unsafe { Request::of(&chain) }.unwrap();
    let counters = Counters::default();
    let start = Instant::now();
    loop {
        match request.serve_now(&image, &counters) {
            Served::Done(written) => {
                assert_eq!(written as usize, into.len() + 1);
                break;
            }
            Served::Soon => assert!(start.elapsed() < Duration::from_secs(10)),
            // This file system cannot.
            Served::NotNow => return,
        }
    }
    assert_eq!((status[0], into), (block_status::OK, [7; 8 * SECTOR_BYTES]));
    assert_eq!(counters.read().reads, 1);
}

#[test]
fn what_is_outside_or_odd_fails() {
    let file = Scratch::new("outside", 8);
    let image = Image::open(&file.0, false).unwrap();
    let sector = [7; SECTOR_BYTES];
    for (at, data) in [
        (8, &sector[..]),
        (u64::MAX, &sector),
        (u64::MAX / SECTOR, &sector),
        (0, &sector[1..]),
    ] {
        let result = ask(&image, (block_request::OUT, at), &[data], &mut []);
        assert_eq!(result, Ok((block_status::IO_ERROR, 1)), "{at}");
    }
    let result = ask(&image, (77, 0), &[], &mut []);
    assert_eq!(result, Ok((block_status::UNSUPPORTED, 1)));
    // Neither header nor status.
    let chain = Chain {
        head: 0,
        buffers: Vec::new(),
        readable: 0,
        length: 0,
    };
    // SAFETY: there are no buffers.
    let result = unsafe { Request::of(&chain) };
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
    let whole = ask(&image, (block_request::IN, 1), &[], &mut [&mut back]);
    assert_eq!(whole.map(|(status, _)| status), Ok(block_status::OK));
    let part = ask(&image, (block_request::IN, 2), &[], &mut [&mut back]);
    assert_eq!(part, Ok((block_status::IO_ERROR, 1)));
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
        (block_request::DISCARD, 0),
        (block_request::WRITE_ZEROES, 0),
        (block_request::WRITE_ZEROES, 1),
    ] {
        host.write_all_at(&[7; 64 * SECTOR_BYTES], 0).unwrap();
        let ranges = [range(0, 8, flags), range(24, 16, flags)];
        let result = ask(&image, (kind, 0), &[&ranges[0], &ranges[1]], &mut []);
        assert_eq!(result, Ok((block_status::OK, 1)));
        let mut bytes = [0; 64 * SECTOR_BYTES];
        host.read_exact_at(&mut bytes, 0).unwrap();
        let sums = [0, 8, 24, 40].map(|at: usize| bytes[at * SECTOR_BYTES]);
        assert_eq!(sums, [0, 7, 0, 7]);
    }
    for bad in [range(60, 5, 0), range(u64::MAX, 1, 0), range(0, 1, 2)] {
        let request = (block_request::WRITE_ZEROES, 0);
        let (status, _) = ask(&image, request, &[&bad], &mut []).unwrap();
        assert_ne!(status, block_status::OK);
    }
    let (status, _) = ask(&image, (block_request::DISCARD, 0), &[&[0; 15]], &mut []).unwrap();
    assert_eq!(status, block_status::IO_ERROR);
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
    let result = ask(&reader, (block_request::OUT, 0), &[&sector], &mut []);
    assert_eq!(result, Ok((block_status::IO_ERROR, 1)));
    let empty = Scratch::new("empty", 0);
    assert!(matches!(
        Image::open(&empty.0, true),
        Err(ImageError::Kind { .. })
    ));
    assert!(Image::open(&std::env::temp_dir(), true).is_err());
}
