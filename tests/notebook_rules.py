"""What a lesson must keep to be committed. Each rule takes a notebook and returns complaints.

The rules see to what nbval cannot: it passes notebooks that were never run, and never looks at
images, metadata or prose.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import nbformat
from nbformat import NotebookNode

from helpers.teaching.asking import seal

Rule = Callable[[NotebookNode], list[str]]

SECTIONS = ("What you will be able to do", "Exercises", "Recall", "Summary", "Next")
CELLS = (35, 65)
LINES_MEDIAN, LINES_NINE_OF_TEN, LINES_MOST = 4, 14, 25
LINES_TO_COPY = 36  # of the one cell tagged to-copy, built up step by step before it
WORDS_A_LINE = (10, 18)
SHARE_WITH_OUTPUT = 0.8
WORDS_A_MINUTE, LINES_A_MINUTE, MINUTES_A_TARGET = 170, 15, 2
TIME_WITHIN = 0.2
ALT_LENGTH = 20
BYTES = 400_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
MARKDOWN_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\(\s*<?(?P<source>[^)\s>]+)")
HTML_IMAGE = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
ASKED = re.compile(r"^(\w+) = Prediction\(", re.MULTILINE)
REVEAL = re.compile(r"\b(\w+)\.reveal\(")
SEALED = r"Choose above, then run this cell\. \(The answer is sealed: (\w{4})\.\)"
MACHINE_PATH = re.compile(r"(?<![\w.])(/(home|Users|root|tmp|work|private)/|[A-Z]:\\)\S+")

RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def read(path: Path) -> NotebookNode:
    """The notebook as the file has it; nbformat.read would mend ids that are there twice."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))


def complaints(notebook: NotebookNode) -> list[str]:
    """What is wrong with the notebook, by every rule; empty if nothing is."""
    return [complaint for keep in RULES for complaint in keep(notebook)]


@rule
def runs_from_one_to_n(notebook: NotebookNode) -> list[str]:
    counts = [cell.execution_count for _, cell in code_cells(notebook)]
    wanted = list(range(1, len(counts) + 1))
    return [] if counts == wanted else [f"execution counts are {counts}, not 1 to {len(counts)}"]


@rule
def outputs_are_stored(notebook: NotebookNode) -> list[str]:
    cells = [cell for _, cell in code_cells(notebook)]
    shown = sum(bool(cell.outputs) for cell in cells)
    if shown >= SHARE_WITH_OUTPUT * len(cells):
        return []
    return [f"{shown} of {len(cells)} code cells have output, fewer than {SHARE_WITH_OUTPUT:.0%}"]


@rule
def nothing_on_stderr(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} wrote to stderr: {output.text.strip()}"
        for where, _, output in outputs(notebook)
        if output.output_type == "stream" and output.name == "stderr"
    ]


@rule
def errors_only_where_meant(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} raised {output.ename} and is not tagged raises-exception"
        for where, cell, output in outputs(notebook)
        if output.output_type == "error" and "raises-exception" not in tags(cell)
    ]


@rule
def no_widget_state(notebook: NotebookNode) -> list[str]:
    state = ["widget state is stored"] if "widgets" in notebook.metadata else []
    views = [
        f"{where} stores a widget view, an error message to whoever opens it without its kernel"
        for where, _, output in outputs(notebook)
        if WIDGET_VIEW in output.get("data", {})
    ]
    return state + views


@rule
def no_timings_in_metadata(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} has execution timings in its metadata"
        for where, cell in code_cells(notebook)
        if {"execution", "ExecuteTime"} & set(cell.metadata)
    ]


@rule
def no_paths_of_one_machine(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} shows the path {found[0]}"
        for where, _, output in outputs(notebook)
        if (found := MACHINE_PATH.search("\n".join(texts(output))))
    ]


