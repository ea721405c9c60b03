"""Servers that an adapter starts: one that dies says why, a dead one is started again, none outlives its engine."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.engines import started_server
from conformance.engines.descendants import descendants
from conformance.engines.sglang.server import SglangServer
from conformance.engines.started_server import free_port
from conformance.protocols import Mode, Request
from conformance.run import models_named
from specref.processors import SamplingSettings

FAKE = str(Path(__file__).parent / "fake_sglang.py")
OFF, OTHER = Mode("off"), Mode("other")
ASKED = [Request((7, 8, 9), SamplingSettings(max_tokens=2), seed=0)] * 3
DYING = "import sys; print('OSError: weights: no such folder', file=sys.stderr); print('goodbye'); sys.exit(5)"


class Fake(SglangServer):
    """The adapter of a started server, which starts a fake in its place."""

    program: tuple[str, ...] = (FAKE,)

    def command(self, mode: Mode, port: int) -> list[str]:
        return [sys.executable, *self.program, str(port)]


@pytest.fixture
def server() -> Iterator[Fake]:
    engine = Fake(models_named(None, None))
    yield engine
    engine.close()


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def gone(pid: int) -> bool:
    """Whether it has ended, or does so within a while; whoever adopted it may be slow to hear of that."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_one_that_dies_at_its_start_says_why_and_what_to_do(server: Fake) -> None:
    server.program = ("-c", DYING)
    with pytest.raises(RuntimeError, match=r"exit code 5 while it started; .*OSError: weights: no such folder; mend that"):
        list(server.generate(OFF, ASKED))
    server.program = (FAKE,)
    assert [output.tokens for output in server.generate(OFF, ASKED)] == [(7, 8)] * 3


def test_one_that_is_killed_is_an_error_and_the_next_question_has_another(server: Fake) -> None:
    outputs = server.generate(OFF, ASKED)
    assert next(outputs).tokens == (7, 8)
    assert server._process is not None
    assert server._client is not None
    server._client._tries = 1
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    with pytest.raises(RuntimeError, match="server ended with exit code -9 while it was asked"):
        server._ask(ASKED[0])
    assert len(list(server.generate(OFF, ASKED))) == 3


def test_none_is_left_behind(server: Fake) -> None:
    started = []
    for mode in (OFF, OTHER):
        list(server.generate(mode, ASKED))
        assert server._process is not None
        started.append(server._process.pid)
    assert [ended(pid) for pid in started] == [True, False]
    server.close()
    assert ended(started[1])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc: not run")
def test_what_a_killed_one_had_started_is_ended(server: Fake, tmp_path: Path) -> None:
    child = f"{sys.executable!r}, '-c', 'import time; time.sleep(600)'"
    parent = f"import subprocess, sys, runpy; subprocess.Popen([{child}]); sys.argv = [{FAKE!r}, sys.argv[1]]"
    server.program = ("-c", f"{parent}; runpy.run_path({FAKE!r}, run_name='__main__')")
    list(server.generate(OFF, ASKED))
    assert server._process is not None
    own = list(descendants(server._process.pid))
    assert len(own) == 1
    server._process.kill()
    server._process.wait()
    assert not ended(own[0])
    server.close()
    assert not [pid for pid in own if not gone(pid)]


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # as a server that listens everywhere
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(started_server, "PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match=f"every port from {port} to {port} is taken"):
            free_port()
