//! iced-x86 decodes each instruction; the result must be the expected text.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{
    Alu, Assembler, BitOp, Condition, CountOp, FmaOp, Gpr, Mem, Precision, Rm, RoundMode, Scalar,
    Shift, ShiftX, Size, Unary, Xmm, XmmRm,
};

/// Returns the text of the only instruction that `emit` appends.
fn decoded(emit: impl FnOnce(&mut Assembler)) -> String {
    let mut asm = Assembler::default();
    emit(&mut asm);
    let code = asm.finish().bytes;
    let mut decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert!(!instruction.is_invalid(), "{code:02x?}");
    assert_eq!(instruction.len(), code.len(), "{code:02x?}");
    text(&instruction)
}

/// The mnemonic and the operands, in Intel's order.
fn text(instruction: &Instruction) -> String {
    let mut text = format!("{:?}", instruction.mnemonic()).to_lowercase();
    if instruction.has_lock_prefix() {
        text.insert_str(0, "lock ");
    }
    let operands: Vec<String> = (0..instruction.op_count())
        .map(|index| operand(instruction, index))
        .collect();
    format!("{text} {}", operands.join(", ")).trim().to_owned()
}

fn operand(instruction: &Instruction, index: u32) -> String {
    match instruction.op_kind(index) {
        OpKind::Register => name(instruction.op_register(index)),
        OpKind::Memory => memory(instruction),
        OpKind::NearBranch64 => format!("{:#x}", instruction.near_branch64()),
        OpKind::Immediate32 => format!("{}", instruction.immediate32() as i32),
        _ => format!("{}", instruction.immediate(index) as i64),
    }
}

fn name(register: Register) -> String {
    format!("{register:?}").to_lowercase()
}

fn memory(instruction: &Instruction) -> String {
    let mut text = String::new();
    if instruction.segment_prefix() != Register::None {
        text += &format!("{}:", name(instruction.segment_prefix()));
    }
    if instruction.memory_base() != Register::None {
        text += &name(instruction.memory_base());
    }
    if instruction.memory_index() != Register::None {
        let index = name(instruction.memory_index());
        text += &format!("+{index}*{}", instruction.memory_index_scale());
    }
    // The name ends with the number of bits, as in `UInt64`, except for an address of code.
    let size = format!("{:?}", instruction.memory_size()).replace("QwordOffset", "64");
    let bits = size.trim_start_matches(|c: char| !c.is_ascii_digit());
    let size = bits.parse().unwrap_or(0) / 8;
    format!(
        "{size}[{text}{:+}]",
        instruction.memory_displacement64() as i64
    )
}

/// The name of a register at a size.
fn sized(register: Gpr, size: Size) -> String {
    let full = name(Register::RAX + u32::from(register.number()));
    let base = match size {
        Size::Byte => Register::AL,
        Size::Half => Register::AX,
        Size::Word => Register::EAX,
        Size::Double => return full,
    };
    let number = u32::from(register.number());
    match (size, number) {
        // AH to BH come before SPL in iced's numbering.
        (Size::Byte, 4..) => name(Register::SPL + (number - 4)),
        _ => name(base + number),
    }
}

fn xmm(register: Xmm) -> String {
    name(Register::XMM0 + u32::from(register.number()))
}

/// Memory operands of each form, with their texts without the size.
fn memories() -> Vec<(Mem, String)> {
    let mut memories = vec![(Mem::Gs(0x218), "[gs:+536]".to_owned())];
    for base in Gpr::ALL {
        for displacement in [0, 1, -128, 127, 128, -129, i32::MAX, i32::MIN] {
            let text = format!("[{}{displacement:+}]", sized(base, Size::Double));
            memories.push((Mem::Base(base, displacement), text));
        }
        for index in Gpr::ALL.into_iter().filter(|index| *index != Gpr::Rsp) {
            for scale in [1, 2, 4, 8] {
                let (a, b) = (sized(base, Size::Double), sized(index, Size::Double));
                let text = format!("[{a}+{b}*{scale}+16]");
                memories.push((Mem::Index(base, index, scale, 16), text));
            }
        }
    }
    memories
}

fn bytes(size: Size) -> usize {
    match size {
        Size::Byte => 1,
        Size::Half => 2,
        Size::Word => 4,
        Size::Double => 8,
    }
}

fn scalar_bytes(precision: Precision) -> usize {
    match precision {
        Precision::Single => 4,
        Precision::Double => 8,
    }
}

fn suffix(precision: Precision) -> &'static str {
    match precision {
        Precision::Single => "ss",
        Precision::Double => "sd",
    }
}

