"""Errors that a user can mend: one line that says what is wrong and what to do. The command ends with exit code 2."""

from __future__ import annotations


class UsageProblem(Exception):
    """Wrong settings, or models that cannot be used; found before anything is sampled."""
