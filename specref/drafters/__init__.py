"""Ways to find drafts. Each module is one of them; every drafter has `draft(context, k, chance) -> Draft`.

A draft model of its own is `specref.generate.ModelDrafter`, which draws, or `GreedyDrafter`, which chooses.
"""
