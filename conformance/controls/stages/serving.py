"""The reference engine with one part replaced, driven as servers are: batches, skipped rounds, pre-emption, mixed settings.

What it gives is judged by the same checks as a real engine's: STOP, LOUD, GREEDY, KV, SEED, ACCEPT, BATCH, LOGPROB, DRAFT-2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from conformance.checks.accept import acceptance_finding, looked_at, metrics_finding, self_draft_finding
from conformance.checks.batch import company_finding, row_law_finding
from conformance.checks.draft import hostile_finding
from conformance.checks.greedy import greedy_finding
from conformance.checks.kv import cache_finding, draft_cache_finding, prefix_finding
from conformance.checks.logprob import logprob_findings
from conformance.checks.loud import Tried, loud_findings, probes
from conformance.checks.places import nonsense
from conformance.checks.seed import independence_finding, repeat_findings
from conformance.checks.stop import stop_findings
from conformance.components import Floats
from conformance.controls.control import SHARE, Audit, Look, look_sizes
from conformance.controls.stages.served import (
    BATCH,
    EXACT,
    KINDS,
    REQUESTS,
    SMALL_TABLE,
    STATISTICAL,
    TABLE,
    TARGET,
    K,
    Server,
    V,
    observe,
)
from conformance.findings import Finding
from conformance.protocols import Request, Tokens
from specref.chance import Chance
from specref.draft import Draft
from specref.engine import PLAIN, Speculation, by_drafter
from specref.models import TableModel
from specref.processors import Processed, SamplingSettings


def serving(server: Server, n: int = REQUESTS) -> Audit:
    """The audit of a server. n: requests of the mixed run; the sampled run has four times as many."""

    def looks(seed: int, n: int, without: Collection[str] = ()) -> Iterator[Look]:
        for size in look_sizes(n, 16):
            found: list[Finding] = []
            for part in parts(server, size, seed, without):
                try:
                    found += part()
                except Exception as error:  # what a fault raises is loud, and no kill
                    found.append(nonsense("ENGINE", "a control", f"{type(error).__name__}: {error}"))
                yield size, found

    return Audit("server", "requests", n, looks, looks)


def parts(server: Server, n: int, seed: int, without: Collection[str] = ()) -> Iterator[Callable[[], Iterable[Finding]]]:
    """Everything that is asked of a server, run by run."""
    yield lambda: mixed_run(server, n, np.random.default_rng([seed, 14]))
    yield lambda: probed(server, np.random.default_rng([seed, 16]))
    if server.declared in ("token_matching", "one_hot"):
        yield lambda: hostile_run(server, np.random.default_rng([seed, 17]))
    if server.shape is None:
        yield lambda: self_drafted(server, np.random.default_rng([seed, 18]))
    yield lambda: sampled_run(server, 4 * n, np.random.default_rng([seed, 15]), without)  # the longest comes last


def mixed_requests(n: int, rng: np.random.Generator) -> list[Request]:
    """Prompts of 2 to 9 tokens, some with a common beginning; every kind of settings in turn."""
    common = rng.integers(V, size=6).tolist()
    asked = []
    for i in range(n):
        prompt = [*common[: int(rng.integers(0, 7))], *rng.integers(V, size=int(rng.integers(2, 6))).tolist()]
        asked.append(Request(tuple(prompt), KINDS[i % len(KINDS)], int(rng.integers(2**31))))
    return asked


def laws(table: TableModel, requests: Sequence[Request], outputs: Sequence[Tokens]) -> list[Floats]:
    """The laws `[len(output), V]` along each output, under each request's settings."""
    found = []
    for one, output in zip(requests, outputs):
        processors = one.settings.processors()
        model = Processed(table, processors, len(one.prompt)) if processors else table
        found.append(np.array(model.next_laws(one.prompt, output)[: len(output)], dtype=float).reshape(len(output), V))
    return found


def mixed_run(server: Server, n: int, rng: np.random.Generator) -> Iterator[Finding]:
    """All kinds of requests together, with events; again; and each alone."""
    mode, asked, start, schedule = "mixed", mixed_requests(n, rng), int(rng.integers(2**31)), int(rng.integers(2**31))
    seen, again = (observe(server.start(start), asked, np.random.default_rng(schedule)) for _ in range(2))
    alone = [observe(server.start(start), [one]).outputs[0] for one in asked]
    yield cache_finding(mode, seen.caches, 1)
    yield draft_cache_finding(mode, seen.draft_caches, 1, lag=server.lag)
    yield prefix_finding(mode, seen.pages, [one.prompt + tokens for one, tokens in zip(asked, seen.tokens)], 1)
    yield from stop_findings(mode, asked, seen.outputs, 1)
    yield metrics_finding(mode, seen.metrics, seen.outputs, 1)
    with np.errstate(divide="ignore"):
        raw = [np.log(rows) for rows in laws(TABLE, [replace(one, settings=KINDS[0]) for one in asked], seen.tokens)]
        cold = [i for i, one in enumerate(asked) if one.settings.temperature == 0]
        greedy = [replace(asked[i], settings=replace(asked[i].settings, temperature=1.0)) for i in cold]
        scores = [np.log(rows) for rows in laws(TABLE, greedy, [seen.tokens[i] for i in cold])]
    yield from logprob_findings(mode, seen.outputs, seen.logprobs, raw, 1, promised=True, tolerance=1e-9)
    yield greedy_finding(mode, [seen.tokens[i] for i in cold], scores, EXACT, 1)
    yield from repeat_findings(mode, seen.outputs, again.outputs, alone, 1, promised=True)
    yield company_finding(mode, [alone[i].tokens for i in cold], {"mixed batch": [seen.tokens[i] for i in cold]}, 1)


