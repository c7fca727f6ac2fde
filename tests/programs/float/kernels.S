// One function per floating-point instruction and rounding mode, and a table of them:
// void kernel(const uint64_t in[][3], uint64_t out[][3], size_t count).
// Each case has three operands, as registers fa0–fa2 and a4–a6; results are fa3, a3 and
// the flags. The section `kernels` holds function, text and kinds of operands.

.option arch, rv64gc

// kinds: a letter per operand: d, s or x (integer). clear: code before each case.
.macro define kinds, name, clear, first, second, third, fourth, fifth
    .section .rodata
891: .asciz "\name"
892: .asciz "\kinds"
    .section kernels, "aw"
    .balign 8
    .dword 890f, 891b, 892b
    .text
    .type kernel\@, @function
kernel\@:
890:
    fld fa0, 0(a0)
    fld fa1, 8(a0)
    fld fa2, 16(a0)
    ld a4, 0(a0)
    ld a5, 8(a0)
    ld a6, 16(a0)
    fmv.d.x fa3, zero
    li a3, 0
    \clear
    \first
    \second
    \third
    \fourth
    \fifth
    frflags a7
    fsd fa3, 0(a1)
    sd a3, 8(a1)
    sd a7, 16(a1)
    addi a0, a0, 24
    addi a1, a1, 24
    addi a2, a2, -1
    bnez a2, 890b
    ret
    .size kernel\@, . - kernel\@
.endm

// One instruction, with its own flags.
.macro kernel kinds, text
    define \kinds, "\text", "fsflags zero", "\text"
.endm

// The same in every rounding mode; `text` ends in a comma.
.macro rounded kinds, text
    .irp mode, rne, rtz, rdn, rup, rmm, dyn
        kernel \kinds, "\text \mode"
    .endr
.endm

// An instruction whose result is an operand of the next one; the flags accrue over the cases.
.macro chained kinds, first, second
    define \kinds, "\first; \second", "nop", "\first", "\second"
.endm

.macro binary name, format
    rounded \format\format, "\name\().\format fa3, fa0, fa1,"
    chained \format\format, "\name\().\format fa4, fa0, fa1", "\name\().\format fa3, fa4, fa0"
.endm

.macro fused name, format
    rounded \format\format\format, "\name\().\format fa3, fa0, fa1, fa2,"
    chained \format\format\format, "\name\().\format fa4, fa0, fa1, fa2", "\name\().\format fa3, fa4, fa1, fa0"
.endm

.macro select name, format
    kernel \format\format, "\name\().\format fa3, fa0, fa1"
    chained \format\format, "\name\().\format fa4, fa0, fa1", "\name\().\format fa3, fa1, fa4"
.endm

.macro compare name, format
    kernel \format\format, "\name\().\format a3, fa0, fa1"
    chained \format\format, "fsub.\format fa3, fa0, fa1", "\name\().\format a3, fa3, fa1"
.endm

.macro to_integer type, format
    rounded \format, "fcvt.\type\().\format a3, fa0,"
    chained \format\format, "fadd.\format fa3, fa0, fa1", "fcvt.\type\().\format a3, fa3"
.endm

.macro all format
    binary fadd, \format
    binary fsub, \format
    binary fmul, \format
    binary fdiv, \format
    rounded \format, "fsqrt.\format fa3, fa0,"
    chained \format\format, "fmul.\format fa4, fa0, fa1", "fsqrt.\format fa3, fa4"
    fused fmadd, \format
    fused fmsub, \format
    fused fnmadd, \format
    fused fnmsub, \format
    select fmin, \format
    select fmax, \format
    select fsgnj, \format
    select fsgnjn, \format
    select fsgnjx, \format
    compare feq, \format
    compare flt, \format
    compare fle, \format
    kernel \format, "fclass.\format a3, fa0"
    chained \format\format, "fmul.\format fa3, fa0, fa1", "fclass.\format a3, fa3"
    to_integer w, \format
    to_integer wu, \format
    to_integer l, \format
    to_integer lu, \format
