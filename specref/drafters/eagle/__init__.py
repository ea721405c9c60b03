"""EAGLE: a small net that drafts on the target's features, one place shifted, in chains, fixed trees and growing trees.

    f_i   = the target's feature after token t_i
    pair  (f_i, t_(i+1)) -> net -> a guess at f_(i+1) -> LM head -> q, the law of t_(i+2)

The feature alone does not say which token was drawn next; paired with that token it does. That is the whole idea, and the one
place that it is shifted by. The next guess pairs the guessed feature with the token drafted from q, and so on.

* `net`: the two nets, `EagleNet` (EAGLE-1 and 2) and `Eagle3Net`, and their training losses; `files`: the layout engines load;
* `reader`: what a net has read: its own cache, whose stable part holds features of the target only;
* `trees`: shapes of drafts, from fixed ranks to trees that grow by confidence;
* `drafters`: the four drafters.

Sources: Li et al. 2401.15077 (EAGLE-1), 2406.16858 (EAGLE-2), 2503.01840 (EAGLE-3).
"""

from specref.drafters.eagle.drafters import EagleDrafter, EagleDrawnTree, EagleGrowingTree, EagleRankedTree
from specref.drafters.eagle.files import load, save
from specref.drafters.eagle.net import DraftNet, Eagle3Net, EagleNet
from specref.drafters.eagle.reader import EagleReader
from specref.drafters.eagle.trees import grown_tree, ranked_tree

__all__ = [
    "DraftNet",
    "Eagle3Net",
    "EagleDrafter",
    "EagleDrawnTree",
    "EagleGrowingTree",
    "EagleNet",
    "EagleRankedTree",
    "EagleReader",
    "grown_tree",
    "load",
    "ranked_tree",
    "save",
]
