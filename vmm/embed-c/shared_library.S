// What a shared library needs, and a program that is linked statically does not: build.sh links it. The symbols are
// hidden: another module of the process neither sees nor replaces them.

// The destructors of LLVM's static objects, and of the C++ library's here, are not registered (`--wrap=__cxa_atexit`).
// At the exit of the host, threads of this library may still translate, and would use freed memory.
        .text
        .globl  __wrap___cxa_atexit
        .hidden __wrap___cxa_atexit
        .type   __wrap___cxa_atexit, @function
__wrap___cxa_atexit:
        xorl    %eax, %eax
        ret

// LLVM was compiled for a C library whose `strtol` and `scanf` also read C23's binary numbers, under other names. Older
// C libraries do not have them. LLVM reads decimal and hexadecimal numbers, for which both are the same.
        .macro  number name
        .globl  __isoc23_\name
        .hidden __isoc23_\name
        .type   __isoc23_\name, @function
__isoc23_\name:
        jmp     \name@PLT
        .endm
        number  strtol
        number  strtoll
        number  strtoul
        number  strtoull
        number  scanf
        number  sscanf

        .section .note.GNU-stack, "", @progbits
