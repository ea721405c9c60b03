"""The pictures of a violation: the mask of a tree, the entries of a cache. (Text beside the target's is a table of the page.)

Each is an inline SVG in the page's colours, with a description that says the same in words. What is wrong is told by a mark,
and not by its colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from conformance.findings import Finding
from conformance.pictures import CachePicture, MaskPicture, Parting
from conformance.reporting.charts import Chart
from conformance.reporting.svg import announced
from conformance.reporting.text import number, one_line, plural, token

CELL = 20
MARGIN = 34
"""Room for the numbers of rows and columns."""
PER_LINE = 16
"""Entries of a cache in one line of the picture."""
TOLD = 8
"""Wrong places that the description lists."""
Element = ElementTree.Element


def exhibits(finding: Finding, identity: str) -> list[Chart]:
    """The drawings of a finding; ``identity`` makes their ids unique on the page."""
    drawn: list[Chart] = []
    for place, picture in enumerate(finding.pictures):
        if isinstance(picture, MaskPicture):
            drawn.append(_mask(picture, f"{identity}x{place}"))
        elif isinstance(picture, CachePicture):
            drawn.append(_cache(picture, f"{identity}x{place}"))
    return drawn


def partings(finding: Finding) -> list[Parting]:
    """The stretches of text that a finding carries."""
    return [picture for picture in finding.pictures if isinstance(picture, Parting)]


def side_by_side(texts: Sequence[str]) -> str:
    """A stretch of tokens as one text, its white space visible.

    >>> side_by_side([" a", "b"])
    '␣ab'
    """
    return "".join(map(token, texts))


def state(parting: Parting, place: int) -> str:
    """What is to be said of one token of a stretch.

    >>> one = Parting("prompt 0", 0, ("a", "b", "c"), ("a", "x", "y"), (0.0, 1e-6, 2.0), 1e-4)
    >>> [state(one, place) for place in range(3)]
    ['same', 'near-tie', 'wrong']
    """
    if parting.emitted[place] == parting.best[place] and not parting.gaps[place] > parting.bound:
        return "same"
    return "wrong" if not parting.gaps[place] <= parting.bound else "near-tie"


def _mask(picture: MaskPicture, identity: str) -> Chart:
    wrong = list(_wrong_cells(picture))
    columns = len(picture.expected[0]) if picture.expected else 0
    names = [f"p{i}" for i in range(picture.prefix)] + [str(i) for i in range(columns - picture.prefix)]
    svg = _canvas(MARGIN + columns * CELL, MARGIN + len(picture.expected) * CELL)
    for column, name in enumerate(names):
        _text(svg, name, MARGIN + (column + 0.5) * CELL, MARGIN - 8)
    for node, (expected, found) in enumerate(zip(picture.expected, picture.found)):
        _text(svg, str(node), MARGIN - 10, MARGIN + (node + 0.5) * CELL + 4, "end")
        for column, (right, seen) in enumerate(zip(expected, found)):
            _cell(svg, MARGIN + column * CELL, MARGIN + node * CELL, _sight(right, seen))
    told = "; ".join(wrong[:TOLD]) + (f"; and {len(wrong) - TOLD} more" if len(wrong) > TOLD else "")
    said = f"{plural(len(wrong), 'cell')} wrong. {told}."
    parents = ", ".join(f"{node} under {parent}" for node, parent in enumerate(picture.parents) if parent >= 0)
    return Chart(
        "Who sees whom in the tree?",
        "A row for each node, a column for each token that it may look at (p: of the prefix). Filled: seen, as it should be. "
        "A cross: seen, and should not be. A ring: hidden, and should be seen.",
        f"{one_line(picture.where, 120)}. {said}",
        announced(svg, identity, "The mask of a tree, beside what it should be", f"{said} The tree: {parents}."),
    )


def _sight(right: str, seen: str) -> str:
    return {"11": "seen", "00": "hidden", "01": "extra", "10": "missing"}[right + seen]


def _wrong_cells(picture: MaskPicture) -> Iterator[str]:
    for node, (expected, found) in enumerate(zip(picture.expected, picture.found)):
        for column, (right, seen) in enumerate(zip(expected, found)):
            if right != seen:
                whom = f"prefix token {column}" if column < picture.prefix else f"node {column - picture.prefix}"
                yield f"node {node} {'sees' if seen == '1' else 'does not see'} {whom}"


def _cache(picture: CachePicture, identity: str) -> Chart:
    entries = [_entry(one, picture.tolerance) for one in picture.differences] + ["extra"] * min(picture.left_over, PER_LINE)
    lines = max(1, math.ceil(len(entries) / PER_LINE))
    svg = _canvas(MARGIN + PER_LINE * CELL, 14 + lines * (CELL + 14))
    for place, kind in enumerate(entries):
        x, y = MARGIN + place % PER_LINE * CELL, 10 + place // PER_LINE * (CELL + 14)
        if place % PER_LINE == 0:
            _text(svg, str(picture.start + place), MARGIN - 8, y + 15, "end")
        _cell(svg, x, y, kind)
    wrong = list(_wrong_entries(picture))
    told = "; ".join(wrong[:TOLD]) + (f"; and {len(wrong) - TOLD} more" if len(wrong) > TOLD else "")
    held = f"{plural(len(picture.differences), 'entry', 'entries')} shown, {plural(len(wrong), 'place')} wrong: {told}."
    return Chart(
        "Where does the cache differ?",
        f"A cell for each entry, {PER_LINE} in a line, the position of the first before it; beside a fresh prefill of the same "
        "tokens. Filled: equal. A ring: it differs, or is missing. A cross: left over, nothing belongs there.",
        f"{one_line(picture.where, 120)}. {held}",
        announced(svg, identity, "The entries of a cache, beside a fresh prefill", held),
    )


def _entry(difference: float | None, tolerance: float) -> str:
    return "missing" if difference is None or not difference <= tolerance else "seen"


def _wrong_entries(picture: CachePicture) -> Iterator[str]:
    for place, (name, difference) in enumerate(zip(picture.tokens, picture.differences)):
        where = f"position {picture.start + place} (token {token(name)})"
        if difference is None:
            yield f"{where} is missing"
        elif not difference <= picture.tolerance:
            yield f"{where} differs by {number(difference)}"
    if picture.left_over:
        yield f"{plural(picture.left_over, 'entry', 'entries')} left over at the end"


def _canvas(width: float, height: float) -> Element:
    return Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "class": "cells", "style": f"max-width:{width * 1.6:g}px"})


def _cell(svg: Element, x: float, y: float, kind: str) -> None:
    """A square; what is wrong in it is also a mark."""
    box = {"x": f"{x + 1:g}", "y": f"{y + 1:g}", "width": f"{CELL - 2}", "height": f"{CELL - 2}", "rx": "3"}
    ElementTree.SubElement(svg, "rect", {**box, "class": f"cell {kind}"})
    left, right, top, bottom = x + 6, x + CELL - 6, y + 6, y + CELL - 6
    if kind == "extra":
        cross = f"M{left:g} {top:g}L{right:g} {bottom:g}M{right:g} {top:g}L{left:g} {bottom:g}"
        ElementTree.SubElement(svg, "path", {"d": cross, "class": "mark"})
    elif kind == "missing":
        ring = {"cx": f"{x + CELL / 2:g}", "cy": f"{y + CELL / 2:g}", "r": "5", "class": "mark"}
        ElementTree.SubElement(svg, "circle", ring)


def _text(svg: Element, said: str, x: float, y: float, anchor: str = "middle") -> None:
    element = ElementTree.SubElement(svg, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor})
    element.text = one_line(said, 8)
