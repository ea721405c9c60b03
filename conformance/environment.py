"""Versions that a reader needs to repeat an audit."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def environment() -> dict[str, str]:
    """Of Python, the machine, and the packages that the judge computes with."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("specref", "torch", "transformers", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions
