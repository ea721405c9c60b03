"""Why a check stays that kills no planted fault alone."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "bank": "the main check: fewest tokens wherever a bet is near, over all contexts at once, and its holder names the fault",
    "omnibus": "sees what nobody has bet on: the second witness wherever the bets are left out",
    "accepted": "holds accepted drafts against their own law under the ratio rule, undiluted by replacements",
    "residual": "holds replacements against their own law under the ratio rule, undiluted by accepted drafts",
    "acceptance": "reads flags and replacements, not the output: it names the step, and sees faults that cancel in the output",
    "draft law": "bets on how drafts are drawn in real engines (a head, another temperature, the argmax), and says which it is",
    "likelihood": "tells a temperature error from all else, with the fewest tokens where rows are nearly flat",
    "bonus": "a fault of the bonus alone is one token in k + 1 or fewer: the bank of all tokens sees it diluted",
    "after a rejection": "what goes wrong after a rejection is diluted where drafts are mostly accepted",
    "slot": "says at which place of a round the law breaks, and is not diluted by places that are right",
    "row": "a single wrong row of a batch is diluted by the right ones, and the row is what the maintainer must know",
    "context": "a fault of one kind of instance is diluted by the rest, and the kind is what the maintainer must know",
    "shard": "sees a fault that begins late or comes and goes: a whole run dilutes it",
    "lag": "dependence between tokens whose single laws are right: the bank is blind to it",
    "cross-row": "numbers shared by the rows of a batch: with no seeds promised (SEED-2 not asked) nothing else sees them",
    "support": "convicts at the first token with p = 0, whatever the weights: no statistic is quicker",
    "edges": "for laws computed again, at the edge of a truncation; the planted faults' laws are exact, and 'support' convicts",
    "greedy": "the ledger's place for greedy decoding in low precision; planted as 'GREEDY-2 paired prompts'",
    "chi-square": "everybody knows it; its e-value is at most 118, so that it never convicts alone",
    "ks": "everybody knows it",
    "BATCH-2 places": "the same tokens alone and in company, promised seeds (SEED-2) or not, right tokens (GREEDY-1) or not",
    "GRAMMAR-1 places": "names the matcher, rounds before a wrong mask (GRAMMAR-2) or text (GRAMMAR-3) need come of it",
    "GRAMMAR-2 places": "names the position; a wrong mask shows in the text only if a token that it allows is drawn",
    "LOGPROB-2 places": "one number for every token: an engine may return right numbers and too few",
    "SEED-1 places": "the same request twice: SEED-2 asks for company and other schedules, which an engine need not promise",
    "STOP-1 places": "nothing after the end: STOP-2 reads stop sequences alone, ACCEPT-3 only metrics, where promised",
    "STOP-4 places": "an end before min_tokens: in sampled outputs nothing else reads it (GREEDY-1 does at temperature 0)",
    "TREE-1 places": "names the mask and the node; TREE-5 sees that something is wrong, and needs a model to be run",
    "TREE-2 places": "names the position; TREE-5 is blind where a model has no positions",
    "TREE-5 places": "what the model makes of mask and positions together, also where neither can be read from the engine",
}
"""By the name of a check, as "LAW-3 bank", or without its requirement."""


def why(check: str) -> str:
    """Why a check stays that kills nothing alone; "" where nobody has said it.

    >>> why("LAW-3 ks"), why("STOP-3 places")
    ('everybody knows it', '')
    """
    return REASONS.get(check) or REASONS.get(check.partition(" ")[2], "")
