"""TableModel: reproducible, exact, of the kinds it promises; and the law of plain sampling."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specref.laws import checked, overlap, total
from specref.models import TableModel, sequence_law

CONTEXTS = [(), *((a,) for a in range(4)), *product(range(4), repeat=2)]


def rows(kind, seed: int = 0, **settings):
    return [TableModel(4, seed, kind, **settings).next_law(context) for context in CONTEXTS]


def test_the_same_seed_is_the_same_model_and_another_is_another() -> None:
    assert all((a == b).all() for a, b in zip(rows("plain"), rows("plain")))
    assert not all((a == b).all() for a, b in zip(rows("plain"), rows("plain", seed=1)))
    assert [str(x) for x in TableModel(3, seed=1).next_law((0, 2))] == ["4/9", "1/18", "1/2"]  # on every platform


def test_the_law_depends_on_the_context() -> None:
    assert len({tuple(row) for row in rows("plain")}) > 15
    model = TableModel(4, 0, memory=1)
    assert (model.next_law((1, 2, 3)) == model.next_law((0, 3))).all()
    assert not (model.next_law((1, 2, 3)) == model.next_law((3, 2))).all()


@pytest.mark.parametrize("exact", [True, False])
def test_rows_are_laws(exact: bool) -> None:
    for kind in ("plain", "zeros", "ties", "one_hot", "mixed"):
        for row in rows(kind, exact=exact):
            checked(row)
            assert (row.dtype == object) is exact
            assert exact or total(row) == pytest.approx(1, abs=1e-15)


def test_kinds_are_what_they_say() -> None:
    assert all(row.min() > 0 for row in rows("plain"))
    assert sum(row.min() == 0 for row in rows("zeros")) > len(CONTEXTS) / 2
    assert sum(len(set(row)) < 4 for row in rows("ties")) == len(CONTEXTS)
    assert all(sorted(row)[-1] == 1 for row in rows("one_hot"))


def test_kinds_of_a_draft_are_what_they_say() -> None:
    target = TableModel(4, "target", "zeros")
    drafts = {kind: TableModel(4, "draft", kind, target=target) for kind in ("same", "near", "far", "disjoint")}
    overlaps = {kind: [] for kind in drafts}
    for context in CONTEXTS:
        p = target.next_law(context)
        for kind, draft in drafts.items():
            overlaps[kind].append(overlap(p, draft.next_law(context)))
    assert set(overlaps["same"]) == {1}
    assert all(Fraction(3, 5) < value for value in overlaps["near"])
    assert np.mean(overlaps["far"]) < 0.6 < np.mean(overlaps["near"])
    assert sum(value == 0 for value in overlaps["disjoint"]) > len(CONTEXTS) / 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"vocabulary": 1, "seed": 0}, "got 1"),
        ({"vocabulary": 3, "seed": 0, "kind": "odd"}, "'odd'"),
        ({"vocabulary": 3, "seed": 0, "kind": "near"}, "target="),
        ({"vocabulary": 3, "seed": 0, "kind": "near", "target": TableModel(4, 0)}, "vocabulary 3 is not the target's 4"),
    ],
)
def test_bad_settings_are_named(arguments, named) -> None:
    with pytest.raises(ValueError, match=named):
        TableModel(**arguments)


def test_the_law_of_plain_sampling() -> None:
    model = TableModel(3, 2)
    law = sequence_law(model, (1,), 2, eos=[0])
    assert sum(law.values()) == 1
    assert law[(0,)] == model.next_law((1,))[0]
    assert law[(2, 1)] == model.next_law((1,))[2] * model.next_law((1, 2))[1]
    assert all(len(tokens) == 2 or tokens == (0,) for tokens in law)
