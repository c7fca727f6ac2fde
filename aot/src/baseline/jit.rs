//! Translations of code that a program made at run time ([`hartline_abi::jit`]).

use hartline_baseline::{Region, translate};

use super::features;
use super::link::link;
use crate::jit::{JitCode, JitTranslation};
use crate::link::{Destination, Layout};
use crate::translator::Options;

/// Translates code for a variant of the baseline translator. Any bytes are valid code. `None`: the
/// addresses are not valid, or the result is too large.
#[must_use]
pub fn translate_jit(code: &JitCode<'_>, options: &Options) -> Option<JitTranslation> {
    let length = code.code.len() as u64;
    let region = Region {
        start: code.start,
        code: code.code,
        functions: code.entries,
        blocks: &[],
        position_independent: false,
        write_through: options.precise,
        text_length: length,
    };
    let translation = translate(&region, &features(&options.features)).ok()?;
    let text = code.start..code.start.checked_add(length)?;
    let linked = link(&[&translation], &text, Destination::Jit, Layout::alignment).ok()?;
    JitTranslation::new(&linked, 0, code.start)
}
