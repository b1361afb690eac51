"""Which tests must see a fault in which module."""

from pathlib import Path

# What several subjects share, and what goes by another name than its tests.
_ROOMS = {
    "checks": "samples gradients subjects/memory",
    "contained": "subjects/libraries",
    "loops/contrasting": "exercises/lesson_06",
    "models": "samples subjects/tokens subjects/memory subjects/equivalence",
    "figures/causes": "subjects/causes",
    "figures/contents": "figures",
    "figures/drawing": "figures subjects/every_panel",
    "figures/lines": "subjects/lines",
    "figures/memory": "figures subjects/memory subjects/every_panel",
    "figures/pictures": "figures subjects/every_panel",
    "figures/roads": "subjects/roads",
    "figures/shares": "subjects/windows subjects/tokens subjects/every_panel",
    "figures/svg": "figures subjects/every_panel",
    "figures/training": "figures subjects/training subjects/every_panel",
    "panels/panel": "subjects/every_panel",
    "subjects/causes": "subjects/equivalence",
    "subjects/library_loops": "subjects/libraries recorder_libraries",
    "subjects/museum_data": "subjects/museum",
    "subjects/museum_faults": "subjects/museum",
    "subjects/museum_loops": "subjects/museum",
    "subjects/ranks": "subjects/launching",
    "teaching/handing_out": "handing_out",
}


def modules(root: Path, under: str = "helpers") -> list[str]:
    """Every module at or below the path ``under`` that holds more than imports, in order."""
    start = root / under
    found = [start] if start.is_file() else sorted(start.rglob("*.py"))
    found = [path.relative_to(root).as_posix() for path in found if path.name != "__init__.py"]
    if not found:
        raise LookupError(f"there is no module in {under!r}")
    return found


def room_of(module: str, root: Path) -> tuple[str, ...]:
    """The paths of the tests of the room of ``module``; LookupError where there are none."""
    name = module.removeprefix("helpers/").removesuffix(".py")
    folder, _, subject = name.rpartition("/")
    if name in _ROOMS:
        paths = tuple(map(_path, _ROOMS[name].split()))
    elif folder in ("subjects", "exercises"):
        paths = (_path(name),)
    elif folder in ("figures", "panels"):
        paths = (_path(f"subjects/{subject}"), _path("subjects/every_panel"))
    else:
        both = (_path(folder or subject), f"tests/{folder or subject}")
        paths = tuple(path for path in both if (root / path).exists()) or both
    if not all((root / path).exists() for path in paths):
        raise LookupError(f"{module} has no tests: {' '.join(paths)}; see {__name__}")
    return paths


def asked(module: str, tests: tuple[str, ...]) -> tuple[str, ...]:
    """pytest's arguments for ``tests``: of those of every panel only the ones of this subject."""
    subject = Path(module).stem
    one_subject = _path(f"subjects/{subject}") in tests
    return (*tests, "-k", f"not test_every_panel or {subject}") if one_subject else tests


def _path(name: str) -> str:
    folder, slash, subject = name.rpartition("/")
    return f"tests/{folder}{slash}test_{subject}.py"
