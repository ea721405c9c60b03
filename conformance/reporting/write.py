"""A run's reports as files: the page, the Markdown summary, JSON and JUnit XML."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.findings import EngineReport, to_json
from conformance.problems import UsageProblem
from conformance.reporting import html, junit, markdown
from conformance.reporting.upstream import issue_text
from conformance.reporting.violation import has_script, script_name, to_send, upstream_name


@dataclass(frozen=True)
class ReportFiles:
    """Where the reports of a run lie."""

    html: Path
    markdown: Path
    json: Path
    junit: Path


def refuse_unwritable(folder: Path) -> None:
    """Raise UsageProblem if no reports can be written to a folder, before an hour's work and not after it. Nothing is made."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise UsageProblem(f"cannot write reports to {folder}: {error.strerror}; give another folder with --out") from error


def write(reports: Sequence[EngineReport], folder: Path) -> ReportFiles:
    """Writes all four reports into ``folder``, making it if need be, scripts that show violations again, and texts about them.

    A file is there whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = ReportFiles(folder / "report.html", folder / "report.md", folder / "report.json", folder / "junit.xml")
    write_text(files.json, to_json(reports))  # first: the data must survive whatever happens to the pictures
    write_text(files.junit, junit.document(reports))
    write_text(files.markdown, markdown.document(reports))
    write_text(files.html, html.page(reports))
    for report in reports:
        for finding in filter(has_script, report.findings):
            write_text(folder / script_name(report.engine, finding), f"{finding.reproduction}\n")
        for finding in to_send(report):
            write_text(folder / upstream_name(report.engine, finding.mode), issue_text(report, finding))
    return files


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
