"""Plant a sample of faults in helpers/, and print how many of them the tests see.

python -m tests.mutants [--sample 300] [--seed 0] [--room helpers/recorder]
"""

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutating import sample
from tests.mutants.running import Result, run

ROOT = Path(__file__).parents[2]


def report(results: Sequence[Result]) -> str:
    """A table of the score of each room and of all, then every survivor as a diff."""
    rooms: dict[str, list[bool]] = {}
    for result in results:
        rooms.setdefault(str(Path(result.mutant.module).parent), []).append(result.killed)
    rooms = dict(sorted(rooms.items())) | {"all": [result.killed for result in results]}
    table = [f"{'room':20}  killed   of      %"]
    for room, killed in rooms.items():
        table.append(f"{room:20} {sum(killed):7} {len(killed):4} {sum(killed) / len(killed):6.0%}")
    survivors = [result for result in results if not result.killed]
    for result in sorted(survivors, key=lambda result: (result.mutant.module, result.mutant.line)):
        mutant = result.mutant
        table.append(f"\n{mutant.module}:{mutant.line} survives")
        table += _changed(mutant.source, mutant.mutated)
    return "\n".join(table)


def _changed(source: str, mutated: str) -> list[str]:
    lines = difflib.unified_diff(source.splitlines(), mutated.splitlines(), n=0, lineterm="")
    return [line for line in list(lines)[2:] if not line.startswith("@@")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: 0)")
    parser.add_argument("--room", default="helpers", help="module or folder (default: helpers)")
    asked = parser.parse_args()
    mutants = sample(ROOT, asked.room, asked.sample, asked.seed)
    done = 0

    def tell(result: Result) -> None:
        nonlocal done
        done += 1
        place = f"{result.mutant.module}:{result.mutant.line}"
        outcome = "killed" if result.killed else "survives"
        print(f"{done}/{len(mutants)} {place} {outcome} {result.seconds:.1f} s", file=sys.stderr)
        if not result.killed:  # a long run that is ended early has told what it found
            changed = _changed(result.mutant.source, result.mutant.mutated)
            print(*changed, sep="\n", file=sys.stderr)

    print(report(run(ROOT, mutants, tell)))


if __name__ == "__main__":
    main()
