// A program without a C library: a function with another one inlined, which computes in a loop.
static volatile unsigned long sink;

static inline unsigned long inlined(unsigned long n) {
    unsigned long a = 1;
    for (unsigned long i = 0; i < n; i++) a = a * 6364136223846793005UL + i;
    return a;
}

__attribute__((noinline)) void outer(unsigned long n) { sink = inlined(3 * n); }

void _start(void) {
    outer(1000);
    register long code __asm__("a0") = 0;
    register long number __asm__("a7") = 94; /* exit_group */
    __asm__ volatile("ecall" : : "r"(code), "r"(number));
}
