//! The classification of an `Instruction` agrees with its semantics: a machine records accesses on
//! random encodings of every operation.

use std::collections::BTreeSet;

use hartline_isa::*;

/// Records what an instruction uses. Values carry no meaning.
#[derive(Default)]
struct Recorder {
    used: RegisterUse,
    loads: bool,
    stores: bool,
    /// Size of the access to memory.
    bytes: Option<u32>,
    rounding: Option<Rounding>,
    /// Control-flow operations, in the classification's terms.
    flow: Vec<Flow>,
}

impl Recorder {
    fn run(instruction: &Instruction) -> Self {
        let mut recorder = Self::default();
        execute(instruction, &mut recorder);
        recorder
    }

    fn round(&mut self, rounding: Rounding) {
        assert_eq!(self.rounding.replace(rounding), None);
    }
}

impl Machine for Recorder {
    type Int = ();
    type Bool = ();
    type Float = ();

    fn int(&mut self, _: u64) {}
    fn pc_relative(&mut self, _: i64) {}
    fn read_x(&mut self, register: XReg) {
        self.used.x_read |= register.mask() & !1;
    }
    fn write_x(&mut self, register: XReg, (): ()) {
        assert!(self.flow.is_empty(), "control flow is not last");
        self.used.x_written |= register.mask() & !1;
    }
    fn read_f(&mut self, register: FReg) {
        self.used.f_read |= register.mask();
    }
    fn write_f(&mut self, register: FReg, (): ()) {
        self.used.f_written |= register.mask();
    }
    fn bin(&mut self, _: BinOp, (): (), (): ()) {}
    fn un(&mut self, _: UnOp, (): ()) {}
    fn div(&mut self, _: DivOp, width: Width, (): (), (): ()) {
        assert!(matches!(width, Width::Word | Width::Double));
    }
    fn cmp(&mut self, _: Cmp, (): (), (): ()) {}
    fn and(&mut self, (): (), (): ()) {}
    fn bool_to_int(&mut self, (): ()) {}
    fn select(&mut self, (): (), (): (), (): ()) {}
    fn load(&mut self, width: Width, _: bool, (): ()) {
        (self.loads, self.bytes) = (true, Some(width.bytes()));
    }
    fn store(&mut self, width: Width, (): (), (): ()) {
        (self.stores, self.bytes) = (true, Some(width.bytes()));
    }
    fn load_f(&mut self, format: Format, (): ()) {
        (self.loads, self.bytes) = (true, Some(format.bytes()));
    }
    fn store_f(&mut self, format: Format, (): (), (): ()) {
        (self.stores, self.bytes) = (true, Some(format.bytes()));
    }
    fn is_aligned(&mut self, width: Width, _: bool, (): ()) -> bool {
        assert!(matches!(width, Width::Word | Width::Double));
        true
    }
    fn amo(&mut self, _: AmoOp, width: Width, _: Ordering, (): (), (): ()) {
        assert!(matches!(width, Width::Word | Width::Double));
        (self.loads, self.stores) = (true, true);
        self.bytes = Some(width.bytes());
    }
    fn load_reserved(&mut self, width: Width, _: Ordering, (): ()) {
        (self.loads, self.bytes) = (true, Some(width.bytes()));
    }
    fn store_conditional(&mut self, width: Width, _: Ordering, (): (), (): ()) {
        (self.stores, self.bytes) = (true, Some(width.bytes()));
    }
    fn fence(&mut self, _: Fence) {}
    fn fence_i(&mut self) {}
    fn f_bin(&mut self, _: FBinOp, _: Format, rounding: Rounding, (): (), (): ()) {
        self.round(rounding);
    }
    fn f_sqrt(&mut self, _: Format, rounding: Rounding, (): ()) {
        self.round(rounding);
    }
    fn f_fma(&mut self, _: Fma, _: Format, rounding: Rounding, (): (), (): (), (): ()) {
        self.round(rounding);
    }
    fn f_min_max(&mut self, _: FMinMax, _: Format, (): (), (): ()) {}
    fn f_cmp(&mut self, _: FCmp, _: Format, (): (), (): ()) {}
    fn f_class(&mut self, _: Format, (): ()) {}
    fn f_to_int(&mut self, _: IntFormat, _: Format, rounding: Rounding, (): ()) {
        self.round(rounding);
    }
    fn f_from_int(&mut self, _: Format, _: IntFormat, rounding: Rounding, (): ()) {
        self.round(rounding);
    }
    fn f_convert(&mut self, _: Format, rounding: Rounding, (): ()) {
        self.round(rounding);
    }
    fn f_bits(&mut self, (): ()) {}
    fn f_from_bits(&mut self, (): ()) {}
    fn csr(&mut self, _: u16, _: CsrOp, _: Option<()>, destination: XReg, _: &Instruction) {
        self.write_x(destination, ());
    }
    fn jump(&mut self, link: XReg, offset: i64) {
        let kind = JumpKind::of(link, XReg::ZERO);
        self.flow.push(Flow::Jump {
            kind,
            offset: offset as i32,
        });
    }
    fn branch(&mut self, (): (), offset: i64) {
        self.flow.push(Flow::Branch {
            offset: offset as i32,
        });
    }
    fn jump_register(&mut self, link: XReg, base: XReg, (): ()) {
        // The offset is part of the target, whose value is not recorded.
        self.flow.push(Flow::JumpRegister {
            kind: JumpKind::of(link, base),
            base,
            offset: 0,
        });
    }
    fn trap(&mut self, trap: Trap) {
        self.flow.push(match trap {
            Trap::EnvironmentCall => Flow::SystemCall,
            Trap::Breakpoint => Flow::Breakpoint,
            Trap::IllegalInstruction => panic!("a decoded instruction is legal"),
            Trap::LoadMisaligned(_) | Trap::StoreMisaligned(_) => panic!("depends on the address"),
        });
    }
}

