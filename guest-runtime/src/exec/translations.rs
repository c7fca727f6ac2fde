//! Translation images of mapped files. When code of an unchanged file of the root file system is
//! mapped, the runtime requests its image from the host. The image is mapped into its own window,
//! and used while the file's code and constants stay mapped unchanged.

use crate::arch::cpus;
use crate::arch::host::Host;
use crate::chaos::Chaos;
use crate::convert::to_usize;
use crate::exec::detours::detours;
use crate::exec::images::{self, Image, Images, Origin};
use crate::exec::windows::{Slot, Windows};
use crate::fs::filesystem::FileSystem;
use crate::mm::{AddressSpace, Exhausted, Label, Vma};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;
use hartline_abi::call::{Operation, image_answer};
use hartline_abi::elf::{Program, ProgramType, Segment};
use hartline_abi::image::{HEADER_SIZE, ImageData, NewerImages, variant};
use hartline_abi::layout::{HUGE_PAGE_SIZE, IMAGE_BASE, IMAGE_FILE, IMAGE_STRIDE, PAGE_SIZE};
use hartline_linux::errno::Errno;

/// Most biases of one file and variant for which the host is asked.
const MAX_BIASES: usize = 64;

/// The host's answer for a file.
#[derive(Debug, Clone)]
struct Answer {
    inode: u32,
    variant: u32,
    /// The images, oldest first. Each but the first adds to the earlier ones.
    slots: Vec<Slot>,
    /// There may be newer images.
    grows: bool,
    /// There is a newer image.
    is_old: bool,
    /// The biases for which the host was asked, so that it knows where the file's code is.
    biases: Vec<u64>,
}

impl Answer {
    /// Whether the answer is valid for code at a bias.
    fn is_valid(&self, bias: u64) -> bool {
        let is_told = self.biases.contains(&bias) || self.biases.len() >= MAX_BIASES;
        !self.is_old && (!self.grows || is_told)
    }

    /// Takes an image of the host. The host names an image again if there is no newer one.
    fn take(&mut self, slot: Slot, adds: bool) {
        if self.slots.contains(&slot) {
            return;
        }
        if !adds {
            self.slots.clear();
        }
        self.slots.push(slot);
    }
}

/// An image that a process does not use yet.
#[derive(Debug)]
pub(crate) struct Found {
    /// The image.
    pub image: Image,
    /// Whether it adds to the earlier images of the file; otherwise it replaces them.
    pub adds: bool,
}

/// All images from the host.
#[derive(Debug, Default)]
pub struct Translations {
    /// The numbers of answers are the host's names for them: none is removed.
    answers: Vec<Answer>,
    windows: Windows,
    /// Number of times that there were new images.
    pub(crate) generation: u64,
}

/// The parts of the VM that a search for translations needs.
pub(crate) struct Surroundings<'a> {
    pub host: Host,
    /// The process's memory.
    pub memory: &'a mut AddressSpace,
    /// The images that the process uses.
    pub images: &'a Images,
    pub fs: &'a FileSystem,
    pub chaos: &'a mut Chaos,
    /// Guest addresses with breakpoints: functions with code there are not run.
    pub avoided: &'a [Range<u64>],
}

impl Translations {
    /// Marks the answers of files for which there is a newer image.
    pub(crate) fn renew(&mut self, newer: &NewerImages) {
        for (number, answer) in self.answers.iter_mut().enumerate() {
            answer.is_old |= answer.grows && newer.has(number);
        }
        self.generation += 1;
    }

    /// Forgets all images, because there is another VMM.
    pub(crate) fn forget(&mut self) {
        self.answers.clear();
        self.windows.retire();
        self.generation += 1;
    }

    /// Whether the host has translated the whole file in this variant.
    pub(crate) fn has_whole(&self, inode: u32, variant: u32) -> bool {
        let answer = self.answer(inode, variant);
        answer.is_some_and(|(_, answer)| !answer.slots.is_empty() && !answer.grows)
    }

