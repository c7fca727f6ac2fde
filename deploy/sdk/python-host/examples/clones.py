"""Continues a snapshot again and again in one machine, each time from the same state.

    hartline run --snapshot warm --snapshot-at stdin --snapshot-end ./program
    python clones.py warm 100 < line

The program's output goes to the standard output, and the times to the standard error.
"""

from __future__ import annotations

import sys
import time

from hartline_host import Template, WarmClone


def main(snapshot: str, runs: int, data: bytes) -> None:
    """Run, and print the outputs and times."""
    start = time.perf_counter()
    with Template(snapshot) as template, WarmClone(template) as clone:
        print(f"ready after {(time.perf_counter() - start) * 1e3:.1f} ms", file=sys.stderr)
        for _ in range(runs):
            start = time.perf_counter()
            end = clone.run(data, limit=10)
            took = (time.perf_counter() - start) * 1e3
            sys.stdout.write(end.output.decode(errors="replace"))
            sys.stderr.write(end.error.decode(errors="replace"))
            print(f"exit code {end.code} after {took:.2f} ms {end.message}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read())