@rule
def pictures_have_alt_text(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} has a picture whose alt text is {alt!r}, shorter than {ALT_LENGTH} characters"
        for where, _, output in pictures(notebook)
        if len(alt := output.metadata.get("image/png", {}).get("alt", "")) < ALT_LENGTH
    ]


@rule
def pictures_have_their_numbers_as_text(notebook: NotebookNode) -> list[str]:
    """In the picture's own text/plain, or in the output that follows it."""
    everything = [(output, where) for where, _, output in outputs(notebook)]
    found = []
    for i, (output, where) in enumerate(everything):
        beside = [own for own, _ in everything[i : i + 2]]
        if "image/png" in output.get("data", {}) and not any(map(has_numbers, beside)):
            found.append(f"{where} has a picture without a table of its numbers")
    return found


@rule
def drawn_images_are_local_and_described(notebook: NotebookNode) -> list[str]:
    found = []
    for where, prose in markdown(notebook):
        images = [(image["alt"], image["source"]) for image in MARKDOWN_IMAGE.finditer(prose)]
        images += [
            (attribute(tag, "alt"), attribute(tag, "src")) for tag in HTML_IMAGE.findall(prose)
        ]
        for alt, source in images:
            if not alt.strip():
                found.append(f"{where} has the image {source} without alt text")
            if re.match(r"(https?:)?//", source, re.IGNORECASE):
                found.append(f"{where} has a remote image: {source}")
    return found


@rule
def one_title_and_it_comes_first(notebook: NotebookNode) -> list[str]:
    titles = [where for where, level, _ in headings(notebook) if level == 1]
    return [] if titles == ["cell 0"] else [f"top-level headings in {titles}, not in cell 0 alone"]


@rule
def has_every_section(notebook: NotebookNode) -> list[str]:
    here = {title for _, level, title in headings(notebook) if level == 2}
    return [f"no section '## {section}'" for section in SECTIONS if section not in here]


@rule
def kernel_is_python3(notebook: NotebookNode) -> list[str]:
    name = notebook.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"the kernel is {name!r}, not 'python3'"]


@rule
def file_is_small(notebook: NotebookNode) -> list[str]:
    size = len(nbformat.v4.writes(notebook).encode())
    return [] if size <= BYTES else [f"{size:,} bytes, more than {BYTES:,}"]


@rule
def cell_ids_are_unique(notebook: NotebookNode) -> list[str]:
    ids = [cell.get("id") for cell in notebook.cells]
    return [f"the cell id {name!r} is there {ids.count(name)} times" for name in twice(ids)]


@rule
def is_one_sitting(notebook: NotebookNode) -> list[str]:
    fewest, most = CELLS
    cells = len(notebook.cells)
    return [] if fewest <= cells <= most else [f"{cells} cells, not {fewest} to {most}"]


@rule
def cells_are_short(notebook: NotebookNode) -> list[str]:
    lengths = sorted(lines_of_code(cell) for cell in shown_code(notebook))
    if not lengths:
        return ["no code cell"]
    within = sum(length <= LINES_NINE_OF_TEN for length in lengths) / len(lengths)
    found = []
    if median(lengths) > LINES_MEDIAN:
        found.append(f"the median code cell has {median(lengths):g} lines, over {LINES_MEDIAN}")
    if within < 0.9:
        found.append(f"{within:.0%} of code cells are within {LINES_NINE_OF_TEN} lines, under 90%")
    to_copy = [lines_of_code(c) for c in shown_code(notebook) if "to-copy" in tags(c)]
    others = [lines_of_code(c) for c in shown_code(notebook) if "to-copy" not in tags(c)]
    if max(others) > LINES_MOST:
        found.append(f"the longest code cell has {max(others)} lines, over {LINES_MOST}")
    if len(to_copy) > 1 or max(to_copy, default=0) > LINES_TO_COPY:
        found.append(f"cells to copy have {to_copy} lines, not one of at most {LINES_TO_COPY}")
    return found


