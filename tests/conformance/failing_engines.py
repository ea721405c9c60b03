"""Engines that fail in the middle of an audit, each in its own way."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from conformance.components import Component
from conformance.controls import instance
from conformance.engines.own import ReferenceEngine
from conformance.engines.own_components import ReferenceChain
from conformance.protocols import Ended, Mode, Models, NotHere, Output, Request, Unsupported
from specref.chance import Chance
from tests.conformance.promising_engine import Caches


class Healthy(ReferenceEngine):
    def modes(self, k: int) -> Sequence[Mode]:
        return super().modes(k)[:2]

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for number, output in enumerate(super().generate(mode, requests)):
            if mode.speculates and number == 1:
                self.fail()
            yield output

    def fail(self) -> None: ...


class Raises(Healthy):
    def fail(self) -> None:
        raise RuntimeError("the kernel fell over\nwith a long story")


class GivesLists(Healthy):
    """Its outputs are lists of tokens."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Any]:
        yield from (list(output.tokens) for output in super().generate(mode, requests))


class Hangs(Healthy):
    def fail(self) -> None:
        time.sleep(3600)


class Dies(Healthy):
    def fail(self) -> None:
        os._exit(7)


class Refuses(Healthy):
    def fail(self) -> None:
        raise Unsupported("top_p is not supported with speculation")


class Twice(Healthy):
    """One of its modes has two names."""

    def modes(self, k: int) -> Sequence[Mode]:
        return (*super().modes(k), replace(super().modes(k)[1], name="again"))


class LacksAGpu(Healthy):
    def fail(self) -> None:
        raise NotHere("graphs: they need a GPU")


class Ends(Healthy):
    """What it runs ends at top-k, every time; the adapter itself stays, and can begin anew."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        if mode.speculates and any(request.settings.top_k is not None for request in requests):
            raise Ended("the top-k of no row")
        return super().generate(mode, requests)

    def renew(self) -> bool:
        return True


class OutOfRange(Healthy):
    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for output in super().generate(mode, requests):
            yield Output((*output.tokens[:-1], 999)) if mode.speculates else output


class GreedyNonsense(Healthy):
    """Its first greedy answer without speculation is nonsense; all others are right."""

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for number, output in enumerate(super().generate(mode, requests)):
            bad = number == 0 and not mode.speculates and requests[0].settings.temperature == 0
            yield Output((999,)) if bad else output


class Fewer(Healthy):
    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        return super().generate(mode, requests[:-1])


class NamesakeModes(Healthy):
    def modes(self, k: int) -> Sequence[Mode]:
        return (*super().modes(k), Mode("off"))


class Pads(Healthy):
    """Answers as long as the limit: after EOS it goes on with token 0."""

    def modes(self, k: int) -> Sequence[Mode]:
        return [replace(mode, exposes_rounds=False) for mode in super().modes(k)]

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        for request, output in zip(requests, super().generate(mode, requests), strict=True):
            yield Output(output.tokens + (0,) * (request.settings.max_tokens - len(output.tokens)))


class RepeatsItsNumbers(Healthy):
    """Ignores the seeds of the requests: every request is decided by the same random numbers."""

    def chance(self, seed: int) -> Chance:
        return super().chance(7)


class StopsWithinAMessage(Healthy):
    def fail(self) -> None:
        for handle in range(3, 30):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(handle).st_mode):
                    os.write(handle, b"\x00\x00\x10\x00{")  # the head of a message of 4096 bytes
        time.sleep(3600)


def stops_within_a_message(models: Models) -> StopsWithinAMessage:
    return StopsWithinAMessage(*instance())


def greedy_nonsense(models: Models) -> GreedyNonsense:
    return GreedyNonsense(*instance())


class WithParts(Healthy):
    """Offers parts that can be audited alone, and counts."""

    def metrics(self, mode: Mode) -> dict[str, float]:
        return {"accepted": 3}

    def components(self) -> Sequence[Component]:
        return (ReferenceChain("ratio"), Caches())


def with_parts(models: Models) -> WithParts:
    return WithParts(*instance())


def fewer(models: Models) -> Fewer:
    return Fewer(*instance())


def namesake_modes(models: Models) -> NamesakeModes:
    return NamesakeModes(*instance())


def tells_its_threads(models: Models) -> Healthy:
    engine = Healthy(*instance())
    engine.version = f"{torch.get_num_threads()} threads"
    return engine


def healthy(models: Models) -> Healthy:
    return Healthy(*instance())


def loads_slowly(models: Models) -> Healthy:
    time.sleep(1.5)
    return Healthy(*instance())


class Spared(Healthy):
    """Its adapter does not ask it for something that would spoil the rest."""

    def not_asked(self) -> Sequence[str]:
        return ("a second engine in a process (second.py)",)


def spared(models: Models) -> Spared:
    return Spared(*instance())


def gives_lists(models: Models) -> GivesLists:
    return GivesLists(*instance())


def raises(models: Models) -> Raises:
    return Raises(*instance())


def hangs(models: Models) -> Hangs:
    return Hangs(*instance())


def dies(models: Models) -> Dies:
    return Dies(*instance())


def refuses(models: Models) -> Refuses:
    return Refuses(*instance())


def lacks_a_gpu(models: Models) -> LacksAGpu:
    return LacksAGpu(*instance())


def ends(models: Models) -> Ends:
    return Ends(*instance())


def fails_to_start(models: Models) -> Healthy:
    raise OSError("no weights here")
