//! Packing an upload into a tree image.

use super::protocol::{FromWorker, PROGRAM_PATH, UploadKind};
use crate::tree::TreeBuilder;
use crate::{libraries, program};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Makes a tree of `upload`, and finds which of its files `programs` need translated.
///
/// # Errors
/// What is wrong with the upload, as a message for who sent it.
pub fn pack(
    upload: File,
    kind: UploadKind,
    programs: &[String],
) -> Result<(FromWorker, Option<File>), String> {
    let name = Path::new("the upload");
    let tree = match kind {
        UploadKind::Elf => TreeBuilder::new().and_then(|mut builder| {
            builder.add_minimal()?;
            builder.add_open_program(upload, name, PROGRAM_PATH)?;
            builder.build()
        }),
        UploadKind::Rootfs => TreeBuilder::new().and_then(|mut builder| {
            builder.add_open_tar(upload, name)?;
            builder.build()
        }),
    };
    let tree = Arc::new(tree.map_err(|error| error.to_string())?);
    let own = [PROGRAM_PATH.to_owned()];
    let programs = match kind {
        UploadKind::Elf => &own[..],
        UploadKind::Rootfs => programs,
    };
    let mut files = BTreeSet::new();
    for path in programs {
        // A path is told as it was given; the one of a single ELF file nobody gave.
        let shown = match kind {
            UploadKind::Elf => name,
            UploadKind::Rootfs => Path::new(path),
        };
        let found = program::from_tree(&tree, Path::new(path), shown);
        let found = found.map_err(|error| error.to_string())?;
        let libraries = libraries::of_program(&tree, path, &found.bytes);
        let libraries = libraries.map_err(|error| format!("{}: {error}", shown.display()))?;
        files.insert(found.file.inode());
        files.extend(libraries.iter().map(program::TreeFile::inode));
    }
    let files = files.into_iter().collect();
    let tree = tree.file().and_then(File::try_clone);
    let tree = tree.map_err(|error: io::Error| error.to_string())?;
    Ok((FromWorker::Packed { files }, Some(tree)))
}
