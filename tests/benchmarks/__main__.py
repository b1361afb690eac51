"""Measure everything, or what is named, and print one table.

python -m tests.benchmarks [redraw loop recorder audit memory notebooks lab]

A bench is a module here with a function ``measure()`` that yields :class:`Line` after line. To add
one, write the module and add it to ``BENCHES``.
"""

import sys

from tests.benchmarks import audit, lab, loop, memory, notebooks, recorder, redraw
from tests.benchmarks.table import HEADING

BENCHES = {
    "redraw": redraw,
    "loop": loop,
    "recorder": recorder,
    "audit": audit,
    "memory": memory,
    "notebooks": notebooks,
    "lab": lab,
}


def main(names: list[str]) -> None:
    if unknown := set(names) - set(BENCHES):
        sys.exit(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    print(HEADING)
    for name in names or BENCHES:
        for line in BENCHES[name].measure():
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
