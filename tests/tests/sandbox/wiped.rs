//! Memory that a fork wipes, and resets.

use super::{answers, call, check, number, reset, said, written};
use hartline_tests::Result;
use hartline_tests::tree::Scratch;
use serde_json::{Value, json};

/// A range with `MADV_WIPEONFORK` is zero after each reset, also if the program has written to it since the last one. The
/// page beside it is as it was. A new VM of a snapshot finds the same, before its first reset.
pub fn zero() -> Result<()> {
    let equal = || json!({ "equal": true });
    let mut lines = vec![call("wiped"), call("wiped")];
    let mut expected = vec![number(0x11), number(0x77)];
    for _ in 0..3 {
        lines.extend([reset(), call("wiped"), call("wiped")]);
        expected.extend([equal(), number(0x01), number(0x77)]);
    }
    // Nothing has been written to the range since the last reset.
    lines.extend([reset(), reset(), call("wiped")]);
    expected.extend([equal(), equal(), number(0x01)]);
    check(&[], &lines, &expected)?;
    let scratch = Scratch::new()?;
    let directory = written(scratch.path())?;
    let found = answers(&[], &lines, Some(&directory))?;
    let found: Vec<Value> = found.iter().map(said).collect();
    expected[0] = number(0x01);
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?} instead of {expected:?}").into()),
    }
}
