//! A thin layer over the LLVM builder: the types, metadata and infallible
//! building operations that lifting uses.

mod access;
mod addresses;
mod calls;

pub use access::Memory;
pub use addresses::{Naming, Value};
pub use calls::{HostFunction, Signature};

use access::access_tags;
use addresses::Addresses;
use hartline_abi::hart::{PINNED_F, PINNED_X};
use std::cell::{Cell, RefCell};

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::llvm_sys::core::LLVMContextSetDiscardValueNames;
use inkwell::module::{Linkage, Module};
use inkwell::types::{
    BasicType, BasicTypeEnum, FloatType, FunctionType, IntType, PointerType, StructType,
};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, CallSiteValue, FloatValue, FunctionValue,
    GlobalValue, IntValue, MetadataValue, PointerValue,
};
use inkwell::{FloatPredicate, GlobalVisibility, InlineAsmDialect, IntPredicate};

/// LLVM address space of `gs:`-relative addresses.
const GS: u16 = 256;

/// The probability that a conditional branch is taken.
#[derive(Debug, Clone, Copy)]
pub enum Likely {
    /// Unknown.
    Unknown,
    /// Almost always.
    Taken,
    /// Almost never.
    NotTaken,
    /// More often than not.
    Usually,
    /// Sometimes.
    Seldom,
}

