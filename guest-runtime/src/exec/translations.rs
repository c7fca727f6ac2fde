//! Translation images of mapped files. When code of an unchanged file of the root file system is
//! mapped, the runtime requests its image from the host. The image is mapped into its own window,
//! and used while the file's code and constants stay mapped unchanged.

use crate::exec::images::{self, Image, Origin};
use crate::exec::windows::{Slot, Windows};
use crate::kernel::{Control, Kernel};
use crate::mm::{AddressSpace, Exhausted, Label, Vma};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::call::Operation;
use hartline_abi::elf::{Program, ProgramType, Segment};
use hartline_abi::image::{HEADER_SIZE, ImageData, variant};
use hartline_abi::layout::{IMAGE_BASE, IMAGE_FILE, IMAGE_STRIDE, PAGE_SIZE, USER_END};
use hartline_linux::errno::Errno;

/// The host's answer for a file.
#[derive(Debug, Clone, Copy)]
struct Answer {
    inode: u32,
    variant: u32,
    /// The image.
    slot: Option<Slot>,
    /// There may be newer images.
    grows: bool,
}

/// All images from the host.
#[derive(Debug, Default)]
pub struct Translations {
    answers: Vec<Answer>,
    windows: Windows,
    /// Number of times that there were new images.
    generation: u64,
}

impl Kernel {
    /// Requests the newest images of files whose images were not complete.
    pub(crate) fn renew_translations(&mut self) {
        self.translations.answers.retain(|answer| !answer.grows);
        self.translations.generation += 1;
        self.catch_up_translations();
    }

    /// Makes all processes renew their images, as if there were newer ones.
    pub(crate) fn shift_generation(&mut self) {
        self.translations.generation += 1;
    }

    /// Uses the images that arrived while other processes ran.
    pub(crate) fn catch_up_translations(&mut self) {
        let newest = self.translations.generation;
        if core::mem::replace(&mut self.images.generation, newest) != newest {
            self.use_translations(0..USER_END);
        }
    }

    /// Switches to translations of the precise variant, because the program handles faults, which
    /// then need all registers. Host frames of the old translations must not be returned to.
    pub fn use_precise_translations(&mut self) {
        if self.images.variant == variant::PRECISE {
            return;
        }
        self.stop_sharers();
        self.images.variant = variant::PRECISE;
        self.images.clear();
        self.release_images();
        self.use_dispatch_cache();
        self.use_translations(0..USER_END);
        self.control = Control::Restart;
    }

    /// Admits code in `range`. If it is not code of a file, or is still writable, it may call
    /// translated code without the psABI's conventions: the precise variant does not rely on them.
    pub fn admit_code(&mut self, range: Range<u64>) {
        let mut overlapping = self.memory.vmas().overlapping(range.clone());
        let foreign = overlapping.any(|(_, vma)| {
            let of_file = matches!(&vma.label, Label::File(_)) && !vma.shared;
            vma.protection.executable() && (!of_file || vma.protection.writable())
        });
        drop(overlapping);
        if foreign {
            self.use_precise_translations();
        }
        self.use_translations(range);
    }

    /// Uses translations of the files whose code is mapped in `range`.
    pub fn use_translations(&mut self, range: Range<u64>) {
        if self.interpret_only {
            return;
        }
        for (inode, file_start) in self.code_in(range, |_| true) {
            self.use_translation(inode, file_start, self.images.variant);
        }
    }

    /// Handles a non-executable range that was mapped or lost permissions: uses translations of
    /// files that waited for constants in it.
    pub fn admit_constants(&mut self, range: Range<u64>) {
        if self.interpret_only {
            return;
        }
        let overlapping = self.memory.vmas().overlapping(range);
        let files = overlapping.filter_map(|(_, vma)| inode(vma));
        let files: Vec<u32> = files
            .filter(|&inode| self.has_constants_aside(inode))
            .collect();
        if files.is_empty() {
            return;
        }
        for (inode, file_start) in self.code_in(0..USER_END, |inode| files.contains(&inode)) {
            self.use_translation(inode, file_start, self.images.variant);
        }
    }

