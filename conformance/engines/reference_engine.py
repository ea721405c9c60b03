"""The reference engine (`specref.engine`) as an engine under audit: batches, pages, trees, stops, penalties, seeds, metrics.

Where `own` audits the bare rules, one request at a time, this audits everything around them. It runs on two models of
transformers, and on tables, whose laws are known exactly, for controls: a fault is an `engine_type` with one part replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from conformance.components import Component
from conformance.engines.reference_parts import parts
from conformance.protocols import Engine, Mode, Models, Output, RecordedRound, Request
from conformance.scoring import LOOKUP
from specref import engine as reference
from specref.engine import PLAIN, CachedModel, CachedTransformer, Metrics, RequestState, Speculation, by_draft_model, by_drafter
from specref.models import TransformersModel
from specref.rules import Rule, block, chain, tree

DOCUMENTATION = (
    "specref.engine: what a request becomes does not depend on its batch; rounds, log-probabilities and counts are reported"
)
PROMISES = ("SEED-1", "SEED-2", "ACCEPT-3", "LOGPROB-1", "LOGPROB-2")
ACCEPTANCE = {
    "ratio": ("ACCEPT-1", "ACCEPT-2"),
    "token_matching": ("ACCEPT-1", "ACCEPT-2"),
    "block": ("ACCEPT-2",),
    "one_hot": ("ACCEPT-1",),
}
"""What more is promised by rules of chains. (Of a tree no more than one child of a node can be accepted.)"""

RULES: dict[str, Rule] = {
    "ratio": chain.ratio,
    "block": block.block,
    "token_matching": chain.token_matching,
    "one_hot": chain.one_hot_ratio,
    "without_replacement": tree.recursive_rejection,
    "traversal": tree.traversal,
    "sequential_one_hot": tree.sequential_one_hot,
}
ROOMY: dict[str, Any] = {"batch": 8, "page_size": 4}
ALONE: dict[str, Any] = {"batch": 1, "page_size": 16}
SCARCE: dict[str, Any] = {"batch": 4, "page_size": 2, "memory": "for half of the batch"}
"""Options of modes. Where memory is scarce, requests are pre-empted and begin again."""

ENTRY_TOLERANCE = 1e-4
"""Of a cache entry in float32, read in a window or alone; an entry of another token differs by 1e-2 and more."""


class SpecrefEngine(Engine):
    """`specref.engine.Engine` over a target and a draft that read through caches.

    >>> from specref.engine import CachedTableModel
    >>> from specref.models import TableModel
    >>> from specref.processors import SamplingSettings
    >>> tables = (CachedTableModel(TableModel(8, name, exact=False)) for name in ("target", "draft"))
    >>> engine = SpecrefEngine(*tables)
    >>> mode = engine.modes(k=3)[1]
    >>> output, = engine.generate(mode, [Request((1, 2), SamplingSettings(max_tokens=6), seed=0)])
    >>> mode.name, len(output.tokens), len(output.logprobs), engine.metrics(mode)["emitted"]
    ('draft model, ratio', 6, 6, 6)
    """

    name = "specref-engine"

    def __init__(self, target: CachedModel, draft: CachedModel, engine_type: type[reference.Engine] = reference.Engine) -> None:
        self.target, self.draft, self.engine_type = target, draft, engine_type
        self.counts: dict[str, Metrics] = {}
        try:
            self.version = version("specref")
        except PackageNotFoundError:
            self.version = "source"

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        model, lookup = {"drafter": "draft model", "k": k}, {"drafter": "prompt lookup", "k": k}
        shape = {**model, "tree": tree_shape(k)}
        return (
            _mode("off", {}, "target", ROOMY),
            _mode("draft model, ratio", model, "ratio", ROOMY),
            _mode("draft model, block", model, "block", ROOMY),
            _mode("draft model, token matching", model, "token_matching", ROOMY),
            _mode("prompt lookup, one-hot", lookup, "one_hot", ROOMY),
            _mode("tree, without replacement", shape, "without_replacement", ROOMY),
            _mode("tree, traversal", shape, "traversal", ROOMY),
            _mode("tree, one-hot", shape, "sequential_one_hot", ROOMY),
            _mode("off, batch 1", {}, "target", ALONE),
            _mode("draft model, ratio, batch 1", model, "ratio", ALONE),
            _mode("tree, traversal, batch 1", shape, "traversal", ALONE),
            _mode("off, scarce memory", {}, "target", SCARCE),
            _mode("draft model, ratio, scarce memory", model, "ratio", SCARCE),
        )

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. Raises what ended a request that failed."""
        speculation = self.speculation(mode)
        pages = _pages(mode, requests, speculation.nodes)
        engine = self.engine_type(
            self.target,
            speculation=speculation,
            pages=pages,
            page_size=mode.options["page_size"],
            batch=mode.options["batch"],
            chunk=16,
        )
        numbers = [engine.submit(request.prompt, replace(request.settings, seed=request.seed)) for request in requests]
        engine.run()
        self.counts[mode.name] = self.counts.get(mode.name, Metrics()) + engine.metrics
        for number in numbers:
            state = engine.state(number)
            if state.error is not None:
                raise state.error
            yield _output(mode, state)

    def speculation(self, mode: Mode) -> Speculation:
        """What a mode says, as the engine takes it. At temperature 0 every rule here decides greedily: all laws are one-hot."""
        asked = mode.speculation
        if not asked:
            return PLAIN
        if "tree" in asked:
            shape = asked["tree"]
            return Speculation(RULES[mode.rule], by_draft_model(self.draft, shape), k=asked["k"], nodes=len(shape) - 1)
        proposer = by_drafter(LOOKUP) if asked["drafter"] == "prompt lookup" else by_draft_model(self.draft)
        return Speculation(RULES[mode.rule], proposer, k=asked["k"])

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        counts = asdict(self.counts.get(mode.name, Metrics()))
        positions = counts.pop("accepted_per_position")
        return {**counts, **{f"accepted_per_position.{i}": count for i, count in enumerate(positions)}}

    def components(self) -> Sequence[Component]:
        """See `Engine.components`."""
        return parts(self.target, self.draft, ENTRY_TOLERANCE if self.target.dtype.kind == "f" else 0.0)

    def close(self) -> None:
        """See `Engine.close`."""


