//! Why a program cannot be translated.

use hartline_aot::cache::CacheError;
use hartline_aot::image::ImageError;
use hartline_aot::link::LinkError;
use hartline_aot::translate::TranslateError;
use hartline_aot::translator::ReadError;
use hartline_vmm::background::BackgroundError;
use hartline_vmm::platform;
use hartline_vmm::probe::ProbeError;
use std::io;

/// Why a program cannot be translated, or an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no cache, or it cannot be written.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// KVM cannot be used.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The features of the processor cannot be found.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The file is no riscv64 program.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// LLVM failed.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The linker failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The parts of an image do not fit.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Translating while the program runs failed.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// An image in the cache cannot be read.
    #[error("image in the cache: {0}")]
    Open(#[source] io::Error),
}
