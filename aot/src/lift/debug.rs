//! Debug information for the code of one function: the guest instruction that an x86 instruction
//! belongs to, and the location of each guest register there.
//!
//! It is generated only to inspect code (disassembly, fault reports). LLVM generates the same code
//! with and without it, so a function compiled again with debug information describes the one in
//! the image.

use inkwell::debug_info::{
    AsDIScope, DICompileUnit, DIFlags, DIFlagsConstants, DILocation, DISubprogram, DIType,
    DWARFEmissionKind, DWARFSourceLanguage, DebugInfoBuilder,
};
use inkwell::llvm_sys::debuginfo::LLVMDIBuilderInsertDeclareRecordAtEnd;
use inkwell::module::FlagBehavior;
use inkwell::values::{AsValueRef, FunctionValue, PointerValue};

use super::ir::Ir;

/// DW_ATE_unsigned (DWARF 5, table 7.11).
const UNSIGNED: u32 = 7;
/// DW_ATE_float.
const FLOAT: u32 = 4;

/// Debug information of a module.
pub struct Debug<'ctx> {
    builder: DebugInfoBuilder<'ctx>,
    unit: DICompileUnit<'ctx>,
    /// The guest address of line 1.
    base: u64,
}

/// Debug information of a function.
pub(super) struct FunctionDebug<'a, 'ctx> {
    debug: &'a Debug<'ctx>,
    program: DISubprogram<'ctx>,
}

/// Returns the line number for the guest address `pc`. Lines count from 1; every address of 2-byte
/// aligned code has its own line.
fn line(base: u64, pc: u64) -> u32 {
    u32::try_from(pc.wrapping_sub(base) / 2 + 1).unwrap_or(0)
}

/// Returns the guest address for a line number.
pub(crate) fn guest_address(base: u64, line: u64) -> u64 {
    base.wrapping_add(line.wrapping_sub(1).wrapping_mul(2))
}

impl<'ctx> Debug<'ctx> {
    /// Starts debug information for a module. `base` is the lowest guest address
    /// in it.
    #[must_use]
    pub fn new(ir: &Ir<'ctx>, base: u64) -> Self {
        let version = ir.context.i32_type().const_int(3, false);
        ir.module
            .add_basic_value_flag("Debug Info Version", FlagBehavior::Warning, version);
        let (builder, unit) = ir.module.create_debug_info_builder(
            false,
            DWARFSourceLanguage::C,
            "guest",
            ".",
            "hartline",
            true,
            "",
            0,
            "",
            DWARFEmissionKind::Full,
            0,
            false,
            false,
            "",
            "",
        );
        Self {
            builder,
            unit,
            base,
        }
    }

    /// Completes the module's debug information.
    pub fn finish(&self) {
        self.builder.finalize();
    }

    pub(super) fn function(&self, function: FunctionValue<'ctx>) -> FunctionDebug<'_, 'ctx> {
        let file = self.unit.get_file();
        let r#type = self
            .builder
            .create_subroutine_type(file, None, &[], DIFlags::ZERO);
        let name = function.get_name().to_string_lossy().into_owned();
        let program = self.builder.create_function(
            self.unit.as_debug_info_scope(),
            &name,
            None,
            file,
            1,
            r#type,
            true,
            true,
            1,
            DIFlags::ZERO,
            true,
        );
        function.set_subprogram(program);
        FunctionDebug {
            debug: self,
            program,
        }
    }
}

impl<'ctx> FunctionDebug<'_, 'ctx> {
    fn location(&self, ir: &Ir<'ctx>, line: u32) -> DILocation<'ctx> {
        self.debug.builder.create_debug_location(
            ir.context,
            line,
            0,
            self.program.as_debug_info_scope(),
            None,
        )
    }

    /// Assigns the code built from here on to the guest instruction at `pc`.
    pub(super) fn at(&self, ir: &Ir<'ctx>, pc: u64) {
        let location = self.location(ir, line(self.debug.base, pc));
        ir.builder().set_current_debug_location(location);
    }

    /// Assigns the code built from here on to no guest instruction.
    pub(super) fn nowhere(&self, ir: &Ir<'ctx>) {
        let location = self.location(ir, 0);
        ir.builder().set_current_debug_location(location);
    }

    /// Describes the guest register `name` (`x5`, `f10`) by its variable.
    pub(super) fn register(
        &self,
        ir: &Ir<'ctx>,
        name: &str,
        variable: PointerValue<'ctx>,
        float: bool,
    ) {
        let (r#type, encoding) = if float { ("f", FLOAT) } else { ("x", UNSIGNED) };
        let builder = &self.debug.builder;
        let bits = 8 * size_of::<u64>() as u64;
        let Ok(basic) = builder.create_basic_type(r#type, bits, encoding, DIFlags::ZERO) else {
            return;
        };
        let basic: DIType<'ctx> = basic.as_type();
        let file = self.debug.unit.get_file();
        let scope = self.program.as_debug_info_scope();
        let local =
            builder.create_auto_variable(scope, name, file, 1, basic, true, DIFlags::ZERO, 0);
        let location = self.location(ir, 0);
        let everywhere = builder.create_expression(Vec::new());
        // SAFETY: all pointers come from live values of one context. inkwell's own method expects
        // an instruction as the result, which LLVM returned before version 19.
        unsafe {
            LLVMDIBuilderInsertDeclareRecordAtEnd(
                builder.as_mut_ptr(),
                variable.as_value_ref(),
                local.as_mut_ptr(),
                everywhere.as_mut_ptr(),
                location.as_mut_ptr(),
                ir.current().as_mut_ptr(),
            );
        }
    }
}
