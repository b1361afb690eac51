"""What can be changed in a module, one place at a time, and a sample of it."""

import ast
import difflib
import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names
from parso.tree import NodeOrLeaf

from tests.mutants.rooms import modules

Position = tuple[int, int]  # line from 1, column from 0
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# How wide, how far apart or how high up something is drawn: a test that knew it would be the same
# line again. And zip's strict, a check of what always holds.
NO_FAULT = re.compile(
    r"lw|linewidths?|ls|linestyles?|ms|mew|fontsize|alpha|(border)?pad|linespacing|dpi"
    r"|zorder|handlelength|handletextpad|columnspacing|strict"
)


@dataclass(frozen=True)
class Mutant:
    """One module with one thing changed."""

    module: str  # its path from the root
    line: int
    source: str
    mutated: str

    def diff(self) -> list[str]:
        """The lines taken out after a minus, those put in after a plus."""
        lines = difflib.unified_diff(
            self.source.splitlines(), self.mutated.splitlines(), n=0, lineterm=""
        )
        return [line for line in list(lines)[2:] if not line.startswith("@@")]

    def is_equivalent(self) -> bool:
        """Whether it is listed as one that no reader could tell from what it was."""
        was, becomes = (
            "\n".join(line[1:].strip() for line in self.diff() if line[0] == sign) for sign in "-+"
        )
        return any(
            (listed["module"], listed["line"], listed["becomes"]) == (self.module, was, becomes)
            for listed in equivalents()
        )


def equivalents() -> list[dict[str, str]]:
    """What is listed: the module, its line, what that becomes, and why it is all the same."""
    return tomllib.loads(EQUIVALENT.read_text("utf-8"))["equivalent"]


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
    excluded = settings["tool"]["cosmic-ray"]["filters"]["operators-filter"]["exclude-operators"]
    pattern = re.compile("|".join(excluded))
    kinds = [get_operator(name) for name in sorted(operator_names()) if not pattern.search(name)]
    return [kind() for kind in kinds if not kind.arguments()]


def _places(source: str, operators: list[Operator]) -> dict[Position, list[tuple[Operator, int]]]:
    """For each position that counts, the operators that change it, and their how-manieth."""
    nodes = list(ast_nodes(get_ast(source)))
    left_out = {id(inner) for node in nodes if _says_nothing(node) for inner in ast_nodes(node)}
    places: dict[Position, list[tuple[Operator, int]]] = {}
    for operator in operators:
        positions = (
            (node, start) for node in nodes for start, _ in operator.mutation_positions(node)
        )
        for occurrence, (node, start) in enumerate(positions):
            if id(node) not in left_out:
                places.setdefault(start, []).append((operator, occurrence))
    return places


def _says_nothing(node: NodeOrLeaf) -> bool:
    """Whether a change is no fault: annotations, type aliases, ``@dataclass``, ``__all__``, the
    bare ``*`` or ``/`` of a signature, looks and ``strict``."""
    parent, sign = node.parent, node.get_previous_sibling()
    if parent is None:
        return False
    if parent.type in ("argument", "dictorsetmaker") and sign is not None:
        name = sign.get_previous_sibling() if sign.get_code().strip() in ("=", ":") else sign
        return NO_FAULT.fullmatch(name.get_code().strip("\"' \n")) is not None
    if parent.type in ("annassign", "tfpdef"):
        return node is parent.children[1 if parent.type == "annassign" else 2]
    if parent.type == "funcdef":
        return node is parent.annotation
    if node.type == "decorator":
        return "dataclass" in node.get_code()
    if node.type == "expr_stmt":
        return re.match(r"__all__\b|[A-Z][a-z]\w* =", node.get_code().lstrip()) is not None
    return node.type == "operator" and parent.type == "parameters"


def _means_something_else(source: str, mutated: str) -> bool:
    try:
        return ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
