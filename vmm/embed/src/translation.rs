//! Translation images for this host: from the cache, or translated into it.

use crate::error::Error;
use hartline_aot::cache::Cache;
use hartline_aot::key::Key;
use hartline_aot::technique::{Disabled, Technique};
use hartline_aot::translator::Options;
use hartline_tree::Stamp;
use hartline_vmm::images::ImageFile;
use hartline_vmm::platform::Kvm;
use hartline_vmm::probe;
use hartline_vmm::validated::{Extent, Known, ValidatedImages};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The user's cache, and the settings of translation for this host.
#[derive(Debug)]
pub struct Translation {
    cache: Cache,
    options: Options,
    /// The validated-image cache.
    validated: Option<ValidatedImages>,
}

/// An image file in the cache.
#[derive(Debug, serde::Serialize)]
pub struct CachedImage {
    /// The file.
    pub path: PathBuf,
    /// Its length, bytes.
    pub size: u64,
}

/// What earlier runs left of a file: nothing, a partial image, or one and an addition to it.
#[derive(Debug, Default)]
pub struct Before(pub Vec<ImageFile>);

impl Translation {
    /// A translation for the processor features that work in a guest here, without some techniques.
    ///
    /// # Errors
    /// No environment variable names the cache directory, or KVM cannot be used.
    pub fn for_this_host(disabled: &[Technique]) -> Result<Self, Error> {
        Self::in_cache(Cache::from_environment()?, disabled)
    }

    /// As [`for_this_host`](Self::for_this_host), in a given cache.
    ///
    /// # Errors
    /// KVM cannot be used.
    pub fn in_cache(cache: Cache, disabled: &[Technique]) -> Result<Self, Error> {
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        let features = probe::cached(&kvm, cache.directory())?.llvm_string();
        Ok(Self::new(cache, features, disabled))
    }

    /// As [`for_this_host`](Self::for_this_host); without a usable KVM, for every x86-64 processor.
    /// The result is for inspection, not for running.
    ///
    /// # Errors
    /// No environment variable names the cache directory.
    pub fn for_looking(disabled: &[Technique]) -> Result<Self, Error> {
        Self::for_this_host(disabled).or_else(|_| {
            Ok(Self::new(
                Cache::from_environment()?,
                String::new(),
                disabled,
            ))
        })
    }

    fn new(cache: Cache, features: String, disabled: &[Technique]) -> Self {
        let options = Options {
            features,
            disabled: Disabled::new(disabled),
            ..Options::default()
        };
        Self {
            validated: ValidatedImages::of(&cache),
            cache,
            options,
        }
    }

    /// The options for a [variant](hartline_abi::image::variant).
    #[must_use]
    pub fn options(&self, variant: u32) -> Options {
        self.options.for_variant(variant)
    }

    /// The cache of images.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The normal image of a file if it is in the cache: the whole one, or the partial one.
    #[must_use]
    pub fn find(&self, elf: &[u8]) -> Option<CachedImage> {
        let key = self.options.key(elf);
        let whole = self
            .cache
            .lookup(&key)
            .map(|file| (file, self.cache.path(&key)));
        let partial = || {
            let file = self.cache.lookup_partial(&key)?;
            Some((file, self.cache.partial_path(&key)))
        };
        let (file, path) = whole.or_else(partial)?;
        let size = file.metadata().ok()?.len();
        Some(CachedImage { path, size })
    }

    /// The opened image of a whole file, if the validated-image cache has it for the host file with
    /// `stamp`.
    #[must_use]
    pub fn validated(&self, stamp: Option<&Stamp>, variant: u32) -> Option<ImageFile> {
        let known = self.known(stamp, &self.options(variant), Extent::Whole)?;
        ImageFile::open(known.image?).ok()
    }

    /// What the validated-image cache knows of an image of the host file with `stamp`.
    fn known(&self, stamp: Option<&Stamp>, options: &Options, extent: Extent) -> Option<Known> {
        self.validated.as_ref()?.find(stamp?, options, extent)
    }

    fn remember(
        &self,
        (stamp, options, extent): (Option<&Stamp>, &Options, Extent),
        key: &Key,
        image: Option<&File>,
    ) {
        if let (Some(validated), Some(stamp)) = (&self.validated, stamp) {
            validated.remember((stamp, options, extent), key, image);
        }
    }

    /// What is known of the partial image of a file without reading the file; `None`: nothing.
    #[must_use]
    pub fn known_partial(&self, stamp: Option<&Stamp>, options: &Options) -> Option<Before> {
        let Known { key, image } = self.known(stamp, options, Extent::Partial)?;
        // There may be images that nobody has checked yet.
        if image.is_none() && self.cache.has_entry(&key) {
            return None;
        }
        let addition = self.known(stamp, options, Extent::Addition);
        let addition = addition.and_then(|known| known.image);
        if addition.is_none() && self.cache.has_addition(&key) {
            return None;
        }
        let files = image.into_iter().chain(addition);
        let images: Option<Vec<ImageFile>> = files.map(|file| ImageFile::open(file).ok()).collect();
        images.map(Before)
    }

    /// The key of the images of a file: from the validated-image cache, or of the bytes.
    #[must_use]
    pub fn key(&self, stamp: Option<&Stamp>, options: &Options, elf: &[u8]) -> Key {
        match self.known(stamp, options, Extent::Partial) {
            Some(known) => known.key,
            None => options.key(elf),
        }
    }

    /// The partial image of a file and the addition to it, checked, if the cache has them. This
    /// remembers both.
    ///
    /// # Errors
    /// The length of an image cannot be read.
    pub fn partial(
        &self,
        key: &Key,
        options: &Options,
        stamp: Option<&Stamp>,
    ) -> Result<Before, Error> {
        let image = self.cache.lookup_partial(key);
        self.remember((stamp, options, Extent::Partial), key, image.as_ref());
        let addition = self.cache.lookup_addition(key);
        if addition.is_some() {
            self.remember((stamp, options, Extent::Addition), key, addition.as_ref());
        }
        let files = image.into_iter().chain(addition);
        let images = files.map(|file| ImageFile::open(file).map_err(Error::Open));
        Ok(Before(images.collect::<Result<_, _>>()?))
    }

    /// The image of a whole file, opened and checked, if the cache has one. `stamp` is the stamp of
    /// the host file, if it has one.
    ///
    /// # Errors
    /// The length of the image cannot be read.
    pub fn cached(
        &self,
        key: &Key,
        options: &Options,
        stamp: Option<&Stamp>,
    ) -> Result<Option<ImageFile>, Error> {
        let Some(image) = self.cache.lookup(key) else {
            return Ok(None);
        };
        self.remember((stamp, options, Extent::Whole), key, Some(&image));
        let image = ImageFile::open(image).map_err(Error::Open)?;
        Ok(Some(image))
    }
}
