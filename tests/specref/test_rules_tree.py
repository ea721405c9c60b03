"""Tree rules: proven lossless over several rounds, their orderings, and the exact laws of what breaks them."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings

from specref import strategies
from specref.chance import EnumeratedChance, exact_law
from specref.draft import Draft
from specref.laws import NO_LAW, rational, without
from specref.models import TableModel
from specref.proof import (
    Subject,
    chosen_siblings,
    departure,
    first_token,
    law_in_two_stages,
    prove_all,
    random_models,
    smallest_counterexample,
    subject,
    tree_instances,
)
from specref.proof.first_token import P
from specref.proof.subjects import SUBJECTS, some_trees, tree_with_replacement, tree_without_replacement
from specref.rules import Verified, rewired
from specref.rules.block import block
from specref.rules.chain import greedy as chain_greedy
from specref.rules.chain import one_hot_ratio, ratio
from specref.rules.tree import (
    first_accepted,
    first_certain,
    greedy,
    keep_below,
    recursive_rejection,
    sequential_one_hot,
    target_only,
    traversal,
)
from specref.tree import BadTree, TokenTree, laws_without_replacement

LOSSLESS = [one.name for one in SUBJECTS if one.kind == "tree" and one.claim == "lossless"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_every_kind_of_tree_is_lossless(name: str) -> None:
    """A short form; the full number of models is behind the marker `long`, and what `specref prove` runs."""
    [result] = prove_all(scale=0.05, seed=1, workers=1, subjects=[subject(name)])
    assert result.as_claimed, result.counterexample


def as_chain(round):
    """A tree of width 1 as the chain that it is."""
    return Draft.claimed(round.draft.tokens[1:], round.draft.laws[1:])


def as_tree(round):
    """A chain as a tree of width 1."""
    tree = TokenTree.chain(0, round.draft.tokens)
    return Draft.claimed(tree.tokens, [NO_LAW, *round.draft.laws], tree)


@pytest.mark.parametrize(
    ("on_tree", "on_chain"),
    [
        (traversal, block),
        (recursive_rejection, ratio),
        (sequential_one_hot, one_hot_ratio),
        (target_only, one_hot_ratio),
        (greedy, chain_greedy),
    ],
)
def test_on_a_chain_each_rule_is_the_chain_rule(on_tree, on_chain) -> None:
    @settings(max_examples=60)
    @given(strategies.drafted_rounds())
    def same(round) -> None:
        def decided(rule, draft):
            return exact_law(lambda chance: (lambda v: (v.accepted, v.next_token))(rule(round.p, draft, chance)))

        assert decided(on_tree, as_tree(round)) == decided(on_chain, round.draft)

    same()


@settings(max_examples=60)
@given(strategies.trees(4, distinct_siblings=True), strategies.models(4))
def test_target_only_has_the_law_of_sequential_one_hot(tree, model) -> None:
    """Their verdicts differ branch by branch, their laws do not."""
    p = [model.next_law(tree.spells(node)) for node in range(len(tree))]
    draft = Draft.chosen(tree.tokens, tree)
    assert exact_law(partial(target_only, p, draft)) == exact_law(partial(sequential_one_hot, p, draft))


def accepted_on_average(rule, drafting, instance) -> Fraction:
    mean = Fraction(0)
    for draft, probability in exact_law(drafting(instance, (), 99)[0]).items():
        p = [instance.target.next_law(draft.tree.spells(node)) for node in range(len(draft.tree))]
        for verdict, decided in exact_law(partial(rule, p, draft)).items():
            mean += probability * decided * verdict.accepted
    return mean


@pytest.mark.parametrize("drafting", [tree_with_replacement, tree_without_replacement])
def test_traversal_never_accepts_fewer_than_top_down(drafting) -> None:
    gains = []
    for instance in tree_instances(72, "gain"):
        if 1 < instance.depth < instance.k < 6 and instance.target.vocabulary < 4:  # neither a chain nor siblings alone
            top_down = accepted_on_average(recursive_rejection, drafting, instance)
            gains.append(accepted_on_average(traversal, drafting, instance) - top_down)
            assert gains[-1] >= 0, instance
    assert sum(gain > 0 for gain in gains) >= 4


@settings(max_examples=60)
@given(strategies.drafted_trees(max_nodes=5))
def test_verdicts_are_paths_of_the_tree(round) -> None:
    tree = round.draft.tree
    for rule in (traversal, recursive_rejection, sequential_one_hot, greedy):
        for verdict in exact_law(partial(rule, round.p, round.draft)):
            assert verdict.accepted == len(verdict.path)
            assert verdict.path == (tree.path(verdict.path[-1]) if verdict.path else ())
            at = verdict.path[-1] if verdict.path else 0
            assert rule is greedy or round.p[at][verdict.next_token] > 0


@settings(max_examples=60)
@given(strategies.trees(3), strategies.models(3))
def test_greedy_takes_the_longest_path_of_most_probable_tokens(tree, model) -> None:
    p = [model.next_law(tree.spells(node)) for node in range(len(tree))]
    verdict = greedy(p, Draft.chosen(tree.tokens, tree), EnumeratedChance())
    plain: tuple[int, ...] = ()
    while len(plain) < len(tree):
        plain += (int(model.next_law(plain).argmax()),)
    spelled = {tree.spells(node) for node in range(len(tree))}
    longest = max(length for length in range(len(plain) + 1) if plain[:length] in spelled)
    assert verdict.accepted == longest
    assert (*tree.spells((0, *verdict.path)[-1]), verdict.next_token) == plain[: longest + 1]


@pytest.mark.parametrize("rule", [recursive_rejection, traversal])
def test_each_sibling_may_come_from_a_draft_model_of_its_own(rule) -> None:
    """SpecInfer's boosted drafts: independent siblings, the second of each pair from another model."""
    for family in range(9):
        target, one = random_models(f"own {family}", 3, family)
        other = TableModel(3, f"other {family}", "zeros")

        def draw(chance, one=one, other=other):
            tokens, laws, spelled = [0], [NO_LAW], [()]
            for node, parent in enumerate((0, 0, 1, 1), start=1):
                law = (other if node % 2 == 0 else one).next_law(spelled[parent])
                tokens.append(chance.picks(law, slot=("draft", node)))
                laws.append(law)
                spelled.append((*spelled[parent], tokens[-1]))
            return Draft.claimed(tokens, laws, TokenTree(tokens, [-1, 0, 0, 1, 1]))

        assert departure(law_in_two_stages(draw, target, (), rule), target) is None