const WIDE: [Size; 2] = [Size::Word, Size::Double];
const ALL_SIZES: [Size; 4] = [Size::Byte, Size::Half, Size::Word, Size::Double];
const PRECISIONS: [Precision; 2] = [Precision::Single, Precision::Double];

fn lower(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Runs `check` for each pair of registers.
fn pairs(mut check: impl FnMut(Gpr, Gpr)) {
    for a in Gpr::ALL {
        for b in Gpr::ALL {
            check(a, b);
        }
    }
}

fn xmm_pairs(mut check: impl FnMut(Xmm, Xmm)) {
    for a in Xmm::ALL {
        for b in Xmm::ALL {
            check(a, b);
        }
    }
}

#[test]
fn memory_operands() {
    for (memory, text) in memories() {
        for register in Gpr::ALL {
            let r = sized(register, Size::Double);
            assert_eq!(
                decoded(|asm| asm.mov(Size::Double, register, memory)),
                format!("mov {r}, 8{text}")
            );
        }
        assert_eq!(
            decoded(|asm| asm.movs_store(Precision::Double, memory, Xmm::Xmm9)),
            format!("movsd 8{text}, xmm9")
        );
        let fma = |asm: &mut Assembler| {
            asm.fma(
                FmaOp::Vfmadd231,
                Precision::Single,
                Xmm::Xmm8,
                Xmm::Xmm7,
                memory,
            );
        };
        assert_eq!(decoded(fma), format!("vfmadd231ss xmm8, xmm7, 4{text}"));
    }
    // The displacement counts from the end of the instruction, 7 bytes.
    assert_eq!(
        decoded(|asm| asm.mov(Size::Double, Gpr::R11, Mem::Rip)),
        "mov r11, 8[rip+7]"
    );
}

#[test]
fn classic_operations() {
    let operations = [Alu::Add, Alu::Or, Alu::And, Alu::Sub, Alu::Xor, Alu::Cmp];
    for op in operations {
        let mnemonic = lower(op);
        for size in WIDE {
            pairs(|a, b| {
                assert_eq!(
                    decoded(|asm| asm.alu(op, size, a, b)),
                    format!("{mnemonic} {}, {}", sized(a, size), sized(b, size))
                );
            });
            for register in Gpr::ALL {
                for immediate in [0, 1, -1, 127, -128, 128, -129, i32::MAX, i32::MIN] {
                    assert_eq!(
                        decoded(|asm| asm.alu_imm(op, size, register, immediate)),
                        format!("{mnemonic} {}, {immediate}", sized(register, size))
                    );
                }
            }
            let memory = Mem::Gs(8);
            assert_eq!(
                decoded(|asm| asm.alu_imm(op, size, memory, 5)),
                format!("{mnemonic} {}[gs:+8], 5", bytes(size))
            );
        }
    }
}

#[test]
fn moves() {
    for size in WIDE {
        pairs(|a, b| {
            let expected = format!("mov {}, {}", sized(a, size), sized(b, size));
            assert_eq!(decoded(|asm| asm.mov(size, a, b)), expected);
        });
    }
    for size in ALL_SIZES {
        pairs(|base, source| {
            let (memory, base) = (Mem::Base(base, 4), sized(base, Size::Double));
            assert_eq!(
                decoded(|asm| asm.mov_store(size, memory, source)),
                format!("mov {}[{base}+4], {}", bytes(size), sized(source, size))
            );
        });
        assert_eq!(
            decoded(|asm| asm.mov_store_imm(size, Mem::Gs(16), 7)),
            format!("mov {}[gs:+16], 7", bytes(size))
        );
    }
    for register in Gpr::ALL {
        for value in [
            0,
            1,
            u32::MAX.into(),
            1 << 32,
            1 << 63,
            u64::MAX,
            0x7fff_ffff,
        ] {
            let text = decoded(|asm| asm.mov_imm(register, value));
            let (size, shown) = match u32::try_from(value) {
                Ok(word) => (Size::Word, i64::from(word as i32)),
                Err(_) => (Size::Double, value as i64),
            };
            let expected = format!("mov {}, {shown}", sized(register, size));
            assert_eq!(text, expected);
        }
        let r = sized(register, Size::Double);
        assert_eq!(decoded(|asm| asm.push(register)), format!("push {r}"));
        assert_eq!(decoded(|asm| asm.pop(register)), format!("pop {r}"));
        assert_eq!(decoded(|asm| asm.bswap(register)), format!("bswap {r}"));
    }
}

#[test]
fn extensions() {
    pairs(|a, b| {
        let wide = sized(a, Size::Double);
        for from in [Size::Byte, Size::Half] {
            let source = sized(b, from);
            assert_eq!(
                decoded(|asm| asm.movzx(from, a, b)),
                format!("movzx {}, {source}", sized(a, Size::Word))
            );
            assert_eq!(
                decoded(|asm| asm.movsx(from, a, b)),
                format!("movsx {wide}, {source}")
            );
        }
        assert_eq!(
            decoded(|asm| asm.movsx(Size::Word, a, b)),
            format!("movsxd {wide}, {}", sized(b, Size::Word))
        );
    });
    for from in [Size::Byte, Size::Half] {
        let memory = Mem::Base(Gpr::Rsi, 1);
        assert_eq!(
            decoded(|asm| asm.movzx(from, Gpr::R9, memory)),
            format!("movzx r9d, {}[rsi+1]", bytes(from))
        );
        assert_eq!(
            decoded(|asm| asm.movsx(from, Gpr::R9, memory)),
            format!("movsx r9, {}[rsi+1]", bytes(from))
        );
    }
    for (memory, text) in memories() {
        assert_eq!(
            decoded(|asm| asm.lea(Gpr::R12, memory)),
            format!("lea r12, 0{text}")
        );
    }
}

#[test]
fn tests_and_conditions() {
    for condition in Condition::ALL {
        let name = [
            "o", "", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g",
        ][usize::from(condition.code())];
        for register in Gpr::ALL {
            assert_eq!(
                decoded(|asm| asm.set(condition, register)),
                format!("set{name} {}", sized(register, Size::Byte))
            );
        }
        for size in WIDE {
            pairs(|a, b| {
                assert_eq!(
                    decoded(|asm| asm.cmov(condition, size, a, b)),
                    format!("cmov{name} {}, {}", sized(a, size), sized(b, size))
                );
            });
        }
        let jump = decoded(|asm| {
            let label = asm.label();
            asm.jcc(condition, label);
            asm.bind(label);
        });
        assert_eq!(jump, format!("j{name} 0x6"));
    }
    for size in WIDE {
        pairs(|a, b| {
            assert_eq!(
                decoded(|asm| asm.test(size, a, b)),
                format!("test {}, {}", sized(a, size), sized(b, size))
            );
        });
        for register in Gpr::ALL {
            assert_eq!(
                decoded(|asm| asm.test_imm(size, register, 7)),
                format!("test {}, 7", sized(register, size))
            );
        }
    }
}

#[test]
fn shifts() {
    for size in WIDE {
        for op in [Shift::Rol, Shift::Ror, Shift::Shl, Shift::Shr, Shift::Sar] {
            for register in Gpr::ALL {
                let r = sized(register, size);
                assert_eq!(
                    decoded(|asm| asm.shift_imm(op, size, register, 31)),
                    format!("{} {r}, 31", lower(op))
                );
                assert_eq!(
                    decoded(|asm| asm.shift_cl(op, size, register)),
                    format!("{} {r}, cl", lower(op))
                );
            }
        }
        for op in [ShiftX::Shlx, ShiftX::Shrx, ShiftX::Sarx] {
            pairs(|a, b| {
                for amount in Gpr::ALL {
                    let [a_name, b_name, amount_name] =
                        [a, b, amount].map(|register| sized(register, size));
                    assert_eq!(
                        decoded(|asm| asm.shift_x(op, size, a, b, amount)),
                        format!("{} {a_name}, {b_name}, {amount_name}", lower(op))
                    );
                }
            });
        }
    }
    for register in Gpr::ALL {
        for op in [BitOp::Bts, BitOp::Btr, BitOp::Btc] {
            let r = sized(register, Size::Double);
            assert_eq!(
                decoded(|asm| asm.bit(op, register, 63)),
                format!("{} {r}, 63", lower(op))
            );
        }
    }
}

#[test]
fn products_and_counts() {
    for size in WIDE {
        for register in Gpr::ALL {
            let operations = [Unary::Not, Unary::Mul, Unary::Imul, Unary::Div, Unary::Idiv];
            for op in operations {
                assert_eq!(
                    decoded(|asm| asm.unary(op, size, register)),
                    format!("{} {}", lower(op), sized(register, size))
                );
            }
        }
        pairs(|a, b| {
            for factor in Gpr::ALL {
                let [high, low, factor_name] = [a, b, factor].map(|register| sized(register, size));
                assert_eq!(
                    decoded(|asm| asm.mulx(size, a, b, factor)),
                    format!("mulx {high}, {low}, {factor_name}")
                );
            }
            for op in [CountOp::Popcnt, CountOp::Tzcnt, CountOp::Lzcnt] {
                assert_eq!(
                    decoded(|asm| asm.count(op, size, a, b)),
                    format!("{} {}, {}", lower(op), sized(a, size), sized(b, size))
                );
            }
        });
    }
    pairs(|a, b| {
        let (x, y) = (sized(a, Size::Double), sized(b, Size::Double));
        assert_eq!(decoded(|asm| asm.imul(a, b)), format!("imul {x}, {y}"));
    });
    assert_eq!(decoded(|asm| asm.sign_into_rdx(Size::Word)), "cdq");
    assert_eq!(decoded(|asm| asm.sign_into_rdx(Size::Double)), "cqo");
}

#[test]
fn atomics_and_control() {
    for size in WIDE {
        pairs(|base, register| {
            let memory = Mem::Base(base, 0);
            let at = format!("{}[{}+0]", bytes(size), sized(base, Size::Double));
            let r = sized(register, size);
            assert_eq!(
                decoded(|asm| asm.xchg(size, memory, register)),
                format!("xchg {at}, {r}")
            );
            assert_eq!(
                decoded(|asm| asm.lock_xadd(size, memory, register)),
                format!("lock xadd {at}, {r}")
            );
            assert_eq!(
                decoded(|asm| asm.lock_cmpxchg(size, memory, register)),
                format!("lock cmpxchg {at}, {r}")
            );
        });
    }
    assert_eq!(decoded(Assembler::mfence), "mfence");
    assert_eq!(decoded(Assembler::ret), "ret");
    assert_eq!(decoded(|asm| asm.jmp_at(Mem::Gs(8))), "jmp 8[gs:+8]");
    assert_eq!(
        decoded(|asm| asm.call_at(Mem::Base(Gpr::R10, 0x1_0008))),
        "call 8[r10+65544]"
    );
    assert_eq!(decoded(|asm| assert_eq!(asm.jmp_away(), 1)), "jmp 0x5");
    assert_eq!(decoded(|asm| assert_eq!(asm.call_away(), 1)), "call 0x5");
}

#[test]
fn labels_lead_forward_and_back() {
    let mut asm = Assembler::default();
    let (back, forward) = (asm.label(), asm.label());
    asm.bind(back);
    asm.jmp(forward);
    let mark = asm.mark();
    asm.jmp(forward);
    asm.rewind(mark);
    asm.jmp(back);
    asm.bind(forward);
    let code = asm.finish();
    assert_eq!(code.offset(forward), 10);
    let mut decoder = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE);
    let texts: Vec<String> = decoder
        .iter()
        .map(|instruction| text(&instruction))
        .collect();
    assert_eq!(texts, ["jmp 0xa", "jmp 0x0"]);
}

