//! Translations of code that a program made at run time ([`hartline_abi::jit`]).

use hartline_abi::jit::{CODE_OFFSET, Layout};
use hartline_baseline::{Region, translate};

use super::features;
use super::link::{Place, link};
use crate::image::{access_bytes, function_bytes};
use crate::translator::Options;

/// Code in a program's memory.
#[derive(Debug, Clone, Copy)]
pub struct JitCode<'a> {
    /// Guest address of the first byte, even.
    pub start: u64,
    /// The bytes.
    pub code: &'a [u8],
    /// Guest addresses in the code at which it is entered, even.
    pub entries: &'a [u64],
}

/// A translation as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitTranslation {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The parts.
    pub layout: Layout,
}

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
    let linked = link(&[&translation], &text, Place::Jit).ok()?;
    let layout = Layout {
        code: linked.code.len() as u64,
        functions: linked.functions.len() as u64,
        accesses: linked.accesses.len() as u64,
    };
    // The data: a bias of 0, and the start of the text.
    let mut bytes = vec![0; 8];
    bytes.extend(code.start.to_le_bytes());
    bytes.resize(CODE_OFFSET as usize, 0);
    bytes.extend(&linked.code);
    bytes.resize(layout.functions_offset()? as usize, 0);
    bytes.extend(linked.functions.iter().flat_map(function_bytes));
    bytes.extend(linked.accesses.iter().flat_map(access_bytes));
    Some(JitTranslation { bytes, layout })
}
