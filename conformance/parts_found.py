"""What the parts that were audited alone say of the cause of a wrong law: more than any probe, because they were seen alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.expected import COMPONENT
from conformance.findings import Finding, Verdict
from conformance.protocols import Mode

Found = Mapping[tuple[str, str], Finding]
"""All findings, by requirement and mode."""
OTHER_LAW = "drafts are not drawn from the law that verification is handed"
OTHER_ENTRIES = "the cache does not hold what reading the same tokens afresh leaves there"


def guilty_parts(mode: Mode, found: Found) -> tuple[str, ...]:
    """Components that violate LAW or DRAFT by themselves; of drafters only the mode's own, where it names it. Those that
    apply settings are no evidence against the rule if they are wrong for the settings' sake."""
    some = [one for one in found.values() if one.mode.startswith(COMPONENT) and one.verdict is Verdict.VIOLATES]
    lost = bool(settings_do_not_arrive(found))
    laws = [one for one in some if one.requirement.startswith("LAW-") and not (lost and one.applies)]
    drafts = [one for one in some if one.requirement.startswith("DRAFT-")]
    mine = [one for one in drafts if not mode.drafter or one.mode == COMPONENT + mode.drafter]
    return tuple(f"{one.mode} violates {one.requirement}" for one in (*laws, *mine))


def drafter_violates(mode: Mode, found: Found) -> tuple[str, ...]:
    """What DRAFT-1 found of the component that drafts in this mode."""
    return _violated("DRAFT-1", mode.drafter, found)


def cache_violates(mode: Mode, found: Found) -> tuple[str, ...]:
    """What KV-1 found of the component that keeps the cache of this mode."""
    return _violated("KV-1", mode.cache, found)


def _violated(requirement: str, part: str, found: Found) -> tuple[str, ...]:
    one = found.get((requirement, COMPONENT + part))
    wrong = one is not None and one.verdict is Verdict.VIOLATES
    return (f"{one.mode} violates {requirement}: {one.summary}",) if one is not None and wrong else ()


def drafter_is_honest(mode: Mode, found: Found) -> bool:
    """Whether its drafts follow the law that is claimed for them; of n-grams nothing is claimed."""
    one = found.get(("DRAFT-1", COMPONENT + mode.drafter))
    return mode.draft_law == "n-gram" or (one is not None and one.verdict is Verdict.CONFORMS)


def settings_do_not_arrive(found: Found) -> tuple[str, ...]:
    """The evidence that settings are lost before drafts are verified: all parts that are handed laws are right, and of those
    that apply settings themselves some emit tokens of another law. Empty where parts say no such thing.

    >>> def part(name: str, verdict: Verdict, *applies: str) -> Finding:
    ...     return Finding("LAW-3", COMPONENT + name, verdict, "", applies=applies)
    >>> whole, rule = part("whole", Verdict.VIOLATES, "temperature"), part("rule", Verdict.CONFORMS)
    >>> settings_do_not_arrive({("LAW-3", one.mode): one for one in (whole, rule)})[0]
    'component: whole, which applies temperature itself, violates LAW-3'
    >>> settings_do_not_arrive({("LAW-3", whole.mode): whole}), settings_do_not_arrive({("LAW-3", rule.mode): rule})
    ((), ())
    """
    laws = [one for one in found.values() if one.mode.startswith(COMPONENT) and one.requirement.startswith("LAW-")]
    handed = [one for one in laws if not one.applies]
    right = [one.mode for one in handed if one.requirement == "LAW-3" and one.verdict is Verdict.CONFORMS]
    lost = [one for one in laws if one.applies and one.requirement == "LAW-3" and one.verdict is Verdict.VIOLATES]
    if not lost or not right or any(one.verdict is Verdict.VIOLATES for one in handed):
        return ()
    said = [f"{one.mode}, which applies {' and '.join(one.applies)} itself, violates LAW-3" for one in lost]
    return (*said, f"every part that is handed laws conforms (parts: {len(right)})")


READ = ("LAW-1", "LAW-2", "GREEDY-1", "GREEDY-4", "LOGPROB-1")
"""What a cache with other entries makes wrong; a drafter that claims another law, the first two."""


def with_parts_that_explain(findings: Sequence[Finding], modes: Mapping[str, Mode]) -> list[Finding]:
    """The findings: violations of a mode name the part of its own that is wrong alone, where that explains them. modes: of each
    case, by name.

    >>> mode = Mode("fast", {"k": 4}, cache="paged")
    >>> wrong = [Finding(*one, Verdict.VIOLATES, "wrong") for one in (("KV-1", "component: paged"), ("GREEDY-1", "fast"))]
    >>> [one.summary for one in with_parts_that_explain(wrong, {"fast": mode})]
    ['wrong', 'wrong. KV-1 of component: paged explains it']
    """
    wrong = {(one.requirement, one.mode) for one in findings if one.verdict is Verdict.VIOLATES}

    def told(one: Finding) -> Finding:
        mode = modes.get(one.mode)
        if mode is None or one.verdict is not Verdict.VIOLATES or one.not_speculation:
            return one
        explaining = [("DRAFT-1", mode.drafter)] if one.requirement in READ[:2] else []
        explaining += [("KV-1", mode.cache)] if one.requirement in READ else []
        parts = [f"{what} of {COMPONENT}{part}" for what, part in explaining if (what, COMPONENT + part) in wrong]
        return (
            replace(one, summary=f"{one.summary}. {' and '.join(parts)} {'explain' if parts[1:] else 'explains'} it")
            if parts
            else one
        )

    return [told(one) for one in findings]
