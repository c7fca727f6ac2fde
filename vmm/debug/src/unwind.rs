//! Call stacks of a program, from its registers, its memory and the unwind tables of its files.

use crate::budget::Budget;
use crate::frames::{Caller, ReadMemory, Registers};
use crate::module::{Location, Module};
use crate::prologue;
use std::cell::LazyCell;
use std::fmt::Write;

/// Most frames of a call stack.
pub const MAX_DEPTH: usize = 256;

/// Numbers of registers.
const RA: usize = 1;
const SP: usize = 2;
const FP: usize = 8;

/// `li a7, __NR_rt_sigreturn; ecall`: the code to which a signal handler returns.
const SIGRETURN: [u8; 8] = [0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0];
/// Offset from the stack pointer to the registers in `struct rt_sigframe`: the pc, then x1 to x31.
const SIGCONTEXT: u64 = 128 + 176;

/// A range of the program's memory that shows a part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Index of the file.
    pub file: usize,
}

/// A file that the program has mapped.
pub struct File<'a> {
    path: String,
    /// `None` if it is no ELF file.
    module: Opened<'a>,
}

/// A file that is opened when it is needed.
type Opened<'a> = LazyCell<Option<Module>, Box<dyn FnOnce() -> Option<Module> + Send + 'a>>;

impl<'a> File<'a> {
    /// The file at `path`, which `open` opens when the first frame in it is found.
    pub fn new(path: String, open: impl FnOnce() -> Option<Module> + Send + 'a) -> Self {
        Self {
            path,
            module: LazyCell::new(Box::new(open)),
        }
    }

    /// Its debug information, if it is an ELF file.
    #[must_use]
    pub fn module(&self) -> Option<&Module> {
        self.module.as_ref()
    }
}

/// The memory of a program that stands still.
pub struct Process<'a, 'f> {
    /// Its mappings of files, in any order.
    pub mappings: &'a [Mapping],
    /// The files.
    pub files: &'a [File<'f>],
    /// Reads its memory.
    pub memory: ReadMemory<'a>,
    /// Address of the code to which signal handlers return, if it is known.
    pub trampoline: Option<u64>,
}

/// How the caller of a frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It is the code that was interrupted.
    Interrupted,
    /// By the unwind table of the frame that it called.
    Table,
    /// A signal interrupted it: the registers were in the frame of the handler.
    Signal,
    /// There is no unwind table: by the instructions at the start of the frame that it called.
    Prologue,
    /// By the return address register or the frame pointer, which may be something else.
    Guess,
}

/// A frame of a call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Address at which it continues.
    pub pc: u64,
    /// How it was found.
    pub source: Source,
    /// Whether this is the code to which a signal handler returns.
    pub is_trampoline: bool,
    /// Its registers.
    pub x: Registers,
    /// Locations in the source, the innermost inlined function first; at least one.
    pub locations: Vec<Location>,
    /// Path of the file of the code.
    pub file: Option<String>,
}

/// An address of a call stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address in the program's memory.
    pub pc: u64,
    /// Index of the file, and the link-time address in it; `None` if it is not in a file.
    pub place: Option<(usize, u64)>,
}

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The frames, the innermost one first.
    pub frames: Vec<Frame>,
    /// The reason why there are no more; `None` if the last one has no caller.
    pub incomplete: Option<&'static str>,
}

/// A frame before its locations are known.
struct Step {
    pc: u64,
    x: Registers,
    source: Source,
}

