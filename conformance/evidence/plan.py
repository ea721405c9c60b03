"""The sealed plan of an audit: everything that decides what is sampled and how it is judged, fixed before the first token."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.evidence.files import EvidenceProblem, digest_of, from_plain, read_sealed, to_plain
from conformance.folders import without_folders
from conformance.harness import EngineInfo
from conformance.levels import AuditSettings, Level
from conformance.protocols import Mode
from conformance.scoring import laws_at
from conformance.statistics import Ledger
from conformance.subject import Subject

FORMAT = 1
"""Version of the folder's layout."""
FILE = "plan.json"
SAME_MODEL = 1e-3
"""How far the log-likelihood of a text may differ, in nats per token, between two machines that read the same model."""


def plan_of(
    name: str,
    info: EngineInfo,
    settings: AuditSettings,
    subjects: Mapping[str, Subject],
    ledgers: Mapping[str, Ledger],
    *,
    self_draft: bool,
) -> dict[str, Any]:
    """The plan as plain data. name: under which it is audited. subjects: the pairs of models by their names."""
    plan = {
        "format": FORMAT,
        "audited as": name,
        "engine": dataclasses.asdict(info),
        "settings": dataclasses.asdict(settings),
        "models": [{"pair": pair, **_models(subject)} for pair, subject in subjects.items()],
        "self-draft": self_draft,
        "ledgers": {
            part: {"digest": ledger.plan.digest, "plan": json.loads(ledger.plan.to_json())} for part, ledger in ledgers.items()
        },
    }
    return dict(from_plain(to_plain(without_folders(plan))))


def _models(subject: Subject) -> dict[str, Any]:
    """What tells these models and prompts from others. The likelihoods are of one text, per token, in nats."""
    prompts = [subject.prompts.prompt(seed) for seed in range(9)]
    text = [(prompts[0], tuple(token for prompt in prompts[1:] for token in prompt)[:64])]
    found: dict[str, Any] = {
        "target": subject.target_name,
        "draft": subject.draft_name,
        "vocabulary": subject.target.vocabulary,
    }
    found["end of sequence"] = list(subject.eos)
    found["prompts"] = digest_of(to_plain(prompts))
    for role, scorer in (("target", subject.target), ("draft", subject.draft)):
        laws = laws_at(scorer.logits(text)[0], 1.0)
        chances = laws[np.arange(len(laws)), list(text[0][1])]
        found[f"log-likelihood, {role}"] = float(np.log(chances + 1e-30).mean())
    return found


def read_plan(folder: Path) -> tuple[dict[str, Any], str]:
    """The sealed plan in a folder, and its digest. Raises EvidenceProblem."""
    if not (folder / FILE).exists():
        raise EvidenceProblem(
            f"{folder.name!r} is no evidence folder of an engine: it holds no {FILE}; name the folder that does"
        )
    plan, digest = read_sealed(folder / FILE)
    if plan.get("format") != FORMAT:
        raise EvidenceProblem(
            f"the evidence has format {plan.get('format')!r}, and this version reads format {FORMAT}; use the other version"
        )
    return plan, digest


def refuse_changes(sealed: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise EvidenceProblem, naming the first difference, unless both plans are the same."""
    differences = sorted(
        _differences(sealed, now, ""), key=lambda one: one[0].startswith("ledgers")
    )  # they follow from the rest
    for name, before, after in differences:
        raise EvidenceProblem(
            f"the plan has changed since it was sealed: {name} was {_short(before)} and is {_short(after)}. "
            "Evidence belongs to its plan: repeat the audit with the sealed settings, or begin in a new folder"
        )


def _differences(before: Any, after: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(set(before) | set(after)):
            yield from _differences(before.get(key), after.get(key), f"{name} {key}".strip())
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after), start=1):
            yield from _differences(one, other, f"{name} {place}")
    elif "log-likelihood" in name and isinstance(before, float) and isinstance(after, float):
        if not math.isclose(before, after, rel_tol=0, abs_tol=SAME_MODEL):
            yield name, before, after
    elif before != after:
        yield name, before, after


def _short(value: Any) -> str:
    text = json.dumps(to_plain(value))
    return text if len(text) <= 80 else text[:79] + "…"


def settings_of(plan: Mapping[str, Any]) -> AuditSettings:
    """The audit's settings."""
    found = dict(plan["settings"])
    return AuditSettings(Level(**found.pop("level")), **found)


def engine_of(plan: Mapping[str, Any]) -> EngineInfo:
    """The engine and its modes."""
    engine = plan["engine"]
    modes = tuple(Mode(**entry) for entry in engine["modes"])
    return EngineInfo(engine["name"], engine["version"], modes, tuple(engine["not_asked"]))


def refuse_other_models(plan: Mapping[str, Any], subjects: Sequence[Subject]) -> None:
    """Raise EvidenceProblem unless the evidence was gathered for these models."""
    pairs = pairs_of(plan)
    if len(subjects) != len(pairs):
        raise EvidenceProblem(
            f"the evidence is of {len(pairs)} pairs of models ({', '.join(pairs)}): give all of them, in this order"
        )
    now = [{"pair": pair, **_models(subject)} for pair, subject in zip(pairs, subjects)]
    refuse_changes({"models": plan["models"]}, {"models": from_plain(to_plain(now))})


def pairs_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of its pairs of models."""
    return [models["pair"] for models in plan["models"]]
