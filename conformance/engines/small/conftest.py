"""Where a small engine is not installed, pytest cannot look for doctests in the module that imports it."""

from __future__ import annotations

from importlib.util import find_spec

MODULES = {
    "seqspecdecod": "sequential.py",
    "specdec": "specdec_rounds.py",
    "speculative_decoding": "lucidrains.py",
    "core_deepinfer": "deepinfer.py",
    "rotalabs_accel": "rotalabs.py",
    "flashspec": "flashspec_engine.py",
    "mini_infer": "mini_infer_engine.py",
}
collect_ignore = [module for package, module in MODULES.items() if not find_spec(package)]
