"""Three loops of plain Python: loops.py floats|objects|text ROUNDS"""
import sys


def floats(rounds):
    """Logistic maps beside each other: arithmetic with floats and lists."""
    values = [0.1 + 0.8 * i / 50 for i in range(50)]
    total = 0.0
    for step in range(rounds):
        rate = 3.6 + (step % 100) * 0.004
        for i, value in enumerate(values):
            value = rate * value * (1.0 - value)
            values[i] = value
            total += value if value > 0.5 else -value
    return repr(total)


class Account:
    """An object with an attribute, a property and methods."""

    def __init__(self, number):
        self.number = number
        self.cents = 1000

    @property
    def rich(self):
        return self.cents > 2500

    def pay(self, other, cents):
        if cents > self.cents:
            raise ValueError(self.number)
        self.cents -= cents
        other.cents += cents


def objects(rounds):
    """Payments between accounts: attributes, calls, exceptions, dictionaries."""
    accounts = {number: Account(number) for number in range(100)}
    random, refused, rich = 99, 0, 0
    for _ in range(rounds):
        random = (random * 1103515245 + 12345) % 2147483648
        payer, payee = accounts[random // 65536 % 100], accounts[random // 1024 % 100]
        try:
            payer.pay(payee, random // 16 % 700)
        except ValueError:
            refused += 1
        rich += payee.rich
    return refused, rich, sum(a.number * a.cents for a in accounts.values())


def text(rounds):
    """Words: slices, splitting, joining, sorting with a key, counting."""
    letters = "etaoinshrdlucmfwypvbgk"
    random, counts = 7, {}
    for step in range(rounds):
        words = []
        for _ in range(20):
            random = (random * 1103515245 + 12345) % 2147483648
            start = random // 65536 % 18
            words.append(letters[start : start + 2 + random // 4096 % 3])
        line = " ".join(sorted(words, key=lambda word: (len(word), word[::-1])))
        for word in line.title().split(" "):
            counts[word] = counts.get(word, 0) + step % 3
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5], len(counts)


print({"floats": floats, "objects": objects, "text": text}[sys.argv[1]](int(sys.argv[2])))
