"""Every rule bites: it complains of a fault planted in a good notebook, and no other rule does."""

from collections.abc import Callable

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.teaching.asking import seal
from tests import notebook_rules as rules

Fault = Callable[[NotebookNode], None]
FAULTS: dict[Fault, rules.Rule] = {}
ASKED = "Predict: the sum is"
SEALED = f"Choose above, then run this cell. (The answer is sealed: {seal(ASKED, 'twice that')}.)"
FOLDED = {"tags": ["question"], "jupyter": {"source_hidden": True}}
ALT = "Three bars, the middle one twice as high as the others"


def good_notebook() -> NotebookNode:
    """40 cells: title, sections, prose, one cell of each kind the rules know, and sums."""
    prose = [new_markdown_cell("# A lesson\n\n```\n# no title\n```")]
    prose += [new_markdown_cell(f"## {section}") for section in rules.SECTIONS]
    prose += [new_markdown_cell("some words on sums " * 15) for _ in range(13)]
    prose += [new_markdown_cell("**Time** about 68 minutes.\n\n**1. Sum** (60 minutes). Add them.")]
    prose += [new_markdown_cell("![Arrows, tip to tail](arrows.png)")]
    drawn = new_output(
        "display_data",
        data={"image/png": "iVBORw0KGgo=", "text/plain": "<Figure size 640x480>"},
        metadata={"image/png": {"alt": ALT}},
    )
    raised = new_output("error", ename="ZeroDivisionError", evalue="division", traceback=["1 / 0"])
    code = [
        ran("import math"),
        ran("guess = Prediction(...)", said(f"{ASKED}\n  ○ twice that\n  ○ half of it"), **FOLDED),
        ran("measure()"),
        ran("guess.reveal(measured)", said(SEALED)),
        ran("draw()", drawn, said("1 2 1")),
        ran("# timings differ from run to run\ntime()", said("5"), tags=["nbval-ignore-output"]),
        ran("1 / 0", raised, tags=["raises-exception"]),
        ran("3", said("right"), tags=["solution"], jupyter={"source_hidden": True}),
        *(ran(f"{i} + {i}\n\n# a sum\n{i} + 1\n{i}", said(f"{i}")) for i in range(12)),
    ]
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
    return new_notebook(
        cells=prose + code,
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


def ran(source: str, *outputs: NotebookNode, **metadata) -> NotebookNode:
    return new_code_cell(source, outputs=list(outputs), metadata=metadata)


def said(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=f"{text}\n")


def cell_with(notebook: NotebookNode, text: str) -> NotebookNode:
    return next(cell for cell in notebook.cells if text in cell.source)


def fault(of: rules.Rule) -> Callable[[Fault], Fault]:
    """Mark a function that plants a fault of which the rule ``of`` must complain."""

    def planted(plant: Fault) -> Fault:
        FAULTS[plant] = of
        return plant

    return planted


@fault(rules.runs_from_one_to_n)
def cell_not_run(notebook):
    notebook.cells[-1].execution_count = None


@fault(rules.runs_from_one_to_n)
def cells_run_out_of_order(notebook):
    notebook.cells[-1].execution_count, notebook.cells[-2].execution_count = 19, 20


@fault(rules.outputs_are_stored)
def outputs_stripped(notebook):
    for cell in notebook.cells[-4:]:
        cell.outputs = []


@fault(rules.nothing_on_stderr)
def warning(notebook):
    notebook.cells[-1].outputs.append(said("UserWarning: careful", name="stderr"))


@fault(rules.errors_only_where_meant)
def error_nobody_meant(notebook):
    cell_with(notebook, "1 / 0").metadata.tags = []


@fault(rules.no_widget_state)
def widget_state(notebook):
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {}}


@fault(rules.no_widget_state)
def widget_view(notebook):
    cell_with(notebook, "draw()").outputs[0].data[rules.WIDGET_VIEW] = {"model_id": "5f"}


