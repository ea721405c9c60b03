"""The trade between latency and throughput, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specref.speedup.roofline import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(rows: Sequence[Row], title: str = "") -> Figure:
    """Two panels: speed-up over batch size, and each method's throughput against the latency of a request, batch by batch.

    rows: as `table` gives them. Hollow points do not fit the machine's memory. Save it with `.savefig(path)`.

    >>> from specref.speedup import H100, LLAMA3_8B, chain, plain, table
    >>> drawn = figure(table(LLAMA3_8B, H100, [plain(), chain("lookup", 0.5, 4)], [1, 8, 64, 256]))
    >>> [axes.get_xlabel() for axes in drawn.axes]
    ['batch size', 'milliseconds per token after the first']

    Raises ValueError for no rows.
    """
    from matplotlib.figure import Figure  # imported here: it takes a second, and only figures need it

    if not rows:
        raise ValueError("there are no rows to draw; make them with table()")
    drawn = Figure(figsize=(10, 4), layout="constrained")
    over_batch, trade = drawn.subplots(1, 2)
    for name in dict.fromkeys(row.method for row in rows):
        of_method = [row for row in rows if row.method == name]
        (line,) = over_batch.plot([row.batch for row in of_method], [row.speed_up for row in of_method], label=name)
        trade.plot([1e3 * row.seconds_per_token for row in of_method], [row.tokens_per_second for row in of_method], label=name)
        for row in of_method:
            fill = line.get_color() if row.fits else "none"
            look = {"marker": "o", "linestyle": "none", "color": line.get_color(), "markerfacecolor": fill}
            over_batch.plot(row.batch, row.speed_up, **look)
            trade.plot(1e3 * row.seconds_per_token, row.tokens_per_second, **look)
    over_batch.axhline(1, color="grey", linewidth=0.8)
    over_batch.set(xscale="log", xlabel="batch size", ylabel="speed-up over plain decoding")
    trade.set(
        xscale="log", yscale="log", xlabel="milliseconds per token after the first", ylabel="tokens per second, whole batch"
    )
    over_batch.legend()
    if title:
        drawn.suptitle(title)
    return drawn
