"""An engine's rounds as seen from within: caches, pages, trees, windows, grammars and what a draft net is fed.

Requests with a common beginning run together, at temperature 0 and 1 and, where they can be had, under a grammar. Each check is
a pure function of the rounds seen, so what shows a fault can be made smaller: the reproduction is the shortest run of a single
request that still shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from conformance.checks.draft import DraftInput, draft_inputs_finding
from conformance.checks.grammar import MaskAt, matcher_finding, window_finding
from conformance.checks.greedy import row_variance_finding
from conformance.checks.kv import CachedPage, CacheState, cache_finding, draft_cache_finding, prefix_finding
from conformance.checks.tree import DISTINCT_RULES, sibling_finding
from conformance.components import Entries, Floats, Logits, RoundWatcher, SeenRound
from conformance.findings import Finding, Verdict
from conformance.grammar_audit import TEXT, grammar_of
from conformance.greedy_audit import has_margin
from conformance.levels import AuditSettings
from conformance.protocols import Tokens
from conformance.sampling import request_seed
from conformance.subject import Subject
from specref.tree import TokenTree

LONGEST = 20
"""Tokens of a watched output: several rounds."""
Rounds = Sequence[SeenRound]
Check = Callable[[Rounds], Finding]


def round_findings(watcher: RoundWatcher, subject: Subject, settings: AuditSettings, seed: int) -> list[Finding]:
    """Everything that can be seen of a watcher's rounds. What it does not show has no finding."""
    prompts, longest = _prompts(subject, settings.level.requests, seed), min(LONGEST, settings.max_tokens)
    runs = [watcher.watch(prompts, longest, temperature, seed, "") for temperature in (0.0, 1.0)]
    rounds = [replace(one, request=one.request + i * len(prompts)) for i, run in enumerate(runs) for one in run.rounds]
    found = [shown_by(check, rounds) for check in _checks(watcher, rounds, subject)]
    pages = [CachedPage(*page) for run in runs for page in run.pages or ()]
    found += [_pages_finding(watcher, pages, rounds)] if any(run.pages is not None for run in runs) else []
    return found + (_under_a_grammar(watcher, subject, prompts, longest, seed) if watcher.grammars else [])


