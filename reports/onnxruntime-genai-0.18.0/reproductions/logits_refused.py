"""onnxruntime-genai 0.18.0: with n-gram speculation, get_logits() raises after every lookup that found nothing.

Speculation off, it gives the next token's logits at any time; SpeculativeDecoding.md says of n-gram speculation that "external
logits APIs" are supported. Needs onnx. Exit code 1 if the fault is there.
"""

import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime_genai as og

GRAPH = """<ir_version: 10, opset_import: ["": 17]> model (int64[b, s] input_ids, int64[b, t] attention_mask)
  => (float[b, s, 16] logits) <int64 one = {1}, int64 V = {16}, float[2] values = {0.0, 9.0}> {
  sum = Add (input_ids, one)  next = Mod (sum, V)  logits = OneHot (next, V, values) }"""  # t is continued with t + 1
folder = pathlib.Path(tempfile.mkdtemp())
onnx.save(onnx.parser.parse_model(GRAPH), folder / "model.onnx")
decoder = {"filename": "model.onnx", "head_size": 1, "num_key_value_heads": 1, "num_hidden_layers": 0}
ids = {"vocab_size": 16, "eos_token_id": 0, "pad_token_id": 0, "bos_token_id": 0}
config = {"model": {"type": "llama", "context_length": 64, "decoder": decoder, **ids}, "search": {"max_length": 8}}
(folder / "genai_config.json").write_text(json.dumps(config))
model, refused = og.Model(str(folder)), {}
for size in (0, 2):  # 0 is speculation off
    params = og.GeneratorParams(model)
    params.set_speculative_options(ngram_size=size)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([1], dtype=np.int32))
    refused[size] = []
    while not generator.is_done():
        try:
            generator.get_logits()
        except RuntimeError as error:
            refused[size].append(str(error))
        generator.generate_next_token()
    print("n-gram size", size, "refused", len(refused[size]), set(refused[size]))
raise SystemExit(int(len(refused[2]) > len(refused[0])))
