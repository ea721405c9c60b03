"""The published reproductions of what was found in transformers still show it, at the version that they are about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import transformers
from engine_here import shows_what_was_found

from conformance.reproductions import reproductions_of

SCRIPTS = reproductions_of("transformers")


@pytest.mark.long
@pytest.mark.skipif(transformers.__version__ != "5.24.0", reason="the reproductions are about transformers 5.24.0")
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_a_reproduction_shows_what_was_found(script: Path) -> None:
    assert shows_what_was_found(sys.executable, script).strip()
