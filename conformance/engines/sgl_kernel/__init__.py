"""sgl-kernel: SGLang's verification of token trees and what builds them, on a GPU. Nothing imports it before it is asked."""

from __future__ import annotations

from conformance.engines.gpu import installed_version
from conformance.engines.isolated import Isolated
from conformance.engines.parts_alone import PartsAlone
from conformance.engines.sgl_kernel import functions
from conformance.engines.sgl_kernel.building import Inputs, Links
from conformance.engines.sgl_kernel.verifying import Greedy, TargetOnly
from conformance.protocols import Models


def make(models: Models) -> PartsAlone:
    """SGLang's kernels. They read no models: laws and trees are handed to them."""
    parts = (
        Isolated(TargetOnly, functions.target_only),
        Isolated(Greedy, functions.greedy),
        Isolated(Inputs, functions.inputs),
        Isolated(Links, functions.links),
    )
    return PartsAlone("sgl-kernel", installed_version("sglang", "sgl-kernel"), parts)