def sampled_run(server: Server, n: int, rng: np.random.Generator, without: Collection[str] = ()) -> Iterator[Finding]:
    """Short sampled requests, one in four with other settings, in batches of eight: of one prompt, or each of its own; every
    other batch without seeds. without: laws that the bank of BATCH-1 does not bet on.
    """
    mode, asked, plain = "sampled", [], replace(KINDS[0], max_tokens=8)
    kinds = (plain, plain, replace(plain, temperature=0.5, presence_penalty=1.5), plain)
    for i in range(n):
        if i % BATCH == 0 or i // BATCH % 4 > 1:
            prompt = tuple(rng.integers(V, size=3).tolist())
        asked.append(Request(prompt, kinds[i % len(kinds)], int(rng.integers(2**31)) if i // BATCH % 2 else -1))
    engine = server.start(int(rng.integers(2**31)), pages=60)
    seen = observe(engine, asked)
    drafting = [replace(one, settings=server.draft_sees(one.settings)) for one in asked]
    p, q = laws(TABLE, asked, seen.tokens), laws(SMALL_TABLE, drafting, seen.tokens)
    rows, tokens = np.arange(n) % len(kinds), sum(map(len, seen.tokens))
    alpha = SHARE / STATISTICAL
    yield row_law_finding(mode, seen.tokens, list(zip(p, q)), rows, tokens, alpha=alpha, without=without)
    hot = [i for i, one in enumerate(asked) if one.settings.temperature == 1]
    prompts = [asked[i].prompt for i in hot]
    warm = [seen.tokens[i] for i in hot]
    yield independence_finding(mode, warm, [p[i] for i in hot], 1, prompts=prompts, rows=BATCH * 3 // 4, alpha=alpha)
    if server.shape is None and server.declared == "ratio":
        steps = looked_at(seen.outputs, p, q)
        if len(steps[0]):
            yield acceptance_finding(mode, "ratio", *steps, planned=1, alpha=alpha)


def probed(server: Server, rng: np.random.Generator) -> Iterator[Finding]:
    """One setting after the other, each so strong that a token shows whether it was obeyed."""
    prompts = [tuple(rng.integers(V, size=4).tolist()) for _ in range(4)]
    liked = [int(token) for token in np.argsort(-TABLE.next_law(prompts[0]))]
    tried = []
    for probe in probes(10, banned=liked[:4], eos=liked[:3]):
        asked = [Request(prompt, probe.settings, int(rng.integers(2**31))) for prompt in prompts]
        seen = observe(server.start(0), asked)
        plain = [replace(one, settings=SamplingSettings(max_tokens=10)) for one in asked]
        with np.errstate(divide="ignore"):
            logits = [np.log(rows) for rows in laws(TABLE, plain, seen.tokens)]
        tried.append(Tried(probe, asked, seen.outputs, logits))
    yield loud_findings("probes", tried, margin=1e-9, planned=len(tried))


class Hostile:
    """Drafts one token again and again, or the token that the target likes least."""

    def __init__(self, worst: bool) -> None:
        self.worst = worst

    def draft(self, context: Tokens, k: int, chance: Chance) -> Draft:
        """See `Drafter.draft`."""
        tokens: Tokens = ()
        for _ in range(k):
            tokens += (int(TABLE.next_law(context + tokens).argmin()) if self.worst else 0,)
        return Draft.chosen(tokens)


def hostile_run(server: Server, rng: np.random.Generator) -> Iterator[Finding]:
    """The usual outputs at temperature 0, beside those with hostile drafts; for rules that read no laws."""
    asked = [replace(one, settings=replace(one.settings, temperature=0.0)) for one in mixed_requests(10, rng)]
    usual = observe(server.start(0), asked, speculation=PLAIN).tokens
    hostile: dict[str, Sequence[Tokens]] = {}
    for name, worst in (("constant", False), ("always wrong", True)):
        speculation = Speculation(server.rule, by_drafter(Hostile(worst)), k=K)
        hostile[name] = observe(server.start(0), asked, speculation=speculation).tokens
    yield hostile_finding("hostile", usual, hostile, 1)


def self_drafted(server: Server, rng: np.random.Generator) -> Iterator[Finding]:
    """The target drafts for itself at temperature 0."""
    cold = SamplingSettings(max_tokens=14, temperature=0.0)
    asked = [Request(tuple(rng.integers(V, size=4).tolist()), cold, 0) for _ in range(8)]
    seen = observe(server.start(0, draft=TARGET), asked)
    plain = [replace(one, settings=SamplingSettings(max_tokens=14)) for one in asked]
    with np.errstate(divide="ignore"):
        logits = [np.log(rows) for rows in laws(TABLE, plain, seen.tokens)]
    yield self_draft_finding("self-draft", seen.outputs, logits, EXACT, 1)
