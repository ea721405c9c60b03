"""Chain rules. `p [k+1, V]`: the target's laws after 0..k drafted tokens; the draft: k tokens and the laws they came from."""

from __future__ import annotations

from collections.abc import Sequence

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law, one_hot, residual
from specref.rules import Verified


def ratio(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Speculative sampling: keep each drafted token with probability min(1, p/q), else draw from the residual and stop.

    p `[k+1, V]`; draft.laws `[k, V]` must be the laws that the tokens were drawn from. The emitted tokens then follow the
    target's law exactly, whatever q is. Source: Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318, algorithm 2.
    (`specref.race.RacingChance` draws the residual by an exponential race instead: the same law from other numbers.)

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p, q = rational([1, 3]), rational([1, 1])
    >>> draft = Draft.claimed([0], [q])                          # p/q of token 0 is 1/2
    >>> ratio([p, p], draft, ReplayedChance({("accept", 0): 0.4, ("emit",): 0.9}))
    Verified(accepted=1, next_token=1, path=())
    >>> ratio([p, p], draft, ReplayedChance({("accept", 0): 0.6, ("emit",): 0.1}))
    Verified(accepted=0, next_token=1, path=())
    """
    for i, (x, q) in enumerate(zip(draft.tokens, draft.laws)):
        if not chance.accepts(p[i][x], q[x], slot=("accept", i)):
            return Verified(i, chance.picks(residual(p[i], q), slot=("emit",)))
    return Verified(len(draft.tokens), chance.picks(p[-1], slot=("emit",)))


def token_matching(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Draw from the target at every position, and go on while the draft had guessed the draw.

    p `[k+1, V]`. Every emitted token is the target's own draw, so the output is lossless for any draft, and equals plain
    sampling with the same seed token by token. It keeps less than `ratio`: sum(p q) instead of sum(min(p, q)).

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p = rational([1, 3])
    >>> token_matching([p, p], Draft.chosen([1]), ReplayedChance({("token", 0): 0.5, ("token", 1): 0.1}))
    Verified(accepted=1, next_token=0, path=())
    """
    for i, x in enumerate(draft.tokens):
        y = chance.picks(p[i], slot=("token", i))
        if y != x:
            return Verified(i, y)
    k = len(draft.tokens)
    return Verified(k, chance.picks(p[k], slot=("token", k)))


def one_hot_ratio(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """`ratio` with each drafted token taken as if it had been certain (q one-hot), however it was found.

    p `[k+1, V]`. Accepts token x with probability p(x); a rejection emits from p without x. Lossless for any draft that was
    made without looking at this round's acceptance numbers: greedy drafts, n-gram matches, draws from a q nobody knows.

    >>> from specref.chance import ReplayedChance
    >>> from specref.laws import rational
    >>> p = rational([1, 3])
    >>> one_hot_ratio([p, p], Draft.chosen([0]), ReplayedChance({("accept", 0): 0.3, ("emit",): 0.0}))
    Verified(accepted=0, next_token=1, path=())
    """
    certain = Draft.claimed(draft.tokens, [one_hot(x, like=p[i]) for i, x in enumerate(draft.tokens)])
    return ratio(p, certain, chance)


def greedy(p: Sequence[Law], draft: Draft, chance: Chance) -> Verified:
    """Temperature 0: keep what equals the target's most probable token, then emit that token. Ties go to the lowest id.

    p `[k+1, V]`; any increasing function of it (logits) does as well. `chance` is not asked. The output is that of plain greedy
    decoding when p is bit-equal; in floating point the width of the window can change the last bits and so break a near-tie.

    >>> from specref.chance import SampledChance
    >>> from specref.laws import rational
    >>> p = rational([1, 3])
    >>> greedy([p, p], Draft.chosen([1]), SampledChance(0)), greedy([p, p], Draft.chosen([0]), SampledChance(0))
    (Verified(accepted=1, next_token=1, path=()), Verified(accepted=0, next_token=1, path=()))
    """
    for i, x in enumerate(draft.tokens):
        best = int(p[i].argmax())
        if best != x:
            return Verified(i, best)
    return Verified(len(draft.tokens), int(p[-1].argmax()))