fn check(instruction: &Instruction) {
    let recorded = Recorder::run(instruction);
    assert_eq!(recorded.used, instruction.register_use(), "{instruction:?}");
    assert_eq!(recorded.loads, instruction.is_load(), "{instruction:?}");
    assert_eq!(recorded.stores, instruction.is_store(), "{instruction:?}");
    assert_eq!(
        recorded.bytes,
        instruction.access_bytes(),
        "{instruction:?}"
    );
    assert_eq!(recorded.rounding, instruction.rounding(), "{instruction:?}");
    let flow = match instruction.flow() {
        Flow::JumpRegister { kind, base, .. } => Flow::JumpRegister {
            kind,
            base,
            offset: 0,
        },
        flow => flow,
    };
    let expected: Vec<Flow> = Some(flow)
        .into_iter()
        .filter(|&flow| flow != Flow::Next)
        .collect();
    assert_eq!(recorded.flow, expected, "{instruction:?}");
}

#[test]
fn classification_is_what_the_semantics_do() {
    let mut state = 1_u64;
    let mut kinds = BTreeSet::new();
    let mut count = 0;
    for _ in 0..3_000_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut bits = (state >> 32) as u32 | 3;
        // Fields that are fixed in most instructions would almost never match.
        match state >> 24 & 7 {
            0 => bits &= 0x01ff_ffff,
            1 => bits &= 0x61ff_ffff,
            2 => bits &= 0xf80f_ffff,
            3 => bits &= 0xfe0f_ffff,
            _ => {}
        }
        if let Some(instruction) = decode(bits) {
            check(&instruction);
            let name = instruction.disassemble(0).to_string();
            kinds.insert(name.split('\t').next().unwrap().to_owned());
            count += 1;
        }
    }
    for bits in 0..=0xffff_u32 {
        if bits & 3 != 3
            && let Some(instruction) = decode(bits)
        {
            check(&instruction);
        }
    }
    for bits in [0x0000_0073, 0x0010_0073, 0x0000_100f, 0x8330_000f] {
        check(&decode(bits).unwrap());
    }
    println!("{count} instructions, {} mnemonics", kinds.len());
    assert!(kinds.len() > 200, "{}", kinds.len());
}