def _mode(name: str, speculation: dict[str, Any], rule: str, options: dict[str, Any]) -> Mode:
    chains = "tree" not in speculation
    promised = (*PROMISES, *(ACCEPTANCE.get(rule, ()) if chains else ()))
    return Mode(
        name,
        speculation,
        rule,
        {"draft model": "draft model", "prompt lookup": "n-gram"}.get(speculation.get("drafter", ""), ""),
        exposes_rounds=chains,  # a recorded round is that of a chain
        exact_draft=speculation.get("drafter") == "draft model",
        options=options,
        promises=dict.fromkeys(promised, DOCUMENTATION),
        logprobs="raw",
    )


def tree_shape(k: int) -> list[int]:
    """Parents `[N]` of a tree k deep: two children of the root, two of its first child, then one below the first.

    >>> tree_shape(1), tree_shape(4)
    ([-1, 0, 0], [-1, 0, 0, 1, 1, 3, 5])
    """
    parents = [-1, 0, 0]
    if k > 1:
        parents += [1, 1]
    for _ in range(k - 2):
        parents.append(3 if len(parents) == 5 else len(parents) - 1)
    return parents


def _pages(mode: Mode, requests: Sequence[Request], nodes: int) -> int:
    """Enough pages for a whole batch, or for half of one."""
    size, batch = int(mode.options["page_size"]), int(mode.options["batch"])
    longest = max((len(request.prompt) + request.settings.max_tokens for request in requests), default=1) + nodes
    each = -(-longest // size) + 1
    return each * batch if "memory" not in mode.options else max(each, each * batch // 2)


def _output(mode: Mode, state: RequestState) -> Output:
    rounds = None
    if mode.exposes_rounds:
        rounds = tuple(RecordedRound(r.start, r.drafted, r.accepted, r.emitted, mode.rule, r.accepted) for r in state.rounds)
    return Output(state.output, rounds, state.logprobs)


def make(models: Models) -> SpecrefEngine:
    """The reference engine over two models of transformers."""
    torch.set_num_threads(1)
    target, draft = (TransformersModel.load(folder).model for folder in (models.target, models.draft))
    return SpecrefEngine(CachedTransformer(target), CachedTransformer(draft))
