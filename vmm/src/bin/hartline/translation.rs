//! Translation images for this host: from the cache, or translated into it.

use crate::meter::Meter;
use anyhow::Context;
use hartline_abi::elf;
use hartline_abi::image::variant;
use hartline_aot::cache::Cache;
use hartline_aot::image;
use hartline_aot::key::Key;
use hartline_aot::translate::{Progress, Silent};
use hartline_aot::translator::{Options, Translator};
use hartline_vmm::images::{ImageFile, ImageSource};
use hartline_vmm::platform::Kvm;
use hartline_vmm::probe;
use hartline_vmm::program::TreeFile;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The user's cache, and how to translate for this host.
#[derive(Debug)]
pub struct Translation {
    cache: Cache,
    options: Options,
}

/// An image in the cache.
#[derive(Debug)]
pub struct Translated {
    /// The image.
    pub image: ImageFile,
    /// Functions that were translated now; `None` if the image was in the cache.
    pub functions: Option<usize>,
}

/// Where an image in the cache is.
#[derive(Debug, serde::Serialize)]
pub struct CachedImage {
    /// The file.
    pub path: PathBuf,
    /// Its length, bytes.
    pub size: u64,
}

impl ImageSource for Translation {
    fn image(&self, file: &TreeFile, variant: u32) -> Option<ImageFile> {
        if variant != variant::NORMAL {
            return None;
        }
        let elf = file.bytes().ok()?;
        // What cannot be loaded is not code, whatever it is.
        elf::Program::parse(&elf).ok()?;
        let name = file.path().unwrap_or_default();
        match self.image_while_running(&elf, &name) {
            Ok(translated) => Some(translated.image),
            Err(error) => {
                crate::say(&format!("{error:#}: its code is interpreted"));
                None
            }
        }
    }
}

impl Translation {
    /// For the processor features that work in a guest here.
    ///
    /// # Errors
    /// No environment variable says where the cache is, or KVM cannot be used.
    pub fn for_this_host() -> anyhow::Result<Self> {
        let cache = Cache::from_environment()?;
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        let features = probe::cached(&kvm, cache.directory())?.llvm_string();
        Ok(Self::new(cache, features))
    }

    /// As [`for_this_host`](Self::for_this_host); without a usable KVM for every
    /// x86-64 processor. For looking at code, not for running it.
    ///
    /// # Errors
    /// No environment variable says where the cache is.
    pub fn for_looking() -> anyhow::Result<Self> {
        Self::for_this_host().or_else(|_| Ok(Self::new(Cache::from_environment()?, String::new())))
    }

    fn new(cache: Cache, features: String) -> Self {
        let options = Options {
            features,
            threads: None,
        };
        Self { cache, options }
    }

    /// How to translate.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn key(&self, elf: &[u8]) -> Key {
        Key::new(elf, &self.options.features, "")
    }

    /// The image of a file if it is in the cache.
    pub fn find(&self, elf: &[u8]) -> Option<CachedImage> {
        let key = self.key(elf);
        let size = self.cache.lookup(&key)?.metadata().ok()?.len();
        let path = self.cache.path(&key);
        Some(CachedImage { path, size })
    }

    /// The image of a file, translated if it is not in the cache. Progress is shown on a
    /// terminal only, since standard error is the program's.
    ///
    /// # Errors
    /// As [`image`](Self::image).
    pub fn image_while_running(&self, elf: &[u8], name: &Path) -> anyhow::Result<Translated> {
        let name = name.display().to_string().escape_debug().to_string();
        let meter = io::stderr().is_terminal().then(|| Meter::new(&name));
        let progress: &dyn Progress = match &meter {
            Some(meter) => meter,
            None => &Silent,
        };
        self.image(elf, progress).context(name.clone())
    }

    /// The image of a file, translated if it is not in the cache.
    ///
    /// # Errors
    /// The file is no riscv64 program, the translation fails, or the cache cannot be
    /// written. Nothing is left of it.
    pub fn image(&self, elf: &[u8], progress: &dyn Progress) -> anyhow::Result<Translated> {
        let key = self.key(elf);
        let (file, functions) = match self.cache.lookup(&key) {
            Some(file) => (file, None),
            None => {
                self.cache.prepare()?;
                let translator = Translator::new(elf, &self.options)?;
                let linked = translator.translate(progress)?;
                let text = translator.binary().text_range();
                let image = image::build(&key, text, &linked)?;
                let file = self.cache.store(&key, &image)?;
                (file, Some(translator.flow().functions.len()))
            }
        };
        let metadata = file.metadata().context("image in the cache")?;
        Ok(Translated {
            image: ImageFile {
                file,
                length: metadata.len(),
            },
            functions,
        })
    }
}