    /// Returns the translations of a file in a variant, mapped with its first byte at `file_start`,
    /// that the process does not use yet, if all of the file's code is mapped.
    pub(crate) fn find(
        &mut self,
        mut around: Surroundings<'_>,
        (inode, variant): (u32, u32),
        file_start: u64,
    ) -> Vec<Found> {
        let program = around.fs.origin_bytes(inode).map(Program::parse);
        let Some(Ok(program)) = program else {
            return Vec::new();
        };
        let Some(bias) = bias(around.memory, &program, inode, file_start) else {
            return Vec::new();
        };
        let slots = self.slots(around.host, inode, variant, bias);
        let renews = around.chaos.renews_images();
        let pages = pages(&program, bias);
        let is_used = |slot: &Slot| around.images.has(slot.gpa, bias);
        // The first one replaces what the process uses of the file.
        let takes_all = renews || slots.first().is_some_and(|first| !is_used(first));
        let mut wanted: Vec<_> = slots.into_iter().enumerate().collect();
        wanted.retain(|(_, slot)| takes_all || !is_used(slot));
        let mut found = Vec::new();
        for (number, slot) in wanted {
            let origin = Origin {
                inode,
                variant,
                bias,
                gpa: slot.gpa,
            };
            // Without RAM for page tables the code is interpreted; the program's next allocation
            // reports the lack of RAM.
            if let Ok(Some(image)) = self.map(&mut around, renews, slot, origin, Rc::clone(&pages))
            {
                let adds = number != 0;
                found.push(Found { image, adds });
            }
        }
        found
    }

    /// The host's answer for a file and variant, and its number.
    fn answer(&self, inode: u32, variant: u32) -> Option<(usize, &Answer)> {
        let mut answers = self.answers.iter().enumerate();
        answers.find(|(_, answer)| (answer.inode, answer.variant) == (inode, variant))
    }

    /// The images of a file; the host is asked for them once, and again if there are newer ones.
    fn slots(&mut self, host: Host, inode: u32, variant: u32, bias: u64) -> Vec<Slot> {
        let number = match self.answer(inode, variant) {
            Some((_, answer)) if answer.is_valid(bias) => return answer.slots.clone(),
            Some((number, _)) => number,
            None => {
                self.answers.push(Answer {
                    inode,
                    variant,
                    slots: Vec::new(),
                    grows: true,
                    is_old: true,
                    biases: Vec::new(),
                });
                self.answers.len() - 1
            }
        };
        let answer = &mut self.answers[number];
        loop {
            let mut args = [inode.into(), variant.into(), bias, number as u64, 0, 0];
            let flags = match host.call(Operation::Image, &mut args) {
                Ok(_) => {
                    let [gpa, length, flags, ..] = args;
                    answer.take(Slot { gpa, length }, flags & image_answer::ADDS != 0);
                    flags
                }
                Err(Errno::EAGAIN) => image_answer::GROWS,
                // The next search asks again.
                Err(Errno::EINTR) => break,
                Err(_) => 0,
            };
            answer.grows = flags & image_answer::GROWS != 0;
            answer.is_old = flags & image_answer::IS_FOLLOWED != 0;
            if !answer.is_old {
                if !answer.biases.contains(&bias) {
                    answer.biases.push(bias);
                }
                break;
            }
        }
        answer.slots.clone()
    }

