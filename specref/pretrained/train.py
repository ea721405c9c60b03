"""Train the model family from the English text that every CPython ships: `pydoc_data.topics`.

    python -m specref.pretrained.train --out DIR [--only NAME]

writes DIR/target, DIR/draft, DIR/poor_draft and DIR/held_out.json. Each model is a byte-level Llama:

* `target` learns the text with four layers;
* `draft` learns the same text with one narrow layer, so that it agrees with the target on most tokens but not on all;
* `poor_draft` has the draft's shape and learns the text with the bytes of each document shuffled, so that all it can learn,
  in a short training, is how frequent each byte is.

The seed fixes data order and initial weights. Another machine, torch or CPython (whose documentation differs) gives slightly
different weights; `specref.pretrained.measure` says whether they still do their job.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specref.pretrained import names

SEED = 20
WINDOW = 256  # tokens per training row
ROWS = 16  # rows per step
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(len(SPECIALS))

# Tab, newline, the printable ASCII characters, and the bytes of the few other characters that the text uses.
BYTES = (9, 10, *range(32, 127), 128, 147, 148, 152, 153, 156, 157, 159, 166, 176, 194, 195, 226)

# V must not be mistakable for another width: it is 4 + 110 = 114, and none of the numbers below is. The attention heads are
# 32 wide, which fast attention kernels take, and the target's are grouped (4 query heads share 2 key-value heads).
TARGET_SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 416,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
DRAFT_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


# ---- text and tokenizer


def documents(shortest: int = 100) -> list[str]:
    """The text as short documents: whole paragraphs, joined until they hold `shortest` characters (headings are short).

    A paragraph that occurs in several topics is kept once, so that held-out documents are really unseen.

    >>> short = documents()
    >>> min(map(len, short[:50])) > 0, len(set(short)) == len(short)
    (True, True)
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    found = []
    for _, topic in sorted(topics.items()):
        document = ""
        for paragraph in re.split(r"\n{2,}", topic.strip("\n")):
            if paragraph in seen:
                continue
            seen.add(paragraph)
            document = f"{document}\n\n{paragraph}" if document else paragraph
            if len(document) >= shortest:
                found.append(document)
                document = ""
        if document:
            found.append(document)
    return found


def split(texts: list[str], every: int = 20) -> tuple[list[str], list[str]]:
    """(training documents, held-out documents): every 20th document is held out.

    >>> split(["a", "b", "c", "d"], every=2)
    (['b', 'd'], ['a', 'c'])
    """
    return [t for i, t in enumerate(texts) if i % every], texts[::every]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte and no merges. It adds no special tokens by itself, so decode(encode(text)) == text.

    A byte outside `BYTES` becomes <unk>; ASCII text without control characters never does.

    >>> tokenizer = build_tokenizer()
    >>> len(tokenizer), tokenizer.decode(tokenizer.encode("a = [1]\\n"))
    (114, 'a = [1]\\n')
    """
    spelled = _spelling_of_bytes()
    vocabulary = {token: i for i, token in enumerate((*SPECIALS, *(spelled[b] for b in BYTES)))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=SPECIALS[UNK]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    pad, bos, eos, unk = SPECIALS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token=unk,
        clean_up_tokenization_spaces=False,
    )


def _spelling_of_bytes() -> dict[int, str]:
    """How byte-level tokenizers spell each byte: printable ones as themselves, the others as characters from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """<bos> text <eos>. Raises ValueError for a byte that the vocabulary lacks.

    >>> tokenizer = build_tokenizer()
    >>> encode(tokenizer, "ab") == [BOS, *tokenizer.encode("ab"), EOS]
    True
    """
    ids: list[int] = tokenizer.encode(text)
    if UNK in ids:
        raise ValueError(f"this text has a byte outside the vocabulary, {text[:60]!r}...: add the byte to BYTES")
    return [BOS, *ids, EOS]


# ---- training


