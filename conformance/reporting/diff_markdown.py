"""A comparison of two audits as Markdown, for a pull-request comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.reporting import diff_wording as said
from conformance.reporting import wording
from conformance.reporting.compare import MEANINGS, Comparison, Row
from conformance.reporting.markdown import LIMIT, code, prose
from conformance.reporting.text import count

_HEAD = "| requirement | mode | before | after | judged before | judged after | caught before | caught after |"
_RULE = "|---|---|---|---|--:|--:|---|---|"


def document(comparisons: Sequence[Comparison]) -> str:
    """The whole comparison; where it would be too long, rows are left out, the least important first."""
    for most in (10_000, 100, 20, 5, 0):
        text = "\n".join(["## Speculative decoding: what changed\n", *_lines(comparisons, most)]) + "\n"
        if len(text) <= LIMIT:
            return text
    head = [f"- {wording.SYMBOLS[said.worst(one)]} {prose(said.title(one))}: {said.verdict(one)}" for one in comparisons[:200]]
    return "\n".join(["## Speculative decoding: what changed\n", *head]) + "\n"


def _lines(comparisons: Sequence[Comparison], most: int) -> Iterator[str]:
    for one in comparisons:
        yield f"- {wording.SYMBOLS[said.worst(one)]} **{prose(said.title(one))}**: {prose(said.verdict(one), 800)}"
    for one in comparisons:
        if one.before is None or one.after is None:
            continue
        yield f"\n### {prose(said.title(one))}\n"
        yield from (f"> {prose(caution, 600)}\n" for caution in said.cautions(one))
        for kind, rows in said.by_kind(one):
            yield f"\n**{kind} ({count(len(rows))})**: {MEANINGS[kind]}\n"
            yield from _table(rows, most)
        rows = list(one.rows)
        yield f"\n<details><summary>All {count(len(rows))} requirements side by side</summary>\n"
        yield from _table(rows, most)
        yield "\n</details>"
        if one.differences:
            yield "\n<details><summary>Settings that differ</summary>\n"
            yield "| setting | before | after | matters |\n|---|---|---|---|"
            for each in one.differences[:100]:
                yield f"| {prose(each.name)} | {prose(each.before)} | {prose(each.after)} | {'yes' if each.matters else 'no'} |"
            yield "\n</details>"


def _table(rows: Sequence[Row], most: int) -> Iterator[str]:
    if not most:
        return
    yield _HEAD
    yield _RULE
    for row in rows[:most]:
        cells = [
            code(row.requirement),
            code(wording.mode_name(row.mode)),
            said.verdict_of(row.before),
            said.verdict_of(row.after),
        ]
        cells += [prose(cell) for cell in (*said.amounts(row), *said.bounds(row))]
        cells[3] += f" ({prose(row.remark)})" if row.remark else ""
        yield "| " + " | ".join(cells) + " |"
    if len(rows) > most:
        yield f"\nand {count(len(rows) - most)} more; `specref diff` shows all."