    /// Maps the image in `slot`, which depends on the guest's `pages`; `None` if it is not usable
    /// or no window is left.
    fn map(
        &mut self,
        around: &mut Surroundings<'_>,
        renews: bool,
        slot: Slot,
        origin: Origin,
        pages: Rc<[Range<u64>]>,
    ) -> Result<Option<Image>, Exhausted> {
        if !(HEADER_SIZE..=IMAGE_STRIDE - IMAGE_FILE).contains(&slot.length) {
            return Ok(None);
        }
        let bias = origin.bias;
        let mask = around.chaos.mask();
        let windows = &self.windows;
        let overlaps = |avoided: &Range<u64>| {
            (pages.iter()).any(|part| part.start < avoided.end && avoided.start < part.end)
        };
        let has_detours = around.avoided.iter().any(overlaps);
        if has_detours && !may_have_detours(origin.variant) {
            return Ok(None);
        }
        let found = match (has_detours, renews) {
            (true, _) => windows.find_with_detours(slot),
            (false, true) => windows.find_other(slot, bias),
            (false, false) => windows.find(slot, bias),
        };
        let number = match found {
            Some(number) => number,
            None => {
                // If mapping fails, parts of the window may be mapped: it is never used again.
                let Some(number) = self.windows.begin() else {
                    return Ok(None);
                };
                if map_window(around.memory, number, slot)?.is_none() {
                    return Ok(None);
                }
                self.windows.complete(number, slot);
                around.host.announce_window(number, slot.gpa);
                number
            }
        };
        let lease = self.windows.lease(number, bias);
        let file = IMAGE_BASE + number * IMAGE_STRIDE + IMAGE_FILE;
        // SAFETY: mapped to the image file, which never changes and is never unmapped.
        let bytes =
            unsafe { core::slice::from_raw_parts(file as *const u8, to_usize(slot.length)) };
        let Some(image) = Image::new(bytes, origin, pages, lease) else {
            return Ok(None);
        };
        let mut image = image.with_mask(mask);
        if has_detours {
            match self.take_detours(around, number, image)? {
                Some(changed) => image = changed,
                None => return Ok(None),
            }
        }
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

impl Translations {
    /// Gives the image in window `number`, which no process uses, its detours; `None` if it cannot have them:
    /// then it is not used.
    fn take_detours(
        &mut self,
        around: &mut Surroundings<'_>,
        number: u64,
        image: Image,
    ) -> Result<Option<Image>, Exhausted> {
        let Some(found) = detours(&image, around.avoided) else {
            return Ok(None);
        };
        let end = IMAGE_BASE + (number + 1) * IMAGE_STRIDE;
        let stubs = image.end().next_multiple_of(PAGE_SIZE)..end - HUGE_PAGE_SIZE;
        let window = self.windows.detours(number);
        let replaced = window.replace(around.memory, stubs, &found);
        // Not only for new mappings: no vCPU executes bytes that it has read before.
        cpus::flush_all();
        if replaced.is_err() {
            self.windows.give_up(number);
        }
        Ok(replaced?.map(|()| image.with_detours(&found)))
    }
}

/// Whether functions of images of a variant can be left out. Code of the others relies on what it knows of the
/// functions that it calls, or may be entered in the middle of a function.
fn may_have_detours(variant: u32) -> bool {
    [variant::PRECISE, variant::UNTRUSTED_ABI].contains(&variant)
}

/// The files that `wanted` selects and whose code is mapped in `range`: their inodes, and the
/// addresses of their first bytes.
pub(crate) fn code_in(
    memory: &AddressSpace,
    range: Range<u64>,
    wanted: impl Fn(u32) -> bool,
) -> Vec<(u32, u64)> {
    let overlapping = memory.vmas().overlapping(range);
    overlapping
        .filter(|(_, vma)| vma.protection.executable())
        .filter_map(|(start, vma)| match &vma.label {
            Label::File(file) => Some((file.inode?, start.wrapping_sub(file.offset))),
            _ => None,
        })
        .filter(|&(inode, _)| wanted(inode))
        .collect()
}

/// Whether translations of a file depend on memory that is not executable.
pub(crate) fn has_constants_aside(fs: &FileSystem, inode: u32) -> bool {
    let program = fs.origin_bytes(inode);
    let program = program.and_then(|bytes| Program::parse(bytes).ok());
    program.is_some_and(|program| {
        let mut constants = program.constant_segments();
        constants.any(|segment| !segment.execute)
    })
}

/// Maps the private data page and the file of window `number`; only its code is executable. `None`
/// if the file is not an image.
fn map_window(memory: &mut AddressSpace, number: u64, slot: Slot) -> Result<Option<()>, Exhausted> {
    let file = IMAGE_BASE + number * IMAGE_STRIDE + IMAGE_FILE;
    let end = slot.length.next_multiple_of(PAGE_SIZE);
    memory.map_private_page(file - PAGE_SIZE)?;
    // The header is read at an address of its own: once the first page of the file is mapped alone,
    // the pages after it cannot be one huge page with it.
    let header = file - PAGE_SIZE - HEADER_SIZE;
    memory.map_outside(header, slot.gpa..slot.gpa + HEADER_SIZE, false)?;
    // SAFETY: the page was mapped to the start of the image file, which never changes.
    let start = unsafe { core::slice::from_raw_parts(header as *const u8, to_usize(HEADER_SIZE)) };
    let pages = images::header(start).and_then(|header| images::code_pages(&header, slot.length));
    let Some(code) = pages else {
        return Ok(None);
    };
    for (part, executable) in [
        (0..code.start, false),
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
pub(crate) fn inode(vma: &Vma) -> Option<u32> {
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
