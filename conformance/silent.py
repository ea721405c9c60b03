"""What only shows beside another mode: settings that were taken without a word and changed nothing, and seeds that end it.

Both compare a mode with a **simpler** one of the same engine, which has some of its settings and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.components import Floats, Ints
from conformance.findings import JUDGED, Finding, Verdict
from conformance.protocols import Mode
from conformance.unfinished import Findings

DRAWN_RULES = ("ratio", "block")
"""Rules that are handed drafts drawn from a law."""


def has_part_of(some: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Whether `more` holds all of `some`, and something beside it.

    >>> has_part_of({"k": 4}, {"k": 4, "method": "block"}), has_part_of({"k": 2}, {"k": 4, "method": "block"})
    (True, False)
    """
    return len(some) < len(more) and all(name in more and more[name] == value for name, value in some.items())


def chosen_instead_of_drawn(
    mode: Mode, modes: Sequence[Mode], q: Floats, drafts: Ints, alpha: float, known: Finding | None
) -> Finding | None:
    """LOUD-1 of a mode whose rule wants drawn drafts, but whose drafts are all the draft's best token, as in a simpler mode
    that declares so: the settings that make the difference were taken and changed nothing. None where that is not shown.

    q `[n, V]`: the draft's laws at n drafts. Were these drawn, all would be the best with probability prod max q. known: what
    the probes of LOUD-1 found.

    >>> simple, told = Mode("best", {"k": 2}, "one_hot"), Mode("drawn", {"k": 2, "sample": True}, "ratio")
    >>> laws = np.tile([0.6, 0.4], (40, 1))
    >>> chosen_instead_of_drawn(told, [simple, told], laws, np.zeros(40, int), 1e-6, None).verdict
    <Verdict.VIOLATES: 'violates'>
    >>> chosen_instead_of_drawn(told, [simple, told], laws, np.arange(40) % 2, 1e-6, None) is None
    True
    """
    simpler = [one for one in modes if one.rule == "one_hot" and _is_simpler(one, mode)]
    if mode.rule not in DRAWN_RULES or not simpler or not len(drafts) or (drafts != q.argmax(axis=1)).any():
        return None
    log10_e = -float(np.log10(q.max(axis=1)).sum())
    if log10_e < -np.log10(alpha):
        return None
    other = max(simpler, key=lambda one: len(one.speculation))
    added = ", ".join(f"{name}={value!r}" for name, value in mode.speculation.items() if name not in other.speculation)
    place = (
        f"{added}: expected drafts that are drawn, or a refusal, found the draft model's best token in all {len(drafts)} drafts"
    )
    summary = f"settings are taken and change nothing ({place}, as without them in mode {other.name!r})"
    if known is None or known.verdict is not Verdict.VIOLATES:
        n = len(drafts)
        return Finding("LOUD-1", mode.name, Verdict.VIOLATES, summary, n, n, "drafts", alpha, log10_e, violations=(place,))
    return replace(known, summary=f"{summary}; {known.summary}", violations=(place, *known.violations))


def _is_simpler(one: Mode, mode: Mode) -> bool:
    same = one.options == mode.options and one.draft_law == mode.draft_law
    return same and bool(one.speculation) and has_part_of(one.speculation, mode.speculation)


def seeds_that_end_it(mode: Mode, modes: Sequence[Mode], found: Findings) -> Finding | None:
    """SEED-1 of a mode that promises it, and whose requests end the engine, where a simpler mode without seeds is answered.
    None where that is not shown."""
    known, law = found.get(("SEED-1", mode.name)), found.get(("LAW-1", mode.name))
    if (
        "SEED-1" not in mode.promises
        or known is None
        or law is None
        or {known.verdict, law.verdict} != {Verdict.ERROR}
        or "crash: " not in law.summary
    ):
        return None
    simpler = [one for one in modes if one.speculation == mode.speculation and has_part_of(one.options, mode.options)]
    for one in sorted(simpler, key=lambda one: -len(one.options)):  # the one that is most alike says most
        other = found.get(("LAW-1", one.name))
        if "SEED-1" not in one.promises and other is not None and other.verdict in JUDGED:
            end = law.summary.partition("crash: ")[2]
            place = f"requests with seeds: expected answers, found the end of the engine ({end[:120]})"
            summary = f"seeds end the engine where the same requests without them (mode {one.name!r}) are answered: {end[:120]}"
            return Finding("SEED-1", mode.name, Verdict.VIOLATES, summary, 2, 2, "requests", violations=(place,))
    return None
