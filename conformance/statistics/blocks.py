"""A block of tokens with the law of each: what an engine emitted, in the order in which requests were submitted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from conformance.statistics.evidence import Floats, Ints, WrongUse, law_rows


class Segment(IntEnum):
    """How a token came to be in the output."""

    UNKNOWN = 0
    ACCEPTED = 1
    """A draft token that was accepted."""
    RESIDUAL = 2
    """The token drawn in place of a rejected draft token."""
    BONUS = 3
    """The token after k accepted draft tokens."""
    FIRST = 4
    """A token drawn without any draft before it, as the first after a prompt often is."""


@dataclass(frozen=True)
class TokenBlock:
    """``n`` emitted tokens, each with the target's law given its own history.

    The tokens stand in the order of submission: all of request 0, then all of request 1, and so on; a request may
    end in one block and go on in the next. Requests that produced no token are named in ``silent``, because a gap in
    the numbers means that a request was left out, and leaving out is how a correct engine gets accused.

    ``p``         ``[n, V]`` the target's law of each token given the tokens before it in its own request.
    ``q``         ``[n, V]`` the draft's law at the same places, or a small proxy model's; None if there is none.
    ``request``   ``[n]`` number of the request, counted in the order of submission; default: one request.
    ``position``  ``[n]`` place of the token in its request's output, from 0; default: 0, 1, 2 ... in each request.
    ``segment``   ``[n]`` codes of `Segment`; ``slot`` ``[n]`` place in its round, from 0; ``row`` ``[n]`` batch row;
    ``step``      ``[n]`` number of the round in which the whole batch advanced; each None where not known.
    ``context``   ``[n]`` number of the context (prompt) of a small pool, if contexts are judged one by one.

    Where the target truncates (top-k, top-p, min-p) and p was computed again, give the law conditional on the kept set
    that every logit within the tolerance keeps (`kept_sets`): a token outside it then counts for nothing.

    Laws are checked once, here: rows that do not sum to 1 within 1e-9, tokens outside V, arrays of unequal length and
    positions out of order raise `WrongUse`.
    """

    tokens: Ints
    p: Floats
    q: Floats | None = None
    request: Ints = None  # type: ignore[assignment]  # the constructor fills it in
    position: Ints = None  # type: ignore[assignment]
    segment: Ints | None = None
    slot: Ints | None = None
    row: Ints | None = None
    step: Ints | None = None
    context: Ints | None = None
    silent: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        tokens = _integers("tokens", self.tokens, None)
        n = len(tokens)
        self._put("tokens", tokens)
        self._put("p", law_rows("p", self.p, n))
        if self.q is not None:
            self._put("q", law_rows("q", self.q, n))
            if self.q.shape != self.p.shape:
                raise WrongUse(f"q has shape {self.q.shape} and p {self.p.shape}; both are laws over one vocabulary")
        if n and (int(tokens.min()) < 0 or int(tokens.max()) >= self.V):
            raise WrongUse(f"tokens run from {tokens.min()} to {tokens.max()}, outside the vocabulary 0..{self.V - 1}")
        self._put("request", np.zeros(n, np.int64) if self.request is None else _integers("request", self.request, n))
        for name in ("segment", "slot", "row", "step", "context"):
            if getattr(self, name) is not None:
                self._put(name, _integers(name, getattr(self, name), n))
        if self.position is None:
            self._put("position", _count_up(self.request))
        else:
            self._put("position", _integers("position", self.position, n))
        self._check_order()

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen; only the constructor fills fields in

    def _check_order(self) -> None:
        new = np.diff(self.request)
        same = new == 0
        if len(new) and int(new.min()) < 0:
            where = int(np.argmin(new))
            raise WrongUse(
                f"request {self.request[where + 1]} follows request {self.request[where]}: tokens must come in the "
                "order of submission, never of completion (requests that finish early are a biased sample)"
            )
        if np.any(np.diff(self.position)[same] != 1):
            raise WrongUse("positions within a request must rise by one; no token of a request may be left out")
        if np.any(self.position[1:][~same] != 0):
            raise WrongUse("a new request must start at position 0")
        given = set(np.unique(self.request).tolist()) | set(self.silent)
        if given and given != set(range(min(given), max(given) + 1)):
            missing = sorted(set(range(min(given), max(given) + 1)) - given)[:5]
            raise WrongUse(f"requests {missing} are missing; name those without any token in `silent`")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def V(self) -> int:  # noqa: N802  (the field's own letter)
        """Vocabulary size."""
        return int(self.p.shape[1])

    @property
    def first_request(self) -> int | None:
        """Smallest request number in the block, silent ones included; None for an empty block."""
        numbers = [*self.silent, *([int(self.request[0])] if len(self) else [])]
        return min(numbers) if numbers else None

    @property
    def last_request(self) -> int | None:
        """Largest request number in the block, silent ones included; None for an empty block."""
        numbers = [*self.silent, *([int(self.request[-1])] if len(self) else [])]
        return max(numbers) if numbers else None


def _integers(name: str, values: object, n: int | None) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise WrongUse(f"{name} must be a one-dimensional array of integers, not {array.dtype} {array.shape}")
    if n is not None and len(array) != n:
        raise WrongUse(f"{name} has {len(array)} entries for {n} tokens")
    return array.astype(np.int64)


def _count_up(request: Ints) -> Ints:
    """0, 1, 2, ... within each run of equal request numbers."""
    n = len(request)
    if n == 0:
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(request) != 0]))
    return np.arange(n) - np.repeat(starts, np.diff(np.append(starts, n)))
