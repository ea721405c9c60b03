"""The reference engine (`specref.engine`) as an engine under audit: batches, pages, trees, stops, penalties, seeds, metrics.

Where `own` audits the bare rules, one request at a time, this audits everything around them. It runs on two models of
transformers, and on tables, whose laws are known exactly, for controls: a fault is an `engine_type` with one part replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import transformers

from conformance.components import Component, VocabularyMap
from conformance.engines.reference_drafters import Constant, Drafting, all_drafters, tree_shape
from conformance.engines.reference_parts import parts
from conformance.engines.reference_rounds import EngineRounds
from conformance.protocols import Engine, Mode, Models, Output, RecordedRound, Request, Unsupported
from conformance.scoring import LOOKUP
from specref import engine as reference
from specref.engine import (
    PLAIN,
    CachedModel,
    CachedTransformer,
    Grammar,
    Metrics,
    RequestState,
    Speculation,
    by_draft_model,
    by_drafter,
)
from specref.models import TransformersModel
from specref.rules import Rule, block, chain, tree

DOCUMENTATION = (
    "specref.engine: what a request becomes does not depend on its batch; rounds, log-probabilities and counts are reported"
)
PROMISES = ("SEED-1", "ACCEPT-3", "LOGPROB-1", "LOGPROB-2")
GRAMMARS = ("GRAMMAR-3", "GRAMMAR-4")
"""What is promised too where a grammar's texts can become tokens."""
BITS = ("SEED-2", "BATCH-3")
"""What is promised too where no last bit can depend on company; see `_bits_are_its_own`."""
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
    "target_only": tree.target_only,
}
ROOMY: dict[str, Any] = {"batch": 8, "page_size": 4}
ALONE: dict[str, Any] = {"batch": 1, "page_size": 16}
SCARCE: dict[str, Any] = {"batch": 4, "page_size": 2, "memory": "for half of the batch"}
WHOLE = "a whole request"
APART: dict[str, Any] = {"batch": 8, "page_size": WHOLE}
KEPT: dict[str, Any] = {"batch": 8, "page_size": 4, "pages": "kept between calls"}
"""Options of modes. Where memory is scarce, requests are pre-empted and begin again. A page that is longer than any request is
never full, so it is never published, and no request finds what another has read. Where pages are kept, a later call finds what
an earlier one has read."""
KEPT_FOR = 16
"""How many batches have room at once where pages are kept."""

WATCHED = (
    "draft model, ratio",
    "prompt lookup, one-hot",
    "tree, without replacement",
    "draft model, ratio, scarce memory",
)
"""Modes whose rounds can be seen from within, beside those of further drafters."""
DEPTH = 3
"""Drafts of a round that is seen from within."""

ENTRY_TOLERANCE = 1e-4
"""Of a cache entry in float32, read in a window or alone; an entry of another token differs by 1e-2 and more."""


