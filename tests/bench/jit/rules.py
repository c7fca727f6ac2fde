"""Rewrites terms by rules: small objects, dictionaries and calls of methods."""


class Number:
    def __init__(self, value):
        self.value = value

    def simplified(self, names):
        return self

    def text(self):
        return str(self.value)


class Name:
    def __init__(self, name):
        self.name = name

    def simplified(self, names):
        value = names.get(self.name)
        return self if value is None else Number(value)

    def text(self):
        return self.name


class Sum:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def simplified(self, names):
        left, right = self.left.simplified(names), self.right.simplified(names)
        if isinstance(left, Number) and isinstance(right, Number):
            return Number((left.value + right.value) % 1000003)
        return Sum(left, right)

    def text(self):
        return "(" + self.left.text() + "+" + self.right.text() + ")"


class Product(Sum):
    def simplified(self, names):
        left, right = self.left.simplified(names), self.right.simplified(names)
        if isinstance(left, Number) and isinstance(right, Number):
            return Number(left.value * right.value % 1000003)
        return Product(left, right)

    def text(self):
        return self.left.text() + "*" + self.right.text()


def term(depth, seed):
    if depth == 0:
        return Name("abcdefgh"[seed % 8]) if seed % 3 else Number(seed % 97)
    left, right = term(depth - 1, seed * 5 + 1), term(depth - 1, seed * 7 + 3)
    return Sum(left, right) if seed % 2 else Product(left, right)


def main():
    whole = term(11, 1)
    total = 0
    for turn in range(2000):
        names = {name: turn * index + 1 for index, name in enumerate("abcdefgh") if index != turn % 8}
        total = (total * 31 + len(whole.simplified(names).text())) % 1000003
    print(total)


main()
