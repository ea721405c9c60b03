"""A matplotlib figure as SVG that belongs to the page: its colours, its font, no ids that could clash, no metadata.

Charts are drawn with the placeholder colours below. On the page they become CSS variables, so one picture serves the light
and the dark theme, and text stays text.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from xml.etree import ElementTree

from conformance.reporting.text import clean

INK, MUTED, GRID, BAND, BAR, ALARM, FIRST, SECOND, THIRD = (f"#00000{digit}" for digit in "123456789")
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    BAND: "--band",
    BAR: "--bar",
    ALARM: "--bad",
    FIRST: "--series-1",
    SECOND: "--series-2",
    THIRD: "--series-3",
}

WIDTH, HEIGHT = 420.0, 250.0
"""Size of a chart in user units; text of 12 units is readable down to a phone's width."""

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.size": 11.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.limits": (-6, 12),
    "axes.titlesize": 11.5,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 11.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "path.simplify": True,
}

_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_COLOUR = re.compile("|".join(VARIABLES))


def draw(paint: Callable[..., None], identity: str, title: str, description: str) -> str:
    """An inline ``<svg>`` of what ``paint(axes)`` draws; ``title`` and ``description`` are read aloud."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph")  # the page's fonts draw the text, not matplotlib's
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        paint(axes)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    return _inline(buffer.getvalue(), identity, title, description)


def _inline(svg: str, identity: str, title: str, description: str) -> str:
    tree = ElementTree.fromstring(svg)
    for parent in list(tree.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    used = set(re.findall(r"#([\w.]+)[\")]", svg))
    for element in tree.iter():
        for key, value in list(element.attrib.items()):
            element.attrib.pop(key)
            kept = _attribute(key.rpartition("}")[2], value, identity, used)
            if kept is not None:
                element.set(key.rpartition("}")[2], kept)
        if element.tag != "text":
            element.text = None
        element.tail = None
    for key in ("width", "height", "version"):
        tree.attrib.pop(key, None)
    _flatten(tree)
    return announced(tree, identity, title, description)


def _attribute(key: str, value: str, identity: str, used: set[str]) -> str | None:
    """The attribute as the page wants it, or None to leave it out."""
    if key == "id":
        return f"{identity}-{value}" if value in used else None
    if key == "transform" and value.startswith("rotate(-0 "):
        return None
    if key == "style":
        value = re.sub(r"font-family: [^;]*;? ?|stroke-linejoin: \w+;? ?|stroke-linecap: \w+;? ?", "", value)
        value = _COLOUR.sub(lambda match: f"var({VARIABLES[match[0]]})", value).replace(": ", ":").replace("; ", ";")
        return value or None
    value = re.sub(r"#(?=[\w.]+\)?$)", f"#{identity}-", value)
    return _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), " ".join(value.split()))


def _flatten(element: ElementTree.Element) -> None:
    """Puts the content of groups that say nothing in their place."""
    for child in list(element):
        _flatten(child)
        if child.tag in ("g", "defs") and not len(child):
            element.remove(child)
        elif child.tag == "g" and not child.attrib:
            place = list(element).index(child)
            element[place : place + 1] = list(child)


def announced(tree: ElementTree.Element, identity: str, title: str, description: str) -> str:
    """The drawing as text, with what is read aloud in its place."""
    tree.attrib.pop("xmlns", None)
    tree.set("role", "img")
    tree.set("aria-labelledby", f"{identity}-title {identity}-desc")
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{identity}-{tag}"})
        element.text = clean(text)
        tree.insert(position, element)
    return ElementTree.tostring(tree, encoding="unicode")
