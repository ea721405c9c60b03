"""The kill matrix as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.controls.bounded import NOT_BOUNDED
from conformance.controls.control import RESTARTS, RUNS, Control
from conformance.controls.lossy import LOSSY
from conformance.controls.table import HEADS, cells, shown
from conformance.statistics.plan import GROUPS
from conformance.studies.faults_reasons import why
from conformance.studies.faults_results import Result
from conformance.studies.report import table

Results = Mapping[str, Sequence[Result]]


def parts(summary: str, controls: Mapping[str, Control], results: Results, runs: int) -> list[str]:
    """The report's parts."""
    faults = {id: one for id, one in controls.items() if one.requirements and one.kind != "composed"}
    made = {id: one for id, one in controls.items() if one.kind == "composed"}
    return [
        summary,
        promise(runs),
        "## Exact laws\n\n" + table(HEADS, cells()),
        "## Faults\n\n" + _matrix(faults, results) + _either(faults),
        "## Faults composed at random\n\n" + (_matrix(made, results) if made else "None in this run."),
        "## Lawful variations\n\n" + _passed(controls, results),
        "## Lossy by choice\n\n" + _lossy(),
        "## What only one check kills\n\n" + _only(controls, results),
    ]


def promise(runs: int) -> str:
    """What the runs of this report show about the stated n."""
    first = "Every control is audited as a real engine is, at a false-alarm rate of 1e-6 for all that is done to it. "
    if runs < RUNS:
        return (
            first + f"Each ran {runs} time{'s' * (runs > 1)} here; {RUNS} fresh seeds each say whether the stated n is enough."
        )
    return first + (
        "The stated n has power 1 - 1e-6. Where it says 'bound', it is computed from the bets that are held, by Markov's "
        "inequality on the wealth of the bets on a round's first token, over the audit's own instances, and on the chance that "
        f"no step is forbidden where LAW-4 must fail (`conformance/controls/bounded.py`). {NOT_BOUNDED}\n\n"
        f"With restarts, a fault that an audit misses is audited again on fresh samples, up to {RESTARTS} times at an eighth "
        f"of the false-alarm rate each. Where all of {RUNS} runs were killed by their first audit, the power of {RESTARTS} "
        "audits is 1 - 1e-6: all orders of 28 runs are equally likely, so 20 are killed sooner than each of 8 further ones "
        "with probability 1 / C(28, 8) = 3.2e-7."
    )


def _matrix(controls: Mapping[str, Control], results: Results) -> str:
    heads = (
        "control",
        "kind",
        "must fail",
        "killed by",
        "after (median, most)",
        "stated n",
        "killed",
        "by the first audit",
        "TV",
        "acceptance alone",
        "also",
    )
    rows = []
    for id, one in controls.items():
        some = results[id]
        killed = [each for each in some if each.as_stated]
        needed = sorted(each.n for each in killed)
        also = sorted({name for each in some for name in each.violated} - set(one.requirements))
        rows.append(
            (
                id,
                one.kind,
                " or ".join([", ".join(one.requirements), *one.instead]),
                "; ".join(killed[0].killed_by) if killed else "-",
                f"{needed[len(needed) // 2]}, {needed[-1]}" if killed else "-",
                f"{one.bounded} {one.audit.unit}, bound" if one.bounded else f"{RESTARTS} x {one.audit.n} {one.audit.unit}",
                f"{len(killed)} of {len(some)}",
                f"{sum(each.audits == 1 for each in killed)} of {len(some)}",
                shown(one.exact.variation()) if one.exact else "-",
                "sees it" if one.acceptance_sees else "blind",
                ", ".join(also),
            )
        )
    return table(heads, rows)


def _either(controls: Mapping[str, Control]) -> str:
    """Why a fault may be killed by either of two requirements."""
    some = [(id, " or ".join([*one.requirements, *one.instead]), one) for id, one in controls.items() if one.instead]
    told = [f"\n* {id}, {either}: {one.because}." for id, either, one in some]
    return "\n\nEither of two requirements, whichever is proven first:\n" + "".join(told) if told else ""


def _passed(controls: Mapping[str, Control], results: Results) -> str:
    rows = []
    for id, one in controls.items():
        if not one.requirements:
            conforming = sorted({name for each in results[id] for name in each.conforms})
            passed = sum(each.as_stated for each in results[id])
            rows.append((id, f"{one.audit.n} {one.audit.unit}", f"{passed} of {len(results[id])}", ", ".join(conforming)))
    return table(("variation", "judged", "passed", "conforms to"), rows)


def _lossy() -> str:
    rows = []
    for mode in LOSSY:
        law = mode.law()
        told = ", ".join(f"{token}: {law.law.get(token, 0)}" for token in range(len(mode.shown)))
        neutral, strict = mode.neutral_laws()
        rows.append((mode.id, told, shown(law.variation(mode.shown)), "equal" if neutral == strict else "NOT EQUAL"))
    return table(("mode", "law of the first token", "TV to the target", "neutral setting and strict rule"), rows)


def _only(controls: Mapping[str, Control], results: Results) -> str:
    """For each check the faults that no other check would have convicted in any run."""
    convicting = {
        id: {name for each in results[id] for name in each.checks} for id, one in controls.items() if one.requirements
    }
    names = sorted({name for some in convicting.values() for name in some})
    known = {check for _, checks in GROUPS.values() for check in checks}
    silent = sorted(known - {name.partition(" ")[2] for name in names})
    rows: list[tuple[object, ...]] = []
    for name in (*names, *silent):
        seen = [id for id, some in convicting.items() if name in some]
        alone = [id for id in seen if convicting[id] == {name}]
        told = (
            "; ".join(alone[:4]) + ("; ..." if len(alone) > 4 else "") if alone else f"stays: {why(name) or 'NO REASON GIVEN'}"
        )
        rows.append((name, len(seen), len(alone), told))
    note = (
        "A check is counted where it would have convicted had it been the only one. An audit ends once all that a control "
        "names has failed, so what a later look would have seen is not counted. Of a check that kills nothing alone it is said "
        "why it stays."
    )
    return note + "\n\n" + table(("check", "faults convicted", "by it alone", "for instance, or why it stays"), rows)
