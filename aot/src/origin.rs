//! The guest's instructions that the code of an image was made from. A function is compiled again with
//! debug information ([`crate::explain`]), and its code compared with the image's.

use std::borrow::Cow;
use std::cell::OnceCell;

use hartline_abi::hart::PINNED_X;
use hartline_abi::image::FunctionEntry;
use hartline_isa::{Instruction, Operation, XReg};
use iced_x86::{Decoder, DecoderOptions};

use crate::analysis::{Unit, whereabouts};
use crate::cfg::{Block, Function};
use crate::explain::{Explained, HostState, explain};
use crate::image::Image;
use crate::translator::{LookError, Translator};

/// Indexes in [`HostState::registers`] of the host registers of [`PINNED_X`].
const PINNED_HOST: [usize; PINNED_X.len()] = [0, 1, 2, 7, 6, 8, 9, 12, 13, 14, 15];

/// Number of `ra`.
const RA: u32 = 1;

/// State of the guest at a fault in translated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestState {
    /// Link-time address of the instruction.
    pub pc: u64,
    /// `x0`–`x31`, as far as the code still had them.
    pub x: [Option<u64>; 32],
    /// Whether `ra` has the address to which the function returns, also if its value is not known.
    pub has_return_address: bool,
}

/// Code of a function in an image.
#[derive(Debug, Clone, Copy)]
pub struct HostCode<'a> {
    entry: FunctionEntry,
    bytes: &'a [u8],
}

impl<'a> HostCode<'a> {
    /// The code of the function `entry` of an image. `None` if it ends after the image's code.
    #[must_use]
    pub fn of(image: &Image<'a>, entry: FunctionEntry) -> Option<Self> {
        let start = usize::try_from(entry.host).ok()?;
        let end = start.checked_add(usize::try_from(entry.host_length).ok()?)?;
        let bytes = image.code().get(start..end)?;
        Some(Self { entry, bytes })
    }

    /// The function's entry in the image.
    #[must_use]
    pub fn entry(&self) -> &FunctionEntry {
        &self.entry
    }

    /// x86-64 code.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Finds the origin of code in images of one file, for one thread.
pub struct Origin<'a> {
    translator: &'a Translator<'a>,
    /// For functions that were translated without their callees.
    alone: OnceCell<Unit>,
}

/// A function of the file, and what each of its host instructions is for.
struct Explanation<'a> {
    function: Cow<'a, Function>,
    /// How it was translated.
    unit: &'a Unit,
    explained: Explained,
}

/// Whether two codes are the same but for the numbers in them.
fn has_same_instructions(code: &[u8], other: &[u8]) -> bool {
    let decode = |code| Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter();
    let instructions = |code| decode(code).map(|found| (found.code(), found.len()));
    code.len() == other.len() && instructions(code).eq(instructions(other))
}

/// Whether a pinned register still has the value that the function received: neither the guest's code nor
/// the host's changes it. LLVM does not say where such a register is.
fn kept(function: &Function, explained: &Explained) -> impl Fn(u8, usize) -> bool + use<> {
    let instructions = function.blocks.iter().flat_map(|block| &block.instructions);
    let written = instructions.fold(0, |set, entry| set | entry.1.register_use().x_written);
    let unchanged = explained.unchanged();
    move |number, host| written >> number & 1 == 0 && unchanged[host]
}

/// Whether LLVM's debug information may be wrong about a register at `pc`, whose host instruction is at
/// `offset`: LLVM may compute its value later than the guest does, and replaces the variables of loops by others.
fn is_doubtful(function: &Function, explained: &Explained, at: (u64, u64), number: usize) -> bool {
    let (pc, offset) = at;
    let has = |block: &&Block| block.instructions.iter().any(|entry| entry.0 == pc);
    let Some(block) = function.blocks.iter().find(has) else {
        return true;
    };
    let writes = |entry: &&(u64, Instruction)| entry.1.register_use().x_written >> number & 1 == 1;
    let mut writers = block.instructions.iter().filter(writes);
    if block.is_loop_header {
        return writers.next().is_some();
    }
    let Some((writer, _)) = writers.take_while(|entry| entry.0 < pc).last() else {
        return false;
    };
    let rows = explained.rows.iter();
    let mut places = rows.filter(|row| row.1 == Some(*writer)).peekable();
    places.peek().is_some() && places.all(|row| row.0 > offset)
}

