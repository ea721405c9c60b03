"""Which cases an audit has, so that every two values of different factors meet in one of them.

The factors are the mode (what speculates, whatever its options), each option that modes have (a cache, say), the sampling
setting, and the architecture, which is that of the pair of models. A level decides how many cases there are: the plain setting
of every mode; a share in which every two values meet; or every setting of every mode, in which the further pairs of models take
turns, so that they cost no cases of their own. What then has not met yet is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance.asked_law import mixture_is_known
from conformance.cases import PLAIN, Case, Setting, table, weighed
from conformance.levels import AuditSettings
from conformance.pairwise import Row, covering
from conformance.protocols import Mode
from conformance.subject import Subject
from specref.processors import SamplingSettings

FIRST_PAIR = "first pair"
"""What evidence calls the models that the command names; and their architecture, where it is not known."""
UNCHANGED = "default"
"""The value of an option in modes that do not have it."""

Key = tuple[int, int, int]
"""Numbers of a mode, a setting and a pair of models."""


@dataclass(frozen=True)
class CasePlan:
    """The cases of an audit. rows: the factors of each with their values, by its name; those of `absent` too, the cases whose
    modes are not to be had here: they are not tried, and have no tokens."""

    cases: tuple[Case, ...]
    rows: Mapping[str, Row] = field(default_factory=dict)
    absent: tuple[Case, ...] = ()


def plan_cases(modes: Sequence[Mode], settings: AuditSettings, subject: Subject, others: Sequence[str] = ()) -> CasePlan:
    """Every case of the level. others: names of further pairs of models."""
    if settings.temperature == 0:
        return CasePlan(())
    level = settings.level
    some = [Setting(PLAIN)] if level.cases == "plain" else table(settings, subject)
    names = [subject.architecture or FIRST_PAIR, *others]
    rows = {
        (m, s, pair): _row(mode, modes, setting, names[pair], coarse=level.cases != "all")
        for pair in range(len(names))
        for m, mode in enumerate(modes)
        for s, setting in enumerate(some)
    }
    turns = _turns(modes, len(some) if level.cases == "all" else 1, len(names))
    if level.cases == "all":
        turns += [(m, 0, 0) for m, mode in enumerate(modes) if mode.brief]
    here = {key: row for key, row in rows.items() if not modes[key[0]].not_here}
    chosen = dict.fromkeys(key for key in turns if key in here)
    if level.cases != "plain" or others:
        keys = list(here)
        chosen |= {keys[number]: None for number in covering(list(here.values()), [here[key] for key in chosen])}
    listed = sorted(chosen, key=lambda key: (key[2], key[0], key[1]))
    left = [key for key in dict.fromkeys(turns) if key not in here]
    made = [Case(_declaring(modes[m], some[s], settings), some[s], pair, names[pair]) for m, s, pair in [*listed, *left]]
    by_name = {case.name: rows[key] for case, key in zip(made, [*listed, *left], strict=True)}
    return CasePlan(tuple(weighed(made[: len(listed)], settings)), by_name, tuple(made[len(listed) :]))


def _turns(modes: Sequence[Mode], settings: int, pairs: int) -> list[Key]:
    """So many settings of every mode that is no brief one: the plain one on the first pair of models, the others on one pair
    after the other, so that each mode and each setting meets every pair.

    >>> _turns([Mode("off"), Mode("fast", {"k": 2})], 3, 2)
    [(0, 0, 0), (0, 1, 1), (0, 2, 0), (1, 0, 0), (1, 1, 0), (1, 2, 1)]
    """
    full = [m for m, mode in enumerate(modes) if not mode.brief]
    return [(m, s, (m + s) % pairs if s else 0) for m in full for s in range(settings)]


def _declaring(mode: Mode, setting: Setting, settings: AuditSettings) -> Mode:
    """The mode with its declared mixture in settings in which it is known; in others its law is only measured."""
    asked = SamplingSettings(**{"max_tokens": 8, "temperature": settings.temperature, **setting.fields, "eos": (0,)})
    return mode if mode.ensemble == 1 or mixture_is_known(mode, asked) else replace(mode, ensemble=1.0)


def _row(mode: Mode, modes: Sequence[Mode], setting: Setting, pair: str, *, coarse: bool) -> Row:
    """The factors of a case. coarse: modes count as equal that declare one rule and one law of drafts, and an option is one
    of the factors where a mode has it."""
    alike = next(one for one in modes if one.speculation == mode.speculation)
    how = f"{mode.rule} rule, {mode.draft_law or 'no'} draft" if coarse else alike.name
    options = dict.fromkeys(name for one in modes for name in one.options)
    values = {name: str(mode.options.get(name, UNCHANGED)) for name in options if name in mode.options or not coarse}
    return {"mode": how, "setting": setting.name, "architecture": pair, **values}
