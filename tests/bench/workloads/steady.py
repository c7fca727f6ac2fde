"""Computes in rounds until a time has passed: steady.py SECONDS PAUSE

Prints the nanoseconds of a round: the median of the rounds in the last third of the time. With a PAUSE, in
milliseconds, a second thread evaluates an expression after each pause.
"""
import sys
from threading import Event, Thread
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


def evaluate(pause, is_over):
    expression = compile("0", "", "eval")
    while not is_over.wait(pause):
        # Calls PyEval_EvalCode, which the rounds do not.
        eval(expression)


pause = float(sys.argv[2]) / 1e3
is_over = Event()
# Waited for at the end: a daemon thread would end by pthread_exit, which needs libgcc_s.
if pause > 0:
    Thread(target=evaluate, args=[pause, is_over]).start()
length = int(float(sys.argv[1]) * 1e9)
start = last = perf_counter_ns()
times = []
while last - start < length:
    collatz(2000)
    end = perf_counter_ns()
    if end - start > length // 3 * 2:
        times.append(end - last)
    last = end
is_over.set()
print(sorted(times)[len(times) // 2])
