"""A run that is interrupted ends at once, its engines too, and says how to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SLOW = """
import time
from conformance.protocols import Mode

class Slow:
    name, version = "slow", "1"
    def modes(self, k): return [Mode("off")]
    def generate(self, mode, requests):
        import os, pathlib
        pathlib.Path("asked").write_text(str(os.getpid()))
        time.sleep(600)
        yield
    def metrics(self, mode): return None
    def components(self): return ()
    def renew(self): return True
    def not_asked(self): return ()
    def close(self): pass

def make(models): return Slow()
"""


def waited_for(path: Path) -> int:
    """The number that a file holds, once it is there."""
    until = time.monotonic() + 300
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return int(path.read_text())


@pytest.mark.parametrize(
    ("number", "more", "says"),
    [
        (signal.SIGINT, (), "the same command with --evidence run/evidence goes on from there"),
        (signal.SIGINT, ("--no-evidence",), "without --no-evidence a run can go on where it was ended"),
        (signal.SIGTERM, ("--evidence", "kept"), "the same command with --evidence kept goes on from there"),
    ],
    ids=["ctrl-c", "ctrl-c, nothing kept", "terminated"],
)
def test_an_interrupted_run_ends_at_once_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, more: tuple[str, ...], says: str
) -> None:
    (tmp_path / "slow_adapter.py").write_text(SLOW)
    audit = ("audit", "slow_adapter:make", "--level", "smoke", "--temperature", "0", "--out", "run")
    words = [sys.executable, "-m", "conformance", *audit, *more]
    run = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    engine = waited_for(tmp_path / "asked")
    run.send_signal(number)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 128 + number
    assert "Interrupted." in said
    assert says in said
    with pytest.raises(ProcessLookupError):
        os.kill(engine, 0)
