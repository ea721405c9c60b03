"""A run in which every text that an engine could have written attacks whoever shows it."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from example_run import ALPHA, law, mode, report

from conformance.findings import EngineReport, Finding, Verdict

HTML = "\"'><script>alert(1)</script><img src=x onerror=alert(1)></style></svg><a href=javascript:alert(1)>"
TEMPLATE = "{{ 7 * 7 }}{% for x in y %}{# #}"
MARKDOWN = "`a` ``` | x | **b** [l](http://evil.example/) ![i](//evil.example/i.png) <b>\n"
MARKDOWN += "@someone #123 www.evil.example GH-1 \\| $x$\n# head\n---\n"
MARKUP = "[red]r[/red] [/] [link=http://evil.example]l[/link] :bomb:"
CONTROL = "\x00\x07\x08\x1b[31m\x1b]8;;http://evil.example\x07\x7f\x9b2J\r\ud800\ufffe\uffff\u202e\u2066\u2028]]> <!-- -->"
MATH = "$\\frac{$ _x_ ^"
EVERYTHING = HTML + TEMPLATE + MARKDOWN + MARKUP + CONTROL + MATH


def hostile(attack: str = EVERYTHING) -> EngineReport:
    """One engine with every verdict and one measured mode; every text begins with the attack."""
    measured = mode("m", "ratio", "draft", 9_000, k=2, leak=0.1)
    findings = [law("LAW-1", "m", 9_000, 0.1)]
    findings += [
        Finding(f"X-{i}", "m", verdict, "s", 5, 9, "u", ALPHA, 1.0, (), "d", ("v", "w"), "r")
        for i, verdict in enumerate(Verdict)
    ]
    benign = report("e", "1", findings, (measured,), notes=("n",))
    poisoned: EngineReport = poison(benign, attack)
    return poisoned


def poison(value: Any, attack: str) -> Any:
    """The value with the attack before every text in it, however deep."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return attack + value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: poison(getattr(value, f.name), attack) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(poison(item, attack) for item in value)
    if isinstance(value, dict):
        return {poison(key, attack): poison(item, attack) for key, item in value.items()}
    return value