impl<'a> Origin<'a> {
    /// The origin of code in images that were made as `translator` makes them.
    #[must_use]
    pub fn new(translator: &'a Translator<'a>) -> Self {
        Self {
            translator,
            alone: OnceCell::new(),
        }
    }

    /// `None` if the image's code is not what this translator makes.
    fn explain(&self, code: HostCode<'_>) -> Result<Option<Explanation<'_>>, LookError> {
        let Some(function) = self.translator.entered(code.entry.address()) else {
            return Ok(None);
        };
        let mut unit = self.translator.unit();
        let mut explained = explain(&function, unit)?;
        if !has_same_instructions(&explained.code, code.bytes) {
            let alone = || self.translator.unit_without_conventions();
            unit = self.alone.get_or_init(alone);
            explained = explain(&function, unit)?;
        }
        let is_same = has_same_instructions(&explained.code, code.bytes);
        Ok(is_same.then_some(Explanation {
            function,
            unit,
            explained,
        }))
    }

    /// Offsets in the code at which the code of a guest instruction begins, with the instruction's
    /// link-time address, ascending. `None` if the code differs from the code for this file.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn places(&self, code: HostCode<'_>) -> Result<Option<Vec<(u64, u64)>>, LookError> {
        let Some(found) = self.explain(code)? else {
            return Ok(None);
        };
        let rows = found.explained.rows.iter();
        Ok(Some(rows.filter_map(|&(at, pc)| Some((at, pc?))).collect()))
    }

    /// The link-time address after the guest's call whose host code returns `offset` bytes into the code.
    /// `None` if there is no such call.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn return_address(
        &self,
        code: HostCode<'_>,
        offset: u64,
    ) -> Result<Option<u64>, LookError> {
        let Some(found) = self.explain(code)? else {
            return Ok(None);
        };
        let call = offset
            .checked_sub(1)
            .and_then(|at| found.explained.guest_address(at));
        let mut instructions = found
            .function
            .blocks
            .iter()
            .flat_map(|block| &block.instructions);
        let call = call.and_then(|pc| instructions.find(|entry| entry.0 == pc));
        Ok(
            call.and_then(|(pc, instruction)| match instruction.operation() {
                Operation::Jal { rd: XReg::RA, .. } | Operation::Jalr { rd: XReg::RA, .. } => {
                    Some(pc + u64::from(instruction.length()))
                }
                _ => None,
            }),
        )
    }

    /// The guest's state at a fault `offset` bytes into the code. `None` if the code differs from the
    /// code for this file.
    ///
    /// # Errors
    /// LLVM failed.
    pub fn state(
        &self,
        code: HostCode<'_>,
        offset: u64,
        state: &HostState<'_>,
    ) -> Result<Option<GuestState>, LookError> {
        let Some(found) = self.explain(code)? else {
            return Ok(None);
        };
        let Explanation {
            function,
            unit,
            explained,
        } = found;
        let Some(pc) = explained.guest_address(offset) else {
            return Ok(None);
        };
        let mut x = explained.registers(offset, state)?;
        for (number, value) in x.iter_mut().enumerate().skip(1) {
            if is_doubtful(&function, &explained, (pc, offset), number) {
                *value = None;
            }
        }
        let registers = whereabouts(&function, pc, unit);
        for number in registers.in_hart.x_numbers() {
            x[number] = state.hart.get(number).copied();
        }
        let kept = kept(&function, &explained);
        for (number, host) in PINNED_X.into_iter().zip(PINNED_HOST) {
            let slot = &mut x[usize::from(number)];
            if slot.is_none() && kept(number, host) {
                *slot = state.registers.get(host).copied();
            }
        }
        for number in registers.unknown.x_numbers() {
            x[number] = None;
        }
        Ok(Some(GuestState {
            pc,
            x,
            has_return_address: registers.unknown.x >> RA & 1 == 0,
        }))
    }
}
