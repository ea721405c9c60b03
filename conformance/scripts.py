"""The smallest case as a sentence, and as a script of under 40 lines that needs the engine and its adapter alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from conformance.probes import COMPANY
from conformance.protocols import Tokens
from conformance.reporting.text import plural, token
from conformance.reporting.violation import SCRIPT
from conformance.smallest import Smallest
from conformance.smallest_greedy import SmallestGreedy


def sentence(one: Smallest | SmallestGreedy, texts: Sequence[str]) -> str:
    """What the smallest case shows, in words. texts: of the tokens, `[V]`."""

    def named(number: int) -> str:
        return f"{number} (“{token(texts[number], 24)}”)" if number < len(texts) else str(number)

    asked = f"with a prompt of {plural(len(one.prompt), 'token')}, k = {one.k} and {one.settings.max_tokens} new tokens"
    where = f"position {one.place} (counted from 0)"
    if isinstance(one, SmallestGreedy):
        said = (
            f"at temperature 0, {asked}, {where} is token {named(one.output[-1])} where the target's best is "
            f"{named(one.best)}, {one.gap:.3g} logits above it"
        )
        return said if one.control is None else f"{said}; without speculation {_without(one, one.control[1], named)} came"
    said = (
        f"{asked}, {where} is token {named(one.token)} in {one.seen} of {one.requests} requests, "
        f"where {one.expected:.1f} are expected by the target's law ({one.deviations:+.1f} standard deviations)"
    )
    return said + (f", and {one.control[1]} came without speculation" if one.control else "")


def _without(one: SmallestGreedy, written: Tokens, named: Callable[[int], str]) -> str:
    """What the control wrote at the same place, where the same tokens came before it: near-ties may part outputs."""
    same = written[: one.place] == one.output[:-1] and len(written) > one.place
    return f"token {named(written[one.place])}" if same else "another output"


def script(factory: str, one: Smallest | SmallestGreedy, said: str, own_models: bool, file: str) -> str:
    """Asks the engine alone for that case, with speculation and without. factory: module:callable. said: its `sentence`.
    own_models: whether the audit was given models, which the script then asks for too. file: what it will be called."""
    module, _, make = factory.partition(":")
    server = module == "conformance.engines.http_server"
    run = f"python {file}" + (" TARGET DRAFT  (the models' folders)" if own_models else "")
    run = f"SPECREF_SERVER=ADDRESS {run}" if server else run
    models = (
        "Models(*map(Path, sys.argv[1:3]))" if own_models else 'Models(pretrained.path("target"), pretrained.path("draft"))'
    )
    asked = one.settings
    heat = f", temperature={asked.temperature:g}" if asked.temperature != 1 else ""
    ends = f", eos={asked.eos!r}" if asked.eos else ""
    names = [*([one.control[0]] if one.control else []), one.mode]
    lines = [
        *(f"# {line}" for line in textwrap.wrap(f"{SCRIPT} of mode {one.mode!r}: {said}.", 120)),
        "#",
        f"# Run: {run}",
        "",
        "import sys",
        *(["from pathlib import Path"] if own_models else []),
        "",
        "from conformance.protocols import Models, Request",
        *([] if own_models else ["from specref import pretrained"]),
        "from specref.processors import SamplingSettings",
        "",
        'sys.path.insert(0, "")  # modules of the current folder',
        f"from {module} import {make}",
        "",
        f"engine = {make}({models})",
        f"modes = {{mode.name: mode for mode in engine.modes({one.k})}}",
        f"settings = SamplingSettings(max_tokens={asked.max_tokens}{heat}{ends})",
        *(_looking(one, names) if isinstance(one, SmallestGreedy) else _counting(one, names)),
    ]
    return "\n".join(lines)


def _counting(one: Smallest, names: Sequence[str]) -> list[str]:
    """How often the token came, in each mode."""
    return [
        f"requests = [Request({one.prompt!r}, settings, seed) for seed in range({one.requests})]",
        f"for name in {names!r}:",
        f"    batches = [requests[start : start + {COMPANY}] for start in range(0, len(requests), {COMPANY})]",
        "    outputs = [output.tokens for batch in batches for output in engine.generate(modes[name], batch)]",
        f"    count = sum(tokens[{one.place} : {one.place + 1}] == ({one.token},) for tokens in outputs)",
        f'    print(f"{{name}}: token {one.token} at position {one.place} of {{count}} of {{len(outputs)}} outputs")',
    ]


def _looking(one: SmallestGreedy, names: Sequence[str]) -> list[str]:
    """The output of each mode, and the target's choice after the output of the last."""
    return [
        f"request = Request({one.prompt!r}, settings, 0)",
        f"for name in {names!r}:",
        "    (output,) = engine.generate(modes[name], [request])",
        '    print(f"{name}: {output.tokens}")',
        f'print("position {one.place}: after {one.output[:-1]} the target\'s best is {one.best}")',
    ]
