"""LOGPROB: returned log-probabilities are the target's own, one for every emitted token, each at its place.

What goes wrong in the wild: 0.0 for every accepted draft (a one-hot law), rows shifted by one, fewer rows than tokens, the raw
law where the processed one is promised. Where a shifted row explains the values, the finding says so. Where an engine gives the
log-probabilities of the whole vocabulary, those of the first few tokens are judged too: a row can be right at its token alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place, judged, not_exposed, not_promised
from conformance.findings import Finding
from conformance.protocols import Output, Request
from conformance.sampling import segments
from conformance.statistics import Segment


def tolerance_of(eta: float, kind: str, requests: Iterable[Request]) -> float:
    """By how many nats a right log-probability may differ: by twice the margin of a logit, at the coldest temperature.

    eta: the largest numerical difference of a logit, as measured. kind: of which law they are, "raw" or "processed".

    >>> from specref.processors import SamplingSettings
    >>> cold = Request((1,), SamplingSettings(max_tokens=4, temperature=0.5), seed=0)
    >>> [round(tolerance_of(0.001, kind, [cold]), 6) for kind in ("raw", "processed")]
    [0.008002, 0.016004]
    """
    coldest = 1.0 if kind == "raw" else min(float(request.settings.temperature) for request in requests)
    return 2 * (4 * eta + 1e-6) / coldest


def logprob_findings(
    mode: str,
    outputs: Sequence[Output],
    returned: Sequence[Sequence[float]] | None,
    logprobs: Sequence[npt.NDArray[np.float64]],
    planned: int,
    *,
    promised: bool,
    tolerance: float,
) -> list[Finding]:
    """LOGPROB-1 (values, where there is one per token) and LOGPROB-2 (one per token). logprobs: the target's, `[len(output),
    V]` along each output, of the law that the engine promises (raw, or processed). tolerance: in nats, see `tolerance_of`.
    planned: tokens.

    >>> rows = np.log([[0.5, 0.5], [0.25, 0.75]])
    >>> given = [[-0.693147, 0.0]]
    >>> logprob_findings("m", [Output((0, 1))], given, [rows], 2, promised=True, tolerance=1e-5)[0].violations
    ('request 0, position 1 (token 1): expected -0.287682, found 0, the log-probability of certainty',)
    """
    if not promised:
        return [not_promised(requirement, mode, "log-probabilities") for requirement in ("LOGPROB-1", "LOGPROB-2")]
    if returned is None:
        return [not_exposed(requirement, mode, "log-probabilities") for requirement in ("LOGPROB-1", "LOGPROB-2")]
    values, counts, n, whole = [], [], 0, 0
    if len(returned) != len(outputs):
        counts.append(Place("all requests", f"{len(outputs)} lists", f"{len(returned)} lists"))
    for number, (output, given, rows) in enumerate(zip(outputs, returned, logprobs)):
        if len(given) != len(output.tokens):  # then nobody knows which token each belongs to
            where = f"request {number}, its {len(output.tokens)} tokens"
            counts.append(Place(where, f"{len(output.tokens)} log-probabilities", len(given)))
            planned -= len(output.tokens)
            continue
        n += len(output.tokens)
        true = rows[np.arange(len(output.tokens)), list(output.tokens)] if output.tokens else np.zeros(0)
        for at, (value, wanted) in enumerate(zip(given, true)):
            if not (abs(value - wanted) <= tolerance or value == wanted):
                where = f"request {number}, position {at} (token {output.tokens[at]}{_came(output, at)})"
                why = _explained(rows, output.tokens[at], at, value, tolerance)
                values.append(Place(where, f"{wanted:.6g}", f"{value:.6g}{why}"))
        values += _in_whole_rows(number, output, rows, tolerance)
        whole += len(output.rows)
    claim = "log-probabilities are the target's" + (f", those of the whole vocabulary at {whole} tokens too" if whole else "")
    return [
        judged("LOGPROB-1", mode, values, n=n, planned=max(planned, 1), unit="tokens", claim=claim),
        judged(
            "LOGPROB-2", mode, counts, n=len(outputs), planned=1, unit="requests", claim="every token has its log-probability"
        ),
    ]


def _in_whole_rows(number: int, output: Output, rows: npt.NDArray[np.float64], tolerance: float) -> list[Place]:
    """The rows with a wrong log-probability of a token that was not emitted; the emitted one is judged by itself."""
    places = []
    for at, (given, true) in enumerate(zip(output.rows, rows)):
        where = f"request {number}, position {at}, the whole vocabulary"
        if len(given) != len(true):
            places.append(Place(where, f"{len(true)} log-probabilities", len(given)))
            continue
        row = np.array(given)
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(row - true) <= tolerance) | (row == true))
        wrong[output.tokens[at]] = False
        if wrong.any():
            token = int(np.argmax(wrong))
            where = f"{where} ({wrong.sum()} of {len(true)} tokens are wrong; the first is {token})"
            places.append(Place(where, f"{true[token]:.6g}", f"{row[token]:.6g}"))
    return places


def _came(output: Output, at: int) -> str:
    if output.rounds is None:
        return ""
    segment, slot = list(segments(output.rounds))[at]
    return f", slot {slot}, {Segment(segment).name.lower()}"


def _explained(rows: npt.NDArray[np.float64], token: int, at: int, value: float, tolerance: float) -> str:
    """Which neighbouring row, if any, gives the value."""
    for shift in (-1, 1, -2, 2):
        if 0 <= at + shift < len(rows) and abs(rows[at + shift][token] - value) <= tolerance:
            return f", which is this token's at position {at + shift}"
    return ", the log-probability of certainty" if value == 0 else ""
