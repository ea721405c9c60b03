"""What a finding carries so that a reader sees the fault: plain data, from which reports draw.

`Parting` an output beside the target's own choices; `MaskPicture` who sees whom in a tree; `CachePicture` where a cache
differs; `Contribution` a token or a context and its part in the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Parting:
    """A stretch of a greedy output, and what the target's best token was at each place, given that output's own history.

    start: output position of the first token shown. emitted, best: texts. gaps: how far each emitted token lies below the top,
    in logits. bound: gaps up to this are numerical near-ties.
    """

    where: str
    start: int
    emitted: tuple[str, ...]
    best: tuple[str, ...]
    gaps: tuple[float, ...]
    bound: float
    kind: Literal["parting"] = "parting"


@dataclass(frozen=True)
class MaskPicture:
    """The mask of one pass over a tree: a row for each node, a column for each token of the prefix and then each node.

    expected, found: rows of "0" (hidden) and "1" (seen).
    """

    where: str
    prefix: int
    parents: tuple[int, ...]
    expected: tuple[str, ...]
    found: tuple[str, ...]
    kind: Literal["mask"] = "mask"


@dataclass(frozen=True)
class CachePicture:
    """A cache beside a fresh prefill of the same tokens, entry by entry.

    start: position of the first entry shown. tokens: the token of each entry ("?" where none belongs to it). differences:
    the largest one in each entry; None where the entry is missing. left_over: entries beyond the last that belongs there.
    """

    where: str
    start: int
    tokens: tuple[str, ...]
    differences: tuple[float | None, ...]
    left_over: int
    tolerance: float
    kind: Literal["cache"] = "cache"


Picture = Parting | MaskPicture | CachePicture


@dataclass(frozen=True)
class Contribution:
    """A token, or the context before tokens, and its part in the evidence of the bet that holds the wealth.

    times: how often it came; expected: how often the target would write it (of a context: None). log10: what it adds.
    """

    kind: Literal["token", "context"]
    text: str
    times: int
    expected: float | None
    log10: float
