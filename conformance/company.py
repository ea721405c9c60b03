"""Greedy requests alone and in company: the same tokens, and where that is promised the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.asking import Asking
from conformance.checks.batch import bits_finding, company_finding
from conformance.checks.places import not_exposed
from conformance.components import Logits
from conformance.findings import Finding, Verdict
from conformance.greedy_audit import has_margin
from conformance.protocols import Output, Tokens


def company(asking: Asking, alpha: float) -> list[Finding]:
    """BATCH-2 and BATCH-3: greedy requests alone, together, in another order, and mixed with sampled ones."""
    mode, promised = asking.mode.name, "BATCH-3" in asking.mode.promises
    same = None
    if asking.mode.lossy:
        same = not_exposed("BATCH-2", mode, "which token is its own best: the mode changes the law")
    elif not has_margin(asking.subject):
        same = Finding("BATCH-2", mode, Verdict.NOT_RUN, "no single token convicts in this precision")
    if same is not None and not promised:
        return [same, bits(mode, [], {}, promised=False)]
    requests = asking.requests("company", asking.settings.level.requests, asking.greedy)
    alone, schedules = asking.one_by_one(requests), {"one batch": asking.ask(requests)}
    order = np.random.default_rng([asking.settings.seed, 7]).permutation(len(requests))
    moved = asking.ask([requests[i] for i in order])
    schedules["another order"] = [moved[int(np.flatnonzero(order == i)[0])] for i in range(len(order))]
    sampled = asking.requests("company, sampled", len(requests), asking.plain)
    mixed = asking.try_to_ask([one for pair in zip(requests, sampled) for one in pair])
    if not isinstance(mixed, str):
        schedules["among sampled requests"] = mixed[::2]
    if same is None:
        tokens = [output.tokens for output in alone]
        outputs: dict[str, Sequence[Tokens]] = {name: [output.tokens for output in some] for name, some in schedules.items()}
        planned, logits = len(requests) * len(schedules), asking.logits(requests, tokens)
        same = company_finding(mode, tokens, outputs, planned, logits=logits, margin=asking.subject.margin)
        if isinstance(mixed, str):
            same = replace(same, summary=f"{same.summary}; mixed batches: {mixed}")
    return [same, bits(mode, alone, schedules, promised=promised)]


def bits(mode: str, alone: Sequence[Output], schedules: Mapping[str, Sequence[Output]], *, promised: bool) -> Finding:
    """BATCH-3, as log-probabilities show it: those of each request alone, beside those in company while both write the same.

    >>> alone, together = (Output((5, 6), logprobs=(-1.0, value)) for value in (-0.5, -0.25))
    >>> bits("m", [alone], {"one batch": [together]}, promised=True).violations
    ("'one batch', request 0, position 1, token 0: expected logit -0.5, found -0.25",)
    """
    together, single, names = [], [], []
    for name, outputs in schedules.items():
        for number, (one, other) in enumerate(zip(alone, outputs)):
            pairs = list(zip(one.tokens, other.tokens, one.logprobs or (), other.logprobs or ()))
            apart = next((at for at, (x, y, _, _) in enumerate(pairs) if x != y), len(pairs))
            for at, (_, _, expected, found) in enumerate(pairs[:apart]):
                single.append([expected])
                together.append([found])
                names.append(f"'{name}', request {number}, position {at}")
    if promised and not names:
        return not_exposed("BATCH-3", mode, "log-probabilities, by which bits could be compared")
    rows = Logits(np.array(together).reshape(-1, 1), np.array(single).reshape(-1, 1))
    return bits_finding(mode, rows, 1, promised=promised, names=names)
