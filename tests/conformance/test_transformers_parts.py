"""Parts of transformers alone: which candidate generators claim a law that they did not draw from, and what caches hold."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import transformers

from conformance.checks.component_law import component_findings, mixup_finding, rounds_of
from conformance.checks.draft import draft_law_finding, proposals
from conformance.checks.kv import CacheState, cache_finding, run, schedules
from conformance.checks.tree import node_logits_finding, trees
from conformance.components import Logits, kind_of
from conformance.engines.transformers.architectures import ARCHITECTURES, V
from conformance.engines.transformers.caches import KINDS, ModelCache, ModelCaches, every_cache
from conformance.engines.transformers.components import all_components
from conformance.engines.transformers.drafters import SETUPS, GeneratorDrafts, drafters, generator_names
from conformance.engines.transformers.filled_cache import FilledCache
from conformance.engines.transformers.modes import all_modes
from conformance.engines.transformers.readers import PAIRS, MaskedTree
from conformance.engines.transformers.verifiers import verifiers
from conformance.findings import Finding, Verdict
from conformance.protocols import Unsupported
from conformance.statistics.greedy import Margin

PINNED = transformers.__version__ == "5.24.0"
CLAIM_ANOTHER_LAW = {"SinglePositionMultiTokenCandidateGenerator", "UniversalSpeculativeDecodingGenerator"}
CHOOSE = {"AssistedCandidateGeneratorDifferentTokenizers", "PromptLookupCandidateGenerator"}


def draft_finding(name: str, contexts: int) -> Finding:
    rng = np.random.default_rng(contexts)
    made = [tuple(rng.integers(4, 60, size=10).tolist()) for _ in range(contexts)]
    made = [context + context[:5] for context in made]  # so that prompt lookup finds something
    return draft_law_finding(name, proposals(GeneratorDrafts(name, SETUPS[name]), made, 4, seed=1), planned=1)


@pytest.mark.parametrize("name", sorted(SETUPS))
def test_which_generators_claim_the_law_that_they_draw_from(name: str) -> None:
    finding = draft_finding(name, contexts=12)
    if name in CLAIM_ANOTHER_LAW:
        assert finding.verdict is (Verdict.VIOLATES if PINNED else finding.verdict), finding.summary
    else:
        assert finding.verdict is (Verdict.NOT_EXPOSED if name in CHOOSE else Verdict.CONFORMS), finding.summary


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(SETUPS) - CHOOSE - CLAIM_ANOTHER_LAW))
def test_many_drafts_follow_the_claimed_law(name: str) -> None:
    finding = draft_finding(name, contexts=400)
    assert finding.verdict is Verdict.CONFORMS, finding.summary


def test_a_generator_that_nobody_taught_the_adapter_is_not_forgotten() -> None:
    assert set(generator_names()) == set(SETUPS)
    from transformers.generation.candidate_generator import CandidateGenerator

    new: Any = type("NewCandidateGenerator", (CandidateGenerator,), {"__module__": "transformers.generation.new"})
    found = {drafter.name: drafter for drafter in drafters()}
    with pytest.raises(Unsupported, match="NewCandidateGenerator"):
        found["NewCandidateGenerator"].propose((1, 2), 2, 0)
    del new
    gc.collect()  # so that no other test meets it


@pytest.mark.parametrize("verifier", verifiers(), ids=lambda verifier: verifier.name)
def test_the_verification_function_follows_the_law(verifier: Any) -> None:
    rows = 3000
    findings = component_findings(verifier.name, verifier.rule, rounds_of(verifier, rows, seed=2), planned=rows)
    for finding in [*findings, mixup_finding(verifier, batches=4)]:
        assert finding.verdict is Verdict.CONFORMS, finding.summary


def kv_finding(source: Any, random_schedules: int) -> Finding:
    plans = schedules(random_schedules, 3, vocabulary=V, trees=False)
    states = [state for plan in plans for state in run(source.make, plan)]
    return cache_finding(source.name, states, planned=len(states), tolerance=source.tolerance)


@pytest.mark.parametrize(("architecture", "kind"), [("gemma2", "dynamic"), ("lfm2", "dynamic"), ("gpt2", "static")])
def test_a_cache_holds_what_a_fresh_prefill_holds(architecture: str, kind: str) -> None:
    finding = kv_finding(ModelCaches(architecture, kind), random_schedules=2)
    assert finding.verdict is Verdict.CONFORMS, finding.violations


@pytest.mark.long
@pytest.mark.parametrize("source", every_cache(), ids=lambda source: source.name)
def test_every_cache_holds_what_a_fresh_prefill_holds(source: ModelCaches) -> None:
    """Or says that it cannot go back: the quantized one, and a static one behind a window."""
    refusal = ""
    try:
        finding = kv_finding(source, random_schedules=12)
    except (Unsupported, ValueError) as error:
        refusal = str(error)
    if refusal:
        assert source.kind != "dynamic"
        assert "cannot be cropped" in refusal or "only supported for models with only full attention" in refusal
    else:
        assert finding.verdict is Verdict.CONFORMS, finding.violations


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_cache_that_is_cropped_wrongly_is_seen(architecture: str, off_by: int) -> None:
    class Wrong(ModelCache):
        def rollback(self, length: int) -> None:
            removed = max(0, self.length - length + off_by)
            self.cache.crop(-removed)
            del self.read[length:]

    class Source(ModelCaches):
        def make(self) -> ModelCache:
            made = super().make()
            return Wrong(made.model, made.cache, made.name)

    assert kv_finding(Source(architecture, "dynamic"), random_schedules=0).verdict is Verdict.VIOLATES


def node_finding(reader: MaskedTree, number: int) -> Finding:
    rng = np.random.default_rng(number)
    together: list[Any] = []
    alone: list[Any] = []
    for n, tree in trees(number, seed=number):
        prefix = tuple(rng.integers(V, size=n).tolist())
        together.append(reader.tree(prefix, tree.tokens, tree.parents))
        alone += [reader.alone((*prefix, tree.tokens[0], *tree.spells(node))) for node in range(len(tree))]
    rows = Logits(np.concatenate(together), np.array(alone))
    return node_logits_finding(reader.name, rows, Margin(1e-4, "float32", 10_000), planned=1)


@pytest.mark.parametrize("pair", [("llama", "eager"), ("gpt2", "sdpa")])
def test_a_tree_under_a_mask_reads_as_its_paths_alone(pair: tuple[str, str]) -> None:
    assert node_finding(MaskedTree(*pair), 4).verdict is Verdict.CONFORMS


@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS)
def test_every_implementation_of_attention_reads_trees(pair: tuple[str, str]) -> None:
    assert node_finding(MaskedTree(*pair), 12).verdict is Verdict.CONFORMS


def test_a_mask_that_lets_siblings_see_each_other_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = MaskedTree("llama", "sdpa")
    build = reader._mask
    monkeypatch.setattr(reader, "_mask", lambda seen: build(seen | seen.roll(1, dims=1).tril(seen.shape[1] - len(seen))))
    assert node_finding(reader, 4).verdict is Verdict.VIOLATES


@pytest.mark.parametrize(("share", "verdict"), [(0.0, Verdict.CONFORMS), (0.5, Verdict.VIOLATES)])
def test_only_a_cache_that_was_filled_before_holds_something_else(share: float, verdict: Verdict) -> None:
    prompts = [(5, 6, 7, 8, 9, 5, 6, 7), (11, 12, 11, 12, 11, 12), (30, 31, 32)]
    part = FilledCache(share)
    rounds = [one for heat in (0.0, 1.0) for one in part.watch(prompts, 12, heat, 3, "").rounds]
    states = [CacheState("", one.committed[:-1], *one.cache) for one in rounds if one.cache is not None]
    assert len(states) == len(rounds) > 2 * len(prompts)
    assert cache_finding(part.name, states, 1, tolerance=part.tolerance).verdict is verdict


def test_modes_with_a_cached_prefix_name_the_part_that_shows_their_cache() -> None:
    named = {mode.name: mode.cache for mode in all_modes(4, 4) if mode.speculates and mode.options.get("cache") == "prefix"}
    assert len(named) > 2
    assert set(named.values()) == {FilledCache.name}


def test_every_part_is_a_component_and_caches_are_a_share_of_them() -> None:
    parts: Sequence[Any] = all_components()
    assert {kind_of(part) for part in parts if not isinstance(part, ModelCaches)} == {"verifier", "drafts", "reader", "rounds"}
    assert {part.kind for part in parts if isinstance(part, ModelCaches)} == set(KINDS)
    assert {part.architecture for part in parts if isinstance(part, ModelCaches)} < set(ARCHITECTURES)
    assert len({part.name for part in parts}) == len(parts)
