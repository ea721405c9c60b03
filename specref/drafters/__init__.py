"""Ways to find drafts. A drafter has `draft(context, k, chance) -> Draft`; the draft may be a chain or a tree.

* `prompt_lookup`: what followed the last tokens before. `cross_vocabulary`: a draft model with another tokenizer.
* `early_exit`: the target's own first layers. `multi_token`: heads that chain. `medusa`: heads beside the LM head, as a tree.
* `eagle`: a net on the target's features, as a chain, a fixed tree or a growing one.
* `jacobi`, `lookahead`: the target drafts for itself. Both come with a `generate` of their own, as published, and as drafters.

A draft model is `specref.generate.ModelDrafter`, which draws, or `GreedyDrafter`, which chooses.
"""
