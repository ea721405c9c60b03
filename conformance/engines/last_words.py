"""What a process that an adapter started says: passed on to its own log, and what tells of its end kept for a message."""

from __future__ import annotations

import os
import re
from collections import deque
from threading import Thread
from typing import IO

KEPT, LONGEST = 3, 200
"""Lines, and characters of each."""
ERROR = re.compile(r"\b\w*(Error|Exception)\b: .*")


class LastWords:
    """Reads a process's output until it ends."""

    def __init__(self, output: IO[bytes]) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._errors: deque[str] = deque(maxlen=KEPT)
        self._reader = Thread(target=self._listen, args=(output,), daemon=True)
        self._reader.start()

    @property
    def said(self) -> str:
        """Once the process has ended: the last errors that it named, for others may have said goodbye after them, or else its
        last lines. A child of it that still holds its output is not waited for."""
        self._reader.join(timeout=2)
        return " | ".join(self._errors or self._lines) or "nothing"

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                os.write(2, line)
                text = line.decode(errors="replace").strip()
                error = None if "WARNING" in text else ERROR.search(text)
                if error:
                    self._keep_error(error[0][:LONGEST])
                elif text:
                    self._lines.append(text[:LONGEST])

    def _keep_error(self, error: str) -> None:
        if error not in self._errors:  # else what many requests are told would push out its cause
            self._errors.append(error)