#[test]
fn scalar_operations() {
    let operations = [
        Scalar::Sqrt,
        Scalar::Add,
        Scalar::Mul,
        Scalar::Sub,
        Scalar::Min,
        Scalar::Div,
        Scalar::Max,
    ];
    for precision in PRECISIONS {
        let suffix = suffix(precision);
        xmm_pairs(|a, b| {
            for op in operations {
                assert_eq!(
                    decoded(|asm| asm.scalar(op, precision, a, b)),
                    format!("{}{suffix} {}, {}", lower(op), xmm(a), xmm(b))
                );
            }
            let (x, y) = (xmm(a), xmm(b));
            assert_eq!(
                decoded(|asm| asm.ucomis(precision, a, b)),
                format!("ucomi{suffix} {x}, {y}")
            );
            assert_eq!(
                decoded(|asm| asm.comis(precision, a, b)),
                format!("comi{suffix} {x}, {y}")
            );
            let convert = match precision {
                Precision::Single => "cvtss2sd",
                Precision::Double => "cvtsd2ss",
            };
            assert_eq!(
                decoded(|asm| asm.cvt(precision, a, b)),
                format!("{convert} {x}, {y}")
            );
            for op in [
                FmaOp::Vfmadd231,
                FmaOp::Vfmsub231,
                FmaOp::Vfnmadd231,
                FmaOp::Vfnmsub231,
            ] {
                let c = Xmm::ALL[usize::from(a.number() ^ b.number())];
                assert_eq!(
                    decoded(|asm| asm.fma(op, precision, a, c, b)),
                    format!("{}{suffix} {x}, {}, {y}", lower(op), xmm(c))
                );
            }
        });
        let at = format!("{}[gs:+264]", scalar_bytes(precision));
        let memory = Mem::Gs(264);
        for register in Xmm::ALL {
            let x = xmm(register);
            assert_eq!(
                decoded(|asm| asm.movs_load(precision, register, memory)),
                format!("mov{suffix} {x}, {at}")
            );
            assert_eq!(
                decoded(|asm| asm.movs_store(precision, memory, register)),
                format!("mov{suffix} {at}, {x}")
            );
            assert_eq!(
                decoded(|asm| asm.scalar(Scalar::Add, precision, register, XmmRm::Mem(memory))),
                format!("add{suffix} {x}, {at}")
            );
        }
    }
}

