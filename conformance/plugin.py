"""The pytest plugin of `pytest --pyargs conformance.suite --engine my_package.my_module:make_engine`.

It is loaded where the suite is asked for, and only there (`specref.pytest_entry`): the plain names of its options may well be
used by another project's tests for their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specref.pytest_entry import SUITE

REPORTS = pytest.StashKey[str]()
"""The audit's reports as JSON text, in the configuration of a session that asks for the suite."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("specref", "specref: is this engine's speculative output really the target model's?")
    add, folder = group.addoption, {"type": Path, "metavar": "DIR"}
    add("--engine", dest="specref_engine", metavar="ENGINE", help="package.module:callable, or an engine that specref knows.")
    add(
        "--level",
        dest="specref_level",
        metavar="LEVEL",
        default="quick",
        help="How much is sampled: smoke, quick, standard or deep.",
    )
    add(
        "--alpha", dest="specref_alpha", metavar="RATE", type=float, default=1e-6, help="False-alarm rate of the whole session."
    )
    add("--seed", dest="specref_seed", metavar="N", type=int, default=0, help="Everything random follows from it.")
    add("--target", dest="specref_target", **folder, help="The target model. Default: our small trained one.")
    add("--draft", dest="specref_draft", **folder, help="The draft model. Default: our small trained one.")
    add("--expected", dest="specref_expected", type=Path, metavar="FILE", help="TOML file of known violations with reasons.")
    add("--specref-out", **folder, help="Folder for the reports. Default: audits/ENGINE-DATE-TIME.")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Audit the engine, once: its findings are the items. Workers of pytest-xdist are handed them."""
    handed = getattr(session.config, "workerinput", None)
    if handed is not None:
        session.config.stash[REPORTS] = handed["specref_reports"]
        return
    from conformance.suite.auditing import audited

    session.config.stash[REPORTS] = audited(session.config.option)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the findings to a worker of pytest-xdist, before it starts."""
    if REPORTS in node.config.stash:
        node.workerinput["specref_reports"] = node.config.stash[REPORTS]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The suite's one file of items: collected here, so that a project's own names for tests don't matter."""
    if file_path.parent != SUITE or file_path.name != "requirements.py" or REPORTS not in parent.config.stash:
        return None
    from conformance.suite.requirements import Audit

    return Audit.from_parent(parent, path=file_path)
