//! The call stack of a program that ended by a fault.

use crate::debug_dir::DebugDirectories;
use hartline_abi::report::ExitReport;
use hartline_debug::budget::Budget;
use hartline_debug::find::DebugFiles;
use hartline_debug::frames::Registers;
use hartline_debug::module::Module;
use hartline_debug::unwind::{File, Mapping, Process};
use hartline_tree::TreeImage;
use hartline_vmm::machine::Outcome;
use hartline_vmm::program::TreeFile;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Reads a file of the root file system, with debug information.
pub fn read_file(tree: &Arc<TreeImage>, path: &Path) -> Option<Vec<u8>> {
    let file = TreeFile::find(tree, path.as_os_str().as_bytes()).ok()??;
    Some(file.bytes().ok()?.to_vec())
}

/// The call stack as lines for the fault report. Nothing in the report is trusted.
pub fn lines(
    outcome: &Outcome,
    tree: &Arc<TreeImage>,
    debug: &DebugDirectories,
    report: &ExitReport,
    pc: u64,
    x: &Registers,
) -> Vec<String> {
    let read = |path: &Path| read_file(tree, path);
    let debug: DebugFiles<'_> = debug.files(Some(&read));
    let budget = Budget::new(Budget::REPORT);
    let mut inodes: Vec<u32> = Vec::new();
    let mut mappings = Vec::new();
    for mapping in outcome.mappings() {
        let Ok(inode) = u32::try_from(mapping.inode) else {
            continue;
        };
        let known = inodes.iter().position(|&known| known == inode);
        let file = known.unwrap_or_else(|| {
            inodes.push(inode);
            inodes.len() - 1
        });
        mappings.push(Mapping {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            file,
        });
    }
    let open = |inode| {
        let file = TreeFile::new(Arc::clone(tree), inode);
        let path = file.path().unwrap_or_default();
        let name = path.display().to_string().replace(char::is_control, "?");
        let (debug, budget) = (&debug, &budget);
        File::new(name, move || {
            Module::open(&file.bytes().ok()?, &path, debug, budget).ok()
        })
    };
    let files: Vec<File<'_>> = inodes.into_iter().map(open).collect();
    let memory = outcome.memory(report.page_table);
    let process = Process {
        mappings: &mappings,
        files: &files,
        memory: &|address, bytes| memory.read(address, bytes),
        trampoline: Some(report.trampoline),
    };
    process.stack(pc, x, &budget).lines()
}
