//! The functions of the header for warm clones.

use crate::border;
use crate::failure::{guard, keep_message};
use crate::functions::write_lines;
use crate::handles::{CLONES, TEMPLATES};
use crate::options::run_limit;
use crate::runs::{RawRun, RawRunEnd, Run};
use hartline_embed::WarmClone;
use std::ffi::c_char;

/// `hartline_clone_start` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_clone_start(template: u64, clone: *mut u64) -> i32 {
    guard(|| {
        let place = border::place(clone, "the place for the clone")?;
        // SAFETY: it can be written, as the caller promises. 0 is no clone.
        unsafe { place.write(0) };
        let template = TEMPLATES.find(template)?;
        let handle = CLONES.add(WarmClone::start(&template)?);
        // SAFETY: as above.
        unsafe { place.write(handle) };
        Ok(())
    })
}

/// `hartline_clone_run` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_clone_run(
    clone: u64,
    run: *const RawRun,
    end: *mut RawRunEnd,
    limit_ms: u64,
) -> i32 {
    guard(|| {
        let place = border::place(end, "the place for the end")?;
        // SAFETY: it can be written, as the caller promises.
        unsafe { place.write(RawRunEnd::default()) };
        keep_message(String::new());
        let limit = run_limit(limit_ms)?;
        let clone = CLONES.find(clone)?;
        // SAFETY: as the caller promises.
        let (run, streams) = unsafe { Run::read(run) }?;
        let end = clone.run(streams, limit)?;
        // SAFETY: as the caller promises.
        let raw = unsafe { run.deliver(&end) }?;
        // SAFETY: as above.
        unsafe { place.write(raw) };
        keep_message(end.message);
        Ok(())
    })
}

/// `hartline_clone_warnings` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_clone_warnings(
    clone: u64,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guard(|| {
        let find = || Ok(CLONES.find(clone)?.warnings());
        // SAFETY: as the caller promises.
        unsafe { write_lines(find, text, room, length) }
    })
}

/// `hartline_clone_end` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_clone_end(clone: u64) -> i32 {
    guard(|| {
        CLONES.take(clone)?.end();
        Ok(())
    })
}
