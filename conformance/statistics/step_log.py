"""Support rules on a step log: what a declared verification rule forbids outright, so that one step convicts.

A **step** is one draft token that the verifier looked at: the context it stood in, the token, the accept flag, the token
emitted at that place. What is forbidden depends on the rule. Under the ratio rule a draft with p >= q must be accepted, and
a token emitted after a rejection has p > q; one-hot rules and token matching lawfully break both (token matching rejects
such a draft in a fifth of the rounds), but never emit the draft they rejected. An undeclared rule is held to the laws
alone: nothing with p = 0 is emitted, no draft has q = 0.

Where p or q were rescored and not injected, a `margin` in ln(p/q) keeps near-equal tokens out: 2 (eta_p + eta_q); and
probability zero is no evidence then (the edge of a truncated law is judged by `truncation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.statistics.acceptance import RATIO_RULES, TARGET_RULES, block_weights
from conformance.statistics.evidence import Floats, Ints, WrongUse

Mask = npt.NDArray[np.bool_]

RULES = (*RATIO_RULES, *TARGET_RULES, "undeclared")
"""The rules of a step log. Block verification has no per-step verdicts: see `block_violations`."""

NOTHING = -1
"""Stands in `emitted` where a rejected sibling was followed by the next one and no token came out."""


@dataclass(frozen=True)
class Steps:
    """n steps: context number, draft token, accept flag, and the token emitted there (or `NOTHING`); each `[n]`.

    An accepted step emits its draft; of a chain's window, positions after the first rejection are no steps.
    """

    rows: Ints
    drafts: Ints
    accepted: Mask
    emitted: Ints

    def __post_init__(self) -> None:
        shapes = {np.shape(a) for a in (self.rows, self.drafts, self.accepted, self.emitted)}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise WrongUse(f"a step log holds four arrays of one length, got shapes {sorted(shapes)}")
        if self.accepted.dtype != bool:
            raise WrongUse(f"accept flags must be booleans, got {self.accepted.dtype}")

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, which: slice) -> Steps:
        """Some of the steps, in order."""
        return Steps(self.rows[which], self.drafts[which], self.accepted[which], self.emitted[which])


def support_violations(steps: Steps, p: npt.ArrayLike, q: npt.ArrayLike, rule: str, margin: float = 0.0) -> dict[str, Mask]:
    """What the declared rule forbids, and in which steps it happened: `{what: mask [n]}`.

    p, q `[m, V]`: target and draft law of each context, after every processor; for siblings in a tree, what the rejected elder
    siblings left of them (`laws_without_replacement`, `laws_of_siblings`). margin: see above; 0 where p and q were injected.

    >>> steps = Steps(np.array([0, 0]), np.array([0, 1]), np.array([False, False]), np.array([1, 1]))
    >>> p, q = [[.6, .4]], [[.5, .5]]
    >>> {what: mask.tolist() for what, mask in support_violations(steps, p, q, "ratio").items() if mask.any()}
    {'draft with p >= q rejected': [True, False], 'token with p <= q emitted after a rejection': [True, True]}
    >>> {what: mask.tolist() for what, mask in support_violations(steps, p, q, "one_hot").items() if mask.any()}
    {'rejected draft emitted': [False, True]}
    """
    laws, draft_laws = np.atleast_2d(np.asarray(p, float)), np.atleast_2d(np.asarray(q, float))
    _check_steps(steps, laws, draft_laws, rule, margin)
    i, x, y = steps.rows, steps.drafts, steps.emitted
    came_out = y != NOTHING
    p_x, q_x, p_y, q_y = laws[i, x], draft_laws[i, x], laws[i, y], draft_laws[i, y]
    exact = margin == 0
    found = {
        "token of probability zero emitted": came_out & (p_y == 0) & exact,
        "draft of probability zero under q": (q_x == 0) & exact & (rule not in TARGET_RULES),
    }
    if rule == "undeclared":
        return found
    rejected = ~steps.accepted
    found["accepted draft not emitted"] = steps.accepted & (y != x)
    if rule in RATIO_RULES:
        slack = np.exp(margin)
        found["draft with p >= q rejected"] = rejected & (p_x >= q_x * slack) & (p_x > 0)
        residual = np.any(laws > draft_laws, axis=1, keepdims=True)[i, 0]  # nearly equal laws may round to none
        found["token with p <= q emitted after a rejection"] = rejected & came_out & residual & (p_y * slack <= q_y)
    else:
        found["certain draft rejected"] = rejected & (p_x >= 1) & exact
        found["rejected draft emitted"] = rejected & (y == x)
    return found


def _check_steps(steps: Steps, p: Floats, q: Floats, rule: str, margin: float) -> None:
    if rule not in RULES:
        raise WrongUse(f"unknown rule {rule!r}: declare one of {', '.join(RULES)} (block verification: block_violations)")
    if p.shape != q.shape:
        raise WrongUse(f"p and q must both be [m, V], got {p.shape} and {q.shape}")
    if not margin >= 0:
        raise WrongUse(f"a margin in ln(p/q) is not negative, got {margin}")
    m, V = p.shape
    if len(steps) and not (steps.rows.min() >= 0 and steps.rows.max() < m):
        raise WrongUse(f"contexts must be numbered 0..{m - 1}")
    for name, tokens, least in (("drafts", steps.drafts, 0), ("emitted", steps.emitted, NOTHING)):
        if len(steps) and not (least <= tokens.min() and tokens.max() < V):
            raise WrongUse(f"{name} must lie in {least}..{V - 1}, got {tokens.min()}..{tokens.max()}")


def assert_support(steps: Steps, p: npt.ArrayLike, q: npt.ArrayLike, rule: str, margin: float = 0.0) -> None:
    """Raise AssertionError at the first step that the declared rule forbids (deterministic: no false-fail rate)."""
    for what, mask in support_violations(steps, p, q, rule, margin).items():
        where = np.flatnonzero(mask)
        if len(where):
            s = where[0]
            raise AssertionError(
                f"{what} in {len(where)} of {len(steps)} steps under the rule {rule!r}; first: step {s}, "
                f"context {steps.rows[s]}, draft {steps.drafts[s]}, "
                f"accepted {bool(steps.accepted[s])}, emitted {steps.emitted[s]}"
            )


def samples_needed_for_support(mass: float, false_pass_rate: float) -> float:
    """Steps after which a fault that breaks a support rule with probability `mass` per step is missed at most this often.

    >>> round(samples_needed_for_support(.01, 1e-3))
    687
    """
    return float(np.log(false_pass_rate) / np.log1p(-mass)) if mass > 0 else np.inf


def smallest_detectable_support(n: int, false_pass_rate: float) -> float:
    """The smallest probability per step of breaking a support rule that n steps catch.

    >>> round(smallest_detectable_support(687, 1e-3), 4)
    0.01
    """
    return float(-np.expm1(np.log(false_pass_rate) / n))


def block_violations(
    p: npt.ArrayLike, q: npt.ArrayLike, drafts: Sequence[int], accepted: int, emitted: int, margin: float = 1e-5
) -> list[str]:
    """What block verification forbids in one round: p `[k+1, V]`, q `[k, V]`, k drafts, accepted count, token after them.

    P_i = min(P_{i-1} p/q, 1). Once P_i = 1 at least i drafts are accepted (if any residual is left there), and a token emitted
    after i < k accepted drafts has P_i p > q (Sun et al. 2403.10444). `margin` allows for rounding of the product.

    >>> block_violations([[.6, .4], [.5, .5]], [[.5, .5]], [0], accepted=0, emitted=1)
    ['accepted 0 drafts where at least 1 must be', 'token 1 emitted after 0 drafts, where P p <= q']
    """
    laws, draft_laws = np.asarray(p, float), np.asarray(q, float)
    k = len(drafts)
    if laws.shape[0] != k + 1 or draft_laws.shape[0] != k or not 0 <= accepted <= k:
        raise WrongUse(f"k = {k} drafts need p [k+1, V], q [k, V] and 0 <= accepted <= k; got {laws.shape}, {draft_laws.shape}")
    weights, slack = block_weights(laws, draft_laws, drafts), np.exp(margin)
    found = []
    left = [np.maximum(laws[i] - draft_laws[i] * slack, 0).sum() for i in range(k)] + [1.0]
    ratios = [laws[i][x] / draft_laws[i][x] if draft_laws[i][x] > 0 else 0.0 for i, x in enumerate(drafts)]
    sure = [i for i in range(1, k + 1) if weights[i - 1] * ratios[i - 1] >= slack and left[i] > 0]
    if sure and accepted < max(sure):
        found.append(f"accepted {accepted} drafts where at least {max(sure)} must be")
    if accepted < k and weights[accepted] * laws[accepted][emitted] * slack <= draft_laws[accepted][emitted]:
        found.append(f"token {emitted} emitted after {accepted} drafts, where P p <= q")
    if laws[accepted][emitted] == 0:
        found.append(f"token {emitted} of probability zero emitted after {accepted} drafts")
    return found


def laws_without_replacement(p: npt.ArrayLike, q: npt.ArrayLike, siblings: Sequence[int]) -> tuple[Floats, Floats]:
    """What each sibling of a without-replacement tree is judged by, `[s, V]` each: the laws that its rejected elders left.

    p, q `[V]`. After a rejection p becomes the normalised (p - q)+, and q loses the rejected token and is renormalised.
    """
    left, drawn = np.asarray(p, float), np.asarray(q, float)
    laws, draft_laws = [], []
    for x in siblings:
        laws.append(left)
        draft_laws.append(drawn)
        left = _normalised(np.maximum(left - drawn, 0))
        drawn = _normalised(np.where(np.arange(len(drawn)) == x, 0, drawn))
    return np.array(laws), np.array(draft_laws)


def laws_of_siblings(p: npt.ArrayLike, siblings: Sequence[int]) -> Floats:
    """What each sibling is judged by under one-hot or target-only rules, `[s, V]`: p `[V]` without its rejected elders."""
    left, laws = np.asarray(p, float), []
    for x in siblings:
        laws.append(left)
        left = _normalised(np.where(np.arange(len(left)) == x, 0, left))
    return np.array(laws)


def _normalised(weights: Floats) -> Floats:
    total = weights.sum()
    return weights / total if total > 0 else weights
