"""A report from its file: whatever is wrong with it is one message that says what to do."""

from __future__ import annotations

from pathlib import Path

from conformance.findings import BadReport, EngineReport, from_json
from conformance.problems import UsageProblem

LARGEST = 1 << 28
"""Bytes; a run of a hundred engines is a tenth of it."""


def read_report(path: Path) -> list[EngineReport]:
    """The engines of a report.json, or of the folder that holds one. Raises UsageProblem."""
    file = path / "report.json" if path.is_dir() else path
    try:
        if file.stat().st_size > LARGEST:
            raise UsageProblem(f"{path} is larger than {LARGEST:,} bytes, and so no report; give a report.json")
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path} is no report: it is no text in UTF-8; give the report.json that specref wrote") from error
    except OSError as error:
        what = "holds no report.json" if path.is_dir() else f"cannot be read ({error.strerror})"
        raise UsageProblem(f"{path} {what}; give the report.json of a run, or the folder that it lies in") from error
    try:
        reports = from_json(text)
    except BadReport as problem:
        raise UsageProblem(f"{path} cannot be read as a report: {problem}") from problem
    if not reports:
        raise UsageProblem(f"{path} is the report of a run of no engine; give one of a run that audited something")
    return reports