impl<'f> Process<'_, 'f> {
    /// The call stack of a thread with these registers.
    #[must_use]
    pub fn stack(&self, pc: u64, x: &Registers, budget: &Budget) -> Stack {
        let mut frames: Vec<Frame> = Vec::new();
        let incomplete = self.walk(pc, x, budget, |step| frames.push(self.frame(step, budget)));
        Stack { frames, incomplete }
    }

    /// The addresses of the call stack of a thread with these registers, the innermost one first: of a
    /// caller it is the call.
    #[must_use]
    pub fn addresses(&self, pc: u64, x: &Registers, budget: &Budget) -> Vec<Address> {
        let mut addresses = Vec::new();
        self.walk(pc, x, budget, |step| {
            let address = lookup(&step);
            let place = self.mapped(address).and_then(|mapping| {
                let file = self.files.get(mapping.file)?;
                let offset = mapping.offset.checked_add(address - mapping.start)?;
                let module = file.module.as_ref()?;
                Some((mapping.file, module.address(offset)?))
            });
            addresses.push(Address { pc: address, place });
        });
        addresses
    }

    /// Visits the frames of a call stack. The result is the reason why there are no more; `None` if the
    /// last one has no caller.
    fn walk(
        &self,
        pc: u64,
        x: &Registers,
        budget: &Budget,
        mut visit: impl FnMut(Step),
    ) -> Option<&'static str> {
        let mut depth = 0;
        let mut next = Some(Step {
            pc,
            x: *x,
            source: Source::Interrupted,
        });
        while let Some(step) = next.take() {
            if depth == MAX_DEPTH {
                return Some("more callers");
            }
            depth += 1;
            let caller = self.caller(&step, budget);
            visit(step);
            match caller {
                Ok(caller) => next = caller,
                Err(why) => return Some(why),
            }
        }
        None
    }

    /// The mapping of a file at an address.
    fn mapped(&self, address: u64) -> Option<&Mapping> {
        let contains = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        self.mappings.iter().find(contains)
    }

    fn frame(&self, step: Step, budget: &Budget) -> Frame {
        let is_trampoline = self.is_trampoline(step.pc);
        let place = match is_trampoline {
            true => None,
            false => self.place(lookup(&step)),
        };
        let (locations, file) = match place {
            Some((file, address)) => {
                let module = file.module.as_ref();
                let locations = module.map(|module| module.locations(address, budget));
                (locations, Some(file.path.clone()))
            }
            None => (None, None),
        };
        Frame {
            pc: step.pc,
            source: step.source,
            is_trampoline,
            x: step.x,
            locations: locations.unwrap_or_else(|| vec![Location::default()]),
            file,
        }
    }

    /// The file that is mapped at an address, and the link-time address there.
    fn place(&self, address: u64) -> Option<(&File<'f>, u64)> {
        let mapping = self.mapped(address)?;
        let file = self.files.get(mapping.file)?;
        let offset = mapping.offset.checked_add(address - mapping.start)?;
        let module = file.module.as_ref();
        let linked = module.and_then(|module| module.address(offset));
        Some((file, linked.unwrap_or(offset)))
    }

    fn is_trampoline(&self, pc: u64) -> bool {
        if self.trampoline == Some(pc) {
            return true;
        }
        let mut code = [0; SIGRETURN.len()];
        (self.memory)(pc, &mut code) && code == SIGRETURN
    }

    /// The caller of a frame: none at the end of the stack.
    fn caller(&self, step: &Step, budget: &Budget) -> Result<Option<Step>, &'static str> {
        if self.is_trampoline(step.pc) {
            return self.interrupted(step).map(Some);
        }
        let table = self.place(lookup(step)).and_then(|(file, address)| {
            let frames = file.module.as_ref()?.frames().iter();
            let mut callers =
                frames.filter_map(|table| table.caller(address, &step.x, self.memory, budget));
            callers.next()
        });
        let (caller, source) = match table {
            Some(caller) => (caller, Source::Table),
            None => match self.by_prologue(step, budget) {
                Some(caller) => (caller, Source::Prologue),
                None => (self.guess(step)?, Source::Guess),
            },
        };
        if caller.is_end {
            return Ok(None);
        }
        let Some(pc) = caller.pc else {
            return Err("the return address is not known");
        };
        if pc == 0 {
            return Ok(None);
        }
        let sp = [step.x[SP], caller.x[SP]];
        if let [Some(inner), Some(outer)] = sp {
            // Only a function that has not changed the stack has the stack pointer of its caller.
            let is_alike = inner == outer && (!is_innermost(step) || pc == step.pc);
            if outer < inner || is_alike {
                return Err("the stack is corrupt");
            }
        }
        Ok(Some(Step {
            pc,
            x: caller.x,
            source,
        }))
    }

    /// The code that a signal interrupted: the handler returns to this frame.
    fn interrupted(&self, step: &Step) -> Result<Step, &'static str> {
        let sp = step.x[SP].ok_or("the stack pointer is not known")?;
        let mut bytes = [0; 32 * 8];
        if !(self.memory)(sp.wrapping_add(SIGCONTEXT), &mut bytes) {
            return Err("the frame of a signal cannot be read");
        }
        let (words, _) = bytes.as_chunks::<8>();
        let mut x = [None; 32];
        for (slot, word) in x.iter_mut().zip(words) {
            *slot = Some(u64::from_le_bytes(*word));
        }
        let pc = x[0].replace(0).unwrap_or(0);
        Ok(Step {
            pc,
            x,
            source: Source::Signal,
        })
    }

    /// The caller of a function without an unwind table, by its instructions.
    fn by_prologue(&self, step: &Step, budget: &Budget) -> Option<Caller> {
        let (file, address) = self.place(lookup(step))?;
        let module = file.module.as_ref()?;
        let pc = address.wrapping_add(step.pc.wrapping_sub(lookup(step)));
        prologue::caller(module, pc, &step.x, self.memory, is_innermost(step), budget)
    }

    /// The caller of other code without an unwind table.
    fn guess(&self, step: &Step) -> Result<Caller, &'static str> {
        // A jump to where there is no function.
        if is_innermost(step) {
            let pc = step.x[RA].ok_or("the return address is not known")?;
            // No register has been saved.
            let mut x = step.x;
            x[RA] = None;
            let is_code = pc == 0 || self.place(pc.wrapping_sub(1)).is_some();
            if is_code {
                return Ok(Caller {
                    pc: Some(pc),
                    x,
                    is_end: pc == 0,
                });
            }
        }
        // As compilers do with -fno-omit-frame-pointer: the return address and the caller's frame
        // pointer are below the address in the frame pointer.
        let fp = step.x[FP].ok_or("there is no unwind table")?;
        let mut bytes = [0; 16];
        let is_read = fp % 8 == 0 && (self.memory)(fp.wrapping_sub(16), &mut bytes);
        if !is_read {
            return Err("there is no unwind table");
        }
        let (words, _) = bytes.as_chunks::<8>();
        let [frame, pc] = [words[0], words[1]].map(u64::from_le_bytes);
        if self.place(pc.wrapping_sub(1)).is_none() {
            return Err("there is no unwind table");
        }
        let mut x = [None; 32];
        (x[0], x[SP], x[FP]) = (Some(0), Some(fp), Some(frame));
        Ok(Caller {
            pc: Some(pc),
            x,
            is_end: false,
        })
    }
}

