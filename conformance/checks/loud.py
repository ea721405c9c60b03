"""LOUD: a setting is obeyed or refused, never ignored without a word; a mode that changes the law says so.

A **probe** is a setting so strong that one token shows whether it was obeyed: a ban, a top-1, a penalty that forbids
repetition. What it allows is computed from the target's own logits along the engine's output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from conformance.checks.places import Place, judged, nonsense, rate_caught
from conformance.components import Mask
from conformance.findings import Finding
from conformance.protocols import LOSSY_RULES, Mode, Output, Request, Tokens
from specref.processors import SamplingSettings
from specref.processors.rows import law_of

STRONG = 1e4
"""A penalty that no logit outweighs."""
OBEYED_ODDS = 100
"""Odds against "ignored" from which a setting is said to be obeyed in part. It words a violation; it decides none."""


@dataclass(frozen=True)
class Probe:
    """A setting to try: its name, as users know it, and the settings of the request."""

    setting: str
    settings: SamplingSettings


def probes(max_tokens: int, banned: Sequence[int], eos: Sequence[int]) -> list[Probe]:
    """One probe per setting. banned: tokens that the engine likes to emit after these prompts. eos: likewise, as an end.

    >>> [probe.setting for probe in probes(8, banned=[3], eos=[2])][:3]
    ['temperature', 'top_k', 'top_p']
    """
    plain = SamplingSettings(max_tokens=max_tokens)
    return [
        Probe("temperature", replace(plain, temperature=0.0)),
        Probe("top_k", replace(plain, top_k=1)),
        Probe("top_p", replace(plain, top_p=1e-6)),
        Probe("min_p", replace(plain, min_p=1.0)),
        Probe("repetition_penalty", replace(plain, temperature=0.0, repetition_penalty=STRONG)),
        Probe("presence_penalty", replace(plain, presence_penalty=STRONG)),
        Probe("frequency_penalty", replace(plain, frequency_penalty=STRONG)),
        Probe("logit_bias", replace(plain, logit_bias=dict.fromkeys(banned, -STRONG))),
        Probe("bad_words", replace(plain, bad_words=tuple((token,) for token in banned))),
        Probe("min_tokens", replace(plain, min_tokens=max_tokens, eos=eos)),
    ]


@dataclass(frozen=True)
class Tried:
    """What came of a probe: the refusal's message, or outputs with the target's raw logits along them (`[len(output), V]`).

    end: how the engine ended, twice, where it answers the same requests without the setting.
    """

    probe: Probe
    requests: Sequence[Request] = ()
    outputs: Sequence[Output] = ()
    logits: Sequence[npt.NDArray[np.float64]] = ()
    refusal: str | None = None
    end: str | None = None


def loud_findings(mode: str, tried: Sequence[Tried], *, margin: float, planned: int) -> Finding:
    """LOUD-1: every probe was obeyed in every token, or refused by a message that names the setting.

    margin: in logits; a token this near to an allowed one is a near-tie.
    """
    places = []
    for one in tried:
        setting = one.probe.setting
        if one.end is not None:
            places.append(Place(setting, "an answer or a refusal", f"the end of the engine, twice ({one.end[:120]})"))
            continue
        if one.refusal is not None:
            if not _names(one.probe, one.refusal):
                places.append(Place(setting, "a refusal that names the setting", repr(one.refusal[:80])))
            continue
        if not one.outputs or not any(output.tokens for output in one.outputs):
            return nonsense("LOUD-1", mode, f"the probe of {setting} was neither refused nor answered")
        place = _disobeyed(one, margin)
        if place is not None:
            places.append(place)
    claim = "every setting was obeyed or refused"
    found = judged("LOUD-1", mode, places, n=len(tried), planned=planned, unit="settings", claim=claim)
    return replace(found, detects=_caught(tried))


def _caught(tried: Sequence[Tried]) -> str:
    """What would have been seen of any setting that was tried: tokens that it forbids, at a rate that follows from how many
    were looked at; that it is ignored altogether, which lets most tokens through, shows in a few."""
    looked = [sum(len(output.tokens) for output in one.outputs) for one in tried if one.refusal is None and one.end is None]
    if not looked:
        return f"a refusal that does not name its setting, of {len(tried)}" if tried else ""
    return f"one of {len(looked)} settings, where {rate_caught(min(looked)):.2g} of the tokens are such as it forbids"


def _names(probe: Probe, refusal: str) -> bool:
    """Whether a refusal names what a probe tries, or the ends that come with it.

    >>> probe = Probe("min_tokens", SamplingSettings(max_tokens=8, min_tokens=8, eos=(2, 3)))
    >>> [_names(probe, said) for said in ("no minTokens here", "eos: there is one end, got 2", "error 7")]
    [True, True, False]
    """
    said = re.sub("[_ -]", "", refusal.lower())
    return probe.setting.replace("_", "") in said or (bool(probe.settings.eos) and "eos" in said)


def _disobeyed(one: Tried, margin: float) -> Place | None:
    """The first token that the setting forbids, and how many there are: a setting that is ignored lets through far more than
    a fault that shows under every setting, such as drafts that are now and then kept unverified."""
    looked = [
        (number, at, allowed_tokens(one.probe.settings, request.prompt, output.tokens[:at], rows[at], margin))
        for number, (request, output, rows) in enumerate(zip(one.requests, one.outputs, one.logits))
        for at in range(len(output.tokens))
    ]
    wrong = [(number, at, allowed) for number, at, allowed in looked if not allowed[one.outputs[number].tokens[at]]]
    if not wrong:
        return None
    number, at, allowed = wrong[0]
    shown = np.flatnonzero(allowed)
    words = f"one of tokens {shown[:4].tolist()}" if len(shown) <= 4 else f"one of {len(shown)} other tokens"
    ignored = sum(float(_law_without(one, number, at)[~allowed].sum()) for number, at, allowed in looked)
    found = f"token {one.outputs[number].tokens[at]} ({len(wrong)} of {len(looked)} tokens are forbidden ones; "
    found += f"were the setting ignored, about {ignored:.0f} would be"
    # a bet that forbidden tokens are half as frequent as where the setting is ignored
    held = ignored / 2 - len(wrong) * np.log(2) > np.log(OBEYED_ODDS)
    found += ", so it is obeyed, and another fault breaks in)" if held else ")"
    return Place(f"{one.probe.setting}, request {number}, position {at}", words, found)


def _law_without(one: Tried, number: int, at: int) -> npt.NDArray[np.float64]:
    """The target's law `[V]` at a position of an output, at the probe's other settings."""
    setting = one.probe.setting
    ignored = replace(one.probe.settings, **{setting: getattr(SamplingSettings(max_tokens=1), setting)})
    return law_of(_processed(ignored, one.requests[number].prompt, one.outputs[number].tokens[:at], one.logits[number][at]))


def _processed(
    settings: SamplingSettings, prompt: Tokens, output: Tokens, logits: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Raw logits `[V]` seen through all that the settings ask for."""
    row = logits
    for processor in settings.processors():
        row = np.asarray(processor(row, prompt, output), dtype=np.float64)
    return row


