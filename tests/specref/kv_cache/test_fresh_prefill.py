"""Every kind of cache equals a fresh prefill of the committed tokens, whatever the rounds were."""

from __future__ import annotations

import itertools

import pytest

from specref.tree import TokenTree

from .kinds import KINDS, K, Kind, entries, tree_entries
from .machines import DraftModel, OneSequence, SharedPages, run

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@every_kind
def test_random_rounds(kind: Kind) -> None:
    run(type("Machine", (OneSequence,), {"kind": kind}))


@pytest.mark.parametrize("page_size", [1, 2, 3])
def test_random_rounds_in_shared_pages(page_size: int) -> None:
    run(type("Machine", (SharedPages,), {"page_size": page_size}), examples=60, steps=20)


@every_kind
def test_random_rounds_of_the_draft(kind: Kind) -> None:
    run(type("Machine", (DraftModel,), {"kind": kind}), examples=20)


@every_kind
def test_every_pair_of_chain_rounds_at_every_offset(kind: Kind) -> None:
    """Any two rounds of 0 to K drafts after a prompt of 0 to 5 tokens: page boundaries, wraps, two rejections in a row."""
    rounds = [(k, kept) for k in (0, 1, K) for kept in range(k + 2)]
    for prompt, first, second in itertools.product(range(6), rounds, rounds):
        cache, tokens = kind.make(), list(range(prompt))
        cache.append(entries(tokens))
        for number, (k, kept) in enumerate((first, second)):
            window = [10 * (number + 1) + i for i in range(k + 1)]
            cache.append(entries(tokens + window)[len(tokens) :])
            tokens += window[:kept]
            cache.rollback(len(tokens))
            kind.compare(cache, tokens, f"after prompt {prompt}, rounds (k, kept) {first}, {second}")


@every_kind
def test_every_path_of_every_small_tree(kind: Kind) -> None:
    """All trees of up to 4 nodes, all their paths, after a prompt of 0 to 4 tokens, and one more token after that."""
    for size in range(1, 5):
        for parents in itertools.product(*([(-1,)] + [range(node) for node in range(1, size)])):
            tree = TokenTree(range(10, 10 + size), parents)
            for node, prompt in itertools.product(range(size), range(5)):
                cache, tokens = kind.make(), list(range(prompt))
                cache.append(entries(tokens))
                cache.append(tree_entries(tokens, tree.tokens, parents), parents)
                cache.gather(tree.path(node))
                tokens += [10, *tree.spells(node)]
                kind.compare(cache, tokens, f"after prompt {prompt}, parents {parents}, path {tree.path(node)}")
                cache.append(entries([*tokens, 99])[len(tokens) :])
                kind.compare(cache, [*tokens, 99], "one token later")


@every_kind
def test_one_pass_equals_one_token_at_a_time(kind: Kind) -> None:
    together, apart = kind.make(), kind.make()
    rows = entries(range(11))
    together.append(rows)
    for row in rows:
        apart.append(row[None])
    kind.compare(together, range(11), "in one pass")
    kind.compare(apart, range(11), "one at a time")


@pytest.mark.long
@pytest.mark.parametrize("setting", [*KINDS, 1, 2, 3, 4], ids=lambda s: s.name if isinstance(s, Kind) else f"shared {s}")
def test_many_and_longer_histories(setting: Kind | int) -> None:
    if isinstance(setting, Kind):
        run(type("Machine", (OneSequence,), {"kind": setting}), examples=200, steps=40)
        run(type("Machine", (DraftModel,), {"kind": setting}), examples=100, steps=40)
    else:
        run(type("Machine", (SharedPages,), {"page_size": setting}), examples=400, steps=40)
