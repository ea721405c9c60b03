"""Reports: the page, the Markdown summary, JSON, JUnit XML and the terminal's table."""

from __future__ import annotations

from conformance.reporting.terminal import print_table
from conformance.reporting.write import ReportFiles, write

__all__ = ["ReportFiles", "print_table", "write"]
