"""What the benchmarks of verification time, and how: inputs, contenders, rounds. Needs torch alone, for other environments."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

K = 5
SIZES = ((1000, 512), (1000, 1024), (32_000, 16))
"""V and the rows of a batch."""


@dataclass(frozen=True)
class Inputs:
    """A batch: target logits `[B, k+1, V]`, draft logits `[B, k, V]`, tokens drawn from the draft `[B, k]`, u `[B, k+1]`."""

    target: Tensor
    draft: Tensor
    tokens: Tensor
    u: Tensor

    @classmethod
    def random(cls, B: int, V: int, seed: int) -> Inputs:
        """A draft that the target agrees with for about seven tokens in ten, in float32.

        >>> inputs = Inputs.random(B=2, V=7, seed=0)
        >>> inputs.target.shape, inputs.draft.shape, inputs.tokens.shape
        (torch.Size([2, 6, 7]), torch.Size([2, 5, 7]), torch.Size([2, 5]))
        """
        generator = torch.Generator().manual_seed(seed)
        target = 2 * torch.randn(B, K + 1, V, generator=generator)
        draft = target[:, :K] + 0.75 * torch.randn(B, K, V, generator=generator)
        laws = draft.softmax(dim=-1)
        tokens = torch.multinomial(laws.flatten(0, 1), 1, generator=generator).view(B, K)
        u = torch.randint(0, 1 << 24, (B, K + 1), generator=generator) / float(1 << 24)
        return cls(target, draft, tokens, u)

    def laws(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """p `[B, k+1, V]`, q `[B, k, V]` and u as `dtype`."""
        return self.target.to(dtype).softmax(dim=-1), self.draft.to(dtype).softmax(dim=-1), self.u.to(dtype)


@dataclass(frozen=True)
class Contender:
    """What is timed: `run` verifies the whole batch. given: what is made before the clock starts; the rest is its own work."""

    name: str
    given: str
    run: Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Seconds of a contender, one per round."""

    name: str
    given: str
    seconds: tuple[float, ...]

    def against(self, yardstick: Timed) -> tuple[float, str]:
        """How many times the yardstick's rows per second: the median over rounds, and their range.

        >>> Timed("x", "", (1.0, 2.0, 1.0)).against(Timed("y", "", (4.0, 4.0, 3.0)))
        (3.0, '2 to 4')
        """
        ratios = [theirs / ours for theirs, ours in zip(yardstick.seconds, self.seconds, strict=True)]
        return statistics.median(ratios), f"{min(ratios):.3g} to {max(ratios):.3g}"

    def line(self, yardstick: Timed, B: int) -> list[object]:
        """A row of a table under `HEADS`, for batches of B rows."""
        median, range_of = self.against(yardstick)
        return [self.name, self.given, median, range_of, f"{statistics.median(self.seconds) / B * 1e6:.3g}"]


def heads(yardstick: str, second: str = "processor second") -> Sequence[str]:
    """The heads of a table of `Timed.line`."""
    return ("verifier", "given", f"rows per {second} / {yardstick}", "range over rounds", "microseconds a row")


def rounds(contenders: Sequence[Contender], count: int, clock: Callable[[], float] = time.process_time) -> list[Timed]:
    """Time each contender once a round, one after the other; what comes before counts as nobody's."""
    for contender in contenders:
        contender.run()
    found = list(_rounds(contenders, count, clock))
    return [Timed(c.name, c.given, seconds) for c, seconds in zip(contenders, zip(*found, strict=True), strict=True)]


def _rounds(contenders: Sequence[Contender], count: int, clock: Callable[[], float]) -> Iterator[list[float]]:
    for _ in range(count):
        seconds = []
        for contender in contenders:
            start = clock()
            contender.run()
            seconds.append(clock() - start)
        yield seconds
