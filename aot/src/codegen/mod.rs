//! Generates x86-64 object code from LLVM IR.

mod diagnostics;

use std::ffi::CStr;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::llvm_sys::support::LLVMParseCommandLineOptions;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetData, TargetMachine,
    TargetTriple,
};
use thiserror::Error;

use crate::technique::{Disabled, Technique};

/// LLVM reported an error.
#[derive(Debug, Error)]
pub enum CodegenError {
    /// No target machine for these features.
    #[error("LLVM has no x86-64 target with features `{features}`: {reason}")]
    Target {
        /// The feature string.
        features: String,
        /// LLVM's error message.
        reason: String,
    },
    /// The passes failed.
    #[error("LLVM could not optimise a module: {0}")]
    Passes(String),
    /// Code generation failed.
    #[error("LLVM could not generate code: {0}")]
    Emit(String),
}

/// The passes before code generation, with the technique that they belong to.
const PASSES: [(Option<Technique>, &str); 7] = [
    (None, "mem2reg,early-cse<memssa>,simplifycfg"),
    (None, COMBINE),
    (Some(Technique::WideAccesses), "aggressive-instcombine"),
    (Some(Technique::LoopPasses), "loop-mssa(loop-rotate,licm)"),
    (Some(Technique::ValueNumbering), "gvn,dse"),
    (None, COMBINE),
    (None, "simplifycfg"),
];
const COMBINE: &str = "instcombine<no-verify-fixpoint>";

/// Native integer widths in the target's data layout.
const NATIVE: &str = "-n8:16:32:64-";
/// The widths reported to the passes instead. RISC-V code is full of 32-bit operations that
/// sign-extend their result. If 64 bits are native, LLVM computes them in the upper half of a
/// register and shifts right at every use.
const NATIVE_NARROW: &str = "-n8:16:32-";

/// A compiler for one thread.
pub struct Codegen {
    machine: TargetMachine,
    passes: String,
    narrow: bool,
}

/// Further LLVM options, for all its targets:
///
/// - Conditional moves from memory are not turned into branches: LLVM also converts volatile loads,
///   and a load that has to fault may then not be executed.
/// - The limit on joining registers that a copy connects is raised. The main function of an
///   interpreter has hundreds of handlers that each end with a copy of every guest register; LLVM
///   gives up after 256. From then on it copies registers from stack slot to stack slot in each
///   iteration.
/// - The search for the regions where a register is kept in a host register may take longer, for
///   the same functions.
const LLVM_OPTIONS: [&CStr; 3] = [
    c"-x86-cmov-converter-force-mem-operand=0",
    c"-large-interval-freq-threshold=1000000",
    c"-grow-region-complexity-budget=100000",
];

fn set_options() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut arguments = vec![c"hartline".as_ptr()];
        arguments.extend(LLVM_OPTIONS.map(CStr::as_ptr));
        let count = i32::try_from(arguments.len()).expect("a few arguments");
        // SAFETY: the strings are NUL-terminated, and no other code parses options.
        unsafe { LLVMParseCommandLineOptions(count, arguments.as_ptr(), std::ptr::null()) };
    });
}

impl Codegen {
    /// Creates a compiler for the target with the given LLVM features, without some techniques.
    ///
    /// # Errors
    /// LLVM does not know the target.
    pub fn new(features: &str, disabled: &Disabled) -> Result<Self, CodegenError> {
        Target::initialize_x86(&InitializationConfig::default());
        set_options();
        let error = |reason: String| CodegenError::Target {
            features: features.to_owned(),
            reason,
        };
        let triple = TargetTriple::create("x86_64-unknown-linux-gnu");
        let target = Target::from_triple(&triple).map_err(|text| error(text.to_string()))?;
        let machine = target
            .create_target_machine(
                &triple,
                "x86-64",
                features,
                OptimizationLevel::Default,
                RelocMode::PIC,
                CodeModel::Small,
            )
            .ok_or_else(|| error("no target machine".to_owned()))?;
        let used = PASSES
            .iter()
            .filter(|(technique, _)| technique.is_none_or(|technique| disabled.allows(technique)));
        let passes: Vec<&str> = used.map(|&(_, passes)| passes).collect();
        Ok(Self {
            machine,
            passes: format!("function({})", passes.join(",")),
            narrow: disabled.allows(Technique::NarrowWords),
        })
    }

    /// Sets the module's target triple and data layout.
    pub fn prepare(&self, module: &Module<'_>) {
        module.set_triple(&self.machine.get_triple());
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
    }

    /// Optimises a module.
    ///
    /// # Errors
    /// LLVM rejects the module.
    pub fn optimise(&self, module: &Module<'_>) -> Result<(), CodegenError> {
        let layout = self.machine.get_target_data().get_data_layout();
        let text = layout.as_str().to_string_lossy();
        if self.narrow {
            let narrow = TargetData::create(&text.replace(NATIVE, NATIVE_NARROW));
            module.set_data_layout(&narrow.get_data_layout());
        }
        let result = module
            .run_passes(&self.passes, &self.machine, PassBuilderOptions::create())
            .map_err(|text| CodegenError::Passes(text.to_string()));
        module.set_data_layout(&layout);
        result
    }

    /// Generates an ELF object file.
    ///
    /// # Errors
    /// LLVM fails.
    pub fn object(&self, module: &Module<'_>) -> Result<Vec<u8>, CodegenError> {
        self.emit(module, FileType::Object)
    }

    /// Generates assembly text.
    ///
    /// # Errors
    /// LLVM fails.
    pub fn assembly(&self, module: &Module<'_>) -> Result<String, CodegenError> {
        let bytes = self.emit(module, FileType::Assembly)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Generates code. LLVM's scheduler may move accesses to so many registers to one place that its register
    /// allocator has none left. Then the code is generated again without the scheduler.
    fn emit(&self, module: &Module<'_>, r#type: FileType) -> Result<Vec<u8>, CodegenError> {
        self.emit_once(module, r#type).or_else(|_| {
            forbid_scheduling(module);
            self.emit_once(module, r#type)
        })
    }

    fn emit_once(&self, module: &Module<'_>, r#type: FileType) -> Result<Vec<u8>, CodegenError> {
        let emit = || self.machine.write_to_memory_buffer(module, r#type);
        match diagnostics::watch(module, emit) {
            (_, Some(error)) => Err(CodegenError::Emit(error)),
            (Err(error), None) => Err(CodegenError::Emit(error.to_string())),
            (Ok(buffer), None) => Ok(buffer.as_slice().to_vec()),
        }
    }
}

/// Makes LLVM leave out the passes of code generation that only improve code. The IR stays optimised.
fn forbid_scheduling(module: &Module<'_>) {
    for function in module
        .get_functions()
        .filter(|f| f.count_basic_blocks() > 0)
    {
        // LLVM wants the second one with the first one.
        for name in ["optnone", "noinline"] {
            let kind = Attribute::get_named_enum_kind_id(name);
            let attribute = module.get_context().create_enum_attribute(kind, 0);
            function.add_attribute(AttributeLoc::Function, attribute);
        }
    }
}

#[cfg(test)]
mod tests;