@pytest.mark.parametrize("rule", [recursive_rejection, traversal])
def test_siblings_drawn_without_replacement_have_an_order(rule) -> None:
    """The same laws with two siblings swapped are no longer the laws that the tokens came from."""
    q = rational([6, 1, 1])

    def draw(chance, swapped: bool):
        draft = Draft.drawn_tree(lambda _: q, 0, [-1, 0, 0], chance, replacement=False)
        tokens = (0, *reversed(draft.tokens[1:])) if swapped else draft.tokens
        tree = TokenTree(tokens, [-1, 0, 0])
        return Draft.claimed(tokens, laws_without_replacement(tree, {0: q}), tree)

    p = rational([1, 1, 2])
    assert first_token(rule, partial(draw, swapped=False), shown=p).variation(p) == 0
    assert first_token(rule, partial(draw, swapped=True), shown=p).variation(p) > Fraction(1, 20)


# What breaks them, with its exact size.


def test_thresholds_of_target_only_bias_it() -> None:
    p, child = rational([5, 3, 2]), chosen_siblings([1])

    def variation(**thresholds) -> Fraction:
        return first_token(partial(target_only, **thresholds), child, shown=p).variation(p)

    assert variation() == 0
    assert variation(tau_acc=Fraction(1, 2)) == Fraction(3, 10)
    assert variation(tau_single=Fraction(3, 10)) == Fraction(7, 10)


def test_duplicate_siblings_bias_target_only_unless_refused() -> None:
    p, twice = rational([5, 3, 2]), chosen_siblings([1, 1])
    with pytest.raises(BadTree, match="nodes 1 and 2 are siblings and both hold token 1"):
        first_token(target_only, twice, shown=p)
    lets_through = rewired(target_only, require_distinct_siblings=lambda tree: None)
    assert first_token(lets_through, twice, shown=p).variation(p) == Fraction(3, 10)
    assert first_token(sequential_one_hot, twice, shown=p).variation(p) == 0  # harmless there


def fresh_draw_per_sibling(p, draft, chance):
    """Token matching over siblings with another draw for each of them."""
    children = draft.tree.children(0)
    for child in children:
        if chance.picks(p[0], slot=("token", child)) == draft.tokens[child]:
            return Verified(1, chance.picks(p[child], slot=("emit",)), (child,))
    return Verified(0, chance.picks(p[0], slot=("emit",)))


def test_a_rejected_sibling_left_in_the_law() -> None:
    """The two likeliest tokens of the draft law as siblings, (1, 0): token 1 comes with .816 instead of .6."""
    not_zeroed = rewired(sequential_one_hot, first_certain=rewired(first_certain, without=lambda law, token: law))
    for fault in (not_zeroed, fresh_draw_per_sibling):
        found = first_token(fault, chosen_siblings([1, 0]))
        assert found.law[1] == Fraction(816, 1000)
        assert found.variation() == Fraction(27, 125)


