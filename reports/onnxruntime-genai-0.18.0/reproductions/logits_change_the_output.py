"""onnxruntime-genai 0.18.0: with a draft model, get_logits() between tokens changes the greedy output; without, it does not.
The model continues a text with the sum of its tokens modulo 13, read from the cache; after odd tokens the draft model errs.
Cause: a second rewind in a row, as in rewind_twice.py. Needs onnx. Exit code 1 if the fault is there."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime_genai as og

GRAPH = """<ir_version: 10, opset_import: ["": 17]> model (int64[b, s] input_ids, int64[b, t] attention_mask,
  float[b, 2, p, 1] pk0, float[b, 2, p, 1] pv0) => (float[b, s, 16] logits, float[b, 2, t, 1] nk0, float[b, 2, t, 1] nv0)
  <int64[4] new = {1, 1, -1, 1}, int64[2] rows = {2, -1}, int64 axis = {2}, int64[1] one = {1}, int64 V = {16}, int64 m = {13},
   int64 odd = {ODD}, int64 two = {2}, float[2] values = {0.0, 9.0}, int64[1] end = {9999}> {
  column = Reshape (input_ids, new)  token = Cast <to = 1> (column)  heads = Concat <axis = 1> (token, token)
  nk0 = Concat <axis = 2> (pk0, heads)  nv0 = Identity (nk0)  sums = CumSum (nk0, axis)  both = Reshape (sums, rows)
  mean = ReduceMean <axes = [0]> (both)  whole = Cast <to = 7> (mean)  size = Shape <start = 1> (input_ids)  start = Neg (size)
  last = Slice (whole, start, end, one)  wrong = Mod (input_ids, two)  shift = Mul (wrong, odd)  moved = Add (last, shift)
  next = Mod (moved, m)  logits = OneHot (next, V, values) }"""
names = {"inputs": {"past_key_names": "pk%d", "past_value_names": "pv%d"}}
names |= {"outputs": {"present_key_names": "nk%d", "present_value_names": "nv%d"}}
config = {"type": "llama", "context_length": 64, "vocab_size": 16, "eos_token_id": 15, "pad_token_id": 15, "bos_token_id": 15}
folder, written = pathlib.Path(tempfile.mkdtemp()), []
for name, odd in (("decoder", 0), ("draft", 1)):
    onnx.save(onnx.parser.parse_model(GRAPH.replace("ODD", str(odd))), folder / f"{name}.onnx")
    config[name] = {"filename": f"{name}.onnx", "head_size": 1, "num_key_value_heads": 2, "num_hidden_layers": 1, **names}
(folder / "genai_config.json").write_text(json.dumps({"model": config, "search": {"max_length": 20}}))
model = og.Model(str(folder))
for reads in (False, True):
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.append_tokens(np.array([1, 2], dtype=np.int32))
    while not generator.is_done():
        _ = generator.get_logits() if reads else None
        generator.generate_next_token()
    written.append(generator.get_sequence(0).tolist())
    print("get_logits() called" if reads else "not called", written[-1])
raise SystemExit(int(written[1] != written[0]))
