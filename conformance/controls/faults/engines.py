"""Faults of whole engines: the target as the verification sees it, published snippets, numerics, undeclared lossy modes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.checks.batch import bits_finding
from conformance.checks.loud import declared_finding
from conformance.components import Logits
from conformance.controls.control import Audit, Control, Look
from conformance.controls.exact import one_token
from conformance.controls.stages.drafts import LENGTH, V, Writes, greedy_writer
from conformance.controls.stages.engines import engine
from conformance.protocols import Mode, Request
from conformance.statistics.greedy import Margin
from specref.laws import norm
from specref.models import LanguageModel, TableModel, Tokens
from specref.processors import Processed
from specref.proof import PlainGreedy
from specref.proof.first_token import P
from specref.rules.chain import ratio

# The target's law.


class Powered:
    """A model whose laws are taken to a power: attention read with another scale makes logits larger or smaller."""

    def __init__(self, model: LanguageModel, exponent: float) -> None:
        self.model, self.exponent = model, exponent

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.model.vocabulary

    def next_law(self, context: Tokens) -> np.ndarray:
        """The law `[V]` of the token that follows `context`."""
        return norm(self.model.next_law(context) ** self.exponent)

    def next_laws(self, context: Tokens, drafted: Tokens) -> list[np.ndarray]:
        """The laws `[k+1, V]`; the first row, which plain decoding reads too, is right."""
        return [self.model.next_law(context), *(self.next_law(context + drafted[: i + 1]) for i in range(len(drafted)))]


def at_temperature_1(model: LanguageModel, request: Request) -> LanguageModel:
    """The target without the request's settings."""
    return model


def greedy_below(model: LanguageModel, request: Request) -> LanguageModel:
    """The verification is greedy at temperatures at which drafts are still drawn."""
    processed = Processed(model, request.settings.processors(), len(request.prompt))
    return PlainGreedy(processed) if request.settings.temperature < 0.6 else processed


PLACES = (
    "tokens are wrong throughout (LAW-1), and so are those of each place in a round, which are judged apart (LAW-2): an audit "
    "ends with whichever is proven first"
)
TARGET = (
    Control(
        "p at T = 1 while the request says T = .5",
        "sampler",
        "Processed",
        ("LAW-1",),
        engine(shown=at_temperature_1, temperature=0.5),
        ("vllm-project/vllm 9834",),
        one_token(ratio, wanted=norm(P * P)),
        acceptance_sees=False,
        instead=("LAW-2",),
        because=PLACES,
    ),
    Control(
        "temperature switched off at another threshold than the draft's",
        "sampler",
        "Processed",
        ("LAW-1",),
        engine("token_matching", shown=greedy_below, temperature=0.5),
        ("EricLBuehler/mistral.rs 1027",),
        acceptance_sees=True,
        instead=("LAW-2",),
        because=PLACES,
    ),
    Control(
        "rows of the window computed with another scale",
        "numerics",
        "target",
        ("LAW-1",),
        engine(shown=lambda model, request: Powered(model, 1.6)),
        ("vllm-project/vllm 40831",),
        acceptance_sees=True,
        instead=("LAW-2",),
        because=PLACES,
    ),
)

# Published snippets.


def jacobi_block(target: LanguageModel, context: Tokens, size: int, passes: int, ahead: int) -> Tokens:
    """A block of Jacobi iteration after so many passes. ahead: how many rows too far each token's row lies."""
    block = context[-1:] * size
    for _ in range(passes):
        rows = target.next_laws(context, block)
        block = tuple(int(rows[i + ahead].argmax()) for i in range(size))
    return block


def reads_ahead(target: LanguageModel, prompt: Tokens) -> Tokens:
    """Reads the logits at position len + i for token i, where they lie at len + i - 1."""
    output: Tokens = ()
    while len(output) < LENGTH:
        output += jacobi_block(target, prompt + output, 4, passes=4, ahead=1)
    return output[:LENGTH]


def keeps_unverified(target: LanguageModel, prompt: Tokens) -> Tokens:
    """Stops after two passes and keeps what no pass has confirmed."""
    output: Tokens = ()
    while len(output) < LENGTH:
        output += jacobi_block(target, prompt + output, 4, passes=2, ahead=0)
    return output[:LENGTH]


def snippet(id: str, audit: Audit) -> Control:
    """A fault found in published snippets."""
    return Control(id, "published snippets", "jacobi", ("GREEDY-1",), audit)


SNIPPETS = (
    snippet("Jacobi: logits read at len + i", greedy_writer(reads_ahead)),
    snippet("Jacobi: unverified tokens kept when it stops", greedy_writer(keeps_unverified)),
)

# Numerics.

ULP = Margin(1e-9, "float64", 10_000)
"""The margin that is allowed for noise, far above what is made here."""


def noisy(wrong_every: int) -> Writes:
    """Writes greedily under noise of 1e-11 that depends on the window's width. wrong_every: now and then a token is wrong."""

    def writes(target: LanguageModel, prompt: Tokens) -> Tokens:
        output: Tokens = ()
        while len(output) < LENGTH:
            width = 1 + len(output) % 4
            logits = np.log(target.next_law(prompt + output))
            logits += 1e-11 * np.random.default_rng([width, len(output)]).standard_normal(len(logits))
            order = np.argsort(-logits)
            wrong = wrong_every and (sum(prompt) + len(output)) % wrong_every == 0
            output += (int(order[1 if wrong else 0]),)
        return output

    return writes


def last_bit(seed: int, n: int) -> Iterator[Look]:
    """Logits that are promised bit for bit, in a window and alone."""
    target = TableModel(V, f"bits {seed}", exact=False)
    contexts = [tuple(np.random.default_rng([seed, i]).integers(V, size=5).tolist()) for i in range(n)]
    alone = np.log(np.array([target.next_law(context) for context in contexts]))
    together = np.where(np.arange(n)[:, None] % 5 == 3, np.nextafter(alone, 9), alone)
    yield n, [bits_finding("a control", Logits(together, alone), n, promised=True)]


NUMERICS = (
    Control(
        "a wrong token at a wide margin under window-dependent noise",
        "numerics",
        "target",
        ("GREEDY-1",),
        greedy_writer(noisy(29), ULP),
        ("ggml-org/llama.cpp 27975",),
    ),
    Control(
        "one bit of a logit changed by the batch, where equal bits are promised",
        "numerics",
        "target",
        ("BATCH-3",),
        Audit("rows of logits", "rows", 16, last_bit),
        ("vllm-project/vllm 54506",),
    ),
)


def undeclared(rule: str) -> Audit:
    """The audit of what a mode says about its own rule."""

    def looks(seed: int, n: int) -> Iterator[Look]:
        yield 1, [declared_finding(Mode("a control", {"k": 3}, rule=rule))]

    return Audit("declaration", "modes", 1, looks)


LOSSY = (
    Control(
        "typical acceptance passes silently",
        "lossy",
        "Mode.lossy",
        ("LOUD-2",),
        undeclared("typical"),
        ("vllm-project/vllm 5131",),
        None,
        True,
    ),
    Control(
        "synthetic acceptance passes silently",
        "lossy",
        "Mode.lossy",
        ("LOUD-2",),
        undeclared("synthetic"),
        ("verl-project/verl-SpeCo 19",),
        None,
        True,
    ),
)

FAULTS = (*TARGET, *SNIPPETS, *NUMERICS, *LOSSY)
