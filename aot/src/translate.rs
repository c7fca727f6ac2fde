//! Compiles functions to linked code: modules are lifted, optimised and generated, either on all
//! processors or some functions at a time.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use inkwell::context::Context;
use thiserror::Error;

use crate::analysis::{Unit, resume_points};
use crate::cfg::Function;
use crate::code_object::CodeObject;
use crate::codegen::{Codegen, CodegenError};
use crate::function_store::FunctionStore;
use crate::layout;
use crate::lift::{Ir, Naming, lift, lift_adapter};
use crate::link::{Extent, LinkError, ResumePoint};
use crate::pieces::Piece;
use crate::technique::Technique;

/// The number of instructions that a thread compiles before it takes others: few enough to balance the
/// threads and show progress.
const BATCH_INSTRUCTIONS: usize = 4000;

/// Translation failed; the input is not the cause.
#[derive(Debug, Error)]
pub enum TranslateError {
    /// An LLVM error.
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    /// An error of the linker of images.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Receives the progress of a translation. It is called from several threads.
pub trait Progress: Sync {
    /// Reports that `done` of `total` guest instructions are translated.
    fn advance(&self, done: usize, total: usize);
}

/// Ignores the progress.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _done: usize, _total: usize) {}
}

/// Compiles functions that are not in `store`, sorted by entry. Their order in an image (`layout`) does not depend on the
/// number of threads.
///
/// # Errors
/// LLVM failed.
pub fn translate(
    functions: &[Function],
    unit: &Unit,
    threads: Option<NonZero<usize>>,
    store: Option<&FunctionStore>,
    progress: &dyn Progress,
) -> Result<Vec<Piece>, CodegenError> {
    let functions: Vec<&Function> = match unit.disabled.allows(Technique::FunctionOrder) {
        true => layout::order(functions)
            .into_iter()
            .map(|index| &functions[index])
            .collect(),
        false => functions.iter().collect(),
    };
    let batches = batches(&functions);
    let total = functions.iter().map(|f| f.instruction_count()).sum();
    let schedule = schedule(&functions, &batches);
    let workers = threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZero::get)
        .min(batches.len());
    let job = Job {
        functions: &functions,
        batches: &batches,
        schedule: &schedule,
        unit,
        store,
        progress,
        total,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        pieces: Mutex::new(vec![None; batches.len()]),
    };
    progress.advance(0, total);
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, || job.work());
        // If the host allows no more threads, there are fewer.
        let others: Vec<_> = (1..workers).map_while(|n| spawn(n).ok()).collect();
        let own = job.work();
        let others = others.into_iter().map(|handle| match handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(own)
            .chain(others)
            .collect::<Result<Vec<()>, CodegenError>>()
    })?;
    let pieces = job
        .pieces
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(pieces.into_iter().flatten().collect())
}

/// Returns the ranges of functions that one thread compiles.
fn batches(functions: &[&Function]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let mut start = 0;
    let mut size = 0;
    for (index, function) in functions.iter().enumerate() {
        size += function.instruction_count();
        if size >= BATCH_INSTRUCTIONS {
            batches.push(start..index + 1);
            start = index + 1;
            size = 0;
        }
    }
    if start < functions.len() {
        batches.push(start..functions.len());
    }
    batches
}

/// The order in which batches are compiled: the largest first, which have giant functions. Otherwise
/// one thread may compile a giant after the others have finished.
fn schedule(functions: &[&Function], batches: &[Range<usize>]) -> Vec<usize> {
    let largest = |batch: &Range<usize>| {
        let batch = functions[batch.clone()].iter();
        batch.map(|function| function.instruction_count()).max()
    };
    let mut order: Vec<usize> = (0..batches.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(largest(&batches[index])));
    order
}

/// Work shared by the threads.
struct Job<'a> {
    functions: &'a [&'a Function],
    batches: &'a [Range<usize>],
    /// Indices of the batches, in the order in which they are compiled.
    schedule: &'a [usize],
    unit: &'a Unit,
    store: Option<&'a FunctionStore>,
    progress: &'a dyn Progress,
    total: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    failed: AtomicBool,
    pieces: Mutex<Vec<Option<Piece>>>,
}

