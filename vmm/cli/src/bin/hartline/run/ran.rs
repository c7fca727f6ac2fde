//! The code that ran in a VM, as known after the VM's end: names for locations in it.

use super::symbols::Symbols;
use hartline_abi::image::{AccessEntry, FunctionEntry, variant};
use hartline_abi::layout::{IMAGE_BASE, IMAGE_FILE, IMAGE_STRIDE};
use hartline_aot::image::Image;
use hartline_aot::origin::HostCode;
use hartline_aot::unwind::Unwinder;
use hartline_debug::budget::Budget;
use hartline_debug::find::DebugFiles;
use hartline_debug::module::{Line, Module};
use hartline_tree::TreeImage;
use hartline_vmm::machine::Outcome;
use hartline_vmm::program::{Bytes, TreeFile};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Contents of the files that [`Ran`] refers to.
pub struct Files {
    /// ELF files by inode, with their paths.
    elf: HashMap<u32, (PathBuf, Bytes)>,
    /// Window, inode of the ELF file, and bytes of images.
    images: Vec<(u64, u32, Vec<u8>)>,
}

impl Files {
    /// Contents of the ELF file with an inode.
    pub fn elf(&self, inode: u32) -> Option<&[u8]> {
        self.elf.get(&inode).map(|(_, bytes)| &bytes[..])
    }

    /// The files that the VM of `outcome` used of the root file system `tree`, and the files of
    /// these inodes. The guest reports which files it used. Unreadable files are left out.
    pub fn of(outcome: &Outcome, tree: &Arc<TreeImage>, inodes: BTreeSet<u32>) -> Self {
        let mut inodes = inodes;
        let mut images = Vec::new();
        for (number, gpa) in outcome.windows() {
            let Some(placed) = outcome.images.placed_at(gpa) else {
                continue;
            };
            if let Ok(bytes) = placed.image.read() {
                images.push((number, placed.inode, bytes));
                inodes.insert(placed.inode);
            }
        }
        let read = |inode| {
            let file = TreeFile::new(Arc::clone(tree), inode);
            let path = file.path().unwrap_or_default();
            Some((inode, (path, file.bytes().ok()?)))
        };
        Self {
            elf: inodes.into_iter().filter_map(read).collect(),
            images,
        }
    }
}

/// An image at its address in the VM.
pub struct Placed<'a> {
    /// Address of its code.
    address: u64,
    /// Inode of the file that it was made from.
    inode: u32,
    image: Image<'a>,
    unwinder: Unwinder<'a>,
    /// Addresses of functions with their own calling convention: each has an adapter.
    adapted: HashSet<u64>,
}

impl Placed<'_> {
    /// Whether the function only moves registers for another function of the same guest code.
    fn is_adapter(&self, function: &FunctionEntry) -> bool {
        function.is_dispatched() && self.adapted.contains(&function.guest)
    }
}

/// A frame on a host stack.
pub struct Frame {
    /// Link-time address of the function, and inode of its file; `None` for an adapter, whose
    /// function has the next frame.
    pub function: Option<(u32, u64)>,
    /// Bytes below its own return address.
    pub size: u64,
}

/// The code of a translated function.
pub struct Code<'a> {
    /// Its address in the VM.
    pub start: u64,
    pub host: HostCode<'a>,
    pub name: String,
    /// Inode of the file that it was made from.
    pub inode: u32,
    /// Variant of the image.
    pub variant: u32,
    /// Addresses of host instructions, ascending, with the link-time addresses of their guest
    /// instructions: the first one, and those that the baseline translator has noted.
    pub places: Vec<(u64, u64)>,
}

impl Code<'_> {
    /// Whether LLVM made it.
    pub fn is_llvm(&self) -> bool {
        !variant::is_baseline(self.variant)
    }

    /// Adds places at ascending offsets in the code.
    pub fn add_places(&mut self, places: Vec<(u64, u64)>) {
        let start = self.start;
        let places = places.into_iter().map(|(at, guest)| (start + at, guest));
        self.places.extend(places);
    }
}

/// The code of a VM, translated and other.
pub struct Ran<'a> {
    symbols: HashMap<u32, Symbols<'a>>,
    /// Debug information of the files that have some.
    modules: HashMap<u32, Module>,
    /// Lines of functions that were looked up.
    lines: HashMap<(u32, u64), Option<Line>>,
    images: Vec<Placed<'a>>,
}

