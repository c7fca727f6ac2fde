//! Finding the guest's state at a fault in translated code, by translating the
//! function again with debug information.

use hartline_abi::layout::{IMAGE_BASE, PAGE_SIZE};
use hartline_abi::report::ExitReport;
use hartline_aot::explain::HostState;
use hartline_aot::image::Image;
use hartline_aot::translator::{Options, Translator};
use hartline_vmm::machine::HostStack;
use hartline_vmm::report::Located;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What `report` is about, if it is a fault in the code of `image`, which was made
/// from `elf` with `options`. Nothing in the report is believed.
pub fn locate(
    report: &ExitReport,
    stack: &HostStack,
    elf: &[u8],
    image: &File,
    options: &Options,
) -> Option<Located> {
    let length = image.metadata().ok()?.len();
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    image.read_exact_at(&mut bytes, 0).ok()?;
    let image = Image::open(&bytes).ok()?;
    let in_file = report.host_pc.checked_sub(IMAGE_BASE + PAGE_SIZE)?;
    let in_code = in_file.checked_sub(image.header().code_offset)?;
    let function = image.function_at(in_code)?;
    let offset = in_code.checked_sub(u64::from(function.host))?;
    let translator = Translator::new(elf, options).ok()?;
    let read = |address| stack.word(address);
    let state = HostState {
        registers: report.host_registers,
        hart: report.x,
        read: &read,
    };
    let found = translator.locate(&function, offset, &state).ok()??;
    let bias = report.pc.wrapping_sub(function.guest);
    Some(Located {
        pc: found.pc.wrapping_add(bias),
        bias,
        x: found.x,
    })
}