def windows(encoded: list[list[int]], steps: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """`steps` batches [ROWS, WINDOW + 1], cut from the documents laid end to end in a fresh random order each time.

    Half of the rows start at a document's <bos>, as prompts do; the other half start anywhere.

    >>> [batch.shape for batch in windows([[BOS, 7, 8, EOS], [BOS, 9, EOS]], steps=1, rng=np.random.default_rng(0))]
    [torch.Size([16, 257])]
    """
    pieces = [np.array(ids) for ids in encoded]
    for _ in range(steps):
        shuffled = [pieces[i] for i in rng.permutation(len(pieces))]
        stream = np.concatenate(shuffled)
        beginnings = np.flatnonzero(stream == BOS)
        starts = np.concatenate([rng.choice(beginnings, ROWS // 2), rng.integers(len(stream), size=ROWS - ROWS // 2)])
        yield torch.from_numpy(stream.take(starts[:, None] + np.arange(WINDOW + 1), mode="wrap"))


def fit(model: LlamaForCausalLM, encoded: list[list[int]], steps: int, peak: float, label: str) -> LlamaForCausalLM:
    """Train in place with AdamW: the learning rate rises to `peak` over 50 steps, then falls to zero along a cosine.

    >>> fit(untrained(DRAFT_SHAPE), [[BOS, 7, 8, EOS]], steps=1, peak=1e-3, label="one step").training
    False
    """
    rng = np.random.default_rng(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    began, recent = time.monotonic(), math.nan
    for step, tokens in enumerate(windows(encoded, steps, rng)):
        rate = peak * min((step + 1) / 50, (1 + math.cos(math.pi * step / steps)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent = loss.item() if math.isnan(recent) else 0.95 * recent + 0.05 * loss.item()
        if (step + 1) % 50 == 0:
            print(
                f"{label}: step {step + 1} of {steps}, loss {recent:.3f} nats per token, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return model.eval()


def untrained(shape: dict[str, int]) -> LlamaForCausalLM:
    """A Llama of the given shape with random weights; the seed fixes them.

    >>> untrained(DRAFT_SHAPE).config.vocab_size
    114
    """
    torch.manual_seed(SEED)
    vocabulary_size = len(SPECIALS) + len(BYTES)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary_size,
            max_position_embeddings=512,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            **shape,
        )
    )


def shuffled_inside(encoded: list[list[int]]) -> list[list[int]]:
    """Each document with its bytes in random order between <bos> and <eos>.

    >>> [sorted(one) == sorted([BOS, 7, 8, 9, EOS]) for one in shuffled_inside([[BOS, 7, 8, 9, EOS]])]
    [True]
    """
    rng = np.random.default_rng(SEED)
    return [[BOS, *(int(i) for i in rng.permutation(ids[1:-1])), EOS] for ids in encoded]


def train(name: str, encoded: list[list[int]], scale: float = 1.0) -> LlamaForCausalLM:
    """Make one model of the family. `scale` multiplies the number of steps.

    >>> train("draft", [[BOS, 7, 8, EOS]], scale=0.0025).config.num_hidden_layers      # one step
    1
    """
    if name == "poor_draft":
        return fit(untrained(DRAFT_SHAPE), shuffled_inside(encoded), round(100 * scale), 1e-3, name)
    shape = TARGET_SHAPE if name == "target" else DRAFT_SHAPE
    return fit(untrained(shape), encoded, round(400 * scale), 4e-3, name)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the folder that `from_pretrained` reads; the weights go to one safetensors file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(untrained(DRAFT_SHAPE), build_tokenizer(), Path(folder))
    ...     (Path(folder) / "model.safetensors").exists()
    True
    """
    model.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # transformers 5 writes a name that 4.x cannot load; it reads both
    settings_file.write_text(json.dumps(settings, indent=2) + "\n")


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m specref.pretrained.train", description="Train the model family.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--only", choices=names(), help="make this one only")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the training steps (0.01 for a dry run)")
    options = parser.parse_args()

    tokenizer = build_tokenizer()
    training, held_out = split(documents())
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "held_out.json").write_text(json.dumps(held_out, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    encoded = [encode(tokenizer, text) for text in training]
    print(f"{len(training)} documents, {sum(map(len, encoded))} tokens; {len(held_out)} documents held out", flush=True)
    for name in [options.only] if options.only else names():
        save(train(name, encoded, options.scale), tokenizer, options.out / name)


if __name__ == "__main__":
    main()
