"""Copies of the lessons for a class: nothing solved, nothing answered, nothing run.

python -m helpers.teaching.handing_out [folder]     build/student unless one is named
"""

import copy
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANDED_OUT = ("notebooks", "helpers", "requirements.txt")
ANSWERS = re.compile(r"\s*<details>.*?</details>", re.DOTALL)
OF_SOLUTIONS = re.compile(r" A solution is folded away[^.\n]*\.")


def without_answers(notebook: dict) -> dict:
    """The notebook as JSON without solution cells, without folded answers and without outputs.

    Outputs go as a whole: what a lesson prints below a prediction answers it, and a seal can be
    tried against each choice. Cells that drive a panel to its targets stay, but are folded.
    """
    cells = [copy.deepcopy(cell) for cell in notebook["cells"] if not _is_solution(cell)]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = OF_SOLUTIONS.sub("", ANSWERS.sub("", "".join(cell["source"])))
            cell["source"] = text.splitlines(keepends=True)
        elif cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            if cell.get("id", "").startswith("drive-"):
                cell["metadata"].setdefault("jupyter", {})["source_hidden"] = True
    return notebook | {"cells": cells}


def hand_out(folder: Path, root: Path = ROOT) -> list[Path]:
    """The lessons' copies, written below ``folder`` with all that they need to run.

    ``helpers`` lies beside them as it does here, one folder up, so the folder can be given away.
    What an earlier call wrote there is replaced.

    Raises:
        ValueError: ``folder`` holds something that was not handed out, or is a part of what is.
    """
    folder = Path(folder).resolve()
    parts = [(root / name).resolve() for name in HANDED_OUT]
    if any(folder == part or part in folder.parents for part in parts):
        raise ValueError(f"folder must lie outside what is handed out, got {folder}")
    if folder.exists() and (not folder.is_dir() or _others(folder)):
        holds = _others(folder) if folder.is_dir() else "not a folder"
        raise ValueError(f"folder must be new, empty or handed out before, got {folder}: {holds}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "notebooks").mkdir(parents=True)
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "helpers", folder / "helpers", ignore=skipped)
    shutil.copy(root / "requirements.txt", folder)
    return [_copied(path, folder / "notebooks") for path in sorted(root.glob("notebooks/*.ipynb"))]


def _others(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in HANDED_OUT)


def _copied(path: Path, folder: Path) -> Path:
    notebook = without_answers(json.loads(path.read_text(encoding="utf-8")))
    written = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
    (folder / path.name).write_text(written, encoding="utf-8")
    return folder / path.name


def _is_solution(cell: dict) -> bool:
    return "solution" in cell["metadata"].get("tags", [])


def main(names: list[str]) -> int:
    folder = Path(*names) if names else ROOT / "build" / "student"
    try:
        lessons = hand_out(folder)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"{len(lessons)} lessons without solutions and answers: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
