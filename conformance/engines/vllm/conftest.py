"""Where vLLM is not installed, pytest cannot look for doctests in the modules that import it."""

from __future__ import annotations

from importlib.util import find_spec

IMPORT_VLLM = ["components.py", "engine.py", "offline.py", "second_runner.py", "server.py", "verifiers.py"]
collect_ignore = [] if find_spec("vllm") else IMPORT_VLLM
