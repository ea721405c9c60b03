"""The published reproductions of what was found in transformers still show it, at the version that they are about."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

FOLDER = Path(__file__).parents[2] / "reports" / "transformers-5.24.0" / "reproductions"
SHOWN = {
    "cached_prefix": r"'prompt_lookup_num_tokens'\] another output, the cache holds 23 entries of 17 tokens read",
    "drafted_id_outside": r"drafted id -1: 1 accepted, emitted \[\[-1",
    "early_exit_leaves_the_model_changed": r"no speculation, 1 layers",
    "guidance_scale": r"'prompt_lookup_num_tokens'\] right in the first \d of 24",
    "prompt_lookup_static_cache": r"IndexError: index_copy_",
    "single_position_claims_another_law": r"single position: total variation .* 0\.[1-9]",
    "stop_strings": r"stop at 'q': wqqq",
    "synthid_watermark": r"the first \d of 24 tokens as without speculation; without the watermark equal: True",
    "universal_claims_another_law": r"universal assisted: total variation .* 0\.(0[5-9]|[1-9])",
    "universal_prunes_the_assistant": r"the assistant alone RuntimeError",
}
"""By the name of the script, what it prints."""


def test_every_reproduction_is_short_and_known() -> None:
    scripts = {script.stem: script.read_text() for script in FOLDER.glob("*.py")}
    assert set(scripts) == set(SHOWN)
    assert all(len(text.splitlines()) < 40 for text in scripts.values())


@pytest.mark.long
@pytest.mark.skipif(transformers.__version__ != "5.24.0", reason="the reproductions are about transformers 5.24.0")
@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_reproduction_shows_what_was_found(name: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert re.search(SHOWN[name], done.stdout), done.stdout
