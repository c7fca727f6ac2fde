// Classes, templates, containers and exceptions, for sessions of a debugger.
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

struct Point {
    long x, y, z;
};

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};

struct Square : Shape {
    long side;
    explicit Square(long side) : side(side) {}
    __attribute__((noinline)) long area() const override {
        return side * side;
    }
};

struct Rectangle : Shape {
    long width, height;
    Rectangle(long width, long height) : width(width), height(height) {}
    __attribute__((noinline)) long area() const override {
        return width * height;
    }
};

int level;

__attribute__((noinline)) long scale(long value) {
    return value * 2;
}

__attribute__((noinline)) long scale(const Point &point) {
    return point.x + point.y + point.z;
}

template <typename T> __attribute__((noinline)) T largest(const std::vector<T> &values) {
    T most = values[0];
    for (T value : values) {
        if (value > most) {
            most = value;
        }
    }
    return most;
}

// Returned in memory of the caller.
__attribute__((noinline)) Point moved(Point from, long by) {
    return Point{from.x + by, from.y + by, from.z + by};
}

static inline __attribute__((always_inline)) long inlined(long value) {
    level += 1;
    return scale(value) + 1;
}

__attribute__((noinline)) long total(const std::vector<std::unique_ptr<Shape>> &shapes) {
    long sum = 0;
    for (const auto &shape : shapes) {
        sum += shape->area();
    }
    return sum;
}

__attribute__((noinline)) void fail(int depth) {
    if (depth == 0) {
        throw std::runtime_error("too deep");
    }
    fail(depth - 1);
    level += depth;
}

int main() {
    std::vector<long> values{3, 9, 4};
    std::map<int, long> table{{1, 10}, {2, 20}};
    long most = largest(values);
    std::vector<double> halves{0.5, 2.5};
    double half = largest(halves);
    Point point = moved(Point{1, 2, 3}, most);
    long before = inlined(most);
    long scaled = scale(point) + scale(table[2]) + before;
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Square>(5));
    shapes.push_back(std::make_unique<Rectangle>(2, 7));
    long area = total(shapes);
    try {
        fail(3);
    } catch (const std::exception &error) {
        level += 100;
    }
    std::printf("%ld %g %ld %ld %d\n", most, half, scaled, area, level);
    return level;
}
