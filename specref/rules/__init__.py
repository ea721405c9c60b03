"""Verification rules: given the target's laws `p` and a draft, decide which tokens to keep and which one comes next.

Every rule is a function `rule(p, draft, chance) -> Verified`. One module per family: `chain`, `block`, `tree`, `typical`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

from specref.chance import Chance
from specref.draft import Draft
from specref.laws import Law


@dataclass(frozen=True)
class Verified:
    """What a rule decided.

    accepted: number of drafted tokens kept. next_token: the token emitted after them (the residual's, the bonus, or the
    target's own). path: in a tree, the accepted nodes from the root's child down; empty for a chain.

    >>> Verified(accepted=2, next_token=7).path
    ()
    """

    accepted: int
    next_token: int
    path: tuple[int, ...] = ()


Rule: TypeAlias = Callable[[Sequence[Law], Draft, Chance], Verified]


def rewired(rule: Callable[..., Any], **helpers: Any) -> Callable[..., Any]:
    """`rule` with some of the helpers that it calls by name replaced; the way a fault enters a rule, the rest unchanged.

    A helper that the rule does not call raises NameError, so that a fault which went dead in a refactor is loud.

    >>> from specref.rules.chain import ratio
    >>> resample_from_p = rewired(ratio, residual=lambda p, q: p)
    >>> rewired(ratio, resdual=lambda p, q: p)
    Traceback (most recent call last):
    NameError: ratio does not call resdual; it calls Verified, accepts, enumerate, laws, len, picks, residual, tokens, zip
    """
    if not isinstance(rule, FunctionType):
        raise TypeError(f"only a plain function can be rewired, not {rule!r}")
    for name in helpers:
        if name not in rule.__code__.co_names:
            called = ", ".join(sorted(rule.__code__.co_names))
            raise NameError(f"{rule.__name__} does not call {name}; it calls {called}")
    name = f"{rule.__name__} with other {', '.join(helpers)}"
    names = {**rule.__globals__, **helpers}
    changed = FunctionType(rule.__code__, names, name, rule.__defaults__, rule.__closure__)
    if names.get(rule.__name__) is rule:
        names[rule.__name__] = changed  # a function that calls itself goes on as the changed one
    return changed
