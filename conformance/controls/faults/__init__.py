"""Planted faults, each of which must be killed: one module per kind of change."""

from __future__ import annotations

from conformance.controls.control import Control
from conformance.controls.faults import (
    batches,
    blocks,
    caches,
    draft_nets,
    drafting,
    edges,
    engines,
    grammars,
    greedy,
    memory,
    pages,
    randomness,
    reports,
    rows,
    sampler,
    settings,
    siblings,
    stopping,
    trees,
)

MODULES = (
    sampler,
    blocks,
    randomness,
    rows,
    edges,
    engines,
    drafting,
    draft_nets,
    trees,
    siblings,
    caches,
    pages,
    memory,
    settings,
    stopping,
    batches,
    reports,
    greedy,
    grammars,
)
FAULTS: tuple[Control, ...] = tuple(fault for module in MODULES for fault in module.FAULTS)
