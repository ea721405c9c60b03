"""Early exit sets the model's number of layers, and does not set it back if anything raises while it drafts.

The model then generates with fewer layers, without a word. Here stop strings raise (`stop_strings.py`). With GPT-2, GPT-NeoX,
OPT, BLOOM, Falcon, Cohere2, gpt-oss and others, which read all layers whatever that number says, early exit itself raises.
"""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

letters = Tokenizer(models.WordLevel({chr(97 + number): number for number in range(26)}, unk_token="z"))
letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
letters.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="z")
torch.manual_seed(0)
ends = {"vocab_size": 26, "eos_token_id": None, "bos_token_id": None, "initializer_range": 0.3}
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2}
prompt = torch.tensor([[5, 6, 7]])
settings = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}

found, refused = False, True
for model, more in (
    (LlamaForCausalLM(LlamaConfig(**ends, **shape)).eval(), {"stop_strings": ["z"], "tokenizer": tokenizer}),
    (GPT2LMHeadModel(GPT2Config(**ends, n_embd=32, n_layer=3, n_head=2)).eval(), {}),
):
    print(type(model).__name__, model.config.num_hidden_layers, "layers:", model.generate(prompt, **settings)[0, 3:].tolist())
    for speculation in ({"assistant_early_exit": 1, **more}, {}):
        try:
            out = model.generate(prompt, **speculation, **settings)[0, 3:].tolist()
            print("  no speculation,", model.config.num_hidden_layers, "layers:", out)
        except (IndexError, ValueError) as raised:
            print("  ", list(speculation) or "no speculation", type(raised).__name__, str(raised)[:50])
            refused &= not isinstance(raised, IndexError)
    found |= isinstance(model, LlamaForCausalLM) and model.config.num_hidden_layers == 1
raise SystemExit(int(found and not refused))
