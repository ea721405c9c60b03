"""Requests under a grammar: what is asked of a mode that offers one, and how its outputs are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.asking import Asking
from conformance.checks.grammar import grammar_law_finding, text_finding
from conformance.checks.places import not_exposed
from conformance.components import Floats
from conformance.findings import Finding, Verdict
from conformance.protocols import Request, Tokens
from conformance.sampling import judged_part
from conformance.subject import Subject
from specref.engine.grammar import Allowed, Grammar, GrammarsMissing

TEXT = r"""
start: word (" " (word | "(" word ")"))* "."
word: /[a-z]{1,4}/
"""
"""Short words, some of them in brackets, and a full stop: what may follow changes at almost every token."""
GROUP, SHARE = 8, 32
"""Requests for each of a level's requests of a group, or as many as have this part of the tokens of the plain case."""


def grammar_of(subject: Subject) -> Grammar | str:
    """The grammar over the subject's tokens, read by the judge itself, or why there is none."""
    if subject.read_grammar is None:
        return "the target has no tokenizer by which a grammar's texts could become tokens"
    try:
        grammar = subject.read_grammar(TEXT)
    except GrammarsMissing as missing:
        return str(missing)
    except ValueError as refused:  # a tokenizer that llguidance cannot take, or a vocabulary without these letters
        return f"the grammar cannot be read over the target's tokens: {refused}"
    if grammar.vocabulary != subject.target.vocabulary:
        return f"the tokenizer has {grammar.vocabulary} tokens, the target {subject.target.vocabulary}"
    if grammar.eos not in subject.eos:
        return f"the tokenizer ends a text with {grammar.eos}, the target with {subject.eos}"
    return grammar


def grammar_findings(asking: Asking, alpha: float) -> list[Finding]:
    """GRAMMAR-3 and GRAMMAR-4 of a mode that offers grammars; nothing of one that does not. alpha: of GRAMMAR-4."""
    mode = asking.mode
    if "GRAMMAR-3" not in mode.promises:
        return []
    grammar = grammar_of(asking.subject)
    if isinstance(grammar, str):
        return [Finding(one, mode.name, Verdict.NOT_RUN, grammar) for one in ("GRAMMAR-3", "GRAMMAR-4")]
    level = asking.settings.level
    number = max(GROUP * level.requests, level.tokens // (SHARE * asking.longest))
    plain = asking.requests("grammar", number, asking.plain)
    requests = [replace(one, grammar=TEXT) for one in plain]
    outputs = [judged_part(request, output) for request, output in zip(requests, asking.ask(requests))]
    text = text_finding(mode.name, outputs, [one.settings.max_tokens for one in requests], grammar, len(requests))
    if mode.lossy:
        return [text, not_exposed("GRAMMAR-4", mode.name, "the law of its output")]
    return [text, _law_finding(asking, grammar, requests, outputs, alpha)]


def _law_finding(
    asking: Asking, grammar: Grammar, requests: Sequence[Request], outputs: Sequence[Tokens], alpha: float
) -> Finding:
    """GRAMMAR-4 of the outputs that follow the grammar; GRAMMAR-3 names the others."""
    good = [(one, output, _masks(grammar, output)) for one, output in zip(requests, outputs)]
    kept = [(one, output, masks) for one, output, masks in good if masks is not None and len(masks)]
    some = [output for _, output, _ in kept]
    read = asking.laws([one for one, _, _ in kept], some)
    laws = [(_under(p, masks, p), _under(q, masks, p)) for (_, _, masks), (p, q) in zip(kept, read)]
    if not some:
        why = "no output follows the grammar, so none has a law to be held against"
        return Finding("GRAMMAR-4", asking.mode.name, Verdict.INCONCLUSIVE, why)
    planned = min(sum(map(len, some)), len(requests))
    return grammar_law_finding(asking.mode.name, some, laws, planned, alpha=alpha, seed=asking.settings.seed)


def _masks(grammar: Grammar, output: Tokens) -> Allowed | None:
    """What the grammar allows along an output `[len(output), V]`; None if the output does not follow it."""
    masks = [grammar.allowed(output[:at]) for at in range(len(output))]
    if not all(mask is not None and mask[token] for mask, token in zip(masks, output)):
        return None
    return np.array(masks, dtype=np.bool_).reshape(len(output), grammar.vocabulary)


def _under(laws: Floats, mask: Allowed, target: Floats) -> Floats:
    """Laws `[n, V]` under the mask, renormalised; where nothing of a row is left, the target's row."""
    left = np.where(mask, laws, 0.0)
    empty = left.sum(axis=1, keepdims=True) <= 0
    left = np.where(empty, np.where(mask, target, 0.0), left)
    result: Floats = left / left.sum(axis=1, keepdims=True)
    return result
