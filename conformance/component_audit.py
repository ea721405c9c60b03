"""Component depth: every part that an engine offers is handed instances of the judge's own making.

What raises or crashes is an error of that part; the others go on. All parts together have the seconds of the level: each has
an equal share of what those before it left over, and a slow one does less, which its findings state. How much is settled before
anything is judged, so that an end by the clock says nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from conformance.checks import component_exact, component_law, draft, edge, kv, tree
from conformance.checks.greedy import row_variance_finding
from conformance.checks.places import not_exposed
from conformance.components import (
    CacheSource,
    ChainVerifier,
    Component,
    DraftSource,
    Logits,
    MaskBuilder,
    Proposal,
    TreeReader,
    TreeVerifier,
    VocabularyMap,
    applied_by,
    kind_of,
)
from conformance.findings import Finding, Verdict
from conformance.greedy_audit import has_margin
from conformance.harness import Runner
from conformance.levels import AuditSettings
from conformance.problems import EngineFailed
from conformance.round_audit import round_findings
from conformance.sampling import request_seed
from conformance.statistics.evidence import WrongUse
from conformance.statistics.greedy import Margin
from conformance.subject import Subject

DECIDES = {
    "verifier": "LAW-3",
    "masks": "TREE-1",
    "reader": "TREE-5",
    "caches": "KV-1",
    "drafts": "DRAFT-1",
    "map": "DRAFT-3",
    "rounds": "KV-1",
}
"""The requirement that stands for a component of each kind, where it could not be judged at all."""
CHAINS, TREES, ROUNDS = "a verification function for chains", "a verification function for trees", "its rounds"
OFFERS = {
    **dict.fromkeys(("LAW-3", "LAW-4", "LAW-5"), "a verification function"),
    "LAW-6": f"{CHAINS} that takes its random numbers as arguments",
    **dict.fromkeys(("EDGE-1", "EDGE-2", "EDGE-3"), CHAINS),
    "DRAFT-1": "a drafter with the laws of its drafts",
    "DRAFT-3": "a map between two vocabularies",
    "DRAFT-4": f"{ROUNDS} with what a draft net is fed",
    **dict.fromkeys(("TREE-1", "TREE-2"), "what builds a tree's inputs"),
    "TREE-3": f"{ROUNDS} with trees drafted for a rule that needs distinct siblings",
    "TREE-4": f"{TREES} whose rule is known",
    "TREE-5": "a way to read a tree of our making",
    "TREE-6": f"{TREES} and one for chains of the same rule, which take their random numbers as arguments",
    "KV-1": "a cache, or its rounds",
    "KV-2": f"{ROUNDS} with the entries of a draft's cache",
    "KV-3": f"{ROUNDS} with the pages of a prefix cache",
    "GREEDY-3": f"{ROUNDS} with the logits of each window, or a way to read a window of our making",
    **dict.fromkeys(("GRAMMAR-1", "GRAMMAR-2"), f"{ROUNDS} under a grammar"),
}
"""What an engine has to offer for each requirement that is judged of its parts."""
REFUSED = {"unsupported": Verdict.NOT_EXPOSED, "not run": Verdict.NOT_RUN}
"""Kinds of failures after which the engine is well, and what they say of a component."""
NONE = "components"
"""In the place of a mode, where there is no component to name."""
TRIAL_ROWS, LEAST_ROWS = 128, 256
"""Rows by which a verifier's speed is measured, and below which it is not halved."""
LEAST_DRAFTED, ASKED_AT_ONCE = 256, 16
"""Drafted tokens below which no drafter is judged, and contexts between two looks at the clock."""
LEAST_TRIED = 8
"""Trees, or random schedules, that every reader and cache is given."""
K = 3
Thing = TypeVar("Thing")


def label(component: Component) -> str:
    """What reports call a component, in the place of a mode.

    >>> from conformance.engines.own_components import ReferenceChain
    >>> label(ReferenceChain("ratio"))
    'component: reference ratio'
    """
    return f"component: {component.name}"


def audit_components(
    runner: Runner, subject: Subject, settings: AuditSettings, alpha: float, watch: Callable[[str], None]
) -> Iterator[Finding]:
    """The findings of every component in turn; alpha is the false-alarm rate of all together. After a crash the engine is asked
    for its components again, and goes on with the next one."""
    try:
        components = list(runner.components())
    except EngineFailed as failed:
        yield Finding("LAW-3", NONE, _verdict_of(failed), f"{failed.kind}: {failed}")
        return
    seen: set[str] = set()
    for finding in _each(runner, components, subject, settings, alpha, watch):
        seen.add(finding.requirement)
        yield finding
    for requirement, offer in OFFERS.items():
        if requirement not in seen:
            yield not_exposed(requirement, NONE, offer)


