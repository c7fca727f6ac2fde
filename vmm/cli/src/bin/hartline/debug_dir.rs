//! `--debug-dir`: where files with debug information are.

use hartline_debug::find::{DebugFiles, ReadFile};
use std::path::PathBuf;

/// Directories with debug information.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DebugDirectories {
    /// Look for debug information in this directory too, as gdb's debug-file-directory:
    /// DIR/.build-id/ab/cdef.debug, or the file that .gnu_debuglink names (repeatable)
    #[arg(long = "debug-dir", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
}

impl DebugDirectories {
    /// The places where debug information is looked up; `root` reads files of the root file system.
    pub fn files<'a>(&self, root: Option<ReadFile<'a>>) -> DebugFiles<'a> {
        DebugFiles {
            directories: self.directories.clone(),
            root,
        }
    }
}
