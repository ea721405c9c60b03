"""GRAMMAR: what is allowed at every position of a window follows from the text before it, and from nothing else.

What the engine allowed is compared with a grammar that reads the text of that position afresh, from its start. A position whose
text the grammar refuses, or behind an end, has no mask that could be wrong: nothing may be emitted there, which GRAMMAR-3 sees.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from conformance.checks.law import detectable
from conformance.checks.places import Place, judged, nonsense, not_exposed
from conformance.components import Floats
from conformance.findings import Finding, Statistic, Verdict
from conformance.protocols import Tokens
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from conformance.statistics.bets import seals

Allowed = npt.NDArray[np.bool_]


class Grammar(Protocol):
    """A grammar that reads texts afresh (`specref.engine.grammar.Grammar`). eos: the token that ends a text."""

    eos: int

    def allowed(self, text: Tokens) -> Allowed | None:
        """Which tokens `[V]` may follow `text`; None if it is refused or has ended."""


@dataclass(frozen=True)
class MaskAt:
    """What an engine allowed at one position. text: the output before it. drafted: how many of its last tokens were drafts.

    found `[V]`: the tokens that it allowed; None where it applied no mask.
    """

    where: str
    text: Tokens
    found: Allowed | None
    drafted: int = 0


def matcher_finding(mode: str, states: Sequence[MaskAt] | None, grammar: Grammar, planned: int) -> Finding:
    """GRAMMAR-1: what the matcher allows after a round is what it allows after reading the committed tokens from the start.

    states: after every round, text the whole output so far.
    """
    if states is None:
        return not_exposed("GRAMMAR-1", mode, "what its grammar allows after a round")
    claim = "after every round the matcher allows what a fresh one allows after the committed tokens"
    places = _differences(states, grammar)
    return judged("GRAMMAR-1", mode, places, n=len(states), planned=planned, unit="rounds", claim=claim)


def window_finding(mode: str, positions: Sequence[MaskAt] | None, grammar: Grammar, planned: int) -> Finding:
    """GRAMMAR-2: at every position of every round the mask is that of the position's own path (in a tree, of its ancestors).

    Inconclusive until some position lay behind a draft: the first of a round is masked rightly by engines that mask no other.
    """
    if positions is None:
        return not_exposed("GRAMMAR-2", mode, "what it allowed at each position of a round")
    missing = "" if any(position.drafted for position in positions) else "no position lay behind a drafted token"
    claim = "at every position of a round the mask is that of its own path"
    places = _differences(positions, grammar)
    return judged("GRAMMAR-2", mode, places, n=len(positions), planned=planned, unit="positions", claim=claim, missing=missing)


def _differences(positions: Sequence[MaskAt], grammar: Grammar) -> list[Place]:
    places = []
    for position in positions:
        expected = grammar.allowed(position.text)
        if expected is not None and (position.found is None or not np.array_equal(position.found, expected)):
            where = f"{position.where}, after {_ids(position.text)}"
            places.append(Place(where, f"allowed {_ids(np.flatnonzero(expected))}", _found(position.found)))
    return places


def text_finding(mode: str, outputs: Sequence[Tokens], limits: Sequence[int], grammar: Grammar, planned: int) -> Finding:
    """GRAMMAR-3: every output follows the grammar, nothing follows its end, and it ends only when complete or at its limit.

    limits: max_tokens of each request.

    >>> from specref.engine.grammar import Grammar
    >>> grammar = Grammar.over_bytes('start: "a" "b"', [b"a", b"b", b""], eos=2)
    >>> text_finding("m", [(0, 0)], [2], grammar, planned=1).violations
    ('request 0, position 1: expected one of 1, found token 0',)
    """
    if len(outputs) != len(limits):
        return nonsense("GRAMMAR-3", mode, f"{len(outputs)} outputs for {len(limits)} requests")
    places = []
    for number, (output, limit) in enumerate(zip(outputs, limits)):
        place = _first_fault(output, limit, grammar, number)
        if place is not None:
            places.append(place)
    claim = "every output follows the grammar to its end"
    return judged("GRAMMAR-3", mode, places, n=len(outputs), planned=planned, unit="outputs", claim=claim)


def _first_fault(output: Tokens, limit: int, grammar: Grammar, number: int) -> Place | None:
    for at, token in enumerate(output):
        expected = grammar.allowed(output[:at])
        if expected is None:
            return Place(f"request {number}, position {at}", "nothing after the end", f"token {token}")
        if not expected[token]:
            return Place(f"request {number}, position {at}", f"one of {_ids(np.flatnonzero(expected))}", f"token {token}")
    expected = grammar.allowed(output)
    if expected is not None and len(output) < limit:
        where = f"request {number}, position {len(output)}"
        return Place(where, f"one of {_ids(np.flatnonzero(expected))}", "the end of the output")
    return None


def grammar_law_finding(
    mode: str,
    outputs: Sequence[Tokens],
    laws: Sequence[tuple[Floats, Floats]],
    planned: int,
    *,
    alpha: float = 1e-6,
    seed: int = 0,
    without: Collection[str] = (),
) -> Finding:
    """GRAMMAR-4, from sampled outputs in the order of submission: each token follows the target's law under the mask.

    laws: the target's law with everything that the grammar forbids removed and the rest renormalised, and what a leak would
    lean towards (the draft's law, masked or not), each `[len(output), V]`. planned: tokens. without: laws that are not bet on.
    """
    if len(outputs) != len(laws):
        return nonsense("GRAMMAR-4", mode, f"{len(outputs)} outputs and {len(laws)} laws do not belong together")
    p, q = (np.concatenate([law[side] for law in laws]) for side in (0, 1))
    block = TokenBlock(
        np.array([token for output in outputs for token in output], dtype=np.int64),
        p,
        q,
        request=np.repeat(np.arange(len(outputs)), [len(output) for output in outputs]),
        silent=tuple(number for number, output in enumerate(outputs) if not output),
    )
    tokens, plan = len(block), ModePlan(mode, 1.0, {"bank": 1.0}, max(1, planned), bets=seals(without))
    ledger = Ledger(Plan((plan,), alpha), f"{mode} seed {seed}", seed)
    ledger.observe(mode, block)
    look, evidence = ledger.look(), ledger.evidence(mode)
    verdict = Verdict.VIOLATES if look.failed else Verdict.CONFORMS if tokens >= planned else Verdict.INCONCLUSIVE
    words = {
        Verdict.VIOLATES: f"{tokens} tokens do not follow the target's law under the grammar ({evidence[0].holder})",
        Verdict.CONFORMS: f"{tokens} tokens agree with the target's law under the grammar",
        Verdict.INCONCLUSIVE: f"only {tokens} of {planned} tokens were judged; no alarm so far",
    }
    sample = slice(0, None, max(1, tokens // 256))
    return Finding(
        "GRAMMAR-4",
        mode,
        verdict,
        words[verdict],
        n=tokens,
        planned=planned,
        alpha=alpha,
        log10_evidence=look.log10_e if np.isfinite(look.log10_e) else None,
        statistics=tuple(Statistic(e.check, e.n, log10_evidence=e.log10_e, holder=e.holder) for e in evidence),
        detects=detectable(ledger.judges[mode].bank, plan, alpha, (p[sample], q[sample]), max(1, tokens)),
    )


def _found(mask: Allowed | None) -> str:
    return "no mask" if mask is None else f"allowed {_ids(np.flatnonzero(mask))}"


def _ids(tokens: Sequence[int] | npt.NDArray[np.int64]) -> str:
    shown = ", ".join(str(int(token)) for token in tokens[:6]) or "nothing"
    return shown + (f" and {len(tokens) - 6} more" if len(tokens) > 6 else "")