@rule
def has_far_more_prose_than_code(notebook: NotebookNode) -> list[str]:
    words, lines = words_of_prose(notebook), sum(map(lines_of_code, shown_code(notebook)))
    fewest, most = WORDS_A_LINE
    if fewest * lines <= words <= most * lines:
        return []
    return [f"{words} words to {lines} lines of code, not {fewest} to {most} words a line"]


@rule
def states_its_time(notebook: NotebookNode) -> list[str]:
    """Reading, exercises and targets of panels, counted; what is stated lies within a fifth."""
    counted = minutes(notebook)
    everything = "\n".join(prose for _, prose in markdown(notebook))
    stated = re.findall(r"\*\*Time\*\* about (\d+) minutes", everything)
    if len(stated) == 1 and abs(int(stated[0]) / counted - 1) <= TIME_WITHIN:
        return []
    return [f"'**Time** about N minutes' has N = {stated}; what there is to do takes {counted:.0f}"]


@rule
def ignored_output_says_why(notebook: NotebookNode) -> list[str]:
    found = []
    for where, cell in code_cells(notebook):
        if "nbval-skip" in tags(cell):
            found.append(f"{where} is skipped; at most its output may be ignored")
        if "NBVAL_" in cell.source:
            found.append(f"{where} instructs nbval by a comment; use a tag, which rules can see")
        if "nbval-ignore-output" in tags(cell) and not re.match(r"# \w+( \S+)+", cell.source):
            found.append(f"{where} ignores its output; its first line must say why, in a comment")
    return found


@rule
def nothing_answers_a_prediction_before_it_is_made(notebook: NotebookNode) -> list[str]:
    """No output stands between question and reveal; the reveal shows what is sealed, no more."""
    found, asked = [], {}
    for where, cell in code_cells(notebook):
        shown = "\n".join(text for output in cell.outputs for text in texts(output))
        for name in REVEAL.findall(cell.source):
            if asked.pop(name, None) is not None and not re.fullmatch(SEALED, shown.strip()):
                found.append(f"{where} reveals {name} and shows {shown.strip()[:60]!r}")
        if shown:
            found += [
                f"{where} has output between the prediction {name} and its reveal" for name in asked
            ]
        asked |= dict.fromkeys(ASKED.findall(cell.source), where)
    return found + [f"{where} asks {name}, which nothing reveals" for name, where in asked.items()]


@rule
def what_comes_before_a_prediction_does_not_answer_it(notebook: NotebookNode) -> list[str]:
    found = []
    for number, asked, answer in predictions(notebook):
        key = answer.split(",")[0].strip().lower()
        before = notebook.cells[:number]
        told = [line for cell in before for line in lines_shown(cell)]
        told += [title.lower() for _, _, title in headings(notebook)]
        if len(key) >= ALT_LENGTH // 4 and any(key in line for line in told):
            found.append(f"cell {number} asks {asked!r}; {key!r} is told before, or by a heading")
    return found


@rule
def solutions_and_questions_are_collapsed(notebook: NotebookNode) -> list[str]:
    """What a question cell holds is no code to read."""
    folded = {
        where: {"solution", "question"} & set(tags(cell)) and not is_collapsed(cell)
        for where, cell in code_cells(notebook)
    }
    return [
        f"{where} is a solution or question that is not collapsed (metadata jupyter.source_hidden)"
        for where, open_ in folded.items()
        if open_
    ]


@rule
def questions_are_tagged(notebook: NotebookNode) -> list[str]:
    return [
        f"{where} asks something and is not tagged question"
        for where, cell in code_cells(notebook)
        if re.search(r"\b(Recall|Prediction)\(", cell.source) and "question" not in tags(cell)
    ]


