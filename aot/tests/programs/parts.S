# Units that only one other unit jumps to: callees of tail calls, and parts that a compiler moved
# away as unlikely. Stripped, so that only unwind information has the bounds of the functions.

        .macro function name
        .align 1
\name:  .cfi_startproc
        .endm
        .macro long name
        function \name
        .rept 200
        addiw   a0, a0, 1
        xor     a0, a0, a1
        .endr
        .endm

        .text
        .globl  _start
        function _start
        call    select
        call    work
1:      j       1b
        .cfi_endproc

# Selects one of several commands.
        function select
        beqz    a0, 1f
        beqz    a1, 2f
        j       short
1:      j       first
2:      j       second
        .cfi_endproc

        long    first
        ret
        .cfi_endproc

        long    second
        ret
        .cfi_endproc

        function short
        li      a0, 0
        ret
        .cfi_endproc

# Has an unlikely part, which jumps back.
        function work
        beqz    a0, 1f
back:   ret
1:      j       unlikely
        .cfi_endproc

        long    unlikely
        j       back
        .cfi_endproc