def test_an_independent_draw_from_the_nucleus_for_every_branch() -> None:
    """p = (63, 27, 10)/100 cut to its nucleus (.7, .3): one branch and a fresh draw after it give token 0 with .91."""
    nucleus = rational([7, 3])
    found = first_token(fresh_draw_per_sibling, chosen_siblings([0]), shown=nucleus)
    assert found.variation(nucleus) == Fraction(21, 100)


def test_deterministic_siblings_tested_as_if_drawn() -> None:
    """Top-1 of q taken as if drawn from q: always accepted where p >= q, so its token always comes."""
    p, q = rational([443, 300, 257]), rational([4, 3, 3])
    tree = TokenTree([0, 0, 1], [-1, 0, 0])
    found = first_token(recursive_rejection, lambda chance: Draft.claimed(tree.tokens, [NO_LAW, q, q], tree), shown=p)
    assert found.variation(p) == Fraction(557, 1000)


def raw_law_for_all(p, q, siblings: int) -> Fraction:
    """Siblings drawn without replacement, the unreduced q handed over for each."""

    def draw(chance):
        draft = Draft.drawn_tree(lambda _: q, 0, [-1] + [0] * siblings, chance, replacement=False)
        return Draft.claimed(draft.tokens, [NO_LAW] + [q] * (len(draft.tokens) - 1), draft.tree)

    return first_token(recursive_rejection, draw, shown=p).variation(p)


def test_one_raw_law_for_siblings_without_replacement() -> None:
    """A single example can miss it: exactly 0 on some, far off on others."""
    assert raw_law_for_all(rational([5, 3, 2]), rational([2, 3, 5]), 2) == 0
    assert raw_law_for_all(rational([1, 7, 3]), rational([1, 3, 8]), 2) == Fraction(1, 66)
    assert raw_law_for_all(rational([1, 3, 0, 0]), rational([1, 1, 4, 4]), 3) == Fraction(1, 4)
    assert raw_law_for_all(rational([9, 34, 0, 0]), rational([6, 1, 32, 41]), 3) == Fraction(195, 301)


def raw_tree(instance, context, room):
    def draw(chance):
        [proper] = tree_without_replacement(instance, context, room)
        draft = proper(chance)
        rows = [instance.drafter.next_law(context + draft.tree.spells(node)) for node in range(len(draft.tree))]
        return Draft.claimed(draft.tokens, [NO_LAW, *(rows[parent] for parent in draft.tree.parents[1:])], draft.tree)

    return [draw]


def zeroed_not_renormalised(q, token):
    return without(q, token)


FAULTS = {
    "raw q without replacement": Subject("raw q", "tree", recursive_rejection, raw_tree),
    "no residual between siblings": Subject(
        "no residual",
        "tree",
        rewired(recursive_rejection, first_accepted=rewired(first_accepted, residual=lambda r, q: r)),
        tree_with_replacement,
    ),
    "traversal without its residual": Subject(
        "no residual on the way up",
        "tree",
        rewired(traversal, keep_below=rewired(keep_below, positive_part=lambda rest: abs(rest))),
        tree_with_replacement,
    ),
    "rejected sibling not zeroed": Subject(
        "not zeroed",
        "tree",
        rewired(sequential_one_hot, first_certain=rewired(first_certain, without=lambda law, token: law)),
        some_trees,
    ),
    "duplicates let through": Subject(
        "duplicates", "tree", rewired(target_only, require_distinct_siblings=lambda tree: None), some_trees
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_and_shrunk(name: str) -> None:
    """Among the first of the models that `prove_all` takes."""
    instances = (instance for instance in tree_instances(72) if len(instance.shape) <= 5)
    found = next(filter(None, map(partial(smallest_counterexample, FAULTS[name]), instances)))
    assert len(found.instance.shape) <= 4, found
    assert max(max(row) for row in found.instance.target.values()) <= 3, found


def test_a_tree_rule_needs_a_tree() -> None:
    for rule in (greedy, sequential_one_hot, target_only, recursive_rejection, traversal):
        with pytest.raises(BadTree, match=r"got the chain \(0, 1\)"):
            rule([P, P, P], Draft.chosen([0, 1]), EnumeratedChance())


@pytest.mark.parametrize("threshold", [0, -0.5, 1.5, float("nan")])
def test_thresholds_out_of_range_are_named(threshold) -> None:
    tree = TokenTree([0], [-1])
    for name in ("tau_acc", "tau_single"):
        with pytest.raises(ValueError, match=rf"{name} is {threshold}"):
            target_only([P], Draft.chosen(tree.tokens, tree), EnumeratedChance(), **{name: threshold})


def test_a_tree_of_the_root_alone_draws_from_the_target() -> None:
    tree = TokenTree([0], [-1])
    for rule in (sequential_one_hot, target_only, recursive_rejection, traversal):
        law = exact_law(partial(rule, [P], Draft.claimed(tree.tokens, [NO_LAW], tree)))
        assert law == {Verified(0, token): mass for token, mass in enumerate(P)}
