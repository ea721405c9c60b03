"""Controls: planted faults that the judge must reject, and lawful variations that it must pass.

A control is our own code with one small thing changed, run through the same protocols and checks as a real engine. They work on
small models whose laws are known exactly, so that a control takes a second.
"""

from __future__ import annotations

from conformance.controls.control import ALPHA, Audit, Control, Exact, Outcome, as_stated, run
from conformance.controls.stages.engines import VOCABULARY, instance

__all__ = ["ALPHA", "VOCABULARY", "Audit", "Control", "Exact", "Outcome", "as_stated", "instance", "run"]