@fault(rules.no_timings_in_metadata)
def execution_times(notebook):
    notebook.cells[-1].metadata.execution = {"iopub.execute_input": "2030-01-01T00:00:00Z"}


@fault(rules.no_paths_of_one_machine)
def path_in_output(notebook):
    notebook.cells[-1].outputs = [said("read /home/ada/course/data.csv")]


@fault(rules.no_paths_of_one_machine)
def path_in_traceback(notebook):
    cell_with(notebook, "1 / 0").outputs[0].traceback = [r"File C:\course\helpers\samples.py:12"]


@fault(rules.pictures_have_alt_text)
def no_alt_text(notebook):
    cell_with(notebook, "draw()").outputs[0].metadata = {}


@fault(rules.pictures_have_alt_text)
def alt_text_of_one_word(notebook):
    cell_with(notebook, "draw()").outputs[0].metadata["image/png"].alt = "bars"


@fault(rules.pictures_have_their_numbers_as_text)
def picture_without_numbers(notebook):
    cell_with(notebook, "draw()").outputs[1] = said("what a picture")


@fault(rules.drawn_images_are_local_and_described)
def remote_image(notebook):
    cell_with(notebook, "![").source = "![Arrows, tip to tail](https://example.org/arrows.png)"


@fault(rules.drawn_images_are_local_and_described)
def remote_image_in_html(notebook):
    cell_with(notebook, "![").source = "<img alt='Arrows' src='//example.org/arrows.png'>"


@fault(rules.drawn_images_are_local_and_described)
def image_without_alt_text(notebook):
    cell_with(notebook, "![").source = "![](arrows.png)"


@fault(rules.drawn_images_are_local_and_described)
def html_image_without_alt_text(notebook):
    cell_with(notebook, "![").source = '<img src="arrows.png" width="300">'


@fault(rules.one_title_and_it_comes_first)
def two_titles(notebook):
    cell_with(notebook, "some words").source += "\n\n# Another lesson"


@fault(rules.one_title_and_it_comes_first)
def title_comes_late(notebook):
    notebook.cells.insert(1, notebook.cells.pop(0))


@fault(rules.has_every_section)
def no_recall_questions(notebook):
    cell_with(notebook, "## Recall").source = "### Recall"


@fault(rules.kernel_is_python3)
def kernel_of_one_machine(notebook):
    notebook.metadata.kernelspec.name = "my-venv"


@fault(rules.file_is_small)
def large_file(notebook):
    notebook.cells[-1].outputs = [said("7" * 400_000)]


@fault(rules.cell_ids_are_unique)
def one_id_for_two_cells(notebook):
    notebook.cells[1].id = notebook.cells[2].id


@fault(rules.is_one_sitting)
def too_many_cells(notebook):
    notebook.cells += [new_markdown_cell("more") for _ in range(26)]


@fault(rules.is_one_sitting)
def too_few_cells(notebook):
    prose = [cell for cell in notebook.cells if cell.source.startswith("some words")]
    for cell in prose[1:]:
        notebook.cells.remove(cell)
    prose[0].source *= 13


@fault(rules.cells_are_short)
def cells_of_five_lines(notebook):
    for cell in notebook.cells[-15:]:
        cell.source += "\nlast"
    cell_with(notebook, "some words").source += "more " * 200


@fault(rules.cells_are_short)
def three_cells_of_fifteen_lines(notebook):
    for cell in notebook.cells[-3:]:
        cell.source = "line\n" * 15
    cell_with(notebook, "some words").source += "more " * 500


@fault(rules.cells_are_short)
def a_cell_of_26_lines(notebook):
    notebook.cells[-1].source = "line\n" * 26
    cell_with(notebook, "some words").source += "more " * 300


@fault(rules.cells_are_short)
def a_cell_to_copy_of_37_lines(notebook):
    notebook.cells[-1].source = "line\n" * 37
    notebook.cells[-1].metadata.tags = ["to-copy"]
    cell_with(notebook, "some words").source += "more " * 400


