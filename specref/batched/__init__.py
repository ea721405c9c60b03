"""The verification rules of `specref.rules` over batches of rows, in torch, on a CPU or a GPU.

    p        the target's laws [B, k+1, V] (trees [B, N, V])
    drafts   Drafts(tokens, laws, num_draft), or Trees(tokens, parents, laws, num_nodes)
    u        random numbers in [0, 1), [B, k+1] (trees [B, N]), of p's type

    rule(p, drafts, u) -> VerifiedRows(accepted, next_token, path, status)

Random numbers are inputs, one column per decision: given the same ones, each rule decides row by row exactly what the plain
rule of the same name decides (with `ReplayedChance`, in float64 on a CPU). There is no Python loop over rows or over the
vocabulary. `verify` runs a rule and raises an error that names the rows whose inputs are no good; a rule alone says so in
`status`.
"""

from specref.batched.drafts import Drafts, Trees, VerifiedRows
from specref.batched.status import BadRows
from specref.batched.verify import verify

__all__ = ["BadRows", "Drafts", "Trees", "VerifiedRows", "verify"]
