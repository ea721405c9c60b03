"""KV: after every round a cache holds what a fresh prefill of the committed tokens would hold.

Schedules bring out what a usual run hides: two rejections in a row, full acceptance, every offset to a page boundary, a ring
that has wrapped, the gather of a tree. The comparison is a pure function of the states, so an engine's own trace can be judged
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place, judged, nonsense, not_exposed
from conformance.checks.seen import cache_picture
from conformance.components import MakeCache
from conformance.findings import Finding
from conformance.protocols import Tokens
from specref.tree import TokenTree


@dataclass(frozen=True)
class RoundPlan:
    """One round on a cache: drafted tokens, how many are accepted, the token emitted then; for trees parents `[N]` and path."""

    drafted: Tokens
    accepted: int
    emitted: int
    parents: tuple[int, ...] | None = None
    path: tuple[int, ...] = ()

    @property
    def kept(self) -> Tokens:
        """The drafted tokens that are committed."""
        if self.parents is None:
            return self.drafted[: self.accepted]
        return tuple(self.drafted[node - 1] for node in self.path)

    def __str__(self) -> str:
        if self.parents is None:
            return f"{len(self.drafted)} drafts, {self.accepted} accepted"
        return f"tree {list(self.parents)}, path {list(self.path)}"


@dataclass(frozen=True)
class Schedule:
    """A prompt and rounds after it."""

    name: str
    prompt: Tokens
    rounds: tuple[RoundPlan, ...]

    def __str__(self) -> str:
        return f"{self.name}: a prompt of {len(self.prompt)}, then " + "; ".join(map(str, self.rounds))


@dataclass(frozen=True)
class CacheState:
    """A cache after a round. tokens: those that were read, all committed but the last. found, fresh: entries `[n, ...]`."""

    where: str
    tokens: Tokens
    found: npt.NDArray[Any]
    fresh: npt.NDArray[Any]
    schedule: str = ""


def schedules(
    number: int, seed: int, *, k: int = 4, page_size: int = 4, vocabulary: int = 50, trees: bool = True
) -> list[Schedule]:
    """The named schedules, then random ones of up to 8 rounds; the smallest first.

    >>> [schedule.name for schedule in schedules(0, seed=0)][:3]
    ['a round without drafts', 'one rejection', 'full acceptance']
    """
    rng = np.random.default_rng([seed, 5])

    def tokens(count: int) -> Tokens:
        return tuple(rng.integers(vocabulary, size=count).tolist())

    def token() -> int:
        return int(rng.integers(vocabulary))

    def chain(drafts: int, accepted: int) -> RoundPlan:
        return RoundPlan(tokens(drafts), accepted, token())

    def tree() -> RoundPlan:
        size = int(rng.integers(3, 8))
        parents = (-1, *(int(rng.integers(0, node)) for node in range(1, size)))
        path = TokenTree(range(size), parents).path(int(rng.integers(0, size)))
        return RoundPlan(tokens(size - 1), len(path), token(), parents, path)

    def any_round() -> RoundPlan:
        if trees and rng.random() < 0.3:
            return tree()
        drafts = int(rng.integers(0, k + 1))
        return chain(drafts, int(rng.integers(0, drafts + 1)))

    plans: list[tuple[str, int, list[RoundPlan]]] = [
        ("a round without drafts", 3, [chain(0, 0)]),
        ("one rejection", 3, [chain(k, 1)]),
        ("full acceptance", 3, [chain(k, k)]),
        ("two rejections in a row", 3, [chain(k, 1), chain(k, 0)]),
        ("full acceptance, then a rejection", 3, [chain(k, k), chain(k, 2)]),
        ("drafts accepted, then a round without drafts", 3, [chain(k, 2), chain(0, 0), chain(k, 1)]),
    ]
    plans += [(f"page boundary, offset {o}", page_size + o, [chain(k, 1), chain(k, k), chain(k, 0)]) for o in range(page_size)]
    if trees:
        siblings = RoundPlan(tokens(4), 2, token(), (-1, 0, 0, 2, 2), (2, 4))
        plans.append(("a tree, its last branch kept", 3, [siblings]))
        plans.append(("two trees", 3, [siblings, replace(siblings, path=(1,), accepted=1)]))
    plans.append(("after a ring has wrapped", 20, [chain(k, 0), chain(k, 0), chain(k, k), chain(k, 1)]))
    for case in range(number):
        plans.append((f"random {case}", int(rng.integers(1, 12)), [any_round() for _ in range(int(rng.integers(2, 9)))]))
    return [Schedule(name, tokens(length), tuple(rounds)) for name, length, rounds in plans]


def run(make: MakeCache, schedule: Schedule) -> Iterator[CacheState]:
    """Take a cache through a schedule; after every round beside a fresh cache that reads the committed tokens at once."""
    cache = make()
    committed = schedule.prompt
    cache.append(list(committed[:-1]))
    for number, plan in enumerate(schedule.rounds):
        start = len(committed) - 1
        rows = [committed[-1], *plan.drafted]
        if plan.parents is None:
            cache.append(rows)
            cache.rollback(start + 1 + plan.accepted)
        else:
            cache.append(rows, plan.parents)
            cache.gather(plan.path)
        committed = (*committed, *plan.kept, plan.emitted)
        fresh = make()
        fresh.append(list(committed[:-1]))
        yield CacheState(
            f"schedule '{schedule.name}', round {number}",
            committed[:-1],
            np.atleast_1d(cache.visible()),
            np.atleast_1d(fresh.visible()),
            str(replace(schedule, rounds=schedule.rounds[: number + 1])),
        )


def cache_finding(mode: str, states: Sequence[CacheState] | None, planned: int, *, tolerance: float = 0.0) -> Finding:
    """KV-1: every entry equals the fresh one within `tolerance`, and none is missing or left over.

    The reproduction is the smallest schedule that shows a difference.

    >>> state = CacheState("round 0", (5, 6), np.array([0.25, 0.75]), fresh=np.array([0.25, 0.5]))
    >>> cache_finding("m", [state], planned=1).violations
    ('round 0, position 1 (token 6): expected 0.5, found 0.75',)
    """
    return _compared("KV-1", mode, states, planned, tolerance, 0)


def draft_cache_finding(
    mode: str, states: Sequence[CacheState] | None, planned: int, *, tolerance: float = 0.0, lag: int = 1
) -> Finding:
    """KV-2: the same of the draft's own cache, which may lag by `lag` entries.

    A draft model does not read the last token that it drafts, so after full acceptance it lags by 1; one that draws a tree and
    keeps none of its branches lags by the tree's depth.
    """
    return _compared("KV-2", mode, states, planned, tolerance, lag)


def _compared(
    requirement: str, mode: str, states: Sequence[CacheState] | None, planned: int, tolerance: float, missing: int
) -> Finding:
    if states is None:
        return not_exposed(requirement, mode, "what its cache holds")
    places: list[Place] = []
    shown: CacheState | None = None
    for state in states:
        if state.found.shape[1:] != state.fresh.shape[1:]:
            problem = f"{state.where}: entries {state.found.shape[1:]}, not {state.fresh.shape[1:]}"
            return nonsense(requirement, mode, problem)
        place = _first_difference(state, tolerance, missing)
        if place is not None:
            places.append(place)
            if shown is None or len(state.schedule) < len(shown.schedule):
                shown = state
    claim = "after every round the cache equals a fresh prefill of the committed tokens"
    finding = judged(requirement, mode, places, n=len(states), planned=planned, unit="rounds", claim=claim)
    if shown is None:
        return finding
    picture = cache_picture(shown.where, shown.tokens, shown.found, shown.fresh, tolerance)
    return replace(finding, reproduction=shown.schedule, pictures=(picture,))


def _first_difference(state: CacheState, tolerance: float, missing: int) -> Place | None:
    found, fresh = state.found, state.fresh
    both = min(len(found), len(fresh))
    apart = np.abs(found[:both].astype(float) - fresh[:both].astype(float)).reshape(both, int(np.prod(fresh.shape[1:])))
    wrong = np.flatnonzero(~(apart.max(axis=1, initial=0.0) <= tolerance))
    offset = len(state.tokens) - len(fresh)  # a ring shows the last entries only
    if len(wrong):
        at = int(wrong[0])
        token = state.tokens[at + offset] if len(fresh) <= len(state.tokens) and at + offset >= 0 else "?"
        where = f"{state.where}, position {at + max(offset, 0)} (token {token})"
        return Place(where, _shown(fresh[at]), _shown(found[at]))
    if not len(fresh) - missing <= len(found) <= len(fresh):
        expected = f"{len(fresh)} entries" if not missing else f"{len(fresh) - missing} to {len(fresh)} entries"
        return Place(f"{state.where}, after {len(state.tokens)} read tokens", expected, f"{len(found)} entries")
    return None


def _shown(entry: npt.NDArray[Any]) -> str:
    values = np.ravel(entry)
    return " ".join(f"{value:.6g}" for value in values[:3]) + (" ..." if values.size > 3 else "")


@dataclass(frozen=True)
class CachedPage:
    """A page of a prefix cache: all tokens from the start to its end, by which it is found; its entries beside fresh ones."""

    tokens: Tokens
    found: npt.NDArray[Any]
    fresh: npt.NDArray[Any]


def prefix_finding(
    mode: str, pages: Sequence[CachedPage] | None, committed: Sequence[Tokens], planned: int, *, tolerance: float = 0.0
) -> Finding:
    """KV-3: a prefix cache holds no token that was rejected, and every page is what a fresh prefill of its tokens gives.

    >>> page = CachedPage((5, 9), np.zeros(2), fresh=np.zeros(2))
    >>> prefix_finding("m", [page], committed=[(5, 6, 7)], planned=1).violations
    ('page 0, position 1: expected committed tokens only, found token 9, which nothing committed leads to',)
    """
    if pages is None:
        return not_exposed("KV-3", mode, "the pages of its prefix cache")
    places = []
    for number, page in enumerate(pages):
        if not any(tokens[: len(page.tokens)] == page.tokens for tokens in committed):
            longest = max((_common(page.tokens, tokens) for tokens in committed), default=0)
            where = f"page {number}, position {longest}"
            found = f"token {page.tokens[longest]}, which nothing committed leads to"
            places.append(Place(where, "committed tokens only", found))
            continue
        state = CacheState(f"page {number}", page.tokens[-len(page.fresh) :], page.found, page.fresh)
        place = _first_difference(state, tolerance, 0)
        if place is not None:
            places.append(place)
    claim = "every cached page holds a fresh prefill of committed tokens"
    return judged("KV-3", mode, places, n=len(pages), planned=planned, unit="pages", claim=claim)


def _common(one: Tokens, other: Tokens) -> int:
    return next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), min(len(one), len(other)))
