"""Twenty real SIGKILLs at random points, of an engine, the judge or its process group: nothing is lost, no verdict changes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.evidence.rejudge import judge_evidence
from tests.conformance.evidence.audits import chunks, comparable, driven, left_alone, subject

DRIVER = "import sys; from pathlib import Path; from tests.conformance.evidence.audits import driven; driven(Path(sys.argv[1]))"
POINTS = 20


def engines_of(driver: int) -> list[int]:
    """The processes of the engines that a judge has started."""
    found = subprocess.run(["pgrep", "-P", str(driver)], capture_output=True, text=True, check=False).stdout.split()
    return [int(pid) for pid in found]


def killed(folder: Path, what: str, rng: random.Random) -> bool:
    """Start the audit, kill something at a random point of its sampling; whether it was still running."""
    before = len(chunks(folder))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while (
        driver.poll() is None and time.monotonic() < deadline and not (len(chunks(folder)) > before or engines_of(driver.pid))
    ):
        time.sleep(0.01)
    time.sleep(rng.random() * 2)
    running = driver.poll() is None
    if what == "engine":
        for pid in engines_of(driver.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(pid, signal.SIGKILL)
        driver.wait(timeout=900)  # it reports an error, and ends by itself
    elif what == "judge":
        driver.kill()
    elif running:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    return running


@pytest.mark.long
def test_twenty_kills_lose_nothing_and_change_no_verdict(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    rng, alone = random.Random(seed), comparable(left_alone())
    done = number = 0
    folder = tmp_path / "0"
    while done < POINTS:
        stored = {path: path.read_bytes() for path in chunks(folder)}
        running = killed(folder, rng.choice(["engine", "judge", "group"]), rng)
        assert {path: path.read_bytes() for path in stored} == stored, f"seed {seed}"
        if running:
            done += 1
        else:  # it had come to its end: what it says is compared, and another one begun
            assert comparable(driven(folder)) == alone, f"seed {seed}"
            number += 1
            folder = tmp_path / str(number)
    assert comparable(driven(folder)) == alone, f"seed {seed}"
    assert comparable(judge_evidence(folder, [subject()])) == alone, f"seed {seed}"
