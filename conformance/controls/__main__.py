"""`python -m conformance.controls` prints the exact laws of the registry."""

from __future__ import annotations

from conformance.controls.table import HEADS, cells
from conformance.studies.report import table

print(table(HEADS, cells()))
