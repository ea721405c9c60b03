"""Published points beside the simple formula, and where the two part.

An "acceptance rate" is published in two meanings: the chance that a token is accepted once those before it were (the formula's
acceptance), or the share of all drafted tokens that were accepted. The second is the smaller number for the same draft, so the
same published rate means more tokens if it is a share. `compare` computes both.

* **Llama-3 8B drafting for 70B: about 70%, 2.3 times.** A draft pass costs 8.03 / 70.6 = .114 target passes. Read as
  acceptance, no k gives more than 1.91: the published figure is out of the formula's reach, unless the draft is cheaper than
  its size says (quantised, or because only the target's passes pay for communication). Read as a share it is what k = 3 gives,
  2.31.
* **Medusa with 4 heads: about 55%, 1.8 times.** The heads are one pass, which costs .06 of a 70B target's and .27 of an 8B
  one's. Read as acceptance of each head in turn, the formula gives 1.98 and 1.66, on either side of the published figure; read
  as a share, 2.5 or more, well above it. The formula leaves out two things that pull in opposite directions: a tree keeps more
  than one chain does, and verifying its nodes, building the mask and moving the accepted cache rows are not free.

A figure without draft length, meaning of the rate, batch size and machine can be neither confirmed nor refuted.
"""

from __future__ import annotations

from dataclasses import dataclass

from specref.speedup.formula import acceptance_from_share, speed_up
from specref.speedup.roofline import LLAMA3_8B, LLAMA3_70B, medusa_heads


@dataclass(frozen=True)
class Point:
    """A published pair of acceptance and speed-up, with the draft lengths and the costs, in target passes, to set beside it.

    draft_cost: of each draft token. once: of whatever is run once a round.
    """

    name: str
    acceptance: float
    speed_up: float
    ks: tuple[int, ...]
    draft_cost: float = 0.0
    once: float = 0.0


_HEADS_ON_70B = medusa_heads(LLAMA3_70B, width=8192, vocabulary=128256, count=4)
_HEADS_ON_8B = medusa_heads(LLAMA3_8B, width=4096, vocabulary=128256, count=4)

PUBLISHED = (
    Point("Llama-3 8B for 70B", 0.70, 2.3, (2, 3, 4, 5, 8), draft_cost=LLAMA3_8B.parameters / LLAMA3_70B.parameters),
    Point("Medusa, 4 heads on 70B", 0.55, 1.8, (4,), once=_HEADS_ON_70B.parameters / LLAMA3_70B.parameters),
    Point("Medusa, 4 heads on 8B", 0.55, 1.8, (4,), once=_HEADS_ON_8B.parameters / LLAMA3_8B.parameters),
)
"""The usual rules of thumb; the second is given without a model, so it is set beside a large one and a small one."""


@dataclass(frozen=True)
class Comparison:
    """A published point beside the formula at one k: `as_acceptance` and `as_share` are its speed-ups for the two readings."""

    point: Point
    k: int
    as_acceptance: float
    as_share: float


def compare(points: tuple[Point, ...] = PUBLISHED) -> list[Comparison]:
    """Each point at each of its k.

    >>> for row in compare():
    ...     print(f"{row.point.name:22}  k {row.k}  published {row.point.speed_up}  "
    ...           f"as acceptance {row.as_acceptance:.2f}  as share {row.as_share:.2f}")
    Llama-3 8B for 70B      k 2  published 2.3  as acceptance 1.78  as share 1.96
    Llama-3 8B for 70B      k 3  published 2.3  as acceptance 1.89  as share 2.31
    Llama-3 8B for 70B      k 4  published 2.3  as acceptance 1.91  as share 2.61
    Llama-3 8B for 70B      k 5  published 2.3  as acceptance 1.87  as share 2.87
    Llama-3 8B for 70B      k 8  published 2.3  as acceptance 1.67  as share 3.46
    Medusa, 4 heads on 70B  k 4  published 1.8  as acceptance 1.98  as share 3.01
    Medusa, 4 heads on 8B   k 4  published 1.8  as acceptance 1.66  as share 2.52
    """
    rows = []
    for point in points:
        for k in point.ks:
            one_round = {"draft_cost": point.draft_cost, "verify_cost": 1 + point.once}
            as_share = acceptance_from_share(point.acceptance, k)
            rows.append(Comparison(point, k, speed_up(point.acceptance, k, **one_round), speed_up(as_share, k, **one_round)))
    return rows
