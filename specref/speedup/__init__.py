"""Speed-up theory: what acceptance is worth on paper (`formula`), on a machine (`roofline`), and as published (`published`).

`measure` counts acceptance from rounds; `table` and `figure` set methods side by side over batch sizes.
"""

from specref.speedup.figure import figure
from specref.speedup.formula import (
    acceptance_from_share,
    best_k,
    best_tree,
    break_even,
    expected_tokens,
    sibling_acceptance,
    speed_up,
    tokens_of_tree,
    tokens_per_round,
)
from specref.speedup.measured import Measured, measure
from specref.speedup.published import PUBLISHED, Comparison, Point, compare
from specref.speedup.roofline import (
    H100,
    LLAMA3_8B,
    LLAMA3_70B,
    Hardware,
    Method,
    Row,
    Transformer,
    best_k_on,
    break_even_batch,
    chain,
    heads,
    medusa_heads,
    plain,
    row,
    table,
)

__all__ = [
    "H100",
    "LLAMA3_8B",
    "LLAMA3_70B",
    "PUBLISHED",
    "Comparison",
    "Hardware",
    "Measured",
    "Method",
    "Point",
    "Row",
    "Transformer",
    "acceptance_from_share",
    "best_k",
    "best_k_on",
    "best_tree",
    "break_even",
    "break_even_batch",
    "chain",
    "compare",
    "expected_tokens",
    "figure",
    "heads",
    "measure",
    "medusa_heads",
    "plain",
    "row",
    "sibling_acceptance",
    "speed_up",
    "table",
    "tokens_of_tree",
    "tokens_per_round",
]
