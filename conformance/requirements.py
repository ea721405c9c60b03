"""The requirements: what must hold in an engine that speculates, each with its source, the check that decides it, and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """When a requirement holds."""

    ALWAYS = "always"
    IF_PROMISED = "if promised"
    """Only where the engine's own documentation promises it; unpromised is never a violation."""
    IF_OFFERED = "if offered"


@dataclass(frozen=True)
class Requirement:
    """One requirement. kills: the faults that its check rejects. reports: public reports of that kind (project and number)."""

    id: str
    family: str
    sentence: str
    source: str
    check: str
    when: When
    level: str
    kills: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()


REQUIREMENTS = (
    Requirement(
        "LAW-1",
        "LAW",
        "Every emitted token follows the target's law given the engine's own history.",
        "Leviathan et al. 2211.17192, appendix A.1; Chen et al. 2302.01318, theorem 1",
        "conformance.checks.law",
        When.ALWAYS,
        "smoke",
        kills=("resample from p after a rejection", "temperature on one side", "draft leak", "argmax draft with a soft q"),
        reports=(
            "huggingface/transformers 28508",
            "vllm-project/vllm 9834",
            "sgl-project/sglang 7207",
            "sgl-project/sglang 31214",
            "xLLM-AI/xllm 2175",
        ),
    ),
    Requirement(
        "LAW-2",
        "LAW",
        "Successive tokens are jointly what the target would sample: over several rounds nothing depends on anything else.",
        "Leviathan et al. 2211.17192, appendix A.1, applied to whole generations",
        "conformance.checks.law",
        When.ALWAYS,
        "smoke",
        kills=("one random number for a whole chain", "noise reused over rounds", "bonus token from the wrong row"),
        reports=("vllm-project/vllm 54282", "PaddlePaddle/FastDeploy 5568"),
    ),
    Requirement(
        "GREEDY-1",
        "GREEDY",
        "At temperature 0 every emitted token is the target's most probable one given the engine's own history, or within the "
        "measured numerical margin of it.",
        "Greedy verification as in Stern et al. 1811.03115, section 3",
        "conformance.checks.greedy",
        When.ALWAYS,
        "smoke",
        kills=("first draft token unverified", "rollback one too many or too few", "accepted rows not gathered"),
        reports=("ohdearquant/lattice 243", "ggml-org/llama.cpp 4484", "huggingface/transformers 39421"),
    ),
)

BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}


def catalogue() -> str:
    """All requirements as a Markdown table."""
    titles = ("id", "what must hold", "when", "level", "check", "source", "kills", "public reports")
    rows = [titles, ("---",) * len(titles)]
    for r in REQUIREMENTS:
        kills, reports = "; ".join(r.kills), ", ".join(r.reports)
        rows.append((r.id, r.sentence, r.when, r.level, f"`{r.check}`", r.source, kills, reports))
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)
