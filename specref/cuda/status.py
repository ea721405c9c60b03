"""Every op returns an int32 status per row instead of undefined output; here it becomes an error that names the rows."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

REASONS = {
    1: "target logits are NaN, +infinite, or all filtered away",
    2: "draft logits are NaN or +infinite, or draft_norm is not the norm of a row",
    4: "a token id is outside the vocabulary",
    8: "parents, links or path describe no tree (or one deeper than max_depth)",
    16: "a setting is out of range (inverse temperature > 0, 0 <= u < 1, 0 < p <= 1, k >= 0, lengths)",
}


class BadRows(ValueError):
    """Some rows of a batch could not be worked on. `rows` maps each to its reasons; the others' results are good."""

    def __init__(self, op: str, rows: dict[int, Sequence[str]]) -> None:
        self.op = op
        self.rows = rows
        by_reason: dict[str, list[int]] = {}
        for row, reasons in rows.items():
            for reason in reasons:
                by_reason.setdefault(reason, []).append(row)
        parts = [f"{_listed(numbers)}: {reason}" for reason, numbers in by_reason.items()]
        super().__init__(f"{op}: {'; '.join(parts)}")


def _listed(rows: list[int], most: int = 8) -> str:
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:most]))}{more}"


def reasons_of(status: int) -> list[str]:
    """What a status says, one sentence per bit.

    >>> reasons_of(4)
    ['a token id is outside the vocabulary']
    """
    return [reason for bit, reason in REASONS.items() if status & bit]


def raise_for_status(op: str, status: Tensor) -> None:
    """Raise BadRows if any row of `status` int32 `[rows]` is not 0. On a GPU this waits for the op to finish.

    >>> import torch
    >>> raise_for_status("row_norm", torch.tensor([0, 1, 0, 1]))
    Traceback (most recent call last):
        ...
    specref.cuda.status.BadRows: row_norm: rows 1, 3: target logits are NaN, +infinite, or all filtered away
    """
    bad = status.nonzero()[:, 0].tolist()
    if bad:
        values = status[bad].tolist()
        raise BadRows(op, {row: reasons_of(value) for row, value in zip(bad, values, strict=True)})