class SpecrefEngine(Engine):
    """`specref.engine.Engine` over a target and a draft that read through caches.

    read_grammar: reads a grammar over the target's tokens. draftings: further ways to draft, a mode each; maps: between the
    vocabularies of those.

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

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel,
        engine_type: type[reference.Engine] = reference.Engine,
        *,
        read_grammar: Callable[[str], Grammar] | None = None,
        draftings: Sequence[Drafting] = (),
        maps: Sequence[VocabularyMap] = (),
    ) -> None:
        self.target, self.draft, self.engine_type, self.read_grammar = target, draft, engine_type, read_grammar
        self.draftings, self.maps = {one.name: one for one in draftings}, maps
        self.counts: dict[str, Metrics] = {}
        self.kept: dict[str, reference.Engine] = {}
        try:
            self.version = version("specref")
        except PackageNotFoundError:
            self.version = "source"

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        model, lookup = {"drafter": "draft model", "k": k}, {"drafter": "prompt lookup", "k": k}
        shape = {**model, "tree": tree_shape(k)}
        hostile = {"drafter": "constant", "hostile": "always token 0", "k": k}
        modes = (
            _mode("off", {}, "target", ROOMY),
            _mode("draft model, ratio", model, "ratio", ROOMY),
            _mode("draft model, block", model, "block", ROOMY),
            _mode("draft model, token matching", model, "token_matching", ROOMY),
            _mode("prompt lookup, one-hot", lookup, "one_hot", ROOMY),
            _mode("hostile, one-hot", hostile, "one_hot", ROOMY),
            _mode("tree, without replacement", shape, "without_replacement", ROOMY),
            _mode("tree, traversal", shape, "traversal", ROOMY),
            _mode("tree, one-hot", shape, "sequential_one_hot", ROOMY),
            _mode("off, batch 1", {}, "target", ALONE),
            _mode("draft model, ratio, batch 1", model, "ratio", ALONE),
            _mode("tree, traversal, batch 1", shape, "traversal", ALONE),
            _mode("off, scarce memory", {}, "target", SCARCE),
            _mode("draft model, ratio, scarce memory", model, "ratio", SCARCE),
            _mode("off, nothing shared", {}, "target", APART),
            _mode("draft model, ratio, nothing shared", model, "ratio", APART),
            _mode("off, kept pages", {}, "target", KEPT),
            _mode("draft model, ratio, kept pages", model, "ratio", KEPT),
            *(_mode(one.name, {"drafter": one.name, "k": k}, one.rule, ROOMY, one.nodes) for one in self.draftings.values()),
        )
        return tuple(
            replace(mode, promises=mode.promises | dict.fromkeys(self._offered(mode), DOCUMENTATION)) for mode in modes
        )

    def _offered(self, mode: Mode) -> Sequence[str]:
        """What more is promised of a mode over these models."""
        return (*(GRAMMARS if self.read_grammar else ()), *(BITS if self._bits_are_its_own(mode) else ()))

    def _bits_are_its_own(self, mode: Mode) -> bool:
        """Whether every last bit of a request is the same in any company.

        A table's entries are integers, and its rows are looked up by the tokens that they spell: always. In floating point a
        request is read alone, in pieces, and a sum over other pieces has other last bits; a draw that falls beside a bound then
        picks another token (about 1 request in 1,000 where all are read again). Its pieces depend on company where requests are
        pre-empted, and where full pages are found by others: by any text that begins with the same page, in whatever order both
        come. So bits are promised of exact entries, and where no page is ever full and memory is enough.
        """
        exact = "f" not in (self.target.dtype.kind, self.draft.dtype.kind)
        return exact or (mode.options["page_size"] == WHOLE and "memory" not in mode.options)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. Raises what ended a request that failed."""
        engine = self.start(mode, requests, self.engine_type) if mode.options != KEPT else self._kept(mode, requests)
        numbers = [
            engine.submit(one.prompt, replace(one.settings, seed=one.seed), grammar=self.grammar(one.grammar))
            for one in requests
        ]
        engine.run()
        self.counts[mode.name] = self.counts.get(mode.name, Metrics()) + engine.metrics
        for number in numbers:
            state = engine.state(number)
            if state.error is not None:
                raise state.error
            yield _output(mode, state)

    def start(self, mode: Mode, requests: Sequence[Request], engine_type: type[reference.Engine]) -> reference.Engine:
        """A fresh engine with the memory that a mode gives to such requests."""
        speculation = self.speculation(mode)
        pages, page_size = _pages(mode, requests, speculation.nodes)
        return engine_type(
            self.target,
            speculation=speculation,
            pages=pages * (KEPT_FOR if mode.options == KEPT else 1),
            page_size=page_size,
            batch=mode.options["batch"],
            chunk=16,
        )

    def _kept(self, mode: Mode, requests: Sequence[Request]) -> reference.Engine:
        """The engine of the last call, without its requests, if it has memory enough; else a fresh one."""
        needed, _ = _pages(mode, requests, self.speculation(mode).nodes)
        engine = self.kept.get(mode.name)
        if engine is None or len(engine.memory.pool.users) < needed:
            engine = self.kept[mode.name] = self.start(mode, requests, self.engine_type)
        engine.requests.clear()
        return engine

    def grammar(self, lark: str) -> Grammar | None:
        """What a request's output must follow. Raises Unsupported for a grammar where the target's tokens have no texts."""
        if lark and self.read_grammar is None:
            raise Unsupported("grammar: the target has no tokenizer")
        return self.read_grammar(lark) if lark and self.read_grammar else None

    def speculation(self, mode: Mode) -> Speculation:
        """What a mode says, as the engine takes it. At temperature 0 every rule here decides greedily: all laws are one-hot."""
        asked = mode.speculation
        if not asked:
            return PLAIN
        drafting = self.draftings.get(asked["drafter"])
        if drafting is not None:
            nodes = drafting.nodes(asked["k"]) if drafting.nodes else 0
            return Speculation(RULES[mode.rule], drafting.make(asked["k"]), k=asked["k"], nodes=nodes)
        if "tree" in asked:
            shape = asked["tree"]
            return Speculation(RULES[mode.rule], by_draft_model(self.draft, shape), k=asked["k"], nodes=len(shape) - 1)
        proposers = {"prompt lookup": by_drafter(LOOKUP), "constant": by_drafter(Constant())}
        return Speculation(RULES[mode.rule], proposers.get(asked["drafter"]) or by_draft_model(self.draft), k=asked["k"])

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        counts = asdict(self.counts.get(mode.name, Metrics()))
        positions = counts.pop("accepted_per_position")
        return {**counts, **{f"accepted_per_position.{i}": count for i, count in enumerate(positions)}}

    def components(self) -> Sequence[Component]:
        """See `Engine.components`."""
        tolerance = ENTRY_TOLERANCE if self.target.dtype.kind == "f" else 0.0
        names = (*WATCHED, *self.draftings)
        watched = [EngineRounds(self, mode, tolerance) for mode in self.modes(DEPTH) if mode.name in names]
        return [*parts(self.target, self.draft, tolerance), *self.maps, *watched]

    def close(self) -> None:
        """See `Engine.close`."""