.endm

all s
all d

.irp type, w, wu, l, lu
    rounded x, "fcvt.s.\type fa3, a4,"
.endr
.irp type, l, lu
    rounded x, "fcvt.d.\type fa3, a4,"
.endr
kernel x, "fcvt.d.w fa3, a4"
kernel x, "fcvt.d.wu fa3, a4"
rounded d, "fcvt.s.d fa3, fa0,"
kernel s, "fcvt.d.s fa3, fa0"
chained d, "fcvt.s.d fa4, fa0", "fcvt.d.s fa3, fa4"
chained s, "fcvt.d.s fa4, fa0", "fcvt.s.d fa3, fa4"

// Moves, and the contents of a register after them.
kernel x, "fmv.w.x fa3, a4"
kernel x, "fmv.d.x fa3, a4"
kernel d, "fmv.x.w a3, fa0"
kernel s, "fmv.x.w a3, fa0"
kernel d, "fmv.x.d a3, fa0"
kernel s, "fmv.x.d a3, fa0"
// Doubles used as singles, and the reverse.
kernel dd, "fadd.s fa3, fa0, fa1, rne"
kernel ds, "fmul.s fa3, fa0, fa1, dyn"
kernel ss, "fadd.d fa3, fa0, fa1, dyn"
kernel dd, "fmin.s fa3, fa0, fa1"
kernel ds, "feq.s a3, fa0, fa1"
kernel dd, "fsgnjn.s fa3, fa0, fa1"
kernel d, "fclass.s a3, fa0"
kernel d, "fcvt.w.s a3, fa0, rtz"
chained dx, "fmv.w.x fa4, a5", "fadd.s fa3, fa4, fa4"
chained ds, "fcvt.s.d fa4, fa0", "fadd.d fa3, fa4, fa1"
chained sd, "fadd.s fa4, fa0, fa1", "fmul.d fa3, fa4, fa0"

// Through memory.
define s, "fsw, flw", "fsflags zero", "fsw fa0, 0(a1)", "sw a4, 4(a1)", "flw fa3, 0(a1)", "ld a3, 0(a1)"
define d, "fsw of a double", "fsflags zero", "fsd fa0, 0(a1)", "fsw fa0, 4(a1)", "flw fa3, 4(a1)", "lwu a3, 0(a1)"

// The control and status register changes between operations. The low bits of the
// second operand give flags, and a rounding mode from 0 to 3.
define dx, "fsflags between", "nop", "fdiv.d fa3, fa0, fa0", "fsflags a3, a5", "fadd.d fa3, fa0, fa3", "slli a3, a3, 5"
define dx, "csrs fflags between", "fsflags zero", "fsqrt.d fa3, fa0", "csrrs a3, fflags, a5", "fmul.d fa3, fa0, fa0"
define dx, "csrc fflags between", "nop", "fmul.d fa3, fa0, fa0", "csrrc a3, fflags, a5", "fcvt.s.d fa3, fa3", "frflags a3"
define dx, "fscsr between", "andi a5, a5, 127", "fadd.d fa3, fa0, fa0", "fscsr a3, a5", "fdiv.d fa3, fa0, fa3", "fcvt.s.d fa3, fa3, dyn"
define dx, "fsrm between", "andi a5, a5, 3", "fsqrt.d fa3, fa0", "fsrm a3, a5", "fsqrt.d fa3, fa0", "fmadd.d fa3, fa3, fa3, fa0"
define sx, "fsrm to any between", "andi a5, a5, 3", "addi a5, a5, 1", "fsrm a3, a5", "fmul.s fa3, fa0, fa0", "fadd.s fa3, fa3, fa0, rup"
define sx, "static among dynamic", "andi a5, a5, 3", "fsrm a3, a5", "fdiv.s fa3, fa0, fa0, rtz", "fsub.s fa3, fa3, fa0, rdn", "fmul.s fa3, fa3, fa0, dyn"
