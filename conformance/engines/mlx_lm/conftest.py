"""Where mlx-lm is not installed, pytest cannot look for doctests in the module that imports it."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("mlx_lm") else ["engine.py"]