    /// Whether translations of a file depend on memory that is not executable.
    fn has_constants_aside(&self, inode: u32) -> bool {
        let bytes = self.files.vfs.fs.origin_bytes(inode);
        let program = bytes.and_then(|bytes| Program::parse(bytes).ok());
        program.is_some_and(|program| {
            let mut constants = program.constant_segments();
            constants.any(|segment| !segment.execute)
        })
    }

    /// The files that `wanted` selects and whose code is mapped in `range`: their inodes, and the
    /// addresses of their first bytes.
    fn code_in(&self, range: Range<u64>, wanted: impl Fn(u32) -> bool) -> Vec<(u32, u64)> {
        let overlapping = self.memory.vmas().overlapping(range);
        overlapping
            .filter(|(_, vma)| vma.protection.executable())
            .filter_map(|(start, vma)| match &vma.label {
                Label::File(file) => Some((file.inode?, start.wrapping_sub(file.offset))),
                _ => None,
            })
            .filter(|&(inode, _)| wanted(inode))
            .collect()
    }

    /// Uses the translation of a file, mapped with its first byte at `file_start`, if all of its
    /// code is mapped.
    fn use_translation(&mut self, inode: u32, file_start: u64, variant: u32) {
        let Some(bytes) = self.files.vfs.fs.origin_bytes(inode) else {
            return;
        };
        let Ok(program) = Program::parse(bytes) else {
            return;
        };
        let Some(bias) = bias(&self.memory, &program, inode, file_start) else {
            return;
        };
        // Without RAM for page tables the code is interpreted; the program's next allocation
        // reports the lack of RAM.
        if let Some(slot) = self.image_slot(inode, variant, bias)
            && (self.chaos.renews_images() || !self.images.has(slot.gpa, bias))
            && let pages = pages(&program, bias)
            && let Ok(Some(image)) = self.map_image(slot, (inode, variant, bias), pages)
        {
            self.stop_sharers();
            self.images.add(image);
            self.use_dispatch_cache();
        }
    }

    /// The image of a file; the host is asked for it once.
    fn image_slot(&mut self, inode: u32, variant: u32, bias: u64) -> Option<Slot> {
        let known = self.translations.answers.iter();
        let known = known
            .copied()
            .find(|a| (a.inode, a.variant) == (inode, variant));
        if let Some(answer) = known {
            return answer.slot;
        }
        let mut args = [u64::from(inode), u64::from(variant), bias, 0, 0, 0];
        let answer = |slot, grows| Answer {
            inode,
            variant,
            slot,
            grows,
        };
        let answer = match self.host.call(Operation::Image, &mut args) {
            Ok(_) => {
                let [gpa, length, more, ..] = args;
                answer(Some(Slot { gpa, length }), more != 0)
            }
            Err(Errno::EAGAIN) => answer(None, true),
            Err(Errno::EINTR) => return None,
            Err(_) => answer(None, false),
        };
        let slot = answer.slot;
        self.translations.answers.push(answer);
        slot
    }

    /// Maps an image for a file by inode, variant and bias, which depends on the guest's `pages`;
    /// `None` if it is not usable or no window is left.
    fn map_image(
        &mut self,
        slot: Slot,
        (inode, variant, bias): (u32, u32, u64),
        pages: Rc<[Range<u64>]>,
    ) -> Result<Option<Image>, Exhausted> {
        if !(HEADER_SIZE..=IMAGE_STRIDE - IMAGE_FILE).contains(&slot.length) {
            return Ok(None);
        }
        let mask = self.chaos.mask();
        let windows = &self.translations.windows;
        let found = match self.chaos.renews_images() {
            true => windows.find_other(slot, bias),
            false => windows.find(slot, bias),
        };
        let number = match found {
            Some(number) => number,
            None => {
                // If mapping fails, parts of the window may be mapped: it is never used again.
                let Some(number) = self.translations.windows.begin() else {
                    return Ok(None);
                };
                if map_window(&mut self.memory, number, slot)?.is_none() {
                    return Ok(None);
                }
                self.translations.windows.complete(number, slot);
                self.host.announce_window(number, slot.gpa);
                number
            }
        };
        let lease = self.translations.windows.lease(number, bias);
        let file = IMAGE_BASE + number * IMAGE_STRIDE + IMAGE_FILE;
        // SAFETY: mapped to the image file, which never changes and is never unmapped.
        let bytes = unsafe { core::slice::from_raw_parts(file as *const u8, slot.length as usize) };
        let origin = Origin {
            inode,
            variant,
            bias,
            gpa: slot.gpa,
        };
        let Some(image) = Image::new(bytes, origin, pages, lease) else {
            return Ok(None);
        };
        let image = image.with_mask(mask);
        let data = ImageData {
            bias,
            text_start: image.text_start(),
        };
        // SAFETY: the page before the file is the window's own writable page. Either it already has
        // these contents, or no image had a lease of the window, so no code that reads the page
        // runs.
        unsafe { ((file - PAGE_SIZE) as *mut ImageData).write(data) };
        Ok(Some(image))
    }
}

