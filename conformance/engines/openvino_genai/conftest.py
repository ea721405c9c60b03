"""Where OpenVINO GenAI is not installed, pytest cannot look for doctests in the modules that import it."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("openvino_genai") else ["engine.py", "convert.py"]
