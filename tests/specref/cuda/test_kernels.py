"""Every kernel equals its torch reference bit for bit, whatever the block size and the schedule."""

from __future__ import annotations

import pytest
import torch

from specref.cuda import emulated
from specref.cuda.proof.cases import cases
from specref.cuda.proof.forest import forest
from specref.cuda.proof.traffic import measure

TYPES = (torch.float32, torch.bfloat16, torch.float16)
ASCENDING, DESCENDING, SHUFFLED = 0, 1, 12345


def _check(dtype, V, size, settings, seed):
    wrong, done = [], 0
    for case in cases(dtype, V, size, seed):
        expected = case.expected()
        for threads, schedule in settings:
            with emulated(threads=threads, schedule=schedule):
                difference = case.difference(expected)
            done += 1
            if difference:
                wrong.append(f"{difference} ({threads} threads, schedule {schedule}, seed {seed})")
    assert not wrong, "\n".join(wrong)
    assert done >= 50 * len(settings)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_equal_to_the_reference(emulator, dtype):
    _check(dtype, 1003, 4, [(32, ASCENDING), (96, DESCENDING), (64, SHUFFLED)], seed=torch.initial_seed() % 2**20)


def test_equal_over_several_chunks(emulator):
    _check(torch.bfloat16, 2100, 3, [(64, SHUFFLED)], seed=torch.initial_seed() % 2**20)


@pytest.mark.long
@pytest.mark.parametrize("V", [7, 1000, 1003, 32_000, 128_256])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_equal_to_the_reference_at_all_sizes(emulator, dtype, V):
    settings = [(threads, schedule) for threads in (32, 96, 512) for schedule in (ASCENDING, DESCENDING, SHUFFLED)]
    _check(dtype, V, 4, settings, seed=torch.initial_seed() % 2**20)


def test_equal_where_fibers_switch_by_ucontext(emulator):
    for case in cases(torch.bfloat16, 1030, size=2):
        if case.op in ("tree_build", "row_norm"):
            expected = case.expected()
            with emulated(threads=64, schedule=SHUFFLED, flags=("-DEMULATOR_UCONTEXT",)):
                assert case.difference(expected) is None


def test_traffic_is_at_the_floor(emulator):
    results = measure()
    assert len(results) == 7
    assert all(result.good for result in results), "\n".join(map(str, results))


def test_random_trees_of_up_to_64_nodes(emulator):
    seen = forest(300, seed=torch.initial_seed() % 2**20)
    assert seen.trees == 300
    assert seen.calls == 12
    assert not seen.wrong, "\n".join(seen.wrong)


@pytest.mark.long
def test_ten_thousand_random_trees(emulator):
    seen = forest(10_000, seed=torch.initial_seed() % 2**20)
    assert seen.trees == 10_000
    assert not seen.wrong, "\n".join(seen.wrong)
