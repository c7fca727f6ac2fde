/* Switch statements of several shapes, and a computed goto. Freestanding: every
   indirect jump of the program comes from one of them. */

typedef unsigned char u8;
typedef unsigned long u64;

volatile int sink;
__attribute__((noinline)) static int effect(int x) { sink += x; return sink; }

__attribute__((noinline)) int dense(int x)
{
    switch (x) {
    case 0: return effect(3);
    case 1: return effect(1) * 7;
    case 2: return effect(4) + 1;
    case 3: return effect(15) - x;
    case 4: return effect(9) ^ 5;
    case 5: return effect(2) << 3;
    case 6: return effect(6) / 3;
    case 7: return effect(5) % 7;
    default: return -1;
    }
}

__attribute__((noinline)) long shifted(long x)
{
    switch (x) {
    case 100: return effect(3);
    case 101: return effect(1) * 7;
    case 103: return effect(4) + 1;
    case 104: return effect(15) - 6;
    case 106: return effect(9) ^ 5;
    case 107: return effect(2) << 3;
    case 110: return effect(6) / 3;
    case 111: return effect(5) % 7;
    }
    return x;
}

__attribute__((noinline)) int bytes(u8 x)
{
    switch (x) {
#define CASE(n) case n: return effect(n) + n * n;
#define CASES(n) CASE(n) CASE(n + 1) CASE(n + 2) CASE(n + 3) CASE(n + 4) CASE(n + 5) CASE(n + 6) CASE(n + 7)
    CASES(0) CASES(8) CASES(16) CASES(24) CASES(40) CASES(48)
    }
    return effect(x);
}

__attribute__((noinline)) int unreachable_default(unsigned x)
{
    switch (x & 7) {
    case 0: return effect(3);
    case 1: return effect(1) * 7;
    case 2: return effect(4) + 1;
    case 3: return effect(15) - 4;
    case 4: return effect(9) ^ 5;
    case 5: return effect(2) << 3;
    case 6: return effect(6) / 3;
    case 7: return effect(5) % 7;
    default: __builtin_unreachable();
    }
}

__attribute__((noinline)) long in_loop(const u8 *code, long n)
{
    long a = 0, b = 1;
    for (long i = 0; i < n; i++) {
        switch (code[i]) {
        case 'a': a += b; break;
        case 'b': b += a; break;
        case 'c': a = effect(a); break;
        case 'd': b = effect(b); break;
        case 'e': a ^= b; break;
        case 'f': b ^= a << 3; break;
        case 'g': a -= effect(b); break;
        case 'h': return a;
        case 'i': i += 2; break;
        case 'k': b *= a; break;
        default: effect(i);
        }
    }
    return a + b;
}

__attribute__((noinline)) int nested(int x, int y)
{
    switch (x) {
    case 1: return effect(y);
    case 2: return effect(y + 2);
    case 3:
        switch (y) {
        case 10: return effect(1);
        case 11: return effect(2) * 3;
        case 12: return effect(3) * 5;
        case 13: return effect(4) * 9;
        case 14: return effect(5) * 17;
        case 15: return effect(6) * 33;
        }
        return effect(7);
    case 4: return effect(y * 9);
    case 5: return effect(y ^ 11);
    case 6: return effect(y - 4);
    case 7: return effect(y & 30);
    }
    return 0;
}

__attribute__((noinline)) long threaded(const u8 *code)
{
    static const void *const labels[] = { &&add, &&sub, &&mul, &&neg, &&call, &&back, &&nop, &&end };
    long a = 1;
    goto *labels[*code++ & 7];
add: a += 5; goto *labels[*code++ & 7];
sub: a -= 3; goto *labels[*code++ & 7];
mul: a *= 3; goto *labels[*code++ & 7];
neg: a = -a; goto *labels[*code++ & 7];
call: a = effect(a); goto *labels[*code++ & 7];
back: if (a < 0) code--; goto *labels[*code++ & 7];
nop: goto *labels[*code++ & 7];
end: return a;
}

void _start(void)
{
    static const u8 code[] = "abcdefgihk";
    long sum = 0;
    for (int i = 0; i < 16; i++)
        sum += dense(i) + shifted(100 + i) + bytes(i * 9) + unreachable_default(i) + nested(i, i + 8);
    sum += in_loop(code, sizeof code) + threaded(code);
    register long a0 __asm__("a0") = sum & 1;
    register long a7 __asm__("a7") = 93;
    __asm__ volatile("ecall" : : "r"(a0), "r"(a7));
    __builtin_unreachable();
}
