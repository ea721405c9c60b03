"""Engines whose process fails: it leaves a child behind that holds the pipe, or takes more and more memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from conformance.controls import instance
from conformance.protocols import Models
from tests.conformance.failing_engines import Healthy


class LeavesAChild(Healthy):
    def fail(self) -> None:
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(9)


class Grows(Healthy):
    def fail(self) -> None:
        held = []
        for _ in range(64):  # 2 GiB and no more, though a busy judge may look late
            held.append(np.ones(1 << 22))  # 32 MiB, written to, so that it is resident
            time.sleep(0.05)
        time.sleep(3600)


def leaves_a_child(models: Models) -> LeavesAChild:
    return LeavesAChild(*instance())


def grows(models: Models) -> Grows:
    return Grows(*instance())


class Closes(Healthy):
    """Says in a file that it was closed."""

    def close(self) -> None:
        Path(os.environ["CLOSED"]).write_text("closed")


def closes(models: Models) -> Closes:
    return Closes(*instance())
