"""Which tests must see a fault in which module."""

from pathlib import Path

_EVERY_PANEL = "tests/subjects/test_every_panel.py"

# what several subjects share, and what goes by another name than its tests
_SHARED = {
    "helpers/checks.py": (
        "tests/test_samples.py",
        "tests/test_gradients.py",
        "tests/subjects/test_memory.py",
    ),
    "helpers/models.py": (
        "tests/test_samples.py",
        "tests/subjects/test_tokens.py",
        "tests/subjects/test_memory.py",
        "tests/subjects/test_equivalence.py",
    ),
    "helpers/figures/drawing.py": ("tests/test_figures.py", _EVERY_PANEL),
    "helpers/figures/pictures.py": ("tests/test_figures.py", _EVERY_PANEL),
    "helpers/figures/svg.py": ("tests/test_figures.py", _EVERY_PANEL),
    "helpers/figures/shares.py": (
        "tests/subjects/test_windows.py",
        "tests/subjects/test_tokens.py",
        _EVERY_PANEL,
    ),
    "helpers/loops/contrasting.py": ("tests/exercises/test_lesson_06.py",),
    "helpers/panels/panel.py": (_EVERY_PANEL,),
    "helpers/subjects/causes.py": ("tests/subjects/test_equivalence.py",),
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
    _, *folders, name = module.removesuffix(".py").split("/")
    if module in _SHARED:
        paths = _SHARED[module]
    elif folders in (["subjects"], ["figures"], ["panels"]):
        every_panel = () if folders == ["subjects"] else (_EVERY_PANEL,)
        paths = (f"tests/subjects/test_{name}.py", *every_panel)
    elif folders == ["exercises"]:
        paths = (f"tests/exercises/test_{name}.py",)
    else:
        room = folders[0] if folders else name
        paths = (f"tests/test_{room}.py",)
    if not paths or not all((root / path).exists() for path in paths):
        raise LookupError(f"{module} has no tests: {' '.join(paths)}; see {__name__}")
    return paths
