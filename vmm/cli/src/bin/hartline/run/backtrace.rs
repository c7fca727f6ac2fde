//! Call stacks of a program, from what the guest reports about it. Nothing of that is trusted.

use crate::debug_dir::DebugDirectories;
use hartline_abi::report::FileMapping;
use hartline_debug::budget::Budget;
use hartline_debug::find::DebugFiles;
use hartline_debug::frames::Registers;
use hartline_debug::module::{Location, Module};
use hartline_debug::unwind::{Address, File, Mapping, Process};
use hartline_tree::TreeImage;
use hartline_vmm::inspect::ProgramMemory;
use hartline_vmm::program::TreeFile;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Reads a file of the root file system, with debug information.
pub fn read_file(tree: &Arc<TreeImage>, path: &Path) -> Option<Vec<u8>> {
    let file = TreeFile::find(tree, path.as_os_str().as_bytes()).ok()??;
    Some(file.bytes().ok()?.to_vec())
}

/// Where a task of a program stands.
pub struct Place<'a> {
    /// Its pc.
    pub pc: u64,
    /// Its integer registers.
    pub x: &'a Registers,
    /// Address of the code to which its signal handlers return.
    pub trampoline: u64,
    /// The code that it has mapped.
    pub mappings: &'a [FileMapping],
    /// Its memory.
    pub memory: &'a ProgramMemory,
}

/// Finds call stacks, and keeps the files that it opened for the next ones.
pub struct Backtraces {
    tree: Arc<TreeImage>,
    debug: DebugDirectories,
    /// The work that opening all files may cause.
    opening: Arc<Budget>,
    inodes: Vec<u32>,
    files: Vec<File<'static>>,
}

impl Backtraces {
    /// Call stacks through files of `tree`, with the debug information that they and `debug` have.
    pub fn new(tree: &Arc<TreeImage>, debug: &DebugDirectories) -> Self {
        Self {
            tree: Arc::clone(tree),
            debug: debug.clone(),
            opening: Arc::new(Budget::new(Budget::REPORT)),
            inodes: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The call stack at a place as lines.
    pub fn lines(&mut self, place: &Place<'_>, budget: &Budget) -> Vec<String> {
        self.with_process(place, |process| {
            process.stack(place.pc, place.x, budget).lines()
        })
    }

    /// The addresses of the call stack at a place, the innermost one first.
    pub fn addresses(&mut self, place: &Place<'_>, budget: &Budget) -> Vec<Address> {
        self.with_process(place, |process| {
            process.addresses(place.pc, place.x, budget)
        })
    }

    /// The locations of an address in the source, the innermost inlined function first. There are none
    /// for an address outside of ELF files.
    pub fn locations(&self, address: &Address, budget: &Budget) -> Vec<Location> {
        let locations = address.place.and_then(|(file, linked)| {
            let module = self.files.get(file)?.module()?;
            Some(module.locations(linked, budget))
        });
        locations.unwrap_or_default()
    }

    /// The inode of a file of an [`Address`].
    pub fn inode(&self, file: usize) -> Option<u32> {
        self.inodes.get(file).copied()
    }

    fn with_process<T>(
        &mut self,
        place: &Place<'_>,
        use_it: impl FnOnce(&Process<'_, 'static>) -> T,
    ) -> T {
        let mappings = place.mappings.iter();
        let mappings: Vec<Mapping> = mappings
            .filter_map(|mapping| self.mapping(mapping))
            .collect();
        use_it(&Process {
            mappings: &mappings,
            files: &self.files,
            memory: &|address, bytes| place.memory.read(address, bytes),
            trampoline: Some(place.trampoline),
        })
    }

    fn mapping(&mut self, mapping: &FileMapping) -> Option<Mapping> {
        /// Most files that are kept; code of other files has no names.
        const MOST_FILES: usize = 4096;
        let inode = u32::try_from(mapping.inode).ok()?;
        let known = self.inodes.iter().position(|&known| known == inode);
        let file = match known {
            Some(file) => file,
            None if self.files.len() < MOST_FILES => {
                self.inodes.push(inode);
                self.files.push(self.file(inode));
                self.files.len() - 1
            }
            None => return None,
        };
        Some(Mapping {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            file,
        })
    }

    fn file(&self, inode: u32) -> File<'static> {
        let file = TreeFile::new(Arc::clone(&self.tree), inode);
        let path = file.path().unwrap_or_default();
        let name = path.display().to_string().replace(char::is_control, "?");
        let (tree, debug) = (Arc::clone(&self.tree), self.debug.clone());
        let opening = Arc::clone(&self.opening);
        File::new(name, move || {
            let read = |path: &Path| read_file(&tree, path);
            let debug: DebugFiles<'_> = debug.files(Some(&read));
            Module::open(&file.bytes().ok()?, &path, &debug, &opening).ok()
        })
    }
}
