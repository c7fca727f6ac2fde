// C++ exceptions: across many frames, through the C library, rethrown, stored, from
// constructors; destructors in order; and noexcept functions.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static unsigned order = 1;

struct Guard {
    unsigned number;
    explicit Guard(unsigned n) : number(n) {}
    ~Guard() { order = order * 31 + number; }
};

struct Base { virtual ~Base() = default; virtual int kind() const { return 1; } };
struct Left : virtual Base { int kind() const override { return 2; } };
struct Right : virtual Base { int kind() const override { return 3; } };
struct Both : Left, Right { int kind() const override { return 4; } };

__attribute__((noinline)) static long deep(unsigned n, int how) {
    Guard guard(n);
    std::string text(n % 40, 'x');
    if (n == 0) switch (how) {
        case 0: throw 42;
        case 1: throw std::runtime_error("deep");
        case 2: throw Both();
        case 3: throw std::string("text");
        case 4: throw &order;
        default: return 7;
        }
    return deep(n - 1, how) + long(text.size());
}

static int attempt(unsigned n, int how) {
    try {
        return int(deep(n, how));
    } catch (int value) {
        return value;
    } catch (const std::exception &error) {
        return 100 + error.what()[0];
    } catch (const Base &base) {
        return 200 + base.kind();
    } catch (unsigned *pointer) {
        return pointer == &order ? 300 : 301;
    } catch (...) {
        return 400;
    }
}

__attribute__((noinline)) static void again(unsigned n) {
    Guard guard(1000 + n);
    try {
        if (n == 0) throw std::out_of_range("again");
        again(n - 1);
    } catch (const std::logic_error &) {
        Guard other(n);
        throw;
    }
}

// An exception during unwinding, and the number of uncaught exceptions.
struct Thrower {
    ~Thrower() noexcept(false) {
        int before = std::uncaught_exceptions();
        try {
            throw before;
        } catch (int value) {
            order = order * 7 + unsigned(value);
        }
    }
};

struct Part { Part(int n) : guard(unsigned(n)) { if (n == 5) throw n; } Guard guard; };
struct Whole {
    Part a{1}, b{2};
    std::unique_ptr<Part> c{new Part(3)};
    Part d;
    explicit Whole(int n) try : d(n) { order += 3; } catch (int value) { order = order * 3 + unsigned(value); }
};

static int compare(const void *a, const void *b) {
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 500 && y != 500) throw x + y;
    return (x > y) - (x < y);
}

static std::exception_ptr keep(unsigned n) {
    try {
        deep(n, 1);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

static std::jmp_buf escape;
static void quiet(int how) noexcept { deep(3, how); }

extern "C" int main() {
    for (int how = 0; how < 6; how++) {
        std::printf("%d %d %d ", attempt(0, how), attempt(10, how), attempt(700, how));
        std::printf("%u\n", order);
    }
    for (unsigned n = 0; n < 60; n++) try {
        again(n);
    } catch (const std::out_of_range &error) {
        order += unsigned(error.what()[1]);
    }
    std::printf("again %u\n", order);
    try {
        Thrower first;
        Guard guard(9);
        Thrower second;
        throw std::vector<int>{1, 2, 3};
    } catch (const std::vector<int> &list) {
        std::printf("list %zu %u\n", list.size(), order);
    }
    for (int n = 4; n < 7; n++) try {
        Whole whole(n);
        std::printf("whole %d\n", n);
    } catch (int value) {
        std::printf("parts only: %d\n", value);
    }
    std::printf("%u\n", order);
    std::vector<int> numbers;
    for (int i = 0; i < 1000; i++) numbers.push_back(i * 379 % 1000);
    try {
        std::qsort(numbers.data(), numbers.size(), sizeof(int), compare);
    } catch (int value) {
        std::printf("out of qsort %d\n", value > 0);
    }
    std::exception_ptr kept = keep(20);
    for (int i = 0; i < 2; i++) try {
        std::rethrow_exception(kept);
    } catch (const std::runtime_error &error) {
        std::printf("kept %s\n", error.what());
    }
    try {
        try {
            deep(3, 0);
        } catch (int) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::exception &error) {
        try {
            std::rethrow_if_nested(error);
        } catch (int value) {
            std::printf("nested %d in %s\n", value, error.what());
        }
    }
    std::function<int(int)> chain = [](int n) -> int { if (n > 3) throw n; return n; };
    for (int i = 0; i < 50; i++) chain = [chain](int n) { Guard guard{unsigned(n)}; return chain(n) + 1; };
    int total = 0;
    for (int n = 0; n < 8; n++) try {
        total += chain(n);
    } catch (int value) {
        total += 1000 * value;
    }
    std::printf("chain %d %u\n", total, order);
    unsigned sum = 0;
    for (int i = 0; i < 3000; i++) sum += unsigned(attempt(unsigned(i % 13), i % 6));
    std::printf("many %u %u\n", sum, order);
    // Through noexcept: terminate is called, and its handler leaves by longjmp.
    std::set_terminate([] { std::longjmp(escape, 6); });
    int code = setjmp(escape);
    if (code == 0) quiet(0);
    std::printf("noexcept: %d\n", code);
    std::set_terminate([] { std::puts("uncaught"); std::fflush(stdout); std::_Exit(9); });
    deep(30, 3);
    return 0;
}
