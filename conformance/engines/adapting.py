"""What adapters have in common: settings refused by name, requests that fit in a batch, and the engine's counts by mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace

from conformance.protocols import Mode, NotHere, Request, Tokens, Unsupported
from specref.processors import SamplingSettings


def with_what_it_lacks(mode: Mode, check: Callable[[Mode], object]) -> Mode:
    """The mode, with what it lacks here. check: raises NotHere for a mode that lacks something.

    >>> def no_gpu(mode: Mode) -> None:
    ...     raise NotHere("it needs a GPU")
    >>> with_what_it_lacks(Mode("graphs"), no_gpu).not_here
    'it needs a GPU'
    """
    try:
        check(mode)
    except NotHere as lacking:
        return replace(mode, not_here=str(lacking))
    return mode


def refuse(settings: SamplingSettings, unknown: Sequence[str], why: str) -> None:
    """Raise Unsupported for the first of the `unknown` settings that a request asks for.

    >>> refuse(SamplingSettings(max_tokens=4, top_k=3), ["min_p", "top_k"], "this engine has no such setting")
    Traceback (most recent call last):
    conformance.protocols.Unsupported: top_k: this engine has no such setting
    """
    unchanged = SamplingSettings(max_tokens=settings.max_tokens)
    for name in unknown:
        if getattr(settings, name) != getattr(unchanged, name):
            raise Unsupported(f"{name}: {why}")


def refuse_others(settings: SamplingSettings, obeyed: Sequence[str], why: str) -> None:
    """Raise Unsupported for the first setting that a request asks for and that is not among the `obeyed`.

    >>> refuse_others(SamplingSettings(max_tokens=4, top_k=3), ["max_tokens", "temperature"], "not passed on to the engine")
    Traceback (most recent call last):
    conformance.protocols.Unsupported: top_k: not passed on to the engine
    """
    refuse(settings, [field.name for field in fields(settings) if field.name not in obeyed], why)


def spelled(
    sequence: Sequence[int], engine: str, decode: Callable[[list[int]], str], encode: Callable[[str], Iterable[int]]
) -> str:
    """The text of a stop sequence, for an engine that stops at strings.

    >>> spelled((97, 98), "this engine", lambda ids: bytes(ids).decode(), lambda text: text.encode())
    'ab'

    Raises Unsupported where the tokenizer would not read it back as the same tokens.
    """
    text = decode(list(sequence))
    if not text or tuple(encode(text)) != tuple(sequence):
        raise Unsupported(
            f"stop_sequences: {engine} stops at strings, and {list(sequence)} is no text that is read back ({text!r})"
        )
    return text


def alike(requests: Sequence[Request], rows: int) -> list[list[int]]:
    """Numbers of the requests that an engine of rectangular batches can run together, at most `rows` at once: with prompts of
    one length and the same settings.

    >>> plain = SamplingSettings(max_tokens=4)
    >>> alike([Request(prompt, plain, seed=0) for prompt in ((1, 2), (1, 2, 3), (4, 5), (6, 7))], rows=2)
    [[0, 2], [3], [1]]
    """
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(f"{len(request.prompt)} {request.settings}", []).append(number)
    return [group[start : start + rows] for group in groups.values() for start in range(0, len(group), rows)]


def filled_up(prompts: Sequence[Tokens], rows: int) -> list[Tokens]:
    """So many rows: the prompts, and in the rest the first one turned round, for company that goes another way.

    >>> filled_up([(1, 2, 3)], rows=3)
    [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    """
    first = prompts[0]
    turns = [at % len(first) for at in range(1, rows - len(prompts) + 1)]
    return [*prompts, *(first[at:] + first[:at] for at in turns)]


class Counts:
    """Counts under the names of `Engine.metrics`, added up for each mode."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, float]] = {}

    def add(self, mode: Mode, some: Mapping[str, float]) -> None:
        """Add what a request, or a round, came to."""
        counts = self._of.setdefault(mode.name, dict.fromkeys(some, 0.0))
        for name, value in some.items():
            counts[name] += value

    def of(self, mode: Mode) -> Mapping[str, float] | None:
        """What `Engine.metrics` gives: nothing yet where nothing was counted, None without speculation.

        >>> counts, fast = Counts(), Mode("fast", {"k": 2})
        >>> counts.add(fast, {"drafts": 1, "accepted": 2}), counts.add(fast, {"drafts": 1, "accepted": 0})
        (None, None)
        >>> counts.of(fast), counts.of(Mode("other", {"k": 2})), counts.of(Mode("off"))
        ({'drafts': 2.0, 'accepted': 2.0}, {}, None)
        """
        return self._of.get(mode.name, {}) if mode.speculates else None
