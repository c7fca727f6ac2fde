//! The program of a VM and its root file system.

use super::kept_tree::{self, KeptTree};
use super::network::Net;
use super::options::{Arguments, Keep};
use anyhow::Context;
use hartline_tree::{TreeBuilder, TreeImage};
use hartline_vmm::program;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The program and root file system of the VM.
pub struct Guest {
    /// The program's ELF file; `None`: it is in a volume, where the guest finds it.
    pub program: Option<program::Program>,
    /// Its path in the guest.
    pub path: PathBuf,
    /// The root file system tree.
    pub tree: Arc<TreeImage>,
    /// The place in the cache where the tree is missing.
    pub kept: Option<KeptTree>,
}

impl Guest {
    /// Packs the root file system, or takes the packed one of an earlier run, and finds the program.
    ///
    /// # Errors
    /// A file cannot be read, or is no program or root file system.
    pub fn load(arguments: &Arguments, net: &Net) -> anyhow::Result<Self> {
        let path = match &arguments.rootfs {
            Some(_) => Path::new("/").join(arguments.program()),
            None => {
                program::check_host(arguments.program())?;
                let name = arguments.program().file_name();
                Path::new("/").join(name.context("the program has no name")?)
            }
        };
        let resolver = net.resolver();
        let root = arguments.rootfs.as_deref().map(Root::open).transpose()?;
        let keeps = |root: &&Root<'_>| match arguments.keep_tree {
            // A host's program may write files of a directory through a mapping, which need not
            // change their times.
            Keep::Auto => root.file.is_some(),
            Keep::Always => true,
            Keep::Never => false,
        };
        let kept = root.as_ref().filter(keeps).and_then(|root| {
            let root = (root.path, root.file.as_ref());
            KeptTree::of(arguments, root, resolver.as_deref())
        });
        let base = root.as_ref().and_then(Root::base);
        let (tree, kept) = match kept.as_ref().and_then(|kept| kept.find(base)) {
            Some(tree) => (tree, None),
            None => {
                let start = Instant::now();
                let tree = pack(arguments, root, &path, resolver.as_deref())?;
                let least = match arguments.keep_tree {
                    Keep::Always => Duration::ZERO,
                    _ => kept_tree::WORTH,
                };
                (tree, kept.filter(|_| start.elapsed() >= least))
            }
        };
        let tree = Arc::new(tree);
        let folders = || arguments.volumes.iter().filter(|v| v.disk().is_none());
        let program = match program::from_tree(&tree, &path, arguments.program()) {
            _ if folders().any(|volume| path.starts_with(&volume.guest)) => None,
            // A symbolic link may lead into a volume.
            Err(program::Error::NotInTree { .. }) if folders().next().is_some() => None,
            Err(error @ program::Error::NoInterpreter { .. }) if arguments.rootfs.is_none() => {
                anyhow::bail!("{error}: give one with --rootfs")
            }
            found => Some(found?),
        };
        Ok(Self {
            program,
            path,
            tree,
            kept,
        })
    }

    /// Keeps the tree for later runs on a thread of its own, if it is not kept yet.
    pub fn keep_tree(&self) -> Option<JoinHandle<()>> {
        let kept = self.kept.clone()?;
        let tree = Arc::clone(&self.tree);
        Some(thread::spawn(move || kept.store(&tree)))
    }

    /// The program's contents, for messages; empty if the program is in a volume.
    pub fn elf(&self) -> &[u8] {
        let program = self.program.as_ref();
        program.map_or(&[][..], |program| &program.bytes)
    }
}

/// The root file system of `--rootfs`.
struct Root<'a> {
    path: &'a Path,
    /// The archive or image; `None`: a directory.
    file: Option<File>,
    is_erofs: bool,
}

impl<'a> Root<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let opened = || -> io::Result<_> {
            if fs::metadata(path)?.is_dir() {
                return Ok((None, false));
            }
            let file = File::open(path)?;
            let is_erofs = hartline_tree::is_erofs(&file);
            Ok((Some(file), is_erofs))
        };
        let opened = opened().with_context(|| format!("{}: cannot open", path.display()));
        let (file, is_erofs) = opened?;
        Ok(Self {
            path,
            file,
            is_erofs,
        })
    }

    /// The image that parts of the packed tree are shown from.
    fn base(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.is_erofs)
    }
}

/// Packs the root file system of a VM; without one, a minimal tree with the program at `path`.
fn pack(
    arguments: &Arguments,
    root: Option<Root<'_>>,
    path: &Path,
    resolver: Option<&str>,
) -> anyhow::Result<TreeImage> {
    let mut builder = TreeBuilder::in_memory()?;
    match root {
        Some(root) => match root.file {
            Some(image) if root.is_erofs => builder.add_erofs(image, root.path)?,
            Some(archive) => builder.add_open_tar(archive, root.path)?,
            None => builder.add_directory(root.path)?,
        },
        None => {
            builder.add_minimal()?;
            let guest_path = path.to_str().context("the program's name is not UTF-8")?;
            builder.add_file(arguments.program(), guest_path)?;
        }
    }
    if let Some(resolver) = resolver {
        builder.add_text(resolver.as_bytes(), "/etc/resolv.conf")?;
    }
    for volume in arguments.volumes.iter().filter(|v| v.disk().is_none()) {
        builder.add_mount_point(&volume.host, &volume.guest)?;
    }
    Ok(builder.build()?)
}
