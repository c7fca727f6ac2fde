//! Finding the guest's state at a fault in translated code, by translating the
//! function again with debug information.

use hartline_aot::explain::HostState;
use hartline_aot::image::Image;
use hartline_aot::origin::{HostCode, Origin};
use hartline_aot::translator::Translator;
use hartline_aot::unwind::Unwinder;
use hartline_embed::images::RunningImages;
use hartline_tree::TreeImage;
use hartline_vmm::images::Images;
use hartline_vmm::locate::{HostStack, Locate, Located, TranslatedFault};
use hartline_vmm::program::TreeFile;
use std::fmt;
use std::sync::Arc;

/// Number of `ra`.
const RA: usize = 1;
/// Index of rsp in the host registers.
const RSP: usize = 4;

/// Finds the state at faults in the images that the VM used. Nothing in a fault is trusted.
pub struct Locator {
    tree: Arc<TreeImage>,
    images: Arc<RunningImages>,
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locator").finish_non_exhaustive()
    }
}

impl Locator {
    /// Faults in images that `images` made from files in `tree`.
    pub fn new(tree: Arc<TreeImage>, images: Arc<RunningImages>) -> Self {
        Self { tree, images }
    }
}

impl Locate for Locator {
    fn locate(
        &self,
        fault: &TranslatedFault,
        images: &Images,
        stack: &HostStack,
    ) -> Option<Located> {
        let placed = images.placed_at(fault.image)?;
        let bytes = placed.image.read().ok()?;
        let image = Image::open_in_memory(&bytes).ok()?;
        let in_code = fault.image_offset.checked_sub(image.header().code_offset)?;
        let function = image.function_at(in_code)?;
        let offset = in_code.checked_sub(u64::from(function.host))?;
        let elf = TreeFile::new(Arc::clone(&self.tree), placed.inode);
        let elf = elf.bytes().ok()?;
        let options = self.images.translation().options(image.header().variant);
        let translator = Translator::new(&elf, &options).ok()?;
        let origin = Origin::new(&translator);
        let read = |address| stack.word(address);
        let state = HostState {
            registers: fault.host_registers,
            hart: fault.hart,
            read: &read,
        };
        let found = origin
            .state(HostCode::of(&image, function)?, offset, &state)
            .ok()??;
        let bias = fault.function.wrapping_sub(function.address());
        let mut x = found.x;
        if x[RA].is_none() && found.has_return_address {
            let linked = return_address(&image, &origin, in_code, fault, &read);
            x[RA] = linked.map(|linked| linked.wrapping_add(bias));
        }
        Some(Located {
            pc: found.pc.wrapping_add(bias),
            bias,
            x,
        })
    }
}

/// The link-time address to which the function with the fault returns, if its caller is in the same
/// image. A function that calls nothing has no register for this address, because its caller compares it
/// with a constant. But the host's return address belongs to the same call.
fn return_address(
    image: &Image<'_>,
    origin: &Origin<'_>,
    in_code: u64,
    fault: &TranslatedFault,
    read: &dyn Fn(u64) -> Option<u64>,
) -> Option<u64> {
    /// Most adapters between two functions.
    const MOST_ADAPTERS: usize = 4;
    let mut unwinder = Unwinder::new(image);
    let code = fault.host_pc.wrapping_sub(in_code);
    let mut at = fault.host_registers[RSP].checked_add(unwinder.depth(in_code)?)?;
    for _ in 0..MOST_ADAPTERS {
        let host = read(at)?.wrapping_sub(code);
        let (caller, size) = unwinder.frame(host)?;
        let mut functions = image.functions();
        let is_adapter = caller.is_dispatched()
            && functions.any(|own| !own.is_dispatched() && own.address() == caller.address());
        if !is_adapter {
            let offset = host.checked_sub(u64::from(caller.host))?;
            return origin
                .return_address(HostCode::of(image, caller)?, offset)
                .ok()?;
        }
        at = at.checked_add(size)?.checked_add(8)?;
    }
    None
}
