//! The option for the variant of a translation.

use clap::Args;
use hartline_abi::image::variant;

/// The variant of a file's code that a command makes or shows.
#[derive(Debug, Clone, Copy, Args)]
pub struct Variant {
    /// The precise variant, for programs that handle SIGSEGV or SIGBUS
    #[arg(long, conflicts_with = "untrusted_abi")]
    precise: bool,

    /// The variant for programs that make code at run time: it does not rely on the psABI's calling
    /// convention
    #[arg(long)]
    untrusted_abi: bool,
}

impl Variant {
    /// The [variant].
    pub fn number(self) -> u32 {
        match (self.precise, self.untrusted_abi) {
            (true, _) => variant::PRECISE,
            (false, true) => variant::UNTRUSTED_ABI,
            (false, false) => variant::NORMAL,
        }
    }
}
