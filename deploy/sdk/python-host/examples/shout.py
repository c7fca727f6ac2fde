"""Calls a function of a riscv64 program that exports it with hartline.h.

    python shout.py PROGRAM FUNCTION INPUT [CALLS]

With a number of calls it also prints how long they took. The program can call a function "twice" of
this process.
"""

from __future__ import annotations

import statistics
import sys
import time

from hartline_host import Sandbox


def main(program: str, function: str, text: str, calls: int = 0) -> None:
    """Print the output, and the times."""
    with Sandbox(program, functions={"twice": lambda data: data * 2}) as sandbox:
        data = text.encode()
        print(sandbox.call(function, data, limit=60).decode())
        print(f"reset: {sandbox.reset().pages} pages")
        for resets in (False, True) if calls else ():
            times = []
            for _ in range(calls):
                start = time.perf_counter()
                sandbox.call(function, data, limit=60)
                if resets:
                    sandbox.reset()
                times.append(time.perf_counter() - start)
            what = "call and reset" if resets else "call"
            print(f"{what}: p50 {statistics.median(times) * 1e6:.1f} us")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:5]))
