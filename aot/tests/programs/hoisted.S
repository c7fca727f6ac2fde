# Jumps through tables whose addresses were computed far away, as compilers do in
# interpreters. The test `resolves_hoisted_tables` recovers them.

.macro next
    lbu t2, 0(s1)
    addi s1, s1, 1
    slli t2, t2, 3
    add t2, t2, s2
    ld t2, 0(t2)
    jr t2
.endm

# Ten handlers, each with its own jump through one table.
.globl _start
.type _start, @function
_start:
.cfi_startproc
    lla s2, labels
    mv s1, a0
    next
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
handler\number:
    addi a1, a1, \number
    next
.endr
.cfi_endproc
.size _start, . - _start

# A path past a call that does not return overwrites the table's address.
.globl past_call
.type past_call, @function
past_call:
.cfi_startproc
    addi sp, sp, -16
    sd ra, 8(sp)
    sd s2, 0(sp)
    lla s2, distances
    beqz a0, 3f
1:  li t0, 3
    bgtu a1, t0, 2f
    slli t2, a1, 2
    add t2, t2, s2
    lw t2, 0(t2)
    add t2, t2, s2
    jr t2
2:  ld s2, 0(sp)
    ld ra, 8(sp)
    addi sp, sp, 16
3:  bnez a2, 4f
    ret
4:  call past_call
20: addi a1, a1, 1
    j 1b
21: addi a1, a1, 2
    j 1b
22: slli a1, a1, 1
    j 1b
23: li a1, 0
    j 1b
.cfi_endproc
.size past_call, . - past_call

# The address of the entry comes from memory.
.globl spilled
.type spilled, @function
spilled:
.cfi_startproc
    ld t2, 0(a0)
    lla t1, spilled_distances
    lw t2, 0(t2)
    add t2, t2, t1
    jr t2
30: li a0, 1
    ret
31: li a0, 2
    ret
32: li a0, 3
    ret
.cfi_endproc
.size spilled, . - spilled

.section .rodata
.balign 4
distances: .word 20b - distances, 21b - distances, 22b - distances, 23b - distances
spilled_distances: .word 30b - spilled_distances, 31b - spilled_distances
    .word 32b - spilled_distances, 0

#ifdef RELOCATED
.section .data.rel.ro, "aw"
#else
.section .rodata
#endif
.balign 8
labels:
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
    .dword handler\number
.endr
