//! The description of a snapshot (`config.json`), and the records in which a VMM sends a snapshot to the
//! daemon. An accepted description survives writing and reading, and its parts lie inside their files.
//! A record is an error, or has at most the bytes that a record may have.

#![no_main]

use hartline_abi::layout::HUGE_PAGE_SIZE;
use hartline_vmm::fuzzing::read_snapshot;
use hartline_vmm::snapshot::stream::{self, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // JSON begins with a brace; records begin with their kind.
    if input.first() == Some(&b'{') {
        return read_snapshot(input);
    }
    let (mut from, mut left) = (input, input.len());
    while let Ok(record) = stream::read(&mut from) {
        let length = match record {
            Record::Memory { offset, bytes } => {
                assert!(bytes.len() as u64 <= HUGE_PAGE_SIZE);
                assert!(offset.checked_add(bytes.len() as u64).is_some());
                bytes.len()
            }
            Record::Config { json, .. } => {
                read_snapshot(&json);
                json.len()
            }
            Record::Failed(_) => continue,
        };
        assert!(from.len() + length < left);
        left = from.len();
    }
});