def _each(
    runner: Runner,
    components: list[Component],
    subject: Subject,
    settings: AuditSettings,
    alpha: float,
    watch: Callable[[str], None],
) -> Iterator[Finding]:
    number, end = len(components), time.monotonic() + (settings.level.seconds or math.inf)
    for place in range(number):
        component = components[place]
        watch(component.name)
        now = time.monotonic()
        try:
            until = now + (end - now) / (number - place)
            found = judge(component, subject, settings, alpha / number, components, until)
            yield from (replace(one, mode=label(component)) for one in found)
        except EngineFailed as failed:
            yield _not_judged(component, _verdict_of(failed), f"{failed.kind}: {failed}")
            if failed.kind not in REFUSED and place + 1 < number:
                try:
                    components = list(runner.components())
                except EngineFailed as again:
                    for rest in components[place + 1 :]:
                        yield _not_judged(rest, Verdict.ERROR, f"not judged, because the engine failed ({again})")
                    return
        except WrongUse as refused:
            yield _not_judged(component, Verdict.INCONCLUSIVE, f"cannot be judged: {refused}")
        except Exception as error:  # whatever a part raises on lawful instances is what is found
            yield _not_judged(component, Verdict.ERROR, f"it raised {type(error).__name__}: {str(error)[:200]}")


def _verdict_of(failed: EngineFailed) -> Verdict:
    return REFUSED.get(failed.kind, Verdict.ERROR)


def _not_judged(component: Component, verdict: Verdict, why: str) -> Finding:
    return Finding(DECIDES[kind_of(component)], label(component), verdict, why)