@fault(rules.cells_are_short)
def two_cells_to_copy(notebook):
    for cell in notebook.cells[-2:]:
        cell.metadata.tags = ["to-copy"]


@fault(rules.has_far_more_prose_than_code)
def little_prose(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("some words on sums " * 15, "words")


@fault(rules.has_far_more_prose_than_code)
def wall_of_prose(notebook):
    cell_with(notebook, "some words").source *= 10


@fault(rules.ignored_output_says_why)
def output_ignored_without_a_reason(notebook):
    cell_with(notebook, "time()").source = "time()"


@fault(rules.ignored_output_says_why)
def cell_skipped(notebook):
    notebook.cells[-1].metadata.tags = ["nbval-skip"]


@fault(rules.ignored_output_says_why)
def output_ignored_by_a_comment(notebook):
    notebook.cells[-1].source = f"# NBVAL_IGNORE_OUTPUT\n{notebook.cells[-1].source}"


@fault(rules.solutions_and_questions_are_collapsed)
def solution_in_plain_sight(notebook):
    del cell_with(notebook, "3").metadata["jupyter"]


@fault(rules.solutions_and_questions_are_collapsed)
def question_in_plain_sight(notebook):
    cell_with(notebook, "4").metadata["tags"] = ["question"]


@fault(rules.questions_are_tagged)
def question_without_its_tag(notebook):
    cell_with(notebook, "4").source = 'Recall("2 + 2?", [3, 4], 4, "Count.")'


@fault(rules.nothing_answers_a_prediction_before_it_is_made)
def measured_before_the_reveal(notebook):
    cell_with(notebook, "measure()").outputs = [said("4.0")]


@fault(rules.nothing_answers_a_prediction_before_it_is_made)
def told_beside_the_seal(notebook):
    cell_with(notebook, "guess.reveal").outputs = [said("4.0"), said(SEALED)]


@fault(rules.nothing_answers_a_prediction_before_it_is_made)
def never_revealed(notebook):
    cell_with(notebook, "guess.reveal").source = "guess"


@fault(rules.what_comes_before_a_prediction_does_not_answer_it)
def answered_by_a_heading(notebook):
    notebook.cells.append(new_markdown_cell("## The sum is twice that"))


@fault(rules.what_comes_before_a_prediction_does_not_answer_it)
def answered_by_the_text_before(notebook):
    notebook.cells[8].source += "\n\nAs said, it is twice that."


@fault(rules.what_comes_before_a_prediction_does_not_answer_it)
def answered_by_an_earlier_output(notebook):
    cell_with(notebook, "import math").outputs = [said("Twice that, of course")]


@fault(rules.states_its_time)
def time_guessed(notebook):
    cell = cell_with(notebook, "**Time**")
    cell.source = cell.source.replace("68 minutes", "45 minutes")


@fault(rules.states_its_time)
def time_not_said(notebook):
    cell = cell_with(notebook, "**Time**")
    cell.source = cell.source.replace("**Time**", "Time")


@fault(rules.states_its_time)
def an_exercise_more(notebook):
    cell_with(notebook, "**Time**").source += "\n\n**2. Product** (30 minutes). Multiply."


@fault(rules.states_its_time)
def targets_more(notebook):
    targets = "".join(f"{i}. Reach it.\n" for i in range(1, 10))
    notebook.cells[8].source += f"\n\n**Reach these targets:**\n\n{targets}\n1. Told."


def test_good_notebook_has_no_complaints():
    assert rules.complaints(good_notebook()) == []


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_rule_bites(plant: Fault):
    notebook = good_notebook()
    plant(notebook)
    assert [keep for keep in rules.RULES if keep(notebook)] == [FAULTS[plant]]


def test_every_rule_has_a_fault():
    assert set(FAULTS.values()) == set(rules.RULES)
