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
    /// Translating failed, before the program or while it runs.
    #[error(transparent)]
    Translation(#[from] BackgroundError),
    /// KVM cannot be used.
    #[error(transparent)]
    Platform(#[from] platform::Error),
    /// The features of the processor cannot be found.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// An image in the cache cannot be read.
    #[error("image in the cache: {0}")]
    Open(#[source] io::Error),
}

/// The errors of the steps of a translation.
macro_rules! steps {
    ($($step:ty)*) => {$(
        impl From<$step> for Error {
            fn from(error: $step) -> Self {
                Self::Translation(error.into())
            }
        }
    )*};
}

steps!(CacheError ImageError LinkError ReadError TranslateError);
