//! The functions of the header for templates.

use crate::border;
use crate::failure::{Failure, guard};
use crate::handles::TEMPLATES;
use crate::options::{limit, path};
use hartline_embed::images::Baseline;
use hartline_embed::{Template, TemplateOptions};
use std::ffi::c_char;
use std::path::Path;
use std::ptr;

/// `hartline_baseline` of the header.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawBaseline {
    /// Code that a program reaches before LLVM has translated it.
    Auto = 0,
    /// None.
    Off = 1,
    /// Whole files before they are executed.
    Whole = 2,
    /// Whole files; LLVM translates nothing.
    Only = 3,
}

/// `struct hartline_template_options` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawTemplateOptions {
    /// Length of the structure that the caller knows.
    pub size: usize,
    /// The directory of the cache, or NULL.
    pub cache: *const c_char,
    /// The longest time until a clone is ready, ms, or 0.
    pub start_limit_ms: u64,
    /// A [`RawBaseline`].
    pub baseline: u32,
    /// 0.
    pub reserved: u32,
}

impl Default for RawTemplateOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            cache: ptr::null(),
            start_limit_ms: 0,
            baseline: RawBaseline::Auto as u32,
            reserved: 0,
        }
    }
}

/// The options that a caller gave. NULL: the default ones.
///
/// # Errors
/// A field is wrong.
///
/// # Safety
/// If it is not NULL, it points to a `struct hartline_template_options` of the header, whose pointer is as [`path`]
/// needs it.
unsafe fn read(raw: *const RawTemplateOptions) -> Result<TemplateOptions, Failure> {
    const AUTO: u32 = RawBaseline::Auto as u32;
    const OFF: u32 = RawBaseline::Off as u32;
    const WHOLE: u32 = RawBaseline::Whole as u32;
    const ONLY: u32 = RawBaseline::Only as u32;
    let mut options = TemplateOptions::default();
    if raw.is_null() {
        return Ok(options);
    }
    // SAFETY: it is the structure of the header, as the caller promises.
    let raw = unsafe { border::structure(raw, "the options", "HARTLINE_TEMPLATE_OPTIONS") }?;
    options.baseline = match (raw.baseline, raw.reserved) {
        (AUTO, 0) => Baseline::Auto,
        (OFF, 0) => Baseline::Off,
        (WHOLE, 0) => Baseline::Whole,
        (ONLY, 0) => Baseline::Only,
        _ => {
            let text = format!(
                "the options: baseline {}, or reserved is not 0",
                raw.baseline
            );
            return Err(Failure::argument(text));
        }
    };
    // SAFETY: as the caller promises.
    options.cache = unsafe { path(raw.cache, "the cache") }?;
    if raw.start_limit_ms != 0 {
        options.start_limit = limit(raw.start_limit_ms);
    }
    Ok(options)
}

/// `hartline_template_load` of the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hartline_template_load(
    directory: *const c_char,
    raw: *const RawTemplateOptions,
    loaded: *mut u64,
) -> i32 {
    guard(|| {
        let place = border::place(loaded, "the place for the template")?;
        // SAFETY: it can be written, as the caller promises. 0 is no template.
        unsafe { place.write(0) };
        // SAFETY: as the caller promises.
        let directory = unsafe { border::text(directory, "the snapshot's path") }?;
        // SAFETY: as the caller promises.
        let options = unsafe { read(raw) }?;
        let handle = TEMPLATES.add(Template::load(Path::new(directory), options)?);
        // SAFETY: as above.
        unsafe { place.write(handle) };
        Ok(())
    })
}

/// `hartline_template_free` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hartline_template_free(template: u64) -> i32 {
    // Its clones keep it.
    guard(|| TEMPLATES.take(template).map(drop))
}
