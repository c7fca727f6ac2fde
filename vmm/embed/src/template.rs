//! Snapshots that are continued in VMs of this process.

use crate::images::{Baseline, Making, Report, RunningImages};
use crate::translation::Translation;
use crate::{Error, Exports};
use hartline_aot::cache::Cache;
use hartline_tree::TreeImage;
use hartline_vmm::boot::Arguments;
use hartline_vmm::images::ImageSource;
use hartline_vmm::interrupts::Mode;
use hartline_vmm::machine::{self, Blank, Outcome, Settings};
use hartline_vmm::platform::Kvm;
use hartline_vmm::program::{Program, TreeFile};
use hartline_vmm::snapshot::{self, Snapshot, TABLE};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the VMs of a snapshot are made.
#[derive(Debug, Clone)]
pub struct TemplateOptions {
    /// The longest time until a VM is ready; `None`: no limit.
    pub start_limit: Option<Duration>,
    /// The directory of the cache of translations; `None`: the environment names it, as for `hartline run`.
    pub cache: Option<PathBuf>,
    /// The baseline translator's part.
    pub baseline: Baseline,
}

impl Default for TemplateOptions {
    fn default() -> Self {
        Self {
            start_limit: Some(Duration::from_secs(60)),
            cache: None,
            baseline: Baseline::Auto,
        }
    }
}

/// Why a snapshot cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// The snapshot has no root file system, so it has no program.
    #[error("{0}: the snapshot has no root file system")]
    NoTree(PathBuf),
    /// There are no translations.
    #[error(transparent)]
    Translation(#[from] Error),
}

/// A snapshot of a program, which `hartline run --snapshot` has written.
#[derive(Debug)]
pub struct Template {
    pub(crate) snapshot: Snapshot,
    pub(crate) tree: Arc<TreeImage>,
    /// The program's file. Without it the program runs; only messages have less to tell.
    pub(crate) program: Option<Program>,
    pub(crate) translation: Arc<Translation>,
    pub(crate) options: TemplateOptions,
}

impl Template {
    /// Loads the snapshot in `directory`.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn load(directory: &Path, options: TemplateOptions) -> Result<Self, TemplateError> {
        let cache = match &options.cache {
            None => Cache::from_environment().map_err(Error::from)?,
            Some(directory) => Cache::new(directory.clone()),
        };
        let table = cache.directory().join(TABLE);
        let mut snapshot = Snapshot::open(directory, Some(&table))?;
        snapshot.share()?;
        let tree = snapshot.tree().map(Arc::clone);
        let tree = tree.ok_or_else(|| TemplateError::NoTree(directory.into()))?;
        let program = (snapshot.inode() != 0).then(|| {
            let file = TreeFile::new(Arc::clone(&tree), snapshot.inode());
            let bytes = file.bytes().ok()?;
            Some(Program { file, bytes })
        });
        Ok(Self {
            program: program.flatten(),
            tree,
            translation: Arc::new(Translation::in_cache(cache, &[])?),
            snapshot,
            options,
        })
    }

    /// What a VM that continues the snapshot still uses of the arguments.
    fn arguments(&self) -> Arguments {
        Arguments {
            program: self.snapshot.inode(),
            path: self.snapshot.program().as_bytes().to_vec(),
            user: self.snapshot.user(),
            ..Arguments::default()
        }
    }

    /// The images of a new VM.
    pub(crate) fn images(&self, report: Arc<dyn Report>) -> Arc<RunningImages> {
        let making = Making {
            processors: None,
            baseline: self.options.baseline,
            tunes_allocator: false,
            report,
        };
        Arc::new(RunningImages::new(Arc::clone(&self.translation), making))
    }

    /// Continues the snapshot in a new VM until its end; `outputs`: `None` if output is discarded or each run has its own.
    pub(crate) fn run(
        &self,
        images: Arc<RunningImages>,
        outputs: Option<[OwnedFd; 2]>,
        exports: Exports,
    ) -> Result<Outcome, machine::Error> {
        let variant = self.snapshot.variant();
        let program = self.program.as_ref();
        // Without it, the guest requests it.
        let program_image =
            program.and_then(|program| images.of_program(program, variant).ok().flatten());
        let arguments = self.arguments();
        let settings = Settings {
            ram: self.snapshot.ram(),
            tree: Some(&self.tree),
            images: Some(images as Arc<dyn ImageSource>),
            program_image,
            variant,
            outputs,
            exports: Some(exports),
            shares_process: true,
            from: Some(&self.snapshot),
            ..Settings::new(&arguments)
        };
        let kvm = Kvm::open(Path::new(Kvm::DEVICE))?;
        Blank::new(kvm, settings.cpus, Mode::Safepoint)?.run(settings)
    }
}
