"""Who takes part in a step. None of its decisions may change what any request's output is.

Requests are admitted in the order of arrival. A pre-empted one keeps its number, so it comes back before younger ones, and the
oldest running request is never the victim: it always gets on, and so everything ends.
"""

from __future__ import annotations

from specref.engine.request import Request


class Scheduler:
    """batch: how many requests run at once. chunk: how many tokens of a prompt are read per step and request.

    >>> Scheduler(batch=0, chunk=1)
    Traceback (most recent call last):
    ValueError: batch is 0 and chunk is 1; both must be 1 or more
    """

    def __init__(self, batch: int, chunk: int) -> None:
        if batch < 1 or chunk < 1:
            raise ValueError(f"batch is {batch} and chunk is {chunk}; both must be 1 or more")
        self.batch, self.chunk = batch, chunk
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._skipped: set[int] = set()

    def admit(self) -> list[Request]:
        """Requests that begin or come back now, the oldest first."""
        free = max(0, self.batch - len(self.running))
        self.waiting.sort(key=lambda request: request.number)
        admitted, self.waiting = self.waiting[:free], self.waiting[free:]
        self.running.extend(admitted)
        return admitted

    def skip(self, number: int) -> None:
        """Leave this request out of the next step."""
        self._skipped.add(number)

    def rows(self) -> list[Request]:
        """The requests of this step, in the order of their rows."""
        rows = [request for request in self.running if request.number not in self._skipped]
        self._skipped.clear()
        return rows

    def victim(self) -> Request:
        """Who gives way when memory is short: the youngest that has not finished."""
        return max((request for request in self.running if not request.ended), key=lambda request: request.number)

    def send_back(self, request: Request) -> None:
        """From running to waiting."""
        self.running.remove(request)
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """The request has ended."""
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
