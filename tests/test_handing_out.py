"""Copies for students solve and answer nothing, leave nothing else out, and run."""

import ast
import json
import re
from pathlib import Path

import pytest

from helpers.teaching.handing_out import hand_out, main, without_answers
from tests.store_outputs import run

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    return "".join(cell["source"])


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def told(notebook: dict) -> list[str]:
    """What still answers something, with the cell that does."""
    found = []
    for cell in notebook["cells"]:
        if "solution" in tags(cell) or cell["id"].startswith(("solution", "loop-solution")):
            found.append(f"{cell['id']} is a solution")
        if re.search(r"solution|<details|<summary", source(cell), re.IGNORECASE):
            found.append(f"{cell['id']} holds or speaks of one")
        if cell.get("outputs") or cell.get("execution_count"):
            found.append(f"{cell['id']} was run")
    return found


def names_used_but_never_made(notebook: dict, whole: dict) -> set[str]:
    """Names that cells of ``notebook`` read and only cells of ``whole`` that it lacks make."""
    left = {cell["id"] for cell in notebook["cells"]}
    trees = {c["id"]: ast.parse(source(c)) for c in whole["cells"] if c["cell_type"] == "code"}
    here = [node for name, tree in trees.items() if name in left for node in ast.walk(tree)]
    gone = [node for name, tree in trees.items() if name not in left for node in tree.body]
    made_here = {made for node in here for made in made_by(node)}
    read_here = {n.id for n in here if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return {made for node in gone for made in made_by(node)} & read_here - made_here


def made_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        names = [name for target in node.targets for name in ast.walk(target)]
        return [name.id for name in names if isinstance(name, ast.Name)]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


@every_lesson
def test_nothing_is_solved_or_answered(lesson):
    assert told(without_answers(read(lesson))) == []


@every_lesson
def test_the_lesson_itself_does_solve_and_answer(lesson):
    said = " ".join(told(read(lesson)))
    assert "is a solution" in said
    assert "holds or speaks of one" in said
    assert "was run" in said


@every_lesson
def test_every_other_cell_stays_in_its_place(lesson):
    before, after = read(lesson)["cells"], without_answers(read(lesson))["cells"]
    kept = [cell for cell in before if "solution" not in tags(cell)]
    assert [cell["id"] for cell in after] == [cell["id"] for cell in kept]
    code = [(source(cell), tags(cell)) for cell in after if cell["cell_type"] == "code"]
    assert code == [(source(cell), tags(cell)) for cell in kept if cell["cell_type"] == "code"]


@every_lesson
def test_the_stubs_checks_and_questions_stay(lesson):
    text = "\n".join(map(source, without_answers(read(lesson))["cells"]))
    whole = "\n".join(map(source, read(lesson)["cells"]))
    stated = re.findall(r"^\*\*\d\. .+?\*\* \(\d+ minutes\)", whole, re.MULTILINE)
    checks = re.findall(r"^check(?:_loop|_runs)?\(", text, re.MULTILINE)
    assert stated
    assert all(exercise in text for exercise in stated)
    assert len(checks) >= len(stated)
    assert re.findall(r"Recall\(.*\)", text) == re.findall(r"Recall\(.*\)", whole)
    assert "**Reach these targets" in text


@every_lesson
def test_prose_loses_its_answers_and_nothing_else(lesson):
    before = {cell["id"]: source(cell) for cell in read(lesson)["cells"]}
    for cell in without_answers(read(lesson))["cells"]:
        gone = before[cell["id"]].replace(source(cell), "")
        if source(cell) != before[cell["id"]] and "<details>" in gone:
            head, _, rest = before[cell["id"]].partition("<details>")
            assert source(cell) == head.rstrip() + rest.partition("</details>")[2]


@every_lesson
def test_no_cell_needs_what_only_a_solution_made(lesson):
    assert names_used_but_never_made(without_answers(read(lesson)), read(lesson)) == set()


def test_a_cell_that_needs_a_solution_is_seen():
    notebook = read(LESSONS[0])
    user = {"id": "user", "cell_type": "code", "metadata": {}, "source": "train_solution"}
    notebook["cells"].append(user | {"outputs": [], "execution_count": None})
    assert names_used_but_never_made(without_answers(notebook), notebook) == {"train_solution"}


@every_lesson
def test_what_drives_a_panel_to_its_targets_is_folded(lesson):
    cells = without_answers(read(lesson))["cells"]
    driving = [cell for cell in cells if cell["id"].startswith("drive-")]
    assert driving
    assert all(cell["metadata"]["jupyter"]["source_hidden"] for cell in driving)


def test_the_notebook_handed_over_is_left_as_it_was():
    notebook = read(LESSONS[0])
    without_answers(notebook)
    assert notebook == read(LESSONS[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("class") / "student"
    hand_out(folder)
    return folder


def test_every_lesson_is_handed_out_with_what_it_needs(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "helpers",
        "notebooks",
        "requirements.txt",
    ]
    assert [path.name for path in sorted((folder / "notebooks").iterdir())] == [
        path.name for path in LESSONS
    ]
    assert not list(folder.rglob("__pycache__"))


def test_a_copy_is_indented_as_jupyter_writes_it(folder):
    for path in folder.glob("notebooks/*"):
        assert path.read_text("utf-8").startswith('{\n "')


def test_a_copy_runs_beside_its_own_helpers_and_shows_what_the_lesson_shows(folder):
    path = folder / "notebooks" / LESSONS[0].name
    notebook = read(path)
    where = {"cell_type": "code", "id": "where", "metadata": {}, "outputs": []}
    asked = "import helpers\nprint(helpers.__file__)"
    notebook["cells"].append(where | {"execution_count": None, "source": asked})
    trial = path.with_name("trial.ipynb")
    trial.write_text(json.dumps(notebook), encoding="utf-8")
    *cells, where = run(trial)["cells"]
    trial.unlink()
    stored = {cell["id"]: printed(cell) for cell in read(LESSONS[0])["cells"]}
    assert {cell["id"]: printed(cell) for cell in cells}.items() <= stored.items()
    assert Path(printed(where)[0].strip()).parents[1].resolve() == folder.resolve()


def printed(cell: dict) -> list[str]:
    outputs = cell.get("outputs", [])
    texts = (o.get("text", o.get("data", {}).get("text/plain", "")) for o in outputs)
    return ["".join(text) for text in texts]


def test_a_second_call_replaces_the_first(tmp_path):
    hand_out(tmp_path / "student")
    (tmp_path / "student/notebooks/old.ipynb").write_text("{}")
    copies = hand_out(tmp_path / "student")
    assert sorted(tmp_path.glob("student/notebooks/*")) == copies


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"handed out before, got .*mine\.txt"):
        hand_out(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ValueError, match="not a folder"):
        hand_out(tmp_path / "mine.txt")


@pytest.mark.parametrize("inside", ["notebooks", "helpers", "helpers/copies"])
def test_a_folder_within_what_is_handed_out_is_refused(inside, tmp_path):
    for name in ("notebooks", "helpers"):
        (tmp_path / name).mkdir()
    (tmp_path / "requirements.txt").write_text("torch")
    with pytest.raises(ValueError, match="folder must lie outside"):
        hand_out(tmp_path / inside, root=tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "helpers",
        "notebooks",
        "requirements.txt",
    ]


def test_from_the_command_line_it_says_where_and_refuses_without_a_traceback(tmp_path, capsys):
    assert main([str(tmp_path / "student")]) == 0
    assert f"{len(LESSONS)} lessons" in capsys.readouterr().out
    (tmp_path / "mine.txt").write_text("mine")
    assert main([str(tmp_path)]) == 1
    assert "mine.txt" in capsys.readouterr().err