impl Job<'_> {
    fn work(&self) -> Result<(), CodegenError> {
        let result = self.compile_batches();
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn compile_batches(&self) -> Result<(), CodegenError> {
        let codegen = Codegen::new(self.unit.features.llvm(), &self.unit.disabled)?;
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = self.schedule.get(next) else {
                return Ok(());
            };
            let batch = &self.batches[index];
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let functions = &self.functions[batch.clone()];
            let piece = compile(&codegen, self.unit, functions, self.store)?;
            if let Ok(mut pieces) = self.pieces.lock() {
                pieces[index] = Some(piece);
            }
            let count: usize = functions.iter().map(|f| f.instruction_count()).sum();
            let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
            self.progress.advance(done, self.total);
        }
    }
}

/// Compiles functions that are not in `store`.
///
/// # Errors
/// LLVM failed.
pub fn compile(
    codegen: &Codegen,
    unit: &Unit,
    functions: &[&Function],
    store: Option<&FunctionStore>,
) -> Result<Piece, CodegenError> {
    let objects = functions
        .iter()
        .map(|function| object(codegen, unit, function, store));
    let resume = functions.iter().flat_map(|function| {
        let point = |guest| ResumePoint {
            guest,
            function: function.entry,
        };
        resume_points(function, unit).into_iter().map(point)
    });
    Ok(Piece {
        functions: functions.iter().map(|function| function.entry).collect(),
        resume: resume.collect(),
        extents: functions
            .iter()
            .flat_map(|function| extents(function))
            .collect(),
        objects: objects.collect::<Result<_, _>>()?,
    })
}

/// Returns the guest code of a function.
fn extents(function: &Function) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for block in &function.blocks {
        match extents.last_mut() {
            // Blocks are sorted by start, and may overlap.
            Some(last) if block.start <= last.end => last.end = last.end.max(block.end()),
            _ => extents.push(Extent {
                function: function.entry,
                start: block.start,
                end: block.end(),
            }),
        }
    }
    extents
}

/// Returns the code of a function: from `store`, or compiled as one module.
fn object(
    codegen: &Codegen,
    unit: &Unit,
    function: &Function,
    store: Option<&FunctionStore>,
) -> Result<CodeObject, CodegenError> {
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_linker(unit.position_independent));
    codegen.prepare(&ir.module);
    lift_with_adapter(&ir, unit, function);
    let mut object = CodeObject {
        key: store.map(|store| store.key(ir.module.write_bitcode_to_memory().as_slice())),
        addresses: ir.addresses(),
        bytes: Vec::new(),
    };
    if let (Some(store), Some(key)) = (store, &object.key)
        && let Some(bytes) = store.find(key)
    {
        object.bytes = bytes;
        if object.check(&unit.text).is_ok() {
            store.count(function.instruction_count());
            return Ok(object);
        }
    }
    codegen.optimise(&ir.module)?;
    object.bytes = codegen.object(&ir.module)?;
    match object.check(&unit.text) {
        Ok(()) => Ok(object),
        Err(_) => object_with_constants(codegen, unit, function),
    }
}

/// Compiles a function that names an address in a place that has no room for a symbol.
fn object_with_constants(
    codegen: &Codegen,
    unit: &Unit,
    function: &Function,
) -> Result<CodeObject, CodegenError> {
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_linker(false));
    codegen.prepare(&ir.module);
    lift_with_adapter(&ir, unit, function);
    codegen.optimise(&ir.module)?;
    Ok(CodeObject {
        key: None,
        addresses: ir.addresses(),
        bytes: codegen.object(&ir.module)?,
    })
}

fn lift_with_adapter(ir: &Ir<'_>, unit: &Unit, function: &Function) {
    lift(ir, unit, function, None);
    if unit.conventions.is_own(function.entry) {
        lift_adapter(ir, unit, function.entry);
    }
}

/// A stage of translation that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// LLVM IR as lifted.
    Ir,
    /// LLVM IR after optimisation.
    Optimised,
    /// x86-64 assembly.
    Assembly,
}

/// Returns the text of `functions` at a stage of translation.
///
/// # Errors
/// LLVM failed.
pub fn emit(functions: &[&Function], unit: &Unit, stage: Stage) -> Result<String, TranslateError> {
    let context = Context::create();
    let ir = Ir::new(&context, Naming::for_readers(unit.position_independent));
    let codegen = Codegen::new(unit.features.llvm(), &unit.disabled)?;
    codegen.prepare(&ir.module);
    for function in functions {
        lift_with_adapter(&ir, unit, function);
    }
    if stage == Stage::Ir {
        return Ok(ir.module.print_to_string().to_string());
    }
    codegen.optimise(&ir.module)?;
    if stage == Stage::Optimised {
        return Ok(ir.module.print_to_string().to_string());
    }
    Ok(codegen.assembly(&ir.module)?)
}
