//! Finds the files of a tree that are to be translated, and their contents.

use super::protocol::{ElfFile, FromWorker, MAX_AHEAD, PROGRAM_PATH, UploadKind};
use hartline_tree::TreeImage;
use hartline_vmm::program::TreeFile;
use hartline_vmm::{libraries, program};
use object::elf::ELFMAG as ELF_MAGIC;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Finds the files that `programs` of a tree need translated.
///
/// # Errors
/// The fault of the upload, as a message for the tenant.
pub fn find(
    tree: &Arc<TreeImage>,
    kind: UploadKind,
    programs: &[String],
) -> Result<FromWorker, String> {
    let own = [PROGRAM_PATH.to_owned()];
    let programs = match kind {
        UploadKind::Elf => &own[..],
        UploadKind::Rootfs => programs,
    };
    let mut files = BTreeMap::new();
    for path in programs {
        // An error names a path as the tenant gave it. The tenant gave none for a single ELF file.
        let shown = match kind {
            UploadKind::Elf => Path::new("the upload"),
            UploadKind::Rootfs => Path::new(path),
        };
        let found = program::from_tree(tree, Path::new(path), shown);
        let found = found.map_err(|error| error.to_string())?;
        let libraries = libraries::of_program(tree, path, &found.bytes);
        let libraries = libraries.map_err(|error| format!("{}: {error}", shown.display()))?;
        files.insert(found.file.inode(), found.file);
        files.extend(libraries.into_iter().map(|file| (file.inode(), file)));
    }
    let files = files.values().take(MAX_AHEAD).map(elf);
    let files = files.collect::<io::Result<Vec<_>>>();
    let files = files.map_err(|error| format!("the tree: {error}"))?;
    Ok(FromWorker::Found {
        files: files.into_iter().flatten().collect(),
    })
}

/// Identifies the contents of a file of a tree. No files: it cannot be translated.
#[must_use]
pub fn digest(tree: Arc<TreeImage>, inode: u32) -> FromWorker {
    let found = elf(&TreeFile::new(tree, inode));
    FromWorker::Found {
        files: found.ok().flatten().into_iter().collect(),
    }
}

/// The inode and digest of a file, if it is an ELF file.
fn elf(file: &TreeFile) -> io::Result<Option<ElfFile>> {
    let bytes = file.bytes()?;
    Ok(bytes.starts_with(&ELF_MAGIC).then(|| ElfFile {
        inode: file.inode(),
        digest: Sha256::digest(&*bytes).into(),
    }))
}
