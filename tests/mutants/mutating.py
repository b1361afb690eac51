"""What can be changed in a module, one place at a time, and a sample of it."""

import ast
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

from tests.mutants.rooms import modules

Position = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True)
class Mutant:
    """One module with one thing changed."""

    module: str  # its path from the root
    line: int
    source: str
    mutated: str


def sample(root: Path, under: str, size: int, seed: int) -> list[Mutant]:
    """At most ``size`` mutants of the modules at or below ``under``, the same for one ``seed``.

    Places are drawn, then one of a place's changes: ``a * b`` has six, ``True`` one, and each of
    the two is as likely to be wrong.
    """
    operators = _operators(root)
    draw = random.Random(seed)
    sources = {module: (root / module).read_text("utf-8") for module in modules(root, under)}
    places = [
        (module, start, changes)
        for module, source in sources.items()
        for start, changes in sorted(_places(source, operators).items())
    ]
    draw.shuffle(places)
    mutants: list[Mutant] = []
    for module, (line, _), changes in places:
        if len(mutants) == size:
            break
        draw.shuffle(changes)
        source = sources[module]
        for operator, occurrence in changes:
            mutated = mutate_code(source, operator, occurrence)
            if mutated is not None and _means_something_else(source, mutated):
                mutants.append(Mutant(module, line, source, mutated))
                break
    return mutants


def _operators(root: Path) -> list[Operator]:
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    filters = settings["tool"]["cosmic-ray"]["filters"]["operators-filter"]
    excluded = [re.compile(pattern) for pattern in filters["exclude-operators"]]
    names = [
        name
        for name in sorted(operator_names())
        if not any(pattern.search(name) for pattern in excluded)
    ]
    kinds = [get_operator(name) for name in names]
    return [kind() for kind in kinds if not kind.arguments()]


def _places(source: str, operators: list[Operator]) -> dict[Position, list[tuple[Operator, int]]]:
    """For each position that counts, the operators that change it, and their how-manieth."""
    nodes = list(ast_nodes(get_ast(source)))
    left_out = list(_left_out(source))
    places: dict[Position, list[tuple[Operator, int]]] = {}
    for operator in operators:
        positions = (
            (node, start) for node in nodes for start, _ in operator.mutation_positions(node)
        )
        for occurrence, (node, start) in enumerate(positions):
            if node.parent is not None and node.parent.type == "parameters":
                continue  # the bare * or / of a signature
            if not any(first <= start < last for first, last in left_out):
                places.setdefault(start, []).append((operator, occurrence))
    return places


def _left_out(source: str) -> Iterator[tuple[Position, Position]]:
    """Where a change is no fault: annotations, decorators of dataclasses, ``__all__``."""
    lines = source.splitlines()

    def column(line: int, offset: int) -> int:  # ast counts bytes
        return len(lines[line - 1].encode()[:offset].decode())

    def span(node: ast.expr | ast.stmt) -> tuple[Position, Position]:
        first = (node.lineno, column(node.lineno, node.col_offset))
        return first, (node.end_lineno, column(node.end_lineno, node.end_col_offset))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation:
            yield span(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield span(node.returns)
        elif isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                if "dataclass" in ast.unparse(decorator):
                    yield (decorator.lineno, 0), span(decorator)[1]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield span(node)


def _means_something_else(source: str, mutated: str) -> bool:
    try:
        return ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
