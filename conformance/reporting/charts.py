"""The four pictures of a mode, each with a sentence for readers without statistics and a description to be read aloud.

`charts` draws those that the mode has data for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.findings import Curve, ModeReport
from conformance.reporting import svg
from conformance.reporting.text import about, count, evidence, number, one_line, token

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOKENS_SHOWN = 10
POINTS_SHOWN = 160
_LINES = ((svg.FIRST, "-"), (svg.SECOND, "--"), (svg.THIRD, ":"))


@dataclass(frozen=True)
class Chart:
    """One picture: what it shows in a sentence, what is seen in it in another, and the drawing."""

    title: str
    shows: str
    seen: str
    drawing: str


def charts(mode: ModeReport, alarm: float, identity: str) -> list[Chart]:
    """The pictures of a mode; ``identity`` makes their ids unique on the page."""
    drawn = (
        _pit(mode, f"{identity}-pit"),
        _frequencies(mode, f"{identity}-tokens"),
        _lengths(mode, f"{identity}-lengths"),
        _growth(mode, alarm, f"{identity}-evidence"),
    )
    return [chart for chart in drawn if chart is not None]


def thinned(curve: Curve) -> list[tuple[float, float]]:
    """(grid, ECDF minus diagonal) at no more than POINTS_SHOWN places, the largest departure always among them."""
    points = [(x, y - x) for x, y in zip(curve.grid, curve.ecdf) if math.isfinite(x) and math.isfinite(y)]
    step = math.ceil(len(points) / POINTS_SHOWN) or 1
    largest = max(points, key=lambda point: abs(point[1]), default=None)
    return [point for i, point in enumerate(points) if i % step == 0 or point is largest or i == len(points) - 1]


def _pit(mode: ModeReport, identity: str) -> Chart | None:
    curves = [
        (one_line(c.order, 16), thinned(c), c.half_width) for c in mode.curves[: len(_LINES)] if math.isfinite(c.half_width)
    ]
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        return None
    largest = {order: max(abs(y) for _, y in points) for order, points, _ in curves}
    outside = [order for order, _, half in curves if largest[order] > half]
    seen = (
        f"Leaves the band by order {', '.join(outside)}."
        if outside
        else "Every line stays inside the band, as a correct engine's would."
    )
    sizes = "; ".join(f"order {order}: {number(largest[order], 3)}, band ±{number(half, 3)}" for order, _, half in curves)

    def paint(axes: Axes) -> None:
        half_widths = sorted({half for _, _, half in curves})
        for half in half_widths:
            axes.axhspan(-100 * half, 100 * half, color=svg.BAND, alpha=1 / len(half_widths), linewidth=0)
        axes.axhline(0, color=svg.MUTED, linewidth=0.8)
        for (order, points, _), (colour, line) in zip(curves, _LINES):
            axes.plot([x for x, _ in points], [100 * y for _, y in points], line, color=colour, label=order)
        reach = 115 * max([*largest.values(), *half_widths])
        axes.set(xlim=(0, 1), ylim=(-reach, reach), xlabel="place of the emitted token", ylabel="percentage points")
        axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
        _legend_above(axes)

    return Chart(
        "Is every place filled as often as it should be?",
        "Each token is turned into its place, from 0 to 1, in what the target expects; a correct engine fills all places "
        "evenly, so the lines, one per order of the vocabulary, stay near zero and chance rarely takes them out of the band.",
        seen,
        svg.draw(
            paint, identity, "Places of the emitted tokens, against an even spread", f"{seen} Largest departure by {sizes}."
        ),
    )


def _frequencies(mode: ModeReport, identity: str) -> Chart | None:
    rows = frequencies(mode)
    if not rows:
        return None
    farthest = max(rows, key=lambda row: abs(row[1] - row[2]))
    seen = f"Farthest apart: “{farthest[0]}” with {farthest[1]:.2%} observed and {farthest[2]:.2%} expected."

    def paint(axes: Axes) -> None:
        places = range(len(rows))
        axes.barh(places, [100 * row[2] for row in rows], 0.62, color=svg.BAR, label="expected")
        axes.plot([100 * row[1] for row in rows], places, "o", color=svg.FIRST, markersize=5, label="observed")
        axes.set_yticks(list(places), [row[0] for row in rows])
        axes.tick_params(axis="y", labelcolor=svg.INK)
        axes.spines["left"].set_visible(False)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("% of all tokens")
        _legend_above(axes)

    described = "; ".join(f"{name}: {observed:.2%} observed, {expected:.2%} expected" for name, observed, expected in rows)
    return Chart(
        "Does every token come as often as it should?",
        "The bar is how often the target model would write a token, the dot how often the engine wrote it; "
        "shown are the most frequent and those that differ most.",
        seen,
        svg.draw(paint, identity, "Observed against expected token frequencies", described),
    )


def frequencies(mode: ModeReport) -> list[tuple[str, float, float]]:
    """(text, observed share, expected share) of the most frequent tokens and those that differ most, most expected first."""
    total, expected_total = math.fsum(mode.observed), math.fsum(mode.expected)
    if not (total > 0 and expected_total > 0 and math.isfinite(total + expected_total)):
        return []
    rows = [
        (token(mode.tokens[i]) if i < len(mode.tokens) else f"token {i}", observed / total, expected / expected_total)
        for i, (observed, expected) in enumerate(zip(mode.observed, mode.expected))
    ]
    by_size = sorted(range(len(rows)), key=lambda i: -rows[i][2])
    by_difference = sorted(by_size, key=lambda i: -abs(rows[i][1] - rows[i][2]) / math.sqrt(rows[i][2] + 1 / total))
    frequent = by_size[: TOKENS_SHOWN - 4]
    chosen = {*frequent, *[i for i in by_difference if i not in frequent][:4]}
    return [rows[i] for i in by_size if i in chosen]


def _lengths(mode: ModeReport, identity: str) -> Chart | None:
    rounds = sum(mode.accepted_lengths)
    if not rounds:
        return None
    observed = [length / rounds for length in mode.accepted_lengths]
    total = math.fsum(mode.accepted_lengths_theory)
    theory = [length / total for length in mode.accepted_lengths_theory] if total > 0 else []
    told = (
        "The bar is how often the declared rule would keep so many drafts of a round, the dot how often the engine did."
        if theory
        else "How often a round kept so many of its drafts; without a theory for this rule it tests nothing."
    )
    mean = math.fsum(i * share for i, share in enumerate(observed))
    seen = f"On average {mean:.2f} drafts accepted in {count(rounds)} rounds"
    seen += f"; the declared rule gives {math.fsum(i * share for i, share in enumerate(theory)):.2f}." if theory else "."

    def paint(axes: Axes) -> None:
        percent = [100 * share for share in observed]
        if theory:
            axes.bar(range(len(theory)), [100 * share for share in theory], 0.62, color=svg.BAR, label="theory")
            axes.plot(range(len(percent)), percent, "o", color=svg.FIRST, markersize=6, label="observed")
            _legend_above(axes)
        else:
            axes.bar(range(len(percent)), percent, 0.62, color=svg.FIRST, alpha=0.6)
        axes.set_xticks(range(max(len(observed), len(theory))))
        axes.set_xlabel("drafts accepted in a round")
        axes.set_ylabel("% of rounds")
        axes.set_ylim(bottom=0)

    described = "; ".join(
        f"{i} accepted: {share:.1%} of rounds" + (f", {theory[i]:.1%} by theory" if i < len(theory) else "")
        for i, share in enumerate(observed)
    )
    return Chart(
        "How many drafts are accepted?",
        told,
        seen,
        svg.draw(paint, identity, "Accepted drafts per round", f"{seen} {described}."),
    )


def _growth(mode: ModeReport, alarm: float, identity: str) -> Chart | None:
    points = [(n, value) for n, value in mode.evidence_growth if math.isfinite(n) and math.isfinite(value)]
    if not points:
        return None
    crossing = next((n for n, value in points if value >= alarm), None)
    last = f"{evidence(points[-1][1])} after {about(points[-1][0])} tokens"
    reached = "Never reaches the alarm:" if crossing is None else f"Reaches the alarm at {about(crossing)} tokens;"
    seen = f"{reached} {last}."

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        path = [(0, 0.0), *points] if points[0][0] > 0 else points
        low, high = min(-1.0, *(value for _, value in path)), max(alarm, *(value for _, value in path))
        axes.axhline(0, color=svg.MUTED, linewidth=0.8)
        axes.axhline(alarm, color=svg.ALARM, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.text(
            0.99, alarm + 0.015 * (high - low), "alarm", transform=axes.get_yaxis_transform(), ha="right", color=svg.ALARM
        )
        axes.plot([n for n, _ in path], [value for _, value in path], "-", color=svg.FIRST, marker="o", markersize=3.5)
        axes.set_ylim(low - 0.06 * (high - low), high + 0.16 * (high - low))
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: _short(n)))
        axes.set_xlabel("tokens judged")
        axes.set_ylabel("evidence (powers of ten)")
        axes.grid(axis="y")

    return Chart(
        "How does the evidence grow?",
        "A bet against the engine: for a correct one it hardly grows however long it runs, and reaching the dashed line "
        "by bad luck is as rare as the stated false alarm rate.",
        seen,
        svg.draw(paint, identity, "Evidence against the engine by tokens judged", seen),
    )


def _short(n: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(n) >= size:
            return f"{n / size:.3g} {suffix}"
    return f"{n:.0f}"


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, borderaxespad=0.2, columnspacing=1.4, handlelength=1.6)
