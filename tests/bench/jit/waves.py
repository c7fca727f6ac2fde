"""A field of waves on a grid, with floating-point numbers in lists."""


def step(old, now, size):
    new = [0.0] * (size * size)
    for row in range(1, size - 1):
        base = row * size
        for at in range(base + 1, base + size - 1):
            around = now[at - 1] + now[at + 1] + now[at - size] + now[at + size]
            new[at] = 1.99 * now[at] - 0.99 * old[at] + 0.25 * (around - 4.0 * now[at])
    return now, new


def main():
    size = 120
    old = [0.0] * (size * size)
    old[size * size // 2 + size // 2] = 1.0
    now = list(old)
    for _ in range(3000):
        old, now = step(old, now, size)
    print("%.12g" % sum(value * value for value in now))


main()
