"""Lookahead decoding: the target drafts for itself, by Jacobi iteration in a window beside the text.

A round is one pass of the target over one token tree (`Step`), whose root is the last committed token:

    root ── a1 ─── a2      level 0: guesses of the next tokens, a chain of W with the root
     │       │      │
     b0     b1     b2      level 1: newer guesses; each column holds what may follow the tokens above it
     │       │      │
     c0     c1     c2      up to level N-2: the window is full with N-1 levels
     │
     └─ g1 ─ g2 ─ g3       guesses: up to G n-grams of the pool that began with the root's token, each a chain of N-1

The pass says which token is the most probable after the last level of each column. That completes an n-gram per column, for the
pool, and becomes the next level, while the oldest one is dropped: a Jacobi iteration that keeps its trajectory. The same pass
verifies the guesses. They were made before this round's random numbers were read and have no law, so they are verified by
`greedy` or `sequential_one_hot` over the tree that they form, and what window and pool hold changes the speed only.

Source: Fu et al. 2402.02057, algorithms 2 to 4. As in the authors' code the window moves on by one place a round, however many
tokens were accepted; unlike there, a fully accepted guess is followed by the bonus token.
"""

from specref.drafters.lookahead.decoding import State, begin, generate, one_round
from specref.drafters.lookahead.one_pass import Step, laws_on_tree, logits_on_tree
from specref.drafters.lookahead.window import Pool, Shape, Window, completed, first_window, next_window

__all__ = [
    "Pool",
    "Shape",
    "State",
    "Step",
    "Window",
    "begin",
    "completed",
    "first_window",
    "generate",
    "laws_on_tree",
    "logits_on_tree",
    "next_window",
    "one_round",
]