/// Building blocks of one module.
pub struct Ir<'ctx> {
    /// The LLVM context.
    pub context: &'ctx Context,
    /// The module under construction.
    pub module: Module<'ctx>,
    builder: Builder<'ctx>,
    /// `i64`.
    pub int: IntType<'ctx>,
    /// `double`.
    pub double: FloatType<'ctx>,
    /// `float`.
    pub single: FloatType<'ctx>,
    pointer: PointerType<'ctx>,
    hart_pointer: PointerType<'ctx>,
    /// Result types by [`Signature`].
    states: [StructType<'ctx>; 2],
    functions: [FunctionType<'ctx>; 2],
    kinds: Kinds,
    tags: [MetadataValue<'ctx>; 3],
    weights: [MetadataValue<'ctx>; 4],
    empty: MetadataValue<'ctx>,
    stack_pointer: MetadataValue<'ctx>,
    strict: Attribute,
    precise: Cell<bool>,
    addresses: RefCell<Addresses>,
}

/// Metadata kind numbers.
struct Kinds {
    tbaa: u32,
    prof: u32,
    invariant: u32,
    absolute: u32,
}

/// Unwraps the value of an operation that fails only if the builder has no position, which [`Ir`]
/// rules out.
fn built<T>(result: Result<T, BuilderError>) -> T {
    result.expect("the builder is positioned and operand types agree")
}

impl<'ctx> Ir<'ctx> {
    /// Creates an empty module whose symbols are named like this.
    pub fn new(context: &'ctx Context, naming: Naming) -> Self {
        if !naming.readable {
            // The names of blocks and values do not affect the code, but are part of the bitcode.
            // SAFETY: the context is live.
            unsafe { LLVMContextSetDiscardValueNames(context.raw(), 1) };
        }
        let int = context.i64_type();
        let double = context.f64_type();
        let mut fields: Vec<BasicTypeEnum> = vec![int.into(); PINNED_X.len()];
        let narrow = context.struct_type(&fields, false);
        fields.extend(vec![BasicTypeEnum::from(double); PINNED_F.len()]);
        let states = [narrow, context.struct_type(&fields, false)];
        let parameters: Vec<_> = fields.iter().map(|&field| field.into()).collect();
        let functions = [
            narrow.fn_type(&parameters[..PINNED_X.len()], false),
            states[1].fn_type(&parameters, false),
        ];
        Self {
            context,
            module: context.create_module("guest"),
            builder: context.create_builder(),
            int,
            double,
            single: context.f32_type(),
            pointer: context.ptr_type(AddressSpace::default()),
            hart_pointer: context.ptr_type(AddressSpace::from(GS)),
            states,
            functions,
            kinds: Kinds {
                tbaa: context.get_kind_id("tbaa"),
                prof: context.get_kind_id("prof"),
                invariant: context.get_kind_id("invariant.load"),
                absolute: context.get_kind_id("absolute_symbol"),
            },
            tags: access_tags(context),
            weights: [(1 << 20, 1), (1, 1 << 20), (16, 1), (1, 16)]
                .map(|(taken, not_taken)| branch_weights(context, taken, not_taken)),
            empty: context.metadata_node(&[]),
            stack_pointer: context.metadata_node(&[context.metadata_string("rsp").into()]),
            strict: context.create_enum_attribute(Attribute::get_named_enum_kind_id("strictfp"), 0),
            precise: Cell::new(false),
            addresses: RefCell::new(Addresses::new(naming)),
        }
    }

    /// Sets whether stores to guest memory and to the `Hart` structure built from here on stay,
    /// keep their order, and are not passed by loads.
    pub fn set_precise(&self, precise: bool) {
        self.precise.set(precise);
    }

    /// Declares (once) a symbol that the linker of images resolves.
    pub fn symbol(&self, name: &str) -> PointerValue<'ctx> {
        self.module
            .get_global(name)
            .unwrap_or_else(|| self.declare_symbol(name))
            .as_pointer_value()
    }

    fn declare_symbol(&self, name: &str) -> GlobalValue<'ctx> {
        let global = self.module.add_global(self.context.i8_type(), None, name);
        global.set_linkage(Linkage::External);
        global.set_visibility(GlobalVisibility::Hidden);
        global
    }

    /// Adds a basic block at the end of `function`.
    pub fn block(&self, function: FunctionValue<'ctx>, name: &str) -> BasicBlock<'ctx> {
        self.context.append_basic_block(function, name)
    }

    /// Continues building at the end of `block`.
    pub fn position(&self, block: BasicBlock<'ctx>) {
        self.builder.position_at_end(block);
    }

    /// The block under construction.
    pub fn current(&self) -> BasicBlock<'ctx> {
        self.builder
            .get_insert_block()
            .expect("positioned by Ir::position")
    }

    /// The function under construction.
    pub fn current_function(&self) -> FunctionValue<'ctx> {
        self.current()
            .get_parent()
            .expect("blocks are made inside functions")
    }

    /// A 64-bit constant.
    pub fn constant(&self, value: u64) -> IntValue<'ctx> {
        self.int.const_int(value, false)
    }

    /// Makes an uninitialised variable; LLVM turns it into SSA values.
    pub fn variable(&self, r#type: impl BasicType<'ctx>, name: &str) -> PointerValue<'ctx> {
        built(self.builder.build_alloca(r#type, name))
    }

    /// Reads an integer variable.
    pub fn get(&self, variable: PointerValue<'ctx>) -> IntValue<'ctx> {
        built(self.builder.build_load(self.int, variable, "")).into_int_value()
    }

    /// Reads a `double` variable.
    pub fn get_double(&self, variable: PointerValue<'ctx>) -> FloatValue<'ctx> {
        built(self.builder.build_load(self.double, variable, "")).into_float_value()
    }

    /// Writes a variable.
    pub fn set(&self, variable: PointerValue<'ctx>, value: impl BasicValue<'ctx>) {
        built(self.builder.build_store(variable, value));
    }

    /// Reads a variable, which stays in memory if it is parked.
    pub fn get_in(
        &self,
        r#type: BasicTypeEnum<'ctx>,
        variable: PointerValue<'ctx>,
        is_parked: bool,
    ) -> BasicValueEnum<'ctx> {
        let value = built(self.builder.build_load(r#type, variable, ""));
        if is_parked && let Some(load) = value.as_instruction_value() {
            let _ = load.set_volatile(true);
        }
        value
    }

    /// Writes a variable, which stays in memory if it is parked.
    pub fn set_in(
        &self,
        variable: PointerValue<'ctx>,
        value: impl BasicValue<'ctx>,
        is_parked: bool,
    ) {
        let store = built(self.builder.build_store(variable, value));
        if is_parked {
            let _ = store.set_volatile(true);
        }
    }

    /// An integer type.
    pub fn int_of(&self, bits: u32) -> IntType<'ctx> {
        match bits {
            1 => self.context.bool_type(),
            8 => self.context.i8_type(),
            16 => self.context.i16_type(),
            32 => self.context.i32_type(),
            64 => self.int,
            _ => self.context.i128_type(),
        }
    }

    /// Keeps the low `bits` bits, as an integer of that width.
    pub fn truncate(&self, value: IntValue<'ctx>, bits: u32) -> IntValue<'ctx> {
        built(
            self.builder
                .build_int_truncate_or_bit_cast(value, self.int_of(bits), ""),
        )
    }

    /// Sign-extends to `bits` bits.
    pub fn sign_extend(&self, value: IntValue<'ctx>, bits: u32) -> IntValue<'ctx> {
        built(
            self.builder
                .build_int_s_extend_or_bit_cast(value, self.int_of(bits), ""),
        )
    }

    /// Zero-extends to `bits` bits.
    pub fn zero_extend(&self, value: IntValue<'ctx>, bits: u32) -> IntValue<'ctx> {
        built(
            self.builder
                .build_int_z_extend_or_bit_cast(value, self.int_of(bits), ""),
        )
    }

    /// Compares integers.
    pub fn compare(
        &self,
        predicate: IntPredicate,
        a: IntValue<'ctx>,
        b: IntValue<'ctx>,
    ) -> IntValue<'ctx> {
        built(self.builder.build_int_compare(predicate, a, b, ""))
    }

    /// Compares floating-point values, quietly and without ordering against other operations. In
    /// the precise variant the order is kept: a signalling NaN raises a flag, which must not be
    /// visible before an earlier fault.
    pub fn compare_float(
        &self,
        predicate: FloatPredicate,
        a: FloatValue<'ctx>,
        b: FloatValue<'ctx>,
    ) -> IntValue<'ctx> {
        if !self.precise.get() {
            return built(self.builder.build_float_compare(predicate, a, b, ""));
        }
        let name = match predicate {
            FloatPredicate::OGE => "oge",
            FloatPredicate::OLT => "olt",
            FloatPredicate::UNO => "uno",
            _ => unreachable!("nothing else is compared so"),
        };
        let arguments = [a.into(), b.into(), self.metadata_string(name)];
        self.constrained("fcmp", &[a.get_type().into()], &arguments, false)
            .into_int_value()
    }

    /// `condition ? a : b`.
    pub fn select<T: BasicValue<'ctx>>(
        &self,
        condition: IntValue<'ctx>,
        a: T,
        b: T,
    ) -> BasicValueEnum<'ctx> {
        built(self.builder.build_select(condition, a, b, ""))
    }

    /// Reinterprets the bits of a value.
    pub fn bitcast<T: BasicType<'ctx>>(
        &self,
        value: impl BasicValue<'ctx>,
        r#type: T,
    ) -> BasicValueEnum<'ctx> {
        built(self.builder.build_bit_cast(value, r#type, ""))
    }

    /// The builder, for operations without a shorthand here.
    pub fn builder(&self) -> &Builder<'ctx> {
        &self.builder
    }

    /// Unwraps a builder's result.
    pub fn built<T>(&self, result: Result<T, BuilderError>) -> T {
        built(result)
    }

    /// Calls an LLVM intrinsic.
    pub fn intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'ctx>],
        arguments: &[BasicMetadataValueEnum<'ctx>],
    ) -> BasicValueEnum<'ctx> {
        let call = self.call_intrinsic(name, types, arguments);
        call.try_as_basic_value()
            .basic()
            .expect("the intrinsic returns a value")
    }

    fn call_intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'ctx>],
        arguments: &[BasicMetadataValueEnum<'ctx>],
    ) -> CallSiteValue<'ctx> {
        let intrinsic = inkwell::intrinsics::Intrinsic::find(name)
            .unwrap_or_else(|| panic!("LLVM has the intrinsic {name}"));
        let declaration = intrinsic
            .get_declaration(&self.module, types)
            .unwrap_or_else(|| panic!("{name} takes these types"));
        built(self.builder.build_call(declaration, arguments, ""))
    }

    /// Calls a constrained floating-point intrinsic (`llvm.experimental.constrained.*`) in the
    /// dynamic rounding mode, with observable exceptions.
    pub fn constrained(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'ctx>],
        arguments: &[BasicMetadataValueEnum<'ctx>],
        rounded: bool,
    ) -> BasicValueEnum<'ctx> {
        let mut arguments = arguments.to_vec();
        if rounded {
            arguments.push(self.context.metadata_string("round.dynamic").into());
        }
        arguments.push(self.context.metadata_string("fpexcept.strict").into());
        let name = format!("llvm.experimental.constrained.{name}");
        let call = self.call_intrinsic(&name, types, &arguments);
        call.add_attribute(AttributeLoc::Function, self.strict);
        call.try_as_basic_value()
            .basic()
            .expect("the intrinsic returns a value")
    }

    /// A string as a metadata operand.
    pub fn metadata_string(&self, text: &str) -> BasicMetadataValueEnum<'ctx> {
        self.context.metadata_string(text).into()
    }

    /// Adds assembly that reads or writes memory or the state of the processor.
    pub fn assembly(&self, text: &str) {
        let r#type = self.context.void_type().fn_type(&[], false);
        let memory = "~{memory}".to_owned();
        let code = self.context.create_inline_asm(
            r#type,
            text.to_owned(),
            memory,
            true,
            false,
            Some(InlineAsmDialect::ATT),
            false,
        );
        built(self.builder.build_indirect_call(r#type, code, &[], ""));
    }

    /// Returns `value`, computed in a register, such that LLVM does not see its origin.
    pub fn opaque(&self, value: IntValue<'ctx>) -> IntValue<'ctx> {
        let kind = value.get_type();
        let r#type = kind.fn_type(&[kind.into()], false);
        let code = self.context.create_inline_asm(
            r#type,
            String::new(),
            "=r,0".to_owned(),
            false,
            false,
            Some(InlineAsmDialect::ATT),
            false,
        );
        let arguments = [value.into()];
        let call = built(
            self.builder
                .build_indirect_call(r#type, code, &arguments, ""),
        );
        // The code is dropped if the value is unused. The number 0 means that it accesses no
        // memory.
        for name in ["memory", "nounwind", "willreturn"] {
            let kind = Attribute::get_named_enum_kind_id(name);
            let attribute = self.context.create_enum_attribute(kind, 0);
            call.add_attribute(AttributeLoc::Function, attribute);
        }
        call.try_as_basic_value()
            .basic()
            .expect("the assembly returns a value")
            .into_int_value()
    }

    /// The host stack pointer.
    pub fn stack_pointer(&self) -> IntValue<'ctx> {
        self.intrinsic(
            "llvm.read_register",
            &[self.int.into()],
            &[self.stack_pointer.into()],
        )
        .into_int_value()
    }

    /// Jumps.
    pub fn jump(&self, target: BasicBlock<'ctx>) {
        built(self.builder.build_unconditional_branch(target));
    }

    /// Branches.
    pub fn branch(
        &self,
        condition: IntValue<'ctx>,
        then: BasicBlock<'ctx>,
        otherwise: BasicBlock<'ctx>,
        likely: Likely,
    ) {
        let branch = built(
            self.builder
                .build_conditional_branch(condition, then, otherwise),
        );
        let weights = match likely {
            Likely::Unknown => return,
            Likely::Taken => self.weights[0],
            Likely::NotTaken => self.weights[1],
            Likely::Usually => self.weights[2],
            Likely::Seldom => self.weights[3],
        };
        branch
            .set_metadata(weights, self.kinds.prof)
            .expect("a node is not function-local metadata");
    }
}

fn branch_weights(context: &Context, taken: u64, not_taken: u64) -> MetadataValue<'_> {
    let weight = |value| context.i32_type().const_int(value, false).into();
    context.metadata_node(&[
        context.metadata_string("branch_weights").into(),
        weight(taken),
        weight(not_taken),
    ])
}
