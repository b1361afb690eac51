"""What docs/teaching.md says of the lessons stands in the lessons."""

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests.notebook_rules import headings, outputs, read, texts

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NOTEBOOKS = {path.name: read(path) for path in LESSONS}
HEADINGS = (
    "15 minutes",
    "45 minutes",
    "Where to stop",
    "Ask before the panel",
    "Wrong answers",
    "On the board",
)
# What a number may stand beside without being a claim about what the lesson prints.
COUNTED = r"(?:[Ff]igures?|[Tt]argets?|[Ee]xercises?|[Ll]essons?|[Ss]amples?) \d+(?: and \d+)?"
MINUTES = r"^- \d+ min:|After (?:15|45)(?: minutes)?"


def chapters(guide: str) -> dict[str, str]:
    """The text on each lesson, by the file that its heading links to."""
    parts = re.split(r"^## \[(.+?)\]\(\.\./notebooks/(.+?)\)$", guide, flags=re.MULTILINE)
    return dict(zip(parts[2::3], parts[3::3], strict=True))


def sections(chapter: str) -> dict[str, str]:
    parts = re.split(r"^### (.+)$", chapter, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def squeezed(text: str) -> str:
    return " ".join(text.split())


def shown(notebook: NotebookNode) -> str:
    """All that a reader can read in a lesson: text, code and outputs."""
    sources = [cell.source for cell in notebook.cells]
    printed = [text for _, _, output in outputs(notebook) for text in texts(output)]
    return squeezed("\n".join(sources + printed))


def stands_in(claim: str, text: str) -> bool:
    """Whether the claim is there as it stands, and not as a part of a longer number or word."""
    start = r"(?<![\w.,])" if claim[0].isalnum() else ""
    end = r"(?!\w|[.,]\d)" if claim[-1].isalnum() else ""
    return bool(re.search(start + re.escape(claim) + end, text))


def complaints(guide: str, notebooks: dict[str, NotebookNode] = NOTEBOOKS) -> list[str]:
    """What the guide lacks, or says that its lesson does not."""
    told = chapters(guide)
    found = [f"{name}: no chapter" for name in notebooks if name not in told]
    found += [f"{name}: no such lesson" for name in told if name not in notebooks]
    for name, notebook in notebooks.items():
        chapter = told.get(name, "")
        said = [*_form(chapter), *_references(chapter, notebook), *_claims(chapter, notebook)]
        found += [f"{name[:2]}: {complaint}" for complaint in said if chapter]
        title = next(title for _, level, title in headings(notebook) if level == 1)
        if chapter and f"## [{title}](" not in guide:
            found.append(f"{name[:2]}: the title is {title!r}")
    return found


def _form(chapter: str) -> list[str]:
    parts = sections(chapter)
    found = [] if tuple(parts) == HEADINGS else [f"headings are {list(parts)}"]
    found += [f"nothing under {title!r}" for title, text in parts.items() if not text.strip()]
    for title in HEADINGS[:2]:
        minutes = sum(map(int, re.findall(r"^- (\d+) min:", parts.get(title, ""), re.MULTILINE)))
        if f"{minutes} minutes" != title:
            found.append(f"the plan of {title} takes {minutes}")
    return found


def _references(chapter: str, notebook: NotebookNode) -> list[str]:
    """Sections, figures, targets and exercises that the lesson does not have."""
    everything = "\n".join(cell.source for cell in notebook.cells)
    own = {title for _, level, title in headings(notebook) if level == 2}
    parts = sections(chapter)
    plans = "".join(parts.get(title, "") for title in HEADINGS[:3])
    asked = parts.get("Ask before the panel", "")
    before = re.findall(r'Before "([^"]+)"', asked)
    named = {*re.findall(r'"([^"]+)"', plans), *before}
    found = [f"no section {title!r}" for title in sorted(named - own)]
    found += [] if before else ["does not say before which section to ask"]
    if not any(f"= {panel}(" in everything for panel in re.findall(r"`(\w+Panel)`", asked)):
        found.append("asks before no panel of the lesson")
    targets = re.search(r"\*\*Reach these targets[^\n]*\n+((?:\d\..*\n?)+)", everything)
    there = {
        "figure": re.findall(r"^\*Figure (\d+)\.", everything, re.MULTILINE),
        "target": re.findall(r"^(\d)\.", targets[1], re.MULTILINE) if targets else [],
        "exercise": re.findall(r"^\*\*(\d)\. .+ minutes\)", everything, re.MULTILINE),
    }
    pattern = r"(figure|target|exercise)s? (\d+)(?: and (\d+))?"
    for kind, *numbers in re.findall(pattern, chapter, re.IGNORECASE):
        for number in filter(None, numbers):
            if number not in there[kind.lower()]:
                found.append(f"no {kind.lower()} {number}")
    return found


def _claims(chapter: str, notebook: NotebookNode) -> list[str]:
    """What is marked and not there, and numbers that nobody marked."""
    text = shown(notebook)
    marked = re.findall(r"`([^`]+)`", chapter)
    found = [f"{c!r} is not in it" for c in marked if not stands_in(squeezed(c), text)]
    prose = re.sub(rf"`[^`]+`|{'|'.join(HEADINGS)}|{COUNTED}", "", chapter)
    prose = re.sub(MINUTES, "", prose, flags=re.MULTILINE)
    bare = re.findall(r".{0,20}\d+.{0,20}", prose)
    return found + [f"a number is not marked: {number!r}" for number in bare]


def test_the_guide_says_what_the_lessons_show():
    assert complaints(GUIDE) == []


FAULTS = {
    "a chapter too few": (
        "## [1 · Eight samples, two steps](../notebooks/01_eight_samples_two_steps.ipynb)",
        "",
        "01_eight_samples_two_steps.ipynb: no chapter",
    ),
    "a lesson that is not there": ("11_audit_your_own_loop", "12_more", "12_more.ipynb: no such"),
    "another title": ("[3 · The loop, line by line]", "[3 · The loop]", "03: the title is"),
    "a heading too few": ("### On the board", "", "01: headings are"),
    "an empty section": (
        sections(chapters(GUIDE)[LESSONS[0].name])["On the board"].strip(),
        "",
        "01: nothing under 'On the board'",
    ),
    "a question asked anywhere": (
        'Before "Cut the batch yourself"',
        "At some time",
        "01: does not say before which",
    ),
    "a plan too long": ('- 4 min: "Five policies"', '- 5 min: "Five policies"', "04: the plan"),
    "a section that is not there": ('"Try it"', '"Try this"', "02: no section 'Try this'"),
    "another lesson's panel": ("`WindowsPanel`", "`TokensPanel`", "04: asks before no panel"),
    "a figure that is not there": ("Figures 4 and 5", "Figures 4 and 9", "02: no figure 9"),
    "a target that is not there": ("on target 4", "on target 5", "01: no target 5"),
    "an exercise that is not there": ("exercise 3, the loop", "exercise 4", "01: no exercise 4"),
    "a wrong number": ("`unscaled 1.3790`", "`unscaled 1.3791`", "02: 'unscaled 1.3791' is not"),
    "a part of a number": ("`0.2011`", "`0.201`", "02: '0.201' is not"),
    "a choice nobody offered": ("`the last one`", "`the first one`", "01: 'the first one' is not"),
    "a number that is not marked": ("`19.3 % of its length`", "20 %", "01: a number is not marked"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault):
    there, planted, complaint = FAULTS[fault]
    assert there in GUIDE
    found = complaints(GUIDE.replace(there, planted, 1))
    assert any(told.startswith(complaint) for told in found), found


def test_a_lesson_that_loses_what_the_guide_quotes_is_seen():
    name = LESSONS[0].name
    changed = read(LESSONS[0])
    for cell in changed.cells:
        cell.source = cell.source.replace("## The loop", "## A loop")
    assert complaints(GUIDE, NOTEBOOKS | {name: changed}) == ["01: no section 'The loop'"]


def test_other_links_of_the_guide_and_the_readme_lead_somewhere():
    for page in (ROOT / "docs/teaching.md", ROOT / "README.md"):
        links = re.findall(r"\]\(([^)#:\s]+)\)", page.read_text(encoding="utf-8"))
        assert links
        assert [link for link in links if not (page.parent / link).exists()] == []
