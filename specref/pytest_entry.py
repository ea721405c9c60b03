"""What pytest loads in every test run of an environment in which this package is installed.

It brings in the plugin of `pytest --pyargs conformance.suite` where that is asked for, and nothing otherwise: a project may
have a package of its own called `conformance`, which must not be kept out by ours, nor ours be looked for in it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "conformance" / "suite"
PLUGIN = "conformance.plugin"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Bring in the plugin, with its options, in a session that asks for the suite. Raises UsageError if it is hidden."""
    config = pluginmanager.get_plugin("pytestconfig")
    if config is None or not asks_for_suite(config):
        return
    found = importlib.util.find_spec("conformance")
    places = found.submodule_search_locations if found else None
    folders = [Path(folder).resolve() for folder in places or ()]
    if SUITE.parent.resolve() not in folders:
        raise pytest.UsageError(
            f"specref: another package called conformance ({', '.join(map(str, folders))}) hides that of specref; "
            "run pytest (rather than python -m pytest) from a folder that holds none"
        )
    pluginmanager.import_plugin(PLUGIN)


def asks_for_suite(config: pytest.Config) -> bool:
    """Whether an argument names the suite: as a package, as a path, or an item of it."""
    for argument in map(str, config.invocation_params.args):
        if "suite" in argument and not argument.startswith("-"):
            named = argument.partition("::")[0]
            path = (config.invocation_params.dir / named).resolve()
            if f"{named}.".startswith("conformance.suite.") or path == SUITE or SUITE in path.parents:
                return True
    return False
