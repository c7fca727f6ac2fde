//! Unpacks an untrusted tar file in the guest's file system, as a copy from the host does (`hartline cp`).
//! It may be refused. Everything outside of the directory in which it is unpacked stays as it was.

#![no_main]

mod tarfile;

use hartline_guest::kernel::spawn::copy::fuzzing::unpack;
use libfuzzer_sys::fuzz_target;
use tarfile::repair;

/// Lengths of the pieces in which an archive arrives, bytes; the first byte of an input has an index.
const PIECES: [usize; 4] = [1, 511, 512, 65_536];
/// A bit of that byte: repair the checksums of headers.
const REPAIR: u8 = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, archive)) = input.split_first() else {
        return;
    };
    let mut archive = archive.to_vec();
    if kind & REPAIR != 0 {
        repair(&mut archive);
    }
    let is_as_before = unpack(&archive, PIECES[usize::from(kind & 3)]);
    assert!(
        is_as_before.expect("a file system"),
        "a member left the directory"
    );
});
