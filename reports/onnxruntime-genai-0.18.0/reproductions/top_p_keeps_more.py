"""onnxruntime-genai 0.18.0: top_p keeps tokens beyond the smallest set whose probability reaches it, speculation on or off.
Each of 115 tokens is 0.8 times as likely as the one before: at top_p = 0.9 that set is tokens 0 to 10. Beyond 64 tokens, with
top_k off, it is found by a bound of the tail that is far from tight. Needs onnx. Exit code 1 if the fault is there."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime_genai as og
from onnx import TensorProto, helper, numpy_helper

V, folder = 115, pathlib.Path(tempfile.mkdtemp())
inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "s"]) for name in ("input_ids", "attention_mask")]
logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s", V])
table = numpy_helper.from_array(np.tile(np.log(0.8) * np.arange(V), (V, 1)).astype(np.float32), "table")
graph = helper.make_graph([helper.make_node("Gather", ["table", "input_ids"], ["logits"])], "g", inputs, [logits], [table])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / "model.onnx")
model = {
    "type": "llama",
    "context_length": 8192,
    "vocab_size": V,
    "eos_token_id": 114,
    "pad_token_id": 114,
    "bos_token_id": 114,
}
model["decoder"] = {"filename": "model.onnx", "head_size": 1, "num_key_value_heads": 1, "num_hidden_layers": 0}
(folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {"max_length": 4001}}))
model = og.Model(str(folder))
params = og.GeneratorParams(model)
params.set_search_options(do_sample=True, top_p=0.9, top_k=0, temperature=1.0)
generator = og.Generator(model, params)
generator.append_tokens(np.array([0], dtype=np.int32))
while not generator.is_done():
    generator.generate_next_token()
drawn = generator.get_sequence(0)[1:]
print(f"of {len(drawn)} tokens {(drawn > 10).mean():.3f} are outside the set; the largest is {drawn.max()}")
raise SystemExit(int((drawn > 10).any()))