/// The address whose function and line a frame has: of a caller it is the call before the return
/// address, which may be the last instruction of its function.
fn lookup(step: &Step) -> u64 {
    match step.source {
        Source::Interrupted | Source::Signal => step.pc,
        Source::Table | Source::Prologue | Source::Guess => step.pc.wrapping_sub(1),
    }
}

/// Whether the code has called nothing: it was interrupted.
fn is_innermost(step: &Step) -> bool {
    matches!(step.source, Source::Interrupted | Source::Signal)
}

impl Stack {
    /// The stack as lines, with numbers as gdb gives them.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for frame in &self.frames {
            if frame.is_trampoline {
                lines.push(format!("#{:<3} <signal handler called>", lines.len()));
                continue;
            }
            let last = frame.locations.len().saturating_sub(1);
            for (index, location) in frame.locations.iter().enumerate() {
                let mut line = format!("#{:<3} {:#018x} in ", lines.len(), frame.pc);
                line.push_str(location.function.as_deref().unwrap_or("??"));
                // Writing to a String cannot fail.
                if let Some(offset) = location.offset.filter(|_| location.line.is_none()) {
                    let _ = write!(line, "+{offset:#x}");
                }
                if index < last {
                    line.push_str(" (inlined)");
                }
                match (&location.line, &frame.file) {
                    (Some(source), _) => {
                        let _ = write!(line, " at {}:{}", source.file, source.number);
                    }
                    (None, Some(file)) => {
                        let _ = write!(line, " from {file}");
                    }
                    (None, None) => {}
                }
                if frame.source == Source::Guess && index == 0 {
                    line.push_str(" (guessed)");
                }
                lines.push(line);
            }
        }
        if let Some(why) = self.incomplete {
            lines.push(format!("     ... {why}"));
        }
        lines
    }
}
