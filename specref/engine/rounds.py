"""What is done to one request: a chunk of prefill, or a round. Each part of a round is a method of its own.

draft     begin_round, room, propose
verify    read      one pass over the last committed token and the drafts; their entries go into the cache
          laws      each position with the history of its own path: penalties see drafted tokens
          masks     and under a grammar with what that path allows
          rule      the path that is kept and the token after it
          emit      up to the first stop, wherever in the round it falls
          follow    the grammar's matcher moves with what was emitted
          keep      the cache forgets what was not kept
          settle    so does the proposer; full pages of what is committed are published
          report    rounds, log-probabilities, metrics
"""

from __future__ import annotations

from collections.abc import Sequence

from specref.draft import Draft
from specref.engine.grammar import Allowed, masked
from specref.engine.memory import Memory
from specref.engine.models import CachedModel, Mask, read_text
from specref.engine.request import Request, Step
from specref.engine.sampling import log_probability, processed
from specref.generate import Round
from specref.laws import Law
from specref.models import Tokens
from specref.processors.rows import Row
from specref.tree import TokenTree


class Rounds:
    """Rounds over one model and one memory; a fault is an override of one method.

    >>> from specref.engine import CachedTableModel, Engine
    >>> from specref.models import TableModel
    >>> from specref.processors import SamplingSettings
    >>> class Short(Rounds):
    ...     def emit(self, request: Request, tokens: Tokens) -> Tokens:
    ...         return super().emit(request, tokens)[:1]
    >>> class Broken(Engine):
    ...     rounds_type = Short
    >>> engine = Broken(CachedTableModel(TableModel(5, seed=1)))
    >>> number = engine.submit((1, 4), SamplingSettings(max_tokens=3, seed=0))
    >>> engine.run()
    >>> [one.emitted == engine.state(number).output[i : i + 1] for i, one in enumerate(engine.state(number).rounds)]
    [True, True, True]
    """

    def __init__(self, model: CachedModel, memory: Memory) -> None:
        self.model, self.memory = model, memory

    def prefill(self, request: Request, chunk: int) -> None:
        """Read up to `chunk` committed tokens that are not in the cache yet; the last one is left to the next round."""
        new = request.committed[:-1][request.read : request.read + chunk]
        request.entries.append(read_text(self.model, request.entries.visible(), new).entries)
        request.read += len(new)
        self.memory.publish(request)

    def draft(self, request: Request) -> Draft:
        """A draft that leaves room for the round's own token.

        Raises ValueError for one that is longer, grows from another token, or holds a token outside the vocabulary.
        """
        request.chance.begin_round(len(request.output))
        k = self.room(request)
        draft = request.proposer.propose(request.committed, k, request.chance)
        tree = tree_of_round(request, draft)
        if max(tree.depths) > k or len(tree) > 1 + request.speculation.nodes:
            raise ValueError(
                f"the proposer of request {request.number} drafted {len(tree) - 1} tokens, {max(tree.depths)} deep; "
                f"at most {request.speculation.nodes} and {k} deep were asked for"
            )
        if tree.tokens[0] != request.committed[-1]:
            raise ValueError(f"the draft grows from token {tree.tokens[0]}, but {request.committed[-1]} was committed last")
        check_tokens(tree.tokens, self.model.vocabulary)
        return draft

    def room(self, request: Request) -> int:
        """How deep this round may draft: every round adds a token of its own."""
        return min(request.speculation.k, request.stops.room(request.output) - 1)

    def abandon(self, request: Request) -> None:
        """The round is given up after drafting: nothing of its draft may stay."""
        request.proposer.settle(request.committed)

    def verify(self, request: Request, draft: Draft) -> None:
        """The rest of the round."""
        tree = tree_of_round(request, draft)
        scores = self.read(request, tree, draft)
        p = self.laws(request, tree, scores)
        verified = request.speculation.rule(p, draft, request.chance)
        path = verified.path or tuple(range(1, verified.accepted + 1))
        emitted = self.emit(request, (*(tree.tokens[node] for node in path), verified.next_token))
        start = len(request.output)
        request.output += emitted
        self.follow(request, draft, emitted)
        request.read = len(request.committed) - 1
        self.keep(request, draft, path[: len(emitted) - 1])  # of the emitted tokens, all but the last are in the cache
        self.settle(request)
        name = getattr(request.speculation.rule, "__name__", str(request.speculation.rule))
        done = Round(start, tree.tokens[1:], verified.accepted, emitted, name)
        self.report(request, Step(done, p, draft), [scores[node] for node in (0, *path)])

    def read(self, request: Request, tree: TokenTree, draft: Draft) -> Sequence[Row]:
        """One pass over the last committed token and the drafts: the scores `[N, V]` after each. Raises CacheFull."""
        cache = request.entries
        reading = self.model.read(cache.visible(), tree.tokens, self.positions(request, tree), self.mask(tree))
        cache.append(reading.entries, None if draft.tree is None else tree.parents)
        return reading.scores

    def positions(self, request: Request, tree: TokenTree) -> Tokens:
        """Where each node stands: the root after everything read before, a node its depth further on."""
        return tree.position_ids(request.read)

    def mask(self, tree: TokenTree) -> Mask:
        """Who sees whom in this pass: ancestors and self."""
        return tree.ancestor_mask()

    def laws(self, request: Request, tree: TokenTree, scores: Sequence[Row]) -> list[Law]:
        """The target's laws `[N, V]`, each as if its path had been committed."""
        return [
            processed(masked(row, mask), request.processors, request.prompt, self.history(request, tree.spells(node)))
            for node, (row, mask) in enumerate(zip(scores, self.masks(request, tree)))
        ]

    def masks(self, request: Request, tree: TokenTree) -> list[Allowed | None]:
        """What the request's grammar allows `[N, V]` after each node's own path; None where it says nothing."""
        if request.matcher is None:
            return [None] * len(tree)
        return [request.matcher.allowed(tree.spells(node)) for node in range(len(tree))]

    def history(self, request: Request, drafted: Tokens) -> Tokens:
        """The output that penalties see after the `drafted` tokens."""
        return request.output + drafted

    def emit(self, request: Request, tokens: Tokens) -> Tokens:
        """What is kept of a round's `tokens`: those up to the first that ends the output."""
        return request.stops.cut(request.output, tokens)

    def follow(self, request: Request, draft: Draft, emitted: Tokens) -> None:
        """The matcher takes in what the round emitted; of its draft it has kept nothing."""
        if request.matcher is not None:
            request.matcher.advance(emitted)

    def keep(self, request: Request, draft: Draft, path: tuple[int, ...]) -> None:
        """The cache keeps the root and the nodes of `path`."""
        if draft.tree is None:
            request.entries.rollback(request.read)
        else:
            request.entries.gather(path)

    def settle(self, request: Request) -> None:
        """What the round did not commit is forgotten; what it did may be found by others."""
        request.proposer.settle(request.committed)
        self.memory.publish(request)

    def report(self, request: Request, step: Step, scores: Sequence[Row]) -> None:
        """Write the round down; scores[i] is the row that the i-th token of the round follows."""
        request.steps.append(step)
        request.metrics.add(step.round)
        request.logprobs += [log_probability(row, token) for row, token in zip(scores, step.round.emitted)]


def tree_of_round(request: Request, draft: Draft) -> TokenTree:
    """The draft as a tree below the last committed token; a chain is the tree of width 1.

    >>> from specref.engine import CachedTableModel, Engine
    >>> from specref.models import TableModel
    >>> from specref.processors import SamplingSettings
    >>> engine = Engine(CachedTableModel(TableModel(5, seed=1)))
    >>> request = engine.requests[engine.submit((1, 4), SamplingSettings(max_tokens=3))]
    >>> print(tree_of_round(request, Draft.chosen([2, 0])))
    4
    └─ 2
       └─ 0
    """
    return draft.tree or TokenTree.chain(request.committed[-1], draft.tokens)


def check_tokens(drafted: Tokens, vocabulary: int) -> None:
    """Raise ValueError for a drafted token that the target does not know: a rule would read the law at another place.

    >>> check_tokens((1, -1), vocabulary=4)
    Traceback (most recent call last):
    ValueError: drafted token -1 is outside the target's vocabulary of 4; map the drafter's ids to the target's
    """
    for token in drafted:
        if not 0 <= token < vocabulary:
            outside = f"drafted token {token} is outside the target's vocabulary of {vocabulary}"
            raise ValueError(f"{outside}; map the drafter's ids to the target's")