#[test]
fn moves_and_conversions_between_files() {
    for size in WIDE {
        let mov = match size {
            Size::Word => "movd",
            _ => "movq",
        };
        for register in Gpr::ALL {
            for other in Xmm::ALL {
                let (r, x) = (sized(register, size), xmm(other));
                assert_eq!(
                    decoded(|asm| asm.mov_to_xmm(size, other, Rm::Reg(register))),
                    format!("{mov} {x}, {r}")
                );
                assert_eq!(
                    decoded(|asm| asm.mov_from_xmm(size, register, other)),
                    format!("{mov} {r}, {x}")
                );
                for precision in PRECISIONS {
                    let suffix = suffix(precision);
                    assert_eq!(
                        decoded(|asm| asm.cvt_from_int(precision, size, other, register)),
                        format!("cvtsi2{suffix} {x}, {r}")
                    );
                    assert_eq!(
                        decoded(|asm| asm.cvt_to_int(precision, true, size, register, other)),
                        format!("cvtt{suffix}2si {r}, {x}")
                    );
                    assert_eq!(
                        decoded(|asm| asm.cvt_to_int(precision, false, size, register, other)),
                        format!("cvt{suffix}2si {r}, {x}")
                    );
                }
            }
        }
    }
}

#[test]
fn rounding_to_integers() {
    let modes = [
        RoundMode::Nearest,
        RoundMode::Down,
        RoundMode::Up,
        RoundMode::Truncate,
        RoundMode::Mxcsr,
    ];
    for (precision, suffix) in [(Precision::Single, "ss"), (Precision::Double, "sd")] {
        for mode in modes {
            let immediate = mode as u8 | 8;
            xmm_pairs(|a, b| {
                assert_eq!(
                    decoded(|asm| asm.round(precision, mode, a, b)),
                    format!("round{suffix} {}, {}, {immediate}", xmm(a), xmm(b))
                );
            });
        }
    }
    let memory = Mem::Gs(8);
    assert_eq!(
        decoded(|asm| asm.round(Precision::Double, RoundMode::Up, Xmm::Xmm9, memory)),
        "roundsd xmm9, 8[gs:+8], 10"
    );
}

