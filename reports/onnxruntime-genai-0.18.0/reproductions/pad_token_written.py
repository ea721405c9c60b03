"""onnxruntime-genai 0.18.0: with a draft model and get_logits(), what follows a written pad token follows the token before it.
The models continue token t with t + 1. Between rounds get_logits() reads the round's tokens anew, and of several tokens read at
once the engine takes the last that is not pad_token_id for the end of the text, as if the rest were padding. Without
get_logits(), without drafts, or with a pad token that isn't written, all is well.
Needs onnx. Exit code 1 if the fault is there."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime_genai as og

GRAPH = """<ir_version: 10, opset_import: ["": 17]> model (int64[b, s] input_ids, int64[b, t] attention_mask)
  => (float[b, s, 16] logits) <int64 one = {1}, int64 V = {16}, float[2] values = {0.0, 9.0}> {
  sum = Add (input_ids, one)  next = Mod (sum, V)  logits = OneHot (next, V, values) }"""
folder, written = pathlib.Path(tempfile.mkdtemp()), []
onnx.save(onnx.parser.parse_model(GRAPH), folder / "model.onnx")
decoder = {"filename": "model.onnx", "head_size": 1, "num_key_value_heads": 1, "num_hidden_layers": 0}
config = {"type": "llama", "context_length": 64, "vocab_size": 16, "eos_token_id": 15, "bos_token_id": 15, "decoder": decoder}
for drafts in ({}, {"draft": decoder}):
    for pad in (15, 6):  # 6 ends the first round: four drafts, and the token after them
        asked = {"model": config | drafts | {"pad_token_id": pad}, "search": {"max_length": 14}}
        (folder / "genai_config.json").write_text(json.dumps(asked))
        model = og.Model(str(folder))
        for reads in (False, True):
            generator = og.Generator(model, og.GeneratorParams(model))
            generator.append_tokens(np.array([1], dtype=np.int32))
            while not generator.is_done():
                _ = generator.get_logits() if reads else None
                generator.generate_next_token()
            written.append(generator.get_sequence(0).tolist())
            print("draft model," if drafts else "no drafts,", f"pad token {pad},", "get_logits()," * reads, *written[-1])
raise SystemExit(int(written[-1] != written[-2]))