def _mode(name: str, speculation: dict[str, Any], rule: str, options: dict[str, Any], tree: object = None) -> Mode:
    """tree: whether a further way to draft makes trees."""
    chains = "tree" not in speculation and tree is None
    exact = speculation.get("drafter") in ("draft model", "prompt lookup")
    alike = ["SEED-1"] * (options == KEPT)  # what is found in pages was read in other pieces, with other last bits
    promised = (*(one for one in PROMISES if one not in alike), *(ACCEPTANCE.get(rule, ()) if chains and exact else ()))
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
        prefix_block=int(options["page_size"]) if options == KEPT else 0,
    )


def _pages(mode: Mode, requests: Sequence[Request], nodes: int) -> tuple[int, int]:
    """How many pages, and how many tokens in each: enough for a whole batch, or for half of one."""
    longest = max((len(request.prompt) + request.settings.max_tokens for request in requests), default=1) + nodes
    size = longest + 1 if mode.options["page_size"] == WHOLE else int(mode.options["page_size"])
    batch, each = int(mode.options["batch"]), -(-longest // size) + 1
    return (each * batch if "memory" not in mode.options else max(each, each * batch // 2)), size


def _output(mode: Mode, state: RequestState) -> Output:
    rounds = None
    if mode.exposes_rounds:
        rounds = tuple(RecordedRound(r.start, r.drafted, r.accepted, r.emitted, mode.rule, r.accepted) for r in state.rounds)
    return Output(state.output, rounds, state.logprobs)


def make(models: Models) -> SpecrefEngine:
    """The reference engine over two models of transformers, with every way to draft that they allow."""
    torch.set_num_threads(1)
    target, draft = (TransformersModel.load(folder) for folder in (models.target, models.draft))
    draftings, maps = all_drafters(models, target, draft)
    return SpecrefEngine(
        CachedTransformer(target.model),
        CachedTransformer(draft.model),
        read_grammar=grammars(models.target),
        draftings=draftings,
        maps=maps,
    )


def grammars(folder: Path) -> Callable[[str], Grammar] | None:
    """Reads grammars over a model's tokens; None if it has no tokenizer, or without the library that parses them."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        Grammar.over_tokenizer('start: "a"', tokenizer)
    except Exception:  # whatever a missing or strange tokenizer raises
        return None
    return cache(lambda lark: Grammar.over_tokenizer(lark, tokenizer))
