"""Computes in rounds until a time has passed: steady.py SECONDS

Prints the nanoseconds of a round: the median of the rounds in the last third of the time.
"""
import sys
from time import perf_counter_ns


def collatz(most):
    """The longest sequence from numbers up to a limit: integers, comparisons, a dictionary."""
    lengths = {1: 1}
    for start in range(2, most):
        number, steps = start, 0
        while number not in lengths:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            steps += 1
        lengths[start] = lengths[number] + steps
    return max(lengths.values())


length = int(float(sys.argv[1]) * 1e9)
start = last = perf_counter_ns()
times = []
while last - start < length:
    collatz(2000)
    end = perf_counter_ns()
    if end - start > length // 3 * 2:
        times.append(end - last)
    last = end
print(sorted(times)[len(times) // 2])
