//! The guest's side of the probe: position-independent code that runs at CPL 3.
//!
//! `rdi` is the scratch area (`offset` below). Every test ends with `out` to
//! [`hartline_abi::port::PROBE`] and its result in `ebx`: [`TRAPPED`], [`RIGHT`], [`WRONG`] or
//! [`STEP`]. It may clobber registers.

use std::arch::global_asm;

/// The instruction raised an exception.
pub(super) const TRAPPED: u64 = 0;
/// The instruction's result was right.
pub(super) const RIGHT: u64 = 1;
/// The instruction's result was wrong.
pub(super) const WRONG: u64 = 2;
/// A forced exit that must preserve the registers; the test continues after it.
pub(super) const STEP: u64 = 3;

/// Index of the test of an invalid instruction.
pub(super) const INVALID: usize = 0;
/// Index of the test of a wrong result.
pub(super) const MISTAKEN: usize = 1;
/// Index of the first of the three register tests.
pub(super) const REGISTERS: usize = 2;
/// Index of the test of the first feature.
pub(super) const FEATURES: usize = 5;

/// Forced exits of a register test.
pub(super) const STEPS: u64 = 32;

/// Offsets in the scratch area.
pub(super) mod offset {
    /// The [`hartline_abi::hart::Hart`] whose exception fields the stubs use.
    pub const HART: u64 = 0;
    /// Address of the test to run.
    pub const TEST: u64 = 1024;
    /// Memory operands.
    pub const OPERAND: u64 = 1088;
    /// Register contents to load: 32 × 64 bytes, then 8 × 8 bytes of mask registers.
    pub const LOADED: u64 = 4096;
    /// Register contents as stored at the end of a test, laid out the same.
    pub const STORED: u64 = 8192;
    /// Length of each of the two, bytes.
    pub const CONTENTS: usize = 32 * 64 + 8 * 8;
    /// Top of the stack of tests.
    pub const STACK: u64 = 64 << 10;
    /// Top of the stack of the exception handler.
    pub const EXCEPTION_STACK: u64 = 128 << 10;
}

unsafe extern "C" {
    static hartline_probe_start: u8;
    static hartline_probe_end: u8;
    static hartline_probe_table: u8;
    static hartline_probe_trap: u8;
}

/// The code, to be copied to an executable page; its entry point is at its start.
pub(super) fn bytes() -> &'static [u8] {
    let (start, end) = (
        &raw const hartline_probe_start,
        &raw const hartline_probe_end,
    );
    // SAFETY: both symbols are the ends of the contents of one read-only section, below, which is
    // mapped and unchanged as long as the program runs.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Offset in the code of the exception handler.
pub(super) fn trap() -> u64 {
    ((&raw const hartline_probe_trap).addr() - bytes().as_ptr().addr()) as u64
}

/// Offset in the code of test `index`, in the order of the table below.
pub(super) fn test(index: usize) -> Option<u64> {
    let table = (&raw const hartline_probe_table).addr() - bytes().as_ptr().addr();
    let entry = bytes().get(table + 4 * index..)?.first_chunk()?;
    Some(u64::from(u32::from_le_bytes(*entry)))
}

