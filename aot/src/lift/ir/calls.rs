//! Translated functions: their names, signatures, calls and returns.

use super::{Ir, built};
use inkwell::GlobalVisibility;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::llvm_sys::LLVMTailCallKind;
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, PointerValue, StructValue,
};

/// LLVM's number of `x86_regcallcc`.
const X86_REGCALL: u32 = 92;

/// LLVM's number of `preserve_allcc`.
const PRESERVE_ALL: u32 = 15;

/// The execution count that LLVM gets for every function.
const ENTRY_COUNT: u64 = 1000;

/// The pinned registers that a function takes and returns.
///
/// A function without floating-point code does not use the SSE registers, so the values that its
/// caller and its callees have there pass through it. Functions of both kinds may call each other
/// with either signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// Integer registers.
    Integer,
    /// Integer and floating-point registers.
    Full,
}

impl Signature {
    fn prefix(self) -> &'static str {
        match self {
            Signature::Integer => "i",
            Signature::Full => "w",
        }
    }
}

impl<'ctx> Ir<'ctx> {
    /// Returns the host function of the guest function at `guest`, for calls with a signature. The
    /// linker of images resolves the name. No function of the module has this name, so signatures
    /// need not agree.
    pub fn callee(&self, guest: u64, signature: Signature) -> PointerValue<'ctx> {
        let number = self.function_number(guest);
        self.declared(&format!("{}_{number:x}", signature.prefix()), signature)
    }

    /// Returns the host function for a call in the function's nonstandard convention.
    pub fn own_callee(&self, guest: u64, signature: Signature) -> PointerValue<'ctx> {
        let number = self.function_number(guest);
        self.declared(&format!("o{}_{number:x}", signature.prefix()), signature)
    }

    fn declared(&self, name: &str, signature: Signature) -> PointerValue<'ctx> {
        let function = self.module.get_function(name).unwrap_or_else(|| {
            let r#type = self.functions[signature as usize];
            let function = self.module.add_function(name, r#type, None);
            function.set_call_conventions(X86_REGCALL);
            let global = function.as_global_value();
            global.set_visibility(GlobalVisibility::Hidden);
            function
        });
        function.as_global_value().as_pointer_value()
    }

    /// Starts the definition of a host function. `features` is LLVM's list of target
    /// features.
    pub fn define(&self, name: &str, signature: Signature, features: &str) -> FunctionValue<'ctx> {
        let r#type = self.functions[signature as usize];
        let function = self.module.add_function(name, r#type, None);
        function.set_call_conventions(X86_REGCALL);
        for name in [
            "nounwind",
            "null_pointer_is_valid",
            "strictfp",
            "noimplicitfloat",
        ] {
            let kind = Attribute::get_named_enum_kind_id(name);
            let attribute = self.context.create_enum_attribute(kind, 0);
            function.add_attribute(AttributeLoc::Function, attribute);
        }
        // With a profile, LLVM keeps blocks that are almost never executed (polls) out of their
        // loops.
        let count = self.context.metadata_node(&[
            self.context.metadata_string("function_entry_count").into(),
            self.constant(ENTRY_COUNT).into(),
        ]);
        function
            .as_global_value()
            .set_metadata(count, self.kinds.prof);
        let features = match signature {
            Signature::Integer => format!("{features},-sse"),
            Signature::Full => features.to_owned(),
        };
        for (name, value) in [
            ("no-builtins", ""),
            ("target-cpu", "x86-64"),
            ("target-features", features.trim_start_matches(',')),
            ("frame-pointer", "none"),
        ] {
            let attribute = self.context.create_string_attribute(name, value);
            function.add_attribute(AttributeLoc::Function, attribute);
        }
        function
    }

    /// Calls a function of the translated-code convention with the pinned registers.
    pub fn call_guest(
        &self,
        signature: Signature,
        callee: PointerValue<'ctx>,
        pinned: &[BasicMetadataValueEnum<'ctx>],
    ) -> StructValue<'ctx> {
        let call = built(self.builder.build_indirect_call(
            self.functions[signature as usize],
            callee,
            pinned,
            "",
        ));
        call.set_call_convention(X86_REGCALL);
        call.add_attribute(AttributeLoc::Function, self.strict);
        call.try_as_basic_value()
            .basic()
            .expect("translated functions return the state")
            .into_struct_value()
    }

    /// Calls a function that preserves all registers.
    pub fn call_preserving(&self, callee: PointerValue<'ctx>) {
        let r#type = self.context.void_type().fn_type(&[], false);
        let call = built(self.builder.build_indirect_call(r#type, callee, &[], ""));
        call.set_call_convention(PRESERVE_ALL);
        call.add_attribute(AttributeLoc::Function, self.strict);
    }

    /// Tail-calls a function of the translated-code convention.
    pub fn tail_call_guest(
        &self,
        signature: Signature,
        callee: PointerValue<'ctx>,
        pinned: &[BasicMetadataValueEnum<'ctx>],
    ) {
        let call = built(self.builder.build_indirect_call(
            self.functions[signature as usize],
            callee,
            pinned,
            "",
        ));
        call.set_call_convention(X86_REGCALL);
        call.add_attribute(AttributeLoc::Function, self.strict);
        call.set_tail_call_kind(LLVMTailCallKind::LLVMTailCallKindMustTail);
        let state = call
            .try_as_basic_value()
            .basic()
            .expect("translated functions return the state");
        built(self.builder.build_return(Some(&state)));
    }

    /// Returns a state unchanged.
    pub fn return_state(&self, state: StructValue<'ctx>) {
        built(self.builder.build_return(Some(&state)));
    }

    /// Returns the pinned registers.
    pub fn return_pinned(&self, signature: Signature, pinned: &[BasicValueEnum<'ctx>]) {
        let mut state = self.states[signature as usize].get_undef();
        for (index, &value) in pinned.iter().enumerate() {
            let index = u32::try_from(index).expect("27 pinned registers");
            state =
                built(self.builder.build_insert_value(state, value, index, "")).into_struct_value();
        }
        self.return_state(state);
    }

    /// Returns the pinned register at `index` of a returned state.
    pub fn extract(&self, state: StructValue<'ctx>, index: usize) -> BasicValueEnum<'ctx> {
        let index = u32::try_from(index).expect("27 pinned registers");
        built(self.builder.build_extract_value(state, index, ""))
    }
}

/// The host function that a symbol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFunction {
    /// The number that stands for the guest function ([`Ir::function_number`]).
    pub number: u64,
    /// Whether it is the function with a nonstandard convention. Any code can call the other one.
    pub own: bool,
}

impl HostFunction {
    /// Parses a name made by [`name`](Self::name), [`Ir::callee`] or [`Ir::own_callee`].
    #[must_use]
    pub fn of_symbol(name: &str) -> Option<Self> {
        let (kind, digits) = name.split_once('_')?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        match kind {
            "f" | "i" | "w" => Some(Self { number, own: false }),
            "of" | "oi" | "ow" => Some(Self { number, own: true }),
            _ => None,
        }
    }

    /// Returns the name of its definition.
    #[must_use]
    pub fn name(self) -> String {
        match self.own {
            true => format!("of_{:x}", self.number),
            false => format!("f_{:x}", self.number),
        }
    }
}
