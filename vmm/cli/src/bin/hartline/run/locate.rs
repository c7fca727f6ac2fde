//! Finding the guest's state at a fault in translated code, by translating the
//! function again with debug information.

use hartline_abi::report::ExitReport;
use hartline_aot::explain::HostState;
use hartline_aot::image::Image;
use hartline_aot::translator::{Options, Translator};
use hartline_tree::TreeImage;
use hartline_vmm::machine::Outcome;
use hartline_vmm::program::TreeFile;
use hartline_vmm::report::Located;
use std::sync::Arc;

/// Locates a fault in the code of an image that the VM used, which was made with `options` from a
/// file in `tree`. Nothing in the report is trusted. `None` if the fault is elsewhere.
pub fn locate(
    report: &ExitReport,
    outcome: &Outcome,
    tree: &Arc<TreeImage>,
    options: &Options,
) -> Option<Located> {
    let placed = outcome.images.placed_at(report.image)?;
    let bytes = placed.image.read().ok()?;
    let image = Image::open_in_memory(&bytes).ok()?;
    let in_code = report
        .image_offset
        .checked_sub(image.header().code_offset)?;
    let function = image.function_at(in_code)?;
    let offset = in_code.checked_sub(u64::from(function.host))?;
    let elf = TreeFile::new(Arc::clone(tree), placed.inode).bytes().ok()?;
    let translator = Translator::new(&elf, options).ok()?;
    let read = |address| outcome.stack.word(address);
    let state = HostState {
        registers: report.host_registers,
        hart: report.x,
        read: &read,
    };
    let found = translator.locate(&function, offset, &state).ok()??;
    let bias = report.pc.wrapping_sub(function.address());
    Some(Located {
        pc: found.pc.wrapping_add(bias),
        bias,
        x: found.x,
    })
}