def allowed_tokens(
    settings: SamplingSettings, prompt: Tokens, output: Tokens, logits: npt.NDArray[np.float64], margin: float
) -> Mask:
    """Which tokens `[V]` a probe's settings leave a noticeable probability (1e-30), given raw logits `[V]`.

    Logits within `margin` of a kept one are kept too. At temperature 0 these are the best tokens; a repetition penalty
    multiplies logits, and so what they may lawfully differ by.

    >>> settings = SamplingSettings(max_tokens=4, presence_penalty=1e4)
    >>> allowed_tokens(settings, (5,), (1,), np.array([0.0, 3.0, 1.0]), margin=0.0)
    array([ True, False,  True])
    """
    row = _processed(replace(settings, temperature=1.0), prompt, output, logits)
    best = int(row.argmax())
    times = np.ones(len(row))
    if settings.repetition_penalty != 1:
        times = np.maximum(1.0, np.abs(np.divide(row, logits, out=np.ones(len(row)), where=logits != 0)))
    within = margin * np.maximum(times, times[best]) if settings.temperature == 0 else -np.log(1e-30)
    kept = row >= row[best] - within
    if settings.top_k is not None or settings.top_p < 1 or settings.min_p > 0:
        kept |= logits >= logits[kept].min() - margin
    return np.asarray(kept)


def declared_finding(mode: Mode) -> Finding:
    """LOUD-2: a mode whose rule changes the law says so.

    >>> declared_finding(Mode("typical acceptance", {"k": 4}, rule="typical")).violations[0]
    "the rule 'typical': expected a declaration that it changes the law, found none"
    """
    lossy = [name for name in LOSSY_RULES if name in mode.rule]
    places = (
        [Place(f"the rule {mode.rule!r}", "a declaration that it changes the law", "none")] if lossy and not mode.lossy else []
    )
    claim = "a rule that changes the law is declared" if lossy else "the declared rule keeps the law"
    found = judged("LOUD-2", mode.name, places, n=1, planned=1, unit="modes", claim=claim)
    return replace(found, detects="a rule whose name says that it changes the law, undeclared")