#[test]
fn packed_operations() {
    xmm_pairs(|a, b| {
        let (x, y) = (xmm(a), xmm(b));
        assert_eq!(decoded(|asm| asm.movaps(a, b)), format!("movaps {x}, {y}"));
        assert_eq!(decoded(|asm| asm.xorps(a, b)), format!("xorps {x}, {y}"));
        assert_eq!(decoded(|asm| asm.orps(a, b)), format!("orps {x}, {y}"));
        assert_eq!(decoded(|asm| asm.andps(a, b)), format!("andps {x}, {y}"));
        assert_eq!(
            decoded(|asm| asm.pclmulqdq(a, b)),
            format!("pclmulqdq {x}, {y}, 0")
        );
    });
    for register in Xmm::ALL {
        assert_eq!(
            decoded(|asm| asm.psrldq_half(register)),
            format!("psrldq {}, 8", xmm(register))
        );
    }
    assert_eq!(decoded(|asm| asm.stmxcsr(Mem::Gs(8))), "stmxcsr 4[gs:+8]");
    assert_eq!(decoded(|asm| asm.ldmxcsr(Mem::Gs(8))), "ldmxcsr 4[gs:+8]");
}

#[test]
fn alignment_is_filled_with_instructions_without_effect() {
    for length in 0..32usize {
        let mut asm = Assembler::default();
        for _ in 0..length {
            asm.push(Gpr::Rax);
        }
        asm.align(16);
        let code = asm.finish().bytes;
        assert_eq!(code.len(), length.next_multiple_of(16));
        let decoder = Decoder::with_ip(64, &code[length..], 0, DecoderOptions::NONE);
        for instruction in decoder {
            assert_eq!(instruction.mnemonic(), Mnemonic::Nop, "{code:02x?}");
        }
    }
}
