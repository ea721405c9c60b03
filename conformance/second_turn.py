"""Second turns: prompts that repeat an earlier one with its answer, asked of a mode that keeps what it has read.

The first turn speculates, so that drafts are rejected while its answer is written; the second finds the answer's entries in the
cache. Prompt and answer are each longer than a block, so that blocks become full in the midst of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.asking import Asking
from conformance.checks.law import law_findings
from conformance.families import STATISTICAL
from conformance.findings import Finding
from conformance.greedy_audit import Continued, greedy_of
from conformance.levels import AuditSettings
from conformance.protocols import Mode, Output, Request, Tokens
from conformance.sampling import judged_part, request_seed
from conformance.statistics import Ledger, ModePlan, Plan, TokenBlock
from conformance.statistics.bets import seals
from specref.processors import SamplingSettings

WHAT = "second turn"
NEW = 4
"""Tokens that a second turn adds to what is cached."""
CONVERSATIONS, MOST = 2, 32
"""For each request of a group of the family checks, and in all: what is kept is not kept for ever. Every other conversation is
greedy in its first turn."""
SAMPLED = 8
"""Sampled second turns of each conversation, beside a greedy one."""
SHOWN = 256
"""About how many rows of laws are looked at to say what was detectable."""


def name_of(mode: str) -> str:
    """What reports call the second turns of a mode.

    >>> name_of("ngram, prefix cache")
    'ngram, prefix cache [second turn]'
    """
    return f"{mode} [{WHAT}]"


def is_second_turn(name: str) -> bool:
    """Whether a report's name is that of second turns: what was cached before belongs to what is seen there."""
    return name.endswith(f"[{WHAT}]")


def has_second_turn(mode: Mode) -> bool:
    """Whether a mode keeps what it has read, and whether the law of what it then writes is known."""
    return mode.prefix_block > 0 and not mode.lossy and not mode.brief


def reports_of(mode: Mode) -> list[tuple[str, str]]:
    """The requirements that are judged, each with the name that reports use."""
    return [(requirement, name_of(mode.name)) for requirement in ("GREEDY-1", "LAW-1")]


def conversations(settings: AuditSettings) -> int:
    """How many of a mode."""
    return min(MOST, CONVERSATIONS * settings.level.requests)


def tokens_asked(settings: AuditSettings, longest: int) -> int:
    """Sampled tokens of all second turns of a mode."""
    return conversations(settings) * SAMPLED * longest


def second_turn_findings(asking: Asking, alpha: float) -> list[Finding]:
    """GREEDY-1 and LAW-1 of second turns. Raises EngineFailed, NonsenseOutput."""
    sampling = replace(asking.plain, eos=())  # so that no output ends early
    prompts = [
        request.prompt for request in asking.requests("second turn's new tokens", conversations(asking.settings), sampling)
    ]
    begun = [before + prompt[-NEW:] for before, prompt in zip(_first_turns(asking, sampling), prompts, strict=True)]
    greedy = _ask(asking, begun, replace(sampling, temperature=0.0), "greedy")
    drawn = _ask(asking, [text for text in begun for _ in range(SAMPLED)], sampling, "sampled")
    return [_greedy(asking, *greedy), _law(asking, *drawn, alpha)]


def _first_turns(asking: Asking, sampling: SamplingSettings) -> list[Tokens]:
    """Prompts with their answers: half of the conversations sampled, the other half greedy."""
    block, number = asking.mode.prefix_block, conversations(asking.settings)
    sampling = replace(sampling, max_tokens=min(asking.settings.max_tokens, asking.longest + block))
    prompts = [_longer_than(block, asking, i) for i in range(number)]
    texts: list[Tokens] = []
    for some, heat in ((prompts[::2], 1.0), (prompts[1::2], 0.0)):
        requests, outputs = _ask(asking, some, replace(sampling, temperature=heat), f"first, temperature {heat:g}")
        texts += [request.prompt + output.tokens for request, output in zip(requests, outputs)]
    return texts


def _longer_than(block: int, asking: Asking, number: int) -> Tokens:
    prompt: Tokens = ()
    piece = 0
    while len(prompt) <= block:
        prompt += asking.subject.prompts.prompt(request_seed(asking.settings.seed, "prompt of a first turn", number, piece))
        piece += 1
    return prompt


def _ask(
    asking: Asking, prompts: Sequence[Tokens], sampling: SamplingSettings, what: str
) -> tuple[list[Request], list[Output]]:
    seeds = [request_seed(asking.settings.seed, asking.mode.name, WHAT, what, i) for i in range(len(prompts))]
    requests = [Request(prompt, sampling, seed) for prompt, seed in zip(prompts, seeds)]
    return requests, asking.ask(requests)


def _greedy(asking: Asking, requests: Sequence[Request], outputs: Sequence[Output]) -> Finding:
    judged = [judged_part(request, output) for request, output in zip(requests, outputs)]
    named = replace(asking.mode, name=name_of(asking.mode.name))
    return greedy_of(named, Continued(requests, outputs, judged), asking.subject, len(requests))


def _law(asking: Asking, requests: Sequence[Request], outputs: Sequence[Output], alpha: float) -> Finding:
    name, tokens = name_of(asking.mode.name), [judged_part(request, output) for request, output in zip(requests, outputs)]
    p, q = (np.concatenate(rows) for rows in zip(*asking.laws(requests, tokens)))
    lengths, planned = [len(some) for some in tokens], tokens_asked(asking.settings, asking.longest)
    block = TokenBlock(
        np.array([token for some in tokens for token in some], dtype=np.int64),
        p,
        q,
        request=np.repeat(np.arange(len(tokens)), lengths),
        silent=tuple(i for i, length in enumerate(lengths) if not length),
    )
    plan = Plan((ModePlan(name, 1.0, {"bank": 1.0}, planned, bets=seals(())),), alpha / STATISTICAL)
    ledger = Ledger(plan, f"{name} seed {asking.settings.seed}", asking.settings.seed)
    ledger.observe(name, block)
    sample = slice(0, None, max(1, len(block) // SHOWN))
    return law_findings(ledger, name, ledger.look(), (p[sample], q[sample]), tokens=len(block), planned=planned)[0]
