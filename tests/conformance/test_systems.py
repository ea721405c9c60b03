from __future__ import annotations

from conformance.engines import BY_NAME
from conformance.systems import README, SYSTEMS, exists, with_table


def test_the_readme_table_is_current() -> None:
    text = README.read_text()
    assert with_table(text) == text, "run python -m conformance.systems"


def test_every_system_that_claims_an_audit_names_an_engine() -> None:
    assert {engine for system in SYSTEMS for engine in system.audit} <= set(BY_NAME)


def test_modules_named_exist() -> None:
    named = {module for system in SYSTEMS for module in (*system.reference, *system.batched)}
    assert [module for module in sorted(named) if not exists(module)] == []
