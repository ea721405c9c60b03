"""Temperature, top-k, top-p and min-p of a batch keep what the plain processors keep, ties and edges included."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from batched_rows import random_laws

from specref.batched import BadRows, truncation
from specref.processors import MinP, Temperature, TopK, TopP

CASES = [
    ("temperature", truncation.temperature, Temperature, [0.0, 1.0, 0.5, 2.0, 1e-6]),
    ("top_k", truncation.top_k, TopK, [1, 2, 3, 50, 10**6]),
    ("top_p", truncation.top_p, TopP, [1.0, 0.9, 0.5, 0.25, 1e-9]),
    ("min_p", truncation.min_p, MinP, [0.0, 1.0, 0.5, 0.1, 0.25]),
]


@pytest.mark.parametrize(("batched", "plain", "choices"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("V", [1, 2, 7, 64, 4096])
def test_keeps_what_the_plain_processor_keeps(batched, plain, choices, V) -> None:
    """Logits of all kinds of rows, in halves (many ties, exact differences) or as they come; one setting per row."""
    seed = secrets.randbits(64)
    rng = np.random.default_rng(seed)
    B = 200 if V < 1000 else 20
    with np.errstate(divide="ignore"):
        logits = np.log(random_laws(rng, B, V))
    halves = rng.random(B) < 0.5
    logits[halves] = np.round(logits[halves] * 2) / 2
    settings = rng.choice(choices, B)
    result = batched(torch.from_numpy(logits), torch.from_numpy(settings)).numpy()
    for b in range(B):
        wanted = plain(settings[b].item())(logits[b], (), ())
        if not (result[b] == wanted).all():
            # the mass at an edge of top-p is a sum of exponentials, which two libraries may round apart
            differs = np.flatnonzero(result[b] != wanted)
            weights = np.sort(np.exp(logits[b] - logits[b].max()))[::-1]
            before = np.concatenate([[0], weights.cumsum()[:-1]]) / weights.sum()
            assert batched is truncation.top_p, f"seed {seed}, row {b}, setting {settings[b]}: differs at {differs}"
            assert np.abs(before - settings[b]).min() < 1e-12, (
                f"seed {seed}, row {b}, setting {settings[b]}: differs at {differs}"
            )


def test_ties_keep_the_lower_ids() -> None:
    logits = torch.zeros(1, 8)
    for kept in (truncation.top_k(logits, 3), truncation.top_p(logits, 0.375)):
        assert kept[0].isfinite().nonzero()[:, 0].tolist() == [0, 1, 2]
    assert truncation.min_p(logits, 1.0).isfinite().all()


def test_an_edge_of_top_p_is_exact_on_dyadic_weights() -> None:
    """The mass before token 2 is exactly p: it is left out, and kept just above."""
    logits = torch.tensor([[4.0, 2.0, 1.0, 1.0]]).log2() * np.log(2)
    weights = truncation.softmax(torch.zeros(1, 4).double())
    assert weights.tolist() == [[0.25] * 4]
    assert truncation.top_p(torch.zeros(1, 4).double(), 0.5).isfinite().tolist() == [[True, True, False, False]]
    assert truncation.top_p(torch.zeros(1, 4).double(), 0.5 + 2**-40).isfinite().tolist() == [[True, True, True, False]]
    assert truncation.top_k(logits, 2).isfinite().tolist() == [[True, True, False, False]]


def test_one_setting_for_all_rows_and_more_dimensions() -> None:
    logits = torch.randn(2, 3, 5)
    assert torch.equal(truncation.top_k(logits, 2), truncation.top_k(logits, torch.full((2, 3), 2)))
    assert (truncation.top_k(logits, 2).isfinite().sum(dim=-1) == 2).all()


@pytest.mark.parametrize(
    ("function", "setting", "match"),
    [
        (truncation.temperature, -1.0, "temperature is -1.0"),
        (truncation.temperature, float("nan"), "temperature is nan"),
        (truncation.top_k, torch.tensor([1, 0]), "top-k is 0"),
        (truncation.top_p, 0.0, "top-p is 0.0"),
        (truncation.min_p, torch.tensor([0.5, 1.5]), "min-p is 1.5"),
        (truncation.min_p, torch.tensor([0.5]), "one number, or one per row"),
    ],
)
def test_settings_out_of_range_raise(function, setting, match) -> None:
    with pytest.raises(ValueError, match=match):
        function(torch.zeros(2, 3), setting)


def test_rows_that_cannot_be_truncated_are_named() -> None:
    logits = torch.zeros(3, 2)
    logits[1] = -torch.inf
    with pytest.raises(BadRows, match=r"rows \(1,\) of 3") as raised:
        truncation.top_k(logits, 1)
    assert raised.value.rows == (1,)