global_asm!(
    r#"
.pushsection .rodata.hartline_probe, "a", @progbits
.balign 64
.globl hartline_probe_start, hartline_probe_end, hartline_probe_table, hartline_probe_trap
hartline_probe_start:
    wrgsbase rdi
    jmp qword ptr [rdi + {TEST}]

hartline_probe_trap:
    # Without a hart another exception, for instance of the `out`, ends the VM.
    xor eax, eax
    wrgsbase rax
    mov ebx, {TRAPPED}
    jmp 9f
8:  mov ebx, {WRONG}
    jmp 9f
7:  mov ebx, {RIGHT}
9:  mov edx, {PORT}
    out dx, eax
    ud2

# Compare a result with the expected one. End the test, or continue if it is not the last.
.macro expect register, value
    mov r15, \value
    cmp \register, r15
    jne 8b
.endm
.macro finish register, value
    expect \register, \value
    jmp 7b
.endm

.balign 4
hartline_probe_table:
    .irp name, invalid, wrong, keep_sse, keep_avx, keep_avx512
    .long .Lprobe_\name - hartline_probe_start
    .endr
    .irp name, sse3, ssse3, sse41, sse42, popcnt, lzcnt, bmi1, bmi2, movbe, cx16, pclmul, adx
    .long .Lprobe_\name - hartline_probe_start
    .endr
    .irp name, avx, f16c, fma, avx2, avx512f, avx512cd, avx512bw, avx512dq, avx512vl
    .long .Lprobe_\name - hartline_probe_start
    .endr

# The two that must not succeed: without them, success of the others says nothing.
.Lprobe_invalid:
    ud2
    jmp 7b
.Lprobe_wrong:
    mov eax, 1
    finish rax, 2

# Fill registers, leave the VM many times, store them: the VMM compares.
.macro forced_exits
    mov r12d, {STEPS}
5:  mov ebx, {STEP}
    mov edx, {PORT}
    out dx, eax
    dec r12d
    jnz 5b
.endm
.Lprobe_keep_sse:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups xmm\n, [rdi + {LOADED} + 64 * \n]
    .endr
    forced_exits
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups [rdi + {STORED} + 64 * \n], xmm\n
    .endr
    jmp 7b
.Lprobe_keep_avx:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vmovups ymm\n, [rdi + {LOADED} + 64 * \n]
    .endr
    forced_exits
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vmovups [rdi + {STORED} + 64 * \n], ymm\n
    .endr
    jmp 7b
.Lprobe_keep_avx512:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vmovups zmm\n, [rdi + {LOADED} + 64 * \n]
    .endr
    .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    vmovups zmm\n, [rdi + {LOADED} + 64 * \n]
    .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    kmovw k\n, [rdi + {LOADED} + 2048 + 8 * \n]
    .endr
    forced_exits
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    vmovups [rdi + {STORED} + 64 * \n], zmm\n
    .endr
    .irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    vmovups [rdi + {STORED} + 64 * \n], zmm\n
    .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    kmovw [rdi + {STORED} + 2048 + 8 * \n], k\n
    .endr
    jmp 7b

.balign 64
.Ldoubles: .double 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0
.Lsevens: .fill 16, 4, 7
.Lbytes: .fill 64, 1, 5

.Lprobe_sse3:
    movups xmm0, [rip + .Ldoubles]
    haddpd xmm0, xmm0
    movq rax, xmm0
    finish rax, 0x4008000000000000
.Lprobe_ssse3:
    mov eax, -5
    movd xmm0, eax
    pabsd xmm0, xmm0
    movd eax, xmm0
    finish rax, 5
.Lprobe_sse41:
    movups xmm0, [rip + .Lsevens]
    pmulld xmm0, xmm0
    pextrd eax, xmm0, 3
    expect rax, 49
    mov rax, 0x4004000000000000
    movq xmm1, rax
    roundsd xmm0, xmm1, 2
    movq rax, xmm0
    finish rax, 0x4008000000000000
.Lprobe_sse42:
    xorps xmm1, xmm1
    movups xmm0, [rip + .Lsevens]
    pcmpgtq xmm0, xmm1
    movq rax, xmm0
    expect rax, -1
    xor eax, eax
    mov ecx, 1
    crc32 rax, rcx
    finish rax, {CRC32C_OF_1}
.Lprobe_popcnt:
    mov rcx, 0xf0f0000000000007
    popcnt rax, rcx
    finish rax, 11
# An older processor executes bsr instead.
.Lprobe_lzcnt:
    mov ecx, 1
    lzcnt rax, rcx
    expect rax, 63
    xor ecx, ecx
    lzcnt rax, rcx
    finish rax, 64
# An older processor executes bsf instead of tzcnt.
.Lprobe_bmi1:
    xor ecx, ecx
    tzcnt rax, rcx
    expect rax, 64
    mov ecx, 12
    mov edx, 10
    andn rax, rcx, rdx
    expect rax, 2
    blsr rax, rcx
    expect rax, 8
    blsi rax, rcx
    finish rax, 4
.Lprobe_bmi2:
    mov ecx, 3
    mov edx, 0x35
    shlx rax, rdx, rcx
    expect rax, 0x1a8
    mov ecx, 0x36
    pext rax, rdx, rcx
    expect rax, 0xe
    pdep rax, rdx, rcx
    expect rax, 0x12
    mov rdx, -1
    mov ecx, 2
    mulx rax, rsi, rcx
    expect rax, 1
    finish rsi, -2
.Lprobe_movbe:
    mov rcx, 0x0102030405060708
    movbe [rdi + {OPERAND}], rcx
    mov rax, [rdi + {OPERAND}]
    expect rax, 0x0807060504030201
    movbe rax, [rdi + {OPERAND}]
    finish rax, 0x0102030405060708
.Lprobe_cx16:
    mov qword ptr [rdi + {OPERAND}], 1
    mov qword ptr [rdi + {OPERAND} + 8], 2
    mov eax, 1
    mov edx, 2
    mov ebx, 3
    mov ecx, 4
    lock cmpxchg16b [rdi + {OPERAND}]
    jne 8b
    mov rax, [rdi + {OPERAND} + 8]
    finish rax, 4
.Lprobe_pclmul:
    mov eax, 5
    movq xmm0, rax
    mov eax, 7
    movq xmm1, rax
    pclmulqdq xmm0, xmm1, 0
    movq rax, xmm0
    finish rax, 27
.Lprobe_adx:
    mov rax, -1
    mov ecx, 1
    mov edx, 5
    xor esi, esi
    adcx rax, rcx
    adox rdx, rsi
    adcx rdx, rsi
    expect rax, 0
    finish rdx, 6
.Lprobe_avx:
    vmovups ymm0, [rip + .Ldoubles]
    vaddpd ymm0, ymm0, ymm0
    vextractf128 xmm0, ymm0, 1
    vmovq rax, xmm0
    finish rax, 0x4018000000000000
.Lprobe_f16c:
    mov eax, 0x3fc00000
    movd xmm0, eax
    vcvtps2ph xmm1, xmm0, 0
    vmovd eax, xmm1
    expect rax, 0x3e00
    vcvtph2ps xmm2, xmm1
    vmovd eax, xmm2
    finish rax, 0x3fc00000
.Lprobe_fma:
    movsd xmm0, [rip + .Ldoubles + 8]
    movsd xmm1, [rip + .Ldoubles + 16]
    movsd xmm2, [rip + .Ldoubles]
    vfmadd213sd xmm0, xmm1, xmm2
    movq rax, xmm0
    finish rax, 0x401c000000000000
.Lprobe_avx2:
    vmovdqu ymm0, [rip + .Lsevens]
    vpmulld ymm0, ymm0, ymm0
    vextracti128 xmm0, ymm0, 1
    vmovd eax, xmm0
    expect rax, 49
    vpbroadcastq ymm1, [rip + .Ldoubles + 16]
    vextracti128 xmm1, ymm1, 1
    vmovq rax, xmm1
    finish rax, 0x4008000000000000
.Lprobe_avx512f:
    vmovups zmm16, [rip + .Ldoubles]
    vaddpd zmm16, zmm16, zmm16
    vextractf64x4 ymm0, zmm16, 1
    vmovq rax, xmm0
    finish rax, 0x4024000000000000
.Lprobe_avx512cd:
    vmovdqu32 zmm16, [rip + .Lsevens]
    vplzcntd zmm16, zmm16
    vextracti64x4 ymm0, zmm16, 1
    vmovd eax, xmm0
    finish rax, 29
.Lprobe_avx512bw:
    vmovdqu8 zmm16, [rip + .Lbytes]
    vpaddb zmm16, zmm16, zmm16
    vextracti64x4 ymm0, zmm16, 1
    vmovq rax, xmm0
    finish rax, 0x0a0a0a0a0a0a0a0a
.Lprobe_avx512dq:
    vmovdqu64 zmm16, [rip + .Lbytes]
    vpmullq zmm16, zmm16, zmm16
    vextracti64x4 ymm0, zmm16, 1
    vmovq rax, xmm0
    finish rax, {FIVES_SQUARED}
.Lprobe_avx512vl:
    vmovdqu32 ymm16, [rip + .Lsevens]
    vpmulld ymm16, ymm16, ymm16
    vextracti32x4 xmm0, ymm16, 1
    vmovd eax, xmm0
    finish rax, 49
hartline_probe_end:
.purgem expect
.purgem finish
.purgem forced_exits
.popsection
"#,
    TRAPPED = const TRAPPED,
    RIGHT = const RIGHT,
    WRONG = const WRONG,
    STEP = const STEP,
    STEPS = const STEPS,
    PORT = const hartline_abi::port::PROBE,
    TEST = const offset::TEST,
    OPERAND = const offset::OPERAND,
    LOADED = const offset::LOADED,
    STORED = const offset::STORED,
    CRC32C_OF_1 = const 0x493c_7d27_u64,
    FIVES_SQUARED = const 0x0505_0505_0505_0505_u64.wrapping_mul(0x0505_0505_0505_0505),
);