/// Maps the private data page and the file of window `number`; only its code is executable. `None`
/// if the file is not an image.
fn map_window(memory: &mut AddressSpace, number: u64, slot: Slot) -> Result<Option<()>, Exhausted> {
    let file = IMAGE_BASE + number * IMAGE_STRIDE + IMAGE_FILE;
    let end = slot.length.next_multiple_of(PAGE_SIZE);
    memory.map_private_page(file - PAGE_SIZE)?;
    memory.map_outside(file, slot.gpa..slot.gpa + HEADER_SIZE, false)?;
    // SAFETY: the page was mapped to the start of the image file, which never changes.
    let start = unsafe { core::slice::from_raw_parts(file as *const u8, HEADER_SIZE as usize) };
    let pages = images::header(start).and_then(|header| images::code_pages(&header, slot.length));
    let Some(code) = pages else {
        return Ok(None);
    };
    for (part, executable) in [
        (HEADER_SIZE..code.start, false),
        (code.clone(), true),
        (code.end..end, false),
    ] {
        let physical = slot.gpa + part.start..slot.gpa + part.end;
        memory.map_outside(file + part.start, physical, executable)?;
    }
    Ok(Some(()))
}

/// The load bias of a file, mapped with its first byte at `file_start`. `None` if its segments are
/// at other addresses than its program headers require, or if not all of its code and constants are
/// mapped unchanged with their permissions.
fn bias(memory: &AddressSpace, program: &Program<'_>, inode: u32, file_start: u64) -> Option<u64> {
    let mut code = program
        .segments()
        .filter(|segment| segment.execute && !segment.write)
        .peekable();
    let first = code.peek()?;
    let bias = file_start
        .wrapping_add(first.file_offset)
        .wrapping_sub(first.vaddr);
    if program.program_type() == ProgramType::Exec && bias != 0 {
        return None;
    }
    let mut all = code.chain(program.constant_segments());
    all.all(|segment| shows(memory, &segment, inode, bias))
        .then_some(bias)
}

/// The pages that a translation of a file depends on, if the file is mapped with `bias`.
fn pages(program: &Program<'_>, bias: u64) -> Rc<[Range<u64>]> {
    let code = (program.segments()).filter(|segment| segment.execute && !segment.write);
    let all = code.chain(program.constant_segments());
    all.map(|segment| {
        let pages = segment.pages();
        pages.start.wrapping_add(bias)..pages.end.wrapping_add(bias)
    })
    .collect()
}

/// The inode of the file whose contents a range shows unchanged.
fn inode(vma: &Vma) -> Option<u32> {
    match &vma.label {
        Label::File(file) => file.inode,
        _ => None,
    }
}

/// Whether all bytes of a segment in the file are mapped with `bias`, readable, and executable if
/// they are code.
fn shows(memory: &AddressSpace, segment: &Segment, inode: u32, bias: u64) -> bool {
    let start = segment.vaddr.wrapping_add(bias);
    let Some(end) = start.checked_add(segment.file_size) else {
        return false;
    };
    let range = start & !(PAGE_SIZE - 1)..end;
    memory.vmas().is_covered(range.clone())
        && memory.vmas().overlapping(range).all(|(at, vma)| {
            let file_at = segment.file_offset.wrapping_add(at).wrapping_sub(start);
            let permitted = match segment.execute {
                true => vma.protection.executable(),
                false => vma.protection.readable(),
            };
            permitted
                && matches!(&vma.label, Label::File(file)
                    if file.inode == Some(inode) && file.offset == file_at)
        })
}