impl<'a> Ran<'a> {
    /// The code of these files. With `debug`, their debug information is read as well.
    pub fn new(files: &'a Files, debug: Option<&DebugFiles<'_>>) -> Self {
        let place = |(number, inode, bytes): &'a (u64, u32, Vec<u8>)| {
            let image = Image::open_in_memory(bytes).ok()?;
            let own = image.functions().filter(|f| !f.is_dispatched());
            let window = IMAGE_BASE + number * IMAGE_STRIDE;
            Some(Placed {
                address: window + IMAGE_FILE + image.header().code_offset,
                inode: *inode,
                unwinder: Unwinder::new(&image),
                adapted: own.map(|function| function.address()).collect(),
                image,
            })
        };
        let elf = files.elf.iter();
        let open = |(&inode, (path, elf)): (&u32, &(PathBuf, Bytes))| {
            let budget = Budget::new(Budget::REPORT);
            let module = Module::open(elf, path, debug?, &budget).ok()?;
            Some((inode, module))
        };
        Self {
            modules: files.elf.iter().filter_map(open).collect(),
            lines: HashMap::new(),
            symbols: elf
                .map(|(&inode, (_, elf))| (inode, Symbols::new(elf)))
                .collect(),
            images: files.images.iter().filter_map(place).collect(),
        }
    }

    /// Name of the function of a file that starts at a link-time address.
    pub fn name(&self, inode: u32, entry: u64) -> String {
        match self.symbols.get(&inode) {
            Some(symbols) => symbols.name(entry),
            None => format!("sub_{entry:x}"),
        }
    }

    /// Name of the function of a file that contains a link-time address.
    pub fn function(&self, inode: u32, address: u64) -> String {
        let symbols = self.symbols.get(&inode);
        let start = symbols.and_then(|symbols| symbols.containing(address));
        self.name(inode, start.unwrap_or(address))
    }

    /// The line at which the function of a file starts, if there is debug information.
    pub fn line(&mut self, inode: u32, entry: u64) -> Option<Line> {
        let known = self.lines.entry((inode, entry));
        let line = known.or_insert_with(|| {
            let budget = Budget::new(Budget::REPORT);
            let locations = self.modules.get(&inode)?.locations(entry, &budget);
            locations.into_iter().next_back()?.line
        });
        line.clone()
    }

    /// The lines of instructions of a file, in their order, as far as there is debug information: those of
    /// the functions that were inlined innermost.
    pub fn lines(&self, inode: u32, addresses: &[u64]) -> Vec<Option<Line>> {
        match self.modules.get(&inode) {
            Some(module) => module.lines(addresses, &Budget::new(Budget::REPORT)),
            None => vec![None; addresses.len()],
        }
    }

    /// Link-time address of the location at an offset in a file, and of the function around it.
    pub fn around(&self, inode: u32, offset: u64) -> Option<(u64, u64)> {
        let symbols = self.symbols.get(&inode)?;
        let address = symbols.address(offset)?;
        Some((address, symbols.containing(address).unwrap_or(address)))
    }

    /// The frame that a return address of a host stack belongs to.
    pub fn frame(&mut self, address: u64) -> Option<Frame> {
        self.images.iter_mut().find_map(|placed| {
            let host = address.checked_sub(placed.address)?;
            let (function, size) = placed.unwinder.frame(host)?;
            let adapter = placed.is_adapter(&function);
            // The baseline translator's code is entered in the middle of functions too.
            let entry = function.address();
            let symbols = self.symbols.get(&placed.inode);
            let start = symbols.and_then(|symbols| symbols.containing(entry));
            Some(Frame {
                function: (!adapter).then_some((placed.inode, start.unwrap_or(entry))),
                size,
            })
        })
    }

    /// Start, length and name of all translated functions.
    pub fn functions(&self) -> impl Iterator<Item = (u64, u64, String)> {
        self.images.iter().flat_map(|placed| {
            placed.image.functions().map(|function| {
                let start = placed.address + u64::from(function.host);
                let name = self.name_in(placed, &function);
                (start, u64::from(function.host_length), name)
            })
        })
    }

    /// All translated functions, with their code.
    pub fn code(&self) -> impl Iterator<Item = Code<'a>> {
        self.images.iter().flat_map(move |placed| {
            let accesses: Vec<AccessEntry> = placed.image.accesses().collect();
            placed.image.functions().filter_map(move |function| {
                let host = HostCode::of(&placed.image, function)?;
                let start = placed.address + u64::from(function.host);
                let end = u64::from(function.host) + host.bytes().len() as u64;
                let first = accesses.partition_point(|access| access.host < function.host);
                let text = placed.image.header().text_start;
                let within = accesses[first..].iter();
                let within = within.take_while(|access| u64::from(access.host) < end);
                let place = |access: &AccessEntry| {
                    let guest = text.wrapping_add(access.guest.into());
                    (placed.address + u64::from(access.host), guest)
                };
                let entry = (start, function.address());
                Some(Code {
                    start,
                    host,
                    name: self.name_in(placed, &function),
                    inode: placed.inode,
                    variant: placed.image.header().variant,
                    places: std::iter::once(entry).chain(within.map(place)).collect(),
                })
            })
        })
    }

    fn name_in(&self, placed: &Placed<'_>, function: &FunctionEntry) -> String {
        let name = self.name(placed.inode, function.address());
        match placed.is_adapter(function) {
            true => format!("{name} [adapter]"),
            false => name,
        }
    }
}