def judge(
    component: Component,
    subject: Subject,
    settings: AuditSettings,
    alpha: float,
    others: Sequence[Component] = (),
    until: float = math.inf,
) -> Sequence[Finding]:
    """All that is judged of one component. others: of the same engine, to hold a tree's verification against a chain's. until:
    when it should be done, by `time.monotonic`."""
    kind, part = kind_of(component), cast(Any, component)
    seed = request_seed(settings.seed, "component", component.name)
    number = max(8, settings.level.rows // 256)
    if kind == "verifier":
        of_trees = tree_findings(part, others, max(32, number), seed)
        found = [*verifier_findings(part, settings.level.rows, seed, alpha, until), *of_trees]
        return [replace(one, applies=applied_by(component)) for one in found]
    if kind == "masks":
        return mask_findings(part, number, seed)
    if kind == "reader":
        return reader_findings(part, subject, min(number, 400), seed, until)
    if kind == "caches":
        return [cache_finding(part, min(number, 400), seed, min(50, subject.target.vocabulary), until)]
    if kind == "map":
        return [map_finding(part)]
    if kind == "rounds":
        return round_findings(part, subject, settings, seed)
    return [drafter_finding(part, subject, settings.level.rows // 8, seed, alpha, until)]


def in_time(things: Iterable[Thing], until: float, least: int) -> Iterator[Thing]:
    """At least so many of the things, and then those for which there is time.

    >>> list(in_time("abc", until=-math.inf, least=2)), list(in_time("abc", until=math.inf, least=0))
    (['a', 'b'], ['a', 'b', 'c'])
    """
    for place, thing in enumerate(things):
        if place >= least and time.monotonic() > until:
            return
        yield thing


def verifier_findings(
    verifier: ChainVerifier | TreeVerifier, rows: int, seed: int, alpha: float, until: float = math.inf
) -> list[Finding]:
    """LAW-3 to LAW-6 and EDGE. A slow verifier is given half the rows, and half again, and shown edges as much less often."""
    next(component_law.rounds_of(verifier, 1, seed + 2))  # what it has to start first is not its speed
    started = time.monotonic()
    for _ in component_law.rounds_of(verifier, TRIAL_ROWS, seed + 1):
        pass
    speed = TRIAL_ROWS / max(time.monotonic() - started, 1e-6)
    planned, left = rows, until - time.monotonic()
    while planned // 2 >= LEAST_ROWS and planned / speed > left:
        planned //= 2
    rounds = component_law.rounds_of(verifier, planned, seed)
    found = component_law.component_findings(verifier.name, verifier.rule, rounds, planned=planned, alpha=alpha, seed=seed)
    found.append(component_law.mixup_finding(verifier, seed=seed))
    if not verifier.trees:
        found.append(component_exact.exact_finding(verifier, seed=seed))
        found += edge.edge_findings(verifier.name, edge.ask_edges(verifier, max(2, edge.REPEATS * planned // rows)))
    return found


def tree_findings(
    verifier: ChainVerifier | TreeVerifier, others: Sequence[Component], number: int, seed: int
) -> Iterator[Finding]:
    """TREE-4 of a tree's verification, and TREE-6 where one of `others` verifies chains by the same rule."""
    if not verifier.trees:
        return
    if verifier.rule in tree.KEEP_THE_LONGEST:
        yield tree.longest_path_finding(verifier.name, tree.at_temperature_0(verifier, number, seed), number)
    chains: list[ChainVerifier] = [cast(Any, one) for one in others if kind_of(one) == "verifier"]
    rule = tree.AS_CHAINS.get(verifier.rule)
    same = [one for one in chains if not one.trees and one.rule == rule and one.takes_uniforms]
    if verifier.takes_uniforms and same:
        yield tree.width_one_finding(verifier.name, *tree.of_width_one(verifier, same[0], 4 * number, seed), 1)


def mask_findings(builder: MaskBuilder, number: int, seed: int) -> list[Finding]:
    """TREE-1 and TREE-2 over `number` trees."""
    return tree.input_findings(builder.name, tree.build_all(builder, tree.trees(number, seed)), number)


def reader_findings(reader: TreeReader, subject: Subject, number: int, seed: int, until: float = math.inf) -> list[Finding]:
    """TREE-5: logits at the nodes of `number` random trees, each beside those of its path alone; GREEDY-3: those of chains."""
    rng = np.random.default_rng([seed, 8])
    together, alone, names, window = [], [], [], []
    for case, (length, shape) in enumerate(in_time(tree.trees(number, seed), until, LEAST_TRIED)):
        prefix = tuple(rng.integers(reader.vocabulary, size=length).tolist())
        tokens = tuple(rng.integers(reader.vocabulary, size=len(shape)).tolist())
        together.append(np.asarray(reader.tree(prefix, tokens, tuple(shape.parents)), dtype=np.float64))
        for node in range(len(shape)):
            path = tuple(tokens[one] for one in (0, *shape.path(node)))
            alone.append(np.asarray(reader.alone(prefix + path), dtype=np.float64))
            names.append(f"tree {case}, node {node}")
        window += [max(shape.depths) == len(shape) - 1] * len(shape)
    margin = Margin(max(4 * subject.tolerance.eta, 1e-9), subject.dtype, subject.tolerance.positions)
    rows, chains = Logits(np.concatenate(together), np.array(alone)), np.flatnonzero(window)
    found = [tree.node_logits_finding(reader.name, rows, margin, len(names), names)]
    if has_margin(subject):
        in_windows, of_chains = Logits(rows.together[chains], rows.alone[chains]), [names[row] for row in chains]
        found.append(row_variance_finding(reader.name, in_windows, margin, 1, of_chains))
    return found


def map_finding(component: VocabularyMap) -> Finding:
    """DRAFT-3."""
    return draft.vocabulary_map_finding(
        component.name, component.table(), component.convention, component.vocabulary, texts=component.texts()
    )


def cache_finding(source: CacheSource, number: int, seed: int, vocabulary: int, until: float = math.inf) -> Finding:
    """KV-1 over the named schedules and `number` random ones."""
    plans = kv.schedules(number, seed, vocabulary=vocabulary, trees=source.trees)
    least = len(plans) - number + LEAST_TRIED
    states = [state for plan in in_time(plans, until, least) for state in kv.run(source.make, plan)]
    return kv.cache_finding(source.name, states, len(states), tolerance=source.tolerance)


def drafter_finding(
    drafter: DraftSource, subject: Subject, planned: int, seed: int, alpha: float, until: float = math.inf
) -> Finding:
    """DRAFT-1 of a drafter asked after the audit's prompts, until `planned` tokens were drafted or nothing comes any more."""
    drafted: list[Proposal] = []
    tokens = asked = 0
    while tokens < planned and asked < 2 * planned:
        if max(tokens, asked) >= LEAST_DRAFTED and time.monotonic() > until:
            planned = max(tokens, LEAST_DRAFTED)
            break
        contexts = [subject.prompts.prompt(request_seed(seed, asked + i)) for i in range(ASKED_AT_ONCE)]
        some = draft.proposals(drafter, contexts, K, request_seed(seed, "drafts", asked))
        drafted, asked = drafted + some, asked + len(contexts)
        tokens += sum(len(one.tokens) for one in some)
        if asked >= 256 and (not tokens or all(one.laws is None for one in drafted)):
            break
    return draft.draft_law_finding(drafter.name, drafted, planned, alpha=alpha, seed=seed)
