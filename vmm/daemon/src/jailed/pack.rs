//! Packing an upload into a tree image.

use super::protocol::{FromWorker, PROGRAM_PATH, UploadKind};
use hartline_tree::{TreeBuilder, TreeError};
use std::fs::File;
use std::io;
use std::path::Path;

/// Makes a tree of `upload`, which has at most `limit` bytes of data.
///
/// # Errors
/// The fault of the upload, as a message for the tenant.
pub fn pack(
    upload: File,
    kind: UploadKind,
    limit: u64,
) -> Result<(FromWorker, Option<File>), String> {
    let name = Path::new("the upload");
    let tree = TreeBuilder::new().and_then(|mut builder| {
        builder.limit(limit);
        match kind {
            UploadKind::Elf => {
                builder.add_minimal()?;
                builder.add_open_program(upload, name, PROGRAM_PATH)?;
            }
            UploadKind::Rootfs => builder.add_open_tar(upload, name)?,
        }
        builder.build()
    });
    let tree = match tree {
        Err(TreeError::Limit { .. }) => return Ok((FromWorker::TooMuch, None)),
        tree => tree.map_err(|error| error.to_string())?,
    };
    let tree = tree.file().and_then(File::try_clone);
    let tree = tree.map_err(|error: io::Error| error.to_string())?;
    Ok((FromWorker::Packed, Some(tree)))
}
