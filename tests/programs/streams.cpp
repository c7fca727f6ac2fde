// C++: iostreams, containers, exceptions across many frames, virtual calls, templates,
// thread-local and static initialisation, RTTI.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>

namespace {

struct Tracer {
    static inline int alive = 0;
    Tracer() { ++alive; }
    ~Tracer() { --alive; }
};

struct Failure : std::runtime_error {
    int depth;
    Failure(int d) : std::runtime_error("failed at depth " + std::to_string(d)), depth(d) {}
};

__attribute__((noinline)) int descend(int depth, int stop) {
    Tracer here;
    if (depth == stop) throw Failure(depth);
    return descend(depth + 1, stop) + Tracer::alive;
}

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual std::string name() const { return "shape"; }
};
struct Circle : Shape {
    double r;
    explicit Circle(double r) : r(r) {}
    double area() const override { return 3.14159265358979 * r * r; }
    std::string name() const override { return "circle"; }
};
struct Square : Shape {
    double a;
    explicit Square(double a) : a(a) {}
    double area() const override { return a * a; }
};

void exceptions() {
    for (int stop : {1, 2, 10, 500}) {
        try {
            descend(0, stop);
        } catch (const Failure &f) {
            std::cout << f.what() << ", alive " << Tracer::alive << '\n';
        }
    }
    try {
        try {
            (void)std::vector<int>(3).at(7);
        } catch (const std::out_of_range &) {
            std::throw_with_nested(std::logic_error("outer"));
        }
    } catch (const std::exception &e) {
        std::cout << e.what() << ' ' << typeid(e).name() << '\n';
        try {
            std::rethrow_if_nested(e);
        } catch (const std::exception &inner) {
            std::cout << "nested: " << (dynamic_cast<const std::out_of_range *>(&inner) != nullptr)
                      << '\n';
        }
    }
    int caught = 0;
    for (int i = 0; i < 3000; i++) try {
            if (i % 3 == 0) throw i;
            if (i % 3 == 1) throw std::to_string(i);
            throw 1.5;
        } catch (int n) {
            caught += n;
        } catch (const std::string &s) {
            caught += static_cast<int>(s.size());
        } catch (...) {
            caught -= 1;
        }
    std::cout << "caught " << caught << '\n';
}

void containers() {
    std::map<std::string, int> words;
    std::istringstream text("the cat sat on the mat and the dog sat on the cat");
    for (std::string w; text >> w;) words[w]++;
    for (const auto &[word, count] : words) std::cout << word << '=' << count << ' ';
    std::cout << '\n';
    std::unordered_map<std::uint64_t, std::uint64_t> squares;
    for (std::uint64_t i = 0; i < 20000; i++) squares[i * 2654435761u] = i * i;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < 20000; i += 3) sum += squares.at(i * 2654435761u);
    std::cout << sum << '\n';
    std::vector<double> values(5000);
    std::iota(values.begin(), values.end(), -2500.25);
    std::sort(values.begin(), values.end(),
              [](double a, double b) { return std::abs(a) < std::abs(b); });
    std::cout << std::setprecision(12) << values[0] << ' ' << values[4999] << ' '
              << std::accumulate(values.begin(), values.end(), 0.0) << '\n';
}

}  // namespace

int main() {
    exceptions();
    containers();
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 1; i < 1000; i++)
        if (i % 2) shapes.push_back(std::make_unique<Circle>(i));
        else shapes.push_back(std::make_unique<Square>(i));
    double area = 0;
    std::size_t letters = 0;
    for (const auto &s : shapes) area += s->area(), letters += s->name().size();
    std::cout << std::fixed << std::setprecision(3) << area << ' ' << letters << '\n';
    std::function<long(long)> f = [](long x) { return x; };
    for (int i = 0; i < 50; i++) f = [f, i](long x) { return f(x) * 3 % 1000003 + i; };
    std::cout << f(7) << '\n' << std::hex << std::showbase << std::setw(12) << 48879 << '\n';
    std::cerr << "on standard error\n";
    return 0;
}
