"""What is wrong with a row: one number per row of a batch, 0 for a row that could be verified.

A row's status depends on what it was given, padding aside, and neither on where its verification went nor on other rows. A row
with a status has a defined outcome (nothing accepted, no token), never an undefined one. The bits are those of the kernels,
which say nothing, though, of laws that they never came to.
"""

from __future__ import annotations

import torch
from torch import Tensor

BAD_TARGET, BAD_DRAFT, BAD_ID, BAD_TREE, BAD_SETTING = 1, 2, 4, 8, 16

REASONS = {
    BAD_TARGET: "the target's law holds NaN, an infinity, a negative number or nothing but zeros",
    BAD_DRAFT: "the draft's law holds NaN, an infinity, a negative number or nothing but zeros",
    BAD_ID: "a drafted token is outside the vocabulary",
    BAD_TREE: "its parents do not make a token tree, or siblings that must differ hold one token",
    BAD_SETTING: "its number of drafted tokens is out of range, or a uniform is outside [0, 1)",
}


class BadRows(ValueError):
    """Some rows of a batch cannot be verified; the message names them. rows: their numbers."""

    def __init__(self, message: str, rows: tuple[int, ...]) -> None:
        super().__init__(message)
        self.rows = rows


def reasons(status: int) -> str:
    """What a status means, in words.

    >>> reasons(BAD_ID)
    'a drafted token is outside the vocabulary'
    """
    return "; ".join(reason for bit, reason in REASONS.items() if status & bit) or "nothing is wrong"


def require_good(status: Tensor) -> None:
    """Raise BadRows, naming rows and reasons, unless every status `[B]` is 0.

    >>> require_good(torch.tensor([0, 4, 0]))
    Traceback (most recent call last):
    specref.batched.status.BadRows: 1 of 3 rows cannot be verified: row 1: a drafted token is outside the vocabulary
    """
    if not bool(status.any()):
        return
    bad = {row: code for row, code in enumerate(status.tolist()) if code}
    shown = [f"row {row}: {reasons(code)}" for row, code in list(bad.items())[:5]]
    more = [f"and {len(bad) - 5} more"] if len(bad) > 5 else []
    raise BadRows(f"{len(bad)} of {len(status)} rows cannot be verified: " + "; ".join(shown + more), tuple(bad))


def not_a_law(weights: Tensor) -> Tensor:
    """Which rows of `weights [..., V]` cannot be a law, `[...]`: NaN, an infinity, a negative number, or nothing but zeros.

    That they sum to 1 is not asked, as for `Chance.picks`.

    >>> not_a_law(torch.tensor([[0.5, 0.5], [0.0, 0.0], [1.5, -0.5], [float("nan"), 1.0]]))
    tensor([False,  True,  True,  True])
    """
    whole = weights.sum(dim=-1)
    return ~((weights.amin(dim=-1) >= 0) & (whole > 0) & (whole < torch.inf))


def no_best(scores: Tensor) -> Tensor:
    """Which rows of `scores [..., V]` have no largest one, `[...]`: NaN, +inf, or nothing above -inf.

    >>> no_best(torch.tensor([[-1.0, float("-inf")], [float("nan"), 1.0]]))
    tensor([False,  True])
    """
    return ~scores.amax(dim=-1).isfinite()


def flag(wrong: Tensor, bit: int) -> Tensor:
    """`bit` where `wrong [B, ...]` holds anywhere in a row, else 0: `[B]`.

    >>> flag(torch.tensor([[False, True], [False, False]]), BAD_ID)
    tensor([4, 0])
    """
    anywhere = wrong.flatten(1).any(dim=1) if wrong.dim() > 1 else wrong
    return anywhere * bit


def bad_numbers(u: Tensor) -> Tensor:
    """BAD_SETTING for a row of `u [B, n]` with a number outside [0, 1), else 0: `[B]`.

    >>> bad_numbers(torch.tensor([[0.0, 0.5], [0.5, 1.0]]))
    tensor([ 0, 16])
    """
    return flag(~((u >= 0) & (u < 1)), BAD_SETTING)
