"""onnxruntime-genai 0.18.0: a second rewind_to() with no token in between scrambles the cache, and all that follows is wrong.
It takes two key-value heads and no shared buffer ("past_present_share_buffer": false). The model continues a text with the sum
of its tokens modulo 13, read from the cache. Needs onnx. Exit code 1 if the fault is there."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime_genai as og

GRAPH = """<ir_version: 10, opset_import: ["": 17]> model (int64[b, s] input_ids, int64[b, t] attention_mask,
  float[b, 2, p, 1] pk0, float[b, 2, p, 1] pv0) => (float[b, s, 16] logits, float[b, 2, t, 1] nk0, float[b, 2, t, 1] nv0)
  <int64[4] new = {1, 1, -1, 1}, int64[2] rows = {2, -1}, int64 axis = {2}, int64[1] one = {1}, int64 V = {16}, int64 m = {13},
   float[2] values = {0.0, 9.0}, int64[1] end = {9999}> {
  column = Reshape (input_ids, new)  token = Cast <to = 1> (column)  heads = Concat <axis = 1> (token, token)
  nk0 = Concat <axis = 2> (pk0, heads)  nv0 = Identity (nk0)  sums = CumSum (nk0, axis)  both = Reshape (sums, rows)
  mean = ReduceMean <axes = [0]> (both)  whole = Cast <to = 7> (mean)  size = Shape <start = 1> (input_ids)  start = Neg (size)
  last = Slice (whole, start, end, one)  next = Mod (last, m)  logits = OneHot (next, V, values) }"""
names = {"inputs": {"past_key_names": "pk%d", "past_value_names": "pv%d"}}
names["outputs"] = {"present_key_names": "nk%d", "present_value_names": "nv%d"}
config = {"type": "llama", "context_length": 64, "vocab_size": 16, "eos_token_id": 15, "pad_token_id": 15, "bos_token_id": 15}
folder = pathlib.Path(tempfile.mkdtemp())
onnx.save(onnx.parser.parse_model(GRAPH), folder / "decoder.onnx")
sizes = {"head_size": 1, "num_key_value_heads": 2, "num_hidden_layers": 1, **names}
model = config | {"decoder": {"filename": "decoder.onnx", **sizes}}
(folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {"max_length": 20}}))
model, written = og.Model(str(folder)), []
for rewinds in ((), (6,), (9, 6)):
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.append_tokens(np.array([1, 2], dtype=np.int32))
    [generator.generate_next_token() for _ in range(10)]
    [generator.rewind_to(length) for length in rewinds]
    while not generator.is_done():
        generator.generate_next_token()
    written.append(generator.get_sequence(0).tolist())
    print("rewound to", rewinds, written[-1])
raise SystemExit(int(written[2] != written[0]))
