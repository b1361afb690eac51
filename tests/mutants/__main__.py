"""Plant a sample of faults in helpers/, and print how many of them the tests see.

python -m tests.mutants [--sample 300] [--seed 0] [--room helpers/recorder] [--workers 2]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutating import Mutant, sample
from tests.mutants.running import Result, run

ROOT = Path(__file__).parents[2]


def report(results: Sequence[Result], equivalent: Sequence[Mutant] = ()) -> str:
    """A table of the score of each room and of all, then every survivor as a diff."""
    rooms: dict[str, list[bool]] = {}
    for result in results:
        rooms.setdefault(str(Path(result.mutant.module).parent), []).append(result.killed)
    rooms = dict(sorted(rooms.items())) | {"all": [result.killed for result in results]}
    table = [f"{'room':20}  killed   of      %"]
    for room, killed in rooms.items():
        score = sum(killed) / max(len(killed), 1)
        table.append(f"{room:20} {sum(killed):7} {len(killed):4} {score:6.0%}")
    if equivalent:
        table.append(f"not planted: {len(equivalent)} that tests/mutants/equivalent.toml lists")
    for result in sorted(results, key=lambda result: (result.mutant.module, result.mutant.line)):
        if not result.killed:
            table += ["", _told(result)]
    return "\n".join(table)


def _told(result: Result) -> str:
    place = f"{result.mutant.module}:{result.mutant.line}"
    if result.killed:
        return f"{place} killed in {result.seconds:.1f} s"
    return "\n".join([f"{place} survives", *result.mutant.diff()])


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: 0)")
    parser.add_argument("--room", default="helpers", help="module or folder (default: helpers)")
    parser.add_argument("--workers", type=int, default=2, help="at a time (default: 2)")
    asked = parser.parse_args()
    drawn = sample(ROOT, asked.room, asked.sample, asked.seed)
    equivalent = [mutant for mutant in drawn if mutant.is_equivalent()]
    mutants = [mutant for mutant in drawn if mutant not in equivalent]
    results = []
    for result in run(ROOT, mutants, asked.workers):
        results.append(result)
        # A long run that is ended early has told what it found.
        print(f"{len(results)}/{len(mutants)}", _told(result), file=sys.stderr, flush=True)
    print(report(results, equivalent))


if __name__ == "__main__":
    main()
