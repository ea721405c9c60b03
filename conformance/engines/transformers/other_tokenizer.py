"""A draft model behind another tokenizer: the same texts, other ids, and a few tokens that the target does not have.

Universal assisted decoding wants two vocabularies of different size. Audited models come with one, so the second is made: the
ids of the draft's tokens in reverse order, and `EXTRA` tokens of its own after them.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import tokenizers
import torch
import transformers

EXTRA = 7


def with_other_tokenizer(draft: Any, tokenizer: Any) -> tuple[Any, Any]:
    """A copy of `draft` that reads and writes ids of another vocabulary, and the tokenizer of that vocabulary.

    The copy knows every token by what it knew it as, so its laws are those of `draft`, renumbered; its own extra tokens have
    the logits of the vocabulary's last tokens.
    """
    V = int(draft.config.get_text_config().vocab_size)
    moved = torch.arange(V - 1, -1, -1)  # moved[old] is the new id
    text = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = {token: int(moved[number]) for token, number in text["model"]["vocab"].items()}
    for added in text["added_tokens"]:
        added["id"] = int(moved[added["id"]])
    text["model"]["vocab"] = vocabulary | {f"<extra {number}>": V + number for number in range(EXTRA)}
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(text)),
        **{name: getattr(tokenizer, name) for name in ("bos_token", "eos_token", "unk_token", "pad_token")},
        clean_up_tokenization_spaces=False,
    )
    model = copy.deepcopy(draft)
    model.resize_token_embeddings(V + EXTRA, mean_resizing=False)
    with torch.no_grad():
        old = torch.cat([torch.argsort(moved), torch.arange(V - EXTRA, V)])  # old[new] is the id that a row had
        for layer, original in (
            (model.get_input_embeddings(), draft.get_input_embeddings()),
            (model.get_output_embeddings(), draft.get_output_embeddings()),
        ):
            layer.weight.copy_(original.weight[old])
    return model, other