def predictions(notebook: NotebookNode) -> Iterator[tuple[int, str, str]]:
    """Each prediction's cell, question and right choice: the one that fits the reveal's seal."""
    asked = {}
    for number, cell in enumerate(notebook.cells):
        shown = "\n".join(text for output in cell.get("outputs", []) for text in texts(output))
        for name in REVEAL.findall(cell.source) if cell.cell_type == "code" else ():
            sealed = re.search(SEALED, shown)
            if name in asked and sealed:
                where, question, choices = asked[name]
                yield from (
                    (where, question, choice)
                    for choice in choices
                    if seal(question, choice) == sealed[1]
                )
        if cell.cell_type == "code" and (name := ASKED.search(cell.source)):
            question, *choices = shown.strip().split("\n  ○ ")
            asked[name[1]] = number, question, choices


def lines_shown(cell: NotebookNode) -> list[str]:
    """What a reader has read of a cell: its text, or its outputs, in small letters."""
    if cell.cell_type == "markdown":
        return cell.source.lower().splitlines()
    return [
        line.lower()
        for output in cell.outputs
        for text in texts(output)
        for line in text.splitlines()
    ]


def words_of_prose(notebook: NotebookNode) -> int:
    prose = (word for _, prose in markdown(notebook) for word in prose.split())
    return sum(any(letter.isalnum() for letter in word) for word in prose)


def minutes(notebook: NotebookNode) -> float:
    """How long a lesson takes: prose, code, the minutes that exercises state, and targets."""
    lines = sum(lines_of_code(cell) for cell in shown_code(notebook) if not is_collapsed(cell))
    reading = words_of_prose(notebook) / WORDS_A_MINUTE + lines / LINES_A_MINUTE
    exercises, targets = 0, 0
    for _, prose in markdown(notebook):
        exercises += sum(map(int, re.findall(r"^\*\*.+\((\d+) minutes\)", prose, re.MULTILINE)))
        for listed in re.findall(r"\*\*Reach these targets[^\n]*\n+((?:\d\..*\n?)+)", prose):
            targets += len(re.findall(r"^\d\.", listed, re.MULTILINE))
    return reading + exercises + MINUTES_A_TARGET * targets


def is_collapsed(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def shown_code(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells whose code a reader reads; what a question cell holds is prose, and folded away."""
    return [cell for _, cell in code_cells(notebook) if "question" not in tags(cell)]


def code_cells(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Every code cell with something in it, and where it is."""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and cell.source.strip():
            yield f"cell {number}", cell


def markdown(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """The prose of every Markdown cell, without fenced code, and where it is."""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            yield f"cell {number}", FENCED.sub("", cell.source)


def headings(notebook: NotebookNode) -> Iterator[tuple[str, int, str]]:
    for where, prose in markdown(notebook):
        for marks, title in re.findall(r"^(#{1,6})\s+(.+?)\s*$", prose, re.MULTILINE):
            yield where, len(marks), title


def outputs(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode, NotebookNode]]:
    for where, cell in code_cells(notebook):
        for output in cell.outputs:
            yield where, cell, output


def pictures(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode, NotebookNode]]:
    for where, cell, output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            yield where, cell, output


def texts(output: NotebookNode) -> list[str]:
    """Every text that the output shows or would show."""
    shown = [text for mime, text in output.get("data", {}).items() if mime.startswith("text/")]
    return [*shown, output.get("text", ""), *output.get("traceback", [])]


def has_numbers(output: NotebookNode) -> bool:
    """Numbers as text; those of a repr like <Figure size 640x480 with 1 Axes> are none."""
    return any(re.search(r"\d", re.sub(r"<[^<>]*>", "", text)) for text in texts(output))


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def lines_of_code(cell: NotebookNode) -> int:
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def attribute(tag: str, name: str) -> str:
    """The value of an HTML tag's attribute; empty if it has none."""
    found = re.search(rf"""\b{name}\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""", tag, re.IGNORECASE)
    return found[1].strip("\"'") if found else ""


def twice(names: list) -> list:
    return sorted({name for name in names if names.count(name) > 1}, key=str)
