"""What all checks of a mode have in common: a state of arrays that add, and evidence that is a function of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from conformance.statistics.evidence import Evidence, WrongUse
from conformance.statistics.scoring import Scored

if TYPE_CHECKING:
    from conformance.statistics.counted import Counted


class Check(ABC):
    """One check of one mode.

    Its whole state is ``sums``: arrays that add over blocks and shards (counts and log wealth, never e-values), so
    memory does not grow with the number of samples, and ``merge`` is addition.
    """

    name: str
    sums: dict[str, NDArray[Any]]

    @abstractmethod
    def observe(self, scored: Scored) -> None:
        """Add a block of tokens."""

    def observe_counts(self, counted: Counted) -> None:  # noqa: B027  (most checks need an order of tokens)
        """Add samples of a fixed pair of laws; checks that need an order of tokens ignore them."""

    @abstractmethod
    def evidence(self) -> Evidence:
        """The evidence so far."""

    def state(self) -> dict[str, Any]:
        """The sums as plain lists, for JSON."""
        return {key: value.tolist() for key, value in self.sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a stored state; raises if it has another shape."""
        if set(state) != set(self.sums):
            raise WrongUse(f"the stored state of {self.name!r} holds {sorted(state)}, not {sorted(self.sums)}")
        for key, value in state.items():
            array = np.asarray(value, dtype=self.sums[key].dtype)
            if array.shape != self.sums[key].shape:
                raise WrongUse(f"the stored {key!r} of {self.name!r} has shape {array.shape}, not {self.sums[key].shape}")
            self.sums[key] = array

    def merge(self, later: Check) -> None:
        """Add the state of the shard that follows."""
        for key, value in later.sums.items():
            self.sums[key] = self.sums[key] + value