def _prompts(subject: Subject, number: int, seed: int) -> list[Tokens]:
    """`number` prompts, and as many that begin like these: their pages are found again."""
    first, others = ([subject.prompts.prompt(request_seed(seed, "rounds", i, side)) for i in range(number)] for side in (0, 1))
    return first + [one[: max(1, 2 * len(one) // 3)] + other[-3:] for one, other in zip(first, others)]


def _checks(watcher: RoundWatcher, rounds: Rounds, subject: Subject) -> list[Check]:
    """The checks for which some round shows what they look at."""
    name, tolerance = watcher.name, watcher.tolerance
    checks: list[Check] = []
    if any(one.cache is not None for one in rounds):
        checks.append(lambda some: cache_finding(name, _states(some, "cache"), 1, tolerance=tolerance))
    if any(one.draft_cache is not None for one in rounds):
        lag = watcher.lag
        checks.append(lambda some: draft_cache_finding(name, _states(some, "draft_cache"), 1, tolerance=tolerance, lag=lag))
    if watcher.rule in DISTINCT_RULES and any(one.parents is not None for one in rounds):
        checks.append(lambda some: sibling_finding(name, [tree_of(one) for one in some], watcher.rule, 1))
    if any(one.scores is not None for one in rounds):
        checks.append(lambda some: window_logits_finding(name, some, subject))
    if any(one.fed is not None for one in rounds):
        checks.append(lambda some: draft_inputs_finding(name, _passes(some), 1))
    return checks


def shown_by(check: Check, rounds: Rounds) -> Finding:
    """The finding of a check; of a violation the reproduction is the shortest run of one request that shows it too.

    >>> from conformance.checks.places import Place, judged
    >>> def twice(some: Rounds) -> Finding:
    ...     places = [Place("tree", 1, 2)] if sum(len(one.drafted) > 1 for one in some) > 1 else []
    ...     return judged("KV-1", "m", places, n=len(some), planned=1, unit="rounds", claim="")
    >>> rounds = [SeenRound(0, 2, (5, 6, 7), (1,)), SeenRound(1, 1, (5, 6), (1, 2)), SeenRound(1, 2, (5, 6, 1, 3), (1, 2))]
    >>> shown_by(twice, rounds).reproduction
    'a prompt of 1, then 2 drafts, 0 accepted; 2 drafts, 1 accepted'
    """
    finding = check(rounds)
    if finding.verdict is not Verdict.VIOLATES:
        return finding
    runs = [[one for one in rounds if one.request == request] for request in sorted({one.request for one in rounds})]
    for length in range(1, 1 + max(map(len, runs))):
        for run in runs:
            if length <= len(run) and check(run[:length]).verdict is Verdict.VIOLATES:
                return replace(finding, reproduction=schedule(run[:length]))
    return replace(finding, reproduction="; ".join(map(schedule, runs)))


def schedule(rounds: Rounds) -> str:
    """What happened to one request, as the schedules of `conformance.checks.kv` say it."""
    return f"a prompt of {rounds[0].start}, then " + "; ".join(map(_said, rounds))


def _said(one: SeenRound) -> str:
    shape = f"{len(one.drafted)} drafts" if one.parents is None else f"tree {list(one.parents)}"
    return f"{shape}, {len(one.committed) - one.start - 1} accepted"


def tree_of(one: SeenRound) -> TokenTree:
    """The drafted tokens as a tree below the last committed one; a chain is the tree of width 1.

    >>> tree_of(SeenRound(0, 2, (5, 6, 7), (1, 2))).parents
    (-1, 0, 1)
    """
    root = one.committed[one.start - 1]
    return TokenTree.chain(root, one.drafted) if one.parents is None else TokenTree((root, *one.drafted), one.parents)


def _places(rounds: Rounds) -> list[str]:
    """Where each round stands: its request, and its number among that request's rounds."""
    count: dict[int, int] = {}
    names = []
    for one in rounds:
        names.append(f"request {one.request}, round {count.setdefault(one.request, 0)}")
        count[one.request] += 1
    return names


def _states(rounds: Rounds, kind: str) -> list[CacheState]:
    pairs: list[tuple[Entries, Entries] | None] = [getattr(one, kind) for one in rounds]
    return [
        CacheState(where, one.committed[:-1], *pair)
        for one, where, pair in zip(rounds, _places(rounds), pairs)
        if pair is not None
    ]


def _passes(rounds: Rounds) -> list[tuple[Tokens, list[DraftInput]]]:
    """What was fed before each round, when its draft was made."""
    return [(one.committed[: one.start], [DraftInput(*pair) for pair in one.fed]) for one in rounds if one.fed]


def window_logits_finding(name: str, rounds: Rounds, subject: Subject) -> Finding:
    """GREEDY-3: the rows of every window beside the judge's own reading of each node's text alone."""
    if not has_margin(subject):
        return Finding("GREEDY-3", name, Verdict.NOT_RUN, "no single row convicts in this precision")
    together: list[Floats] = []
    texts: list[tuple[Tokens, Tokens]] = []
    names = []
    for one, where in zip(rounds, _places(rounds)):
        if one.scores is None:
            continue
        tree = tree_of(one)
        for node, row in enumerate(one.scores):
            together.append(row)
            texts.append((one.committed[: one.start], (*tree.spells(node), 0)))  # the row before the last token is asked for
            names.append(f"{where}, node {node}")
    alone = [rows[-1] for rows in subject.target.logits(texts)]
    return row_variance_finding(name, Logits(np.array(together), np.array(alone)), subject.margin, 1, names)


def _pages_finding(watcher: RoundWatcher, pages: Sequence[CachedPage], rounds: Rounds) -> Finding:
    """KV-3. The reproduction is the run of the first request that had read a wrong page's text, up to that round."""
    committed = [one.committed for one in rounds]

    def judged(some: Sequence[CachedPage]) -> Finding:
        return prefix_finding(watcher.name, some, committed, 1, tolerance=watcher.tolerance)

    finding = judged(pages)
    wrong = [page.tokens for page in pages if finding.verdict is Verdict.VIOLATES and judged([page]).violations]
    for place, one in enumerate(rounds if wrong else ()):
        tree = tree_of(one)
        read = [one.committed[: one.start] + tree.spells(node) for node in range(len(tree))]
        if any(text[: len(page)] == page for page in wrong for text in (*read, one.committed)):
            return replace(finding, reproduction=schedule([r for r in rounds[: place + 1] if r.request == one.request]))
    return finding


def _under_a_grammar(
    watcher: RoundWatcher, subject: Subject, prompts: Sequence[Tokens], longest: int, seed: int
) -> list[Finding]:
    """GRAMMAR-1 and GRAMMAR-2."""
    grammar = grammar_of(subject)
    if isinstance(grammar, str):
        return [Finding(one, watcher.name, Verdict.NOT_RUN, grammar) for one in ("GRAMMAR-1", "GRAMMAR-2")]
    right, name, rounds = grammar, watcher.name, watcher.watch(prompts, longest, 1.0, seed, TEXT).rounds
    checks: list[Check] = []
    if any(one.matcher is not None for one in rounds):
        checks.append(lambda some: matcher_finding(name, _matchers(some, prompts), right, 1))
    if any(one.allowed is not None for one in rounds):
        checks.append(lambda some: window_finding(name, _masks(some, prompts), right, 1))
    return [shown_by(check, rounds) for check in checks]


def _matchers(rounds: Rounds, prompts: Sequence[Tokens]) -> list[MaskAt]:
    return [
        MaskAt(where, one.committed[len(prompts[one.request]) :], one.matcher)
        for one, where in zip(rounds, _places(rounds))
        if one.matcher is not None
    ]


def _masks(rounds: Rounds, prompts: Sequence[Tokens]) -> list[MaskAt]:
    found = []
    for one, where in zip(rounds, _places(rounds)):
        tree, before = tree_of(one), one.committed[len(prompts[one.request]) : one.start]
        for node, mask in enumerate(() if one.allowed is None else one.allowed):
            path = tree.spells(node)
            found.append(MaskAt(f"{where}, node {node}", before + path, mask, drafted=len(path)))
    return found
