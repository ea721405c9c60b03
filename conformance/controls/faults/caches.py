"""Faults of state: caches that forget too much, too little, or somewhere else."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.controls.control import Audit, Control
from conformance.controls.faults.storage import (
    ContiguousSlots,
    CopiedBackAtTheBoundary,
    FreedBeforeMoved,
    FrozenSlots,
    MaskByLength,
    NothingAfterTheWrap,
    NotRestored,
    Overlap,
    PadRowsWritten,
    RestoredOldestFirst,
    RootForgotten,
    SecondRollbackShifted,
    SlicedFlat,
    SnapshotOffByOne,
    StateOfColumnZero,
    StateOfTheSlotBefore,
    UnderAllocated,
    paged,
    recurrent,
    ring,
)
from conformance.controls.stages.caches import cache
from conformance.engines.own_components import TokenCache
from specref.kv_cache import (
    ContiguousCache,
    StaticCache,
)

KIND = "state"


# The count: storage is right, the length handed to it is not.


class OneTooMany(TokenCache):
    """Rollback takes the last accepted token with it."""

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        super().rollback(length - 1 if 0 < length < self.length else length)


class Fewer(TokenCache):
    """Rollback leaves some rejected drafts."""

    left = 1

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        self.rows.rollback(min(length + self.left, self.length))
        self.read = self.read[:length]


class TwoTooFew(Fewer):
    """Rollback leaves two."""

    left = 2


class Reset(TokenCache):
    """A rejection empties the cache."""

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        super().rollback(length if length == self.length else 0)


class NotRolledBack(TokenCache):
    """What all drafts left behind stays."""

    def rollback(self, length: int) -> None:
        """See `KVCache.rollback`."""
        self.read = self.read[:length]


# A tree's rows.


class FirstBranchKept(TokenCache):
    """As many rows stay as were accepted, but those of the first branch that is as long."""

    def gather(self, path: Sequence[int]) -> None:
        """See `KVCache.gather`."""
        assert self._tree is not None
        tree, read = self._tree, self.read
        super().gather(tree.path(next(node for node in range(len(tree)) if tree.depths[node] == len(path))))
        self.read = [*read, *(tree.tokens[node] for node in (0, *path))]


class TreeInChainOrder(TokenCache):
    """Every node is read as if all nodes before it were its ancestors."""

    def append(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """See `KVCache.append`."""
        super().append(tokens, parents)
        if parents is not None:
            tree, self._tree = self._tree, None
            self.rows.rollback(len(self.read))
            self.rows.append([self._entry((*self.read, *tokens[: i + 1])) for i in range(len(tokens))], parents)
            self._tree = tree


def fault(id: str, replaces: str, audit: Audit, *reports: str, kind: str = KIND) -> Control:
    """A fault of a cache."""
    return Control(id, kind, replaces, ("KV-1",), audit, reports)


FAULTS = (
    fault("rollback one too many", "rollback", cache(ContiguousCache, OneTooMany), "ml-explore/mlx-examples 149"),
    fault("rollback one too few", "rollback", cache(paged(), Fewer), "ml-explore/mlx-examples 149"),
    fault("rollback two too few", "rollback", cache(ContiguousCache, TwoTooFew), "lablup/mlxcel 994"),
    fault("reset instead of rollback", "rollback", cache(ContiguousCache, Reset), "paiml/aprender 2014"),
    fault("rejected entries never removed", "rollback", cache(ContiguousCache, NotRolledBack), "ggml-org/llama.cpp 4484"),
    fault("rollback ignored after ring wrap", "RingCache", cache(ring(NothingAfterTheWrap)), "ml-explore/mlx-swift-lm 424"),
    fault("a ring's overwritten slots not restored", "RingCache", cache(ring(NotRestored)), "ml-explore/mlx-swift-lm 383"),
    fault("a ring's slots restored oldest first", "RingCache", cache(ring(RestoredOldestFirst, 3)), "ml-explore/mlx-lm 1914"),
    fault("a ring sliced as if it were flat", "RingCache", cache(ring(SlicedFlat), right=ring()), "Blaizzy/mlx-vlm 1715"),
    fault(
        "mask width not the cache's width",
        "StaticCache",
        cache(lambda: MaskByLength(128), right=lambda: StaticCache(128)),
        "huggingface/transformers 48280",
    ),
    fault("slots frozen from an earlier shape", "StaticCache", cache(lambda: FrozenSlots(128)), "NVIDIA/TensorRT-LLM 17110"),
    fault(
        "pad rows write to real slots",
        "StaticCache",
        cache(lambda: PadRowsWritten(128)),
        "vllm-project/vllm 56734",
        "local-inference-lab/vllm 621",
    ),
    fault(
        "contiguous slots assumed",
        "PagedCache",
        cache(paged(ContiguousSlots)),
        "huggingface/text-generation-inference 2711",
        "vllm-project/vllm 5412",
    ),
    fault("pages under-allocated at the boundary", "PagedCache", cache(paged(UnderAllocated)), "ROCm/ATOM 250"),
    fault(
        "the last entry copied back at a page boundary",
        "PagedCache",
        cache(paged(CopiedBackAtTheBoundary)),
        "vllm-project/vllm 53505",
    ),
    fault(
        "recurrent state kept after all drafts",
        "RecurrentCache",
        cache(recurrent(), NotRolledBack),
        "ml-explore/mlx-lm 846",
        "vllm-project/tpu-inference 3057",
    ),
    fault("recurrent snapshot off by one", "RecurrentCache", cache(recurrent(SnapshotOffByOne)), "NVIDIA/TensorRT-LLM 13453"),
    fault(
        "snapshots not renumbered: the second rollback is wrong",
        "RecurrentCache",
        cache(recurrent(SecondRollbackShifted)),
        "ggml-org/llama.cpp 22746",
    ),
    fault(
        "a round without drafts goes on from before the accepted ones",
        "RecurrentCache",
        cache(recurrent(StateOfColumnZero)),
        "vllm-project/vllm 39273",
    ),
    fault(
        "accepted rows not gathered", "gather", cache(ContiguousCache, FirstBranchKept), "vllm-project/vllm 22752", kind="tree"
    ),
    fault(
        "a tree read in chain order",
        "append",
        cache(ContiguousCache, TreeInChainOrder),
        "NVIDIA/TensorRT-LLM 18892",
        kind="tree",
    ),
    fault("a tree's root forgotten when its path is gathered", "gather", cache(RootForgotten), kind="tree"),
    fault(
        "a node's state taken from the slot before, not its parent",
        "RecurrentCache",
        cache(recurrent(StateOfTheSlotBefore)),
        "vllm-project/vllm 29846",
        kind="tree",
    ),
    fault(
        "accepted rows gathered with overlap",
        "StaticCache",
        cache(lambda: Overlap(128)),
        "vllm-project/vllm 20401",
        kind="tree",
    ),
    fault(
        "pages freed before the accepted rows were moved",
        "PagedCache",
        cache(paged(FreedBeforeMoved, 2)),
        "ai-dynamo/dynamo 11736",
        kind="tree",
    ),
)
