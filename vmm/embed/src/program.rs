//! A program, and the files that it sees.

use crate::images::Baseline;
use crate::translation::Translation;
use crate::{Error, images};
use hartline_aot::cache::Cache;
use hartline_tree::{TreeBuilder, TreeError, TreeImage};
use hartline_vmm::boot::Arguments;
use hartline_vmm::layout::{MAX_RAM, MIN_RAM};
use hartline_vmm::machine::Settings;
use hartline_vmm::program;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the output of a program goes.
#[derive(Debug, Default)]
pub enum Outputs {
    /// Nowhere.
    #[default]
    Discard,
    /// To the standard output and the standard error of this process.
    Inherit,
    /// To these files.
    Files([OwnedFd; 2]),
}

impl Outputs {
    /// Duplicates for a VM; `None`: output is discarded.
    pub(crate) fn duplicate(&self) -> io::Result<Option<[OwnedFd; 2]>> {
        use std::os::fd::AsFd;
        Ok(match self {
            Self::Discard => None,
            Self::Inherit => Some([
                io::stdout().as_fd().try_clone_to_owned()?,
                io::stderr().as_fd().try_clone_to_owned()?,
            ]),
            Self::Files([output, error]) => Some([output.try_clone()?, error.try_clone()?]),
        })
    }
}

/// How a program starts.
#[derive(Debug)]
pub struct Options {
    /// Its arguments after its name.
    pub arguments: Vec<OsString>,
    /// Its environment, as `NAME=VALUE`. Nothing is inherited.
    pub environment: Vec<OsString>,
    /// The root file system: a directory, a tar file or an EROFS image, in which the program is. Without one the
    /// program is the only file.
    pub rootfs: Option<PathBuf>,
    /// Length of RAM, bytes.
    pub ram: u64,
    /// The longest time from the start to the first wait for a call; `None`: no limit.
    pub start_limit: Option<Duration>,
    /// Its standard output and standard error. It has no standard input.
    pub outputs: Outputs,
    /// The directory of the cache of translations; `None`: the environment names it, as for `hartline run`.
    pub cache: Option<PathBuf>,
    /// Whether all code is interpreted, which needs no cache and is slow.
    pub interprets: bool,
    /// The baseline translator's part.
    pub baseline: Baseline,
    /// Whether the C library's allocator gets settings for the whole process, which make translating faster.
    pub tunes_allocator: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            arguments: Vec::new(),
            environment: Vec::new(),
            rootfs: None,
            ram: Settings::RAM,
            start_limit: Some(Duration::from_secs(60)),
            outputs: Outputs::Discard,
            cache: None,
            interprets: false,
            baseline: Baseline::Auto,
            tunes_allocator: false,
        }
    }
}

/// Why a program cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The program cannot be read, or is no program.
    #[error(transparent)]
    Program(#[from] program::Error),
    /// The root file system cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The path has no name that the guest can use.
    #[error("{0}: not a path of a program")]
    Name(PathBuf),
    /// The length of RAM is not possible.
    #[error("{0} bytes of RAM: must be from {MIN_RAM} to {MAX_RAM}")]
    Ram(u64),
    /// There are no translations.
    #[error(transparent)]
    Translation(#[from] Error),
}

/// A program that sandboxes run.
#[derive(Debug)]
pub struct Program {
    pub(crate) found: program::Program,
    pub(crate) tree: Arc<TreeImage>,
    pub(crate) arguments: Arguments,
    pub(crate) options: Options,
    pub(crate) translation: Option<Arc<Translation>>,
}

impl Program {
    /// Loads a riscv64 program: a file of this host, or, with a root file system, a path inside it. A root file
    /// system is read into memory, once for all sandboxes.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(path: &Path, options: Options) -> Result<Self, LoadError> {
        if !(MIN_RAM..=MAX_RAM).contains(&options.ram) {
            return Err(LoadError::Ram(options.ram));
        }
        let mut builder = TreeBuilder::in_memory()?;
        let name = || LoadError::Name(path.to_owned());
        let inside = match &options.rootfs {
            Some(root) => {
                builder.add_root(root)?;
                Path::new("/").join(path)
            }
            None => {
                program::check_host(path)?;
                let inside = Path::new("/").join(path.file_name().ok_or_else(name)?);
                builder.add_minimal()?;
                builder.add_file(path, inside.to_str().ok_or_else(name)?)?;
                inside
            }
        };
        let tree = Arc::new(builder.build()?);
        let found = program::from_tree(&tree, &inside, path)?;
        let words = [path.as_os_str()].into_iter();
        let words = words.chain(options.arguments.iter().map(OsString::as_os_str));
        let arguments = Arguments {
            program: found.file.inode(),
            path: inside.as_os_str().as_bytes().to_vec(),
            arguments: words.map(|word| word.as_bytes().to_vec()).collect(),
            environment: (options.environment.iter())
                .map(|pair| pair.as_bytes().to_vec())
                .collect(),
            ..Arguments::default()
        };
        let translation = match options.interprets {
            true => None,
            false => {
                let cache = match &options.cache {
                    None => Cache::from_environment().map_err(Error::from)?,
                    Some(directory) => Cache::new(directory.clone()),
                };
                Some(Arc::new(Translation::in_cache(cache, &[])?))
            }
        };
        Ok(Self {
            found,
            tree,
            arguments,
            options,
            translation,
        })
    }

    pub(crate) fn making(&self, report: Arc<dyn images::Report>) -> images::Making {
        images::Making {
            processors: None,
            baseline: self.options.baseline,
            tunes_allocator: self.options.tunes_allocator,
            report,
        }
    }
}

/// A file that output of both kinds goes to.
impl TryFrom<File> for Outputs {
    type Error = io::Error;

    fn try_from(file: File) -> io::Result<Self> {
        Ok(Self::Files([file.try_clone()?.into(), file.into()]))
    }
}
