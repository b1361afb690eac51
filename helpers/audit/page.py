"""A report as a part of a page: the verdict, a picture of the updates, and tables."""

import html
import math
from collections.abc import Iterable, Sequence

from helpers.audit.records import Finding, Update
from helpers.recorder.table import spans_of

RIGHT, WRONG, LARGE_BATCH = "#0072B2", "#D55E00", "#000000"  # those of the course's pictures
WIDTH, HEIGHT, LEFT, BASE, SHOWN = 720, 190, 46, 150, 48
TALLEST = 2.0  # a bar ends there, and says how long it is


def page_of(
    verdict: str, updates: Sequence[Update], findings: Sequence[Finding], choices: Sequence[str]
) -> str:
    """The report as HTML, with nothing from elsewhere."""
    parts = [f"<p><strong>{html.escape(verdict)}</strong></p>"]
    if updates:
        parts.append(picture_of(updates))
    if findings:
        heads = ("kind", "updates", "what it does", "what was seen", "how it is mended", "lesson")
        parts.append(_table(heads, map(_finding, findings)))
    if choices:
        parts.append("<p>" + "<br>".join(f"choice: {html.escape(c)}" for c in choices) + "</p>")
    if updates:
        heads = ("update", "micro-batches (epoch:position)", "gradient", "kinds")
        parts.append(_table(heads, (update.cells for update in updates)))
    return "".join(parts)


def picture_of(updates: Sequence[Update]) -> str:
    """Each update's length over that of the right one, as SVG; the large batch is a dashed line."""
    shown = updates[:SHOWN]
    step = (WIDTH - LEFT - 10) / len(shown)
    scale = (BASE - 24) / TALLEST
    one = BASE - scale
    drawn = []
    for n, update in enumerate(shown):
        ratio = update.comparison.length_ratio
        cut = min(ratio, TALLEST) if math.isfinite(ratio) else TALLEST
        x, wide, high = LEFT + n * step, min(0.7 * step, 40), max(cut * scale, 1)
        middle = x + wide / 2
        colour, dash = (WRONG, ' stroke-dasharray="3 2"') if update.kinds else (RIGHT, "")
        title = html.escape(f"update {update}")
        drawn.append(
            f'<rect x="{x:.1f}" y="{BASE - high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            f'fill="{colour}" fill-opacity="0.6" stroke="{colour}"{dash}><title>{title}</title>'
            "</rect>"
        )
        if ratio > TALLEST:
            drawn.append(_text(middle, BASE - high - 4, f"{ratio:.3g}×"))
        if len(shown) <= 24 or n % 5 == 4:
            drawn.append(_text(middle, BASE + 14, str(update.number)))
    drawn.append(
        f'<line x1="{LEFT - 6}" x2="{WIDTH}" y1="{one:.1f}" y2="{one:.1f}" '
        f'stroke="{LARGE_BATCH}" stroke-width="1.6" stroke-dasharray="6 3"/>'
    )
    drawn += [_text(LEFT - 24, one + 4, "1"), _text(LEFT - 24, BASE + 4, "0")]
    rest = f", the first {SHOWN} of {len(updates)}" if len(updates) > SHOWN else ""
    label = f"update{rest}: length of its gradient over the right one's (dashed: the large batch)"
    drawn.append(_text(WIDTH / 2, BASE + 32, label))
    wrong = sum(1 for update in updates if update.kinds)
    alt = f"Lengths of {len(updates)} updates over the right ones; {wrong} of them off."
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{alt}" '
        f'style="max-width:100%;background:white">{"".join(drawn)}</svg>'
    )


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" font-family="sans-serif" '
        f'text-anchor="middle">{html.escape(text)}</text>'
    )


def _finding(finding: Finding) -> tuple[str, ...]:
    updates = spans_of(finding.updates) or "-"
    return finding.kind, updates, finding.cause, finding.seen, finding.remedy, finding.lesson


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    left = ' style="text-align:left;vertical-align:top"'
    head = "".join(f'<th scope="col"{left}>{html.escape(cell)}</th>' for cell in heads)
    lines = ("".join(f"<td{left}>{html.escape(c)}</td>" for c in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
