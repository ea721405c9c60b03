"""OpenVINO GenAI 2026.4.1.0: an output that is to include its stop string lacks the space at that string's end, with a draft
model and without. Token 0 is the space, the next token depends on the last alone, and each output is to end with its second.
The draft is the target. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, NAMES, folder, cut = 32, ("key", "value"), tempfile.mkdtemp(), []
EXACT, a = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}, np.int64(ord(" "))
table = np.random.default_rng(0).normal([3] + [0] * (V - 1), 1.5, (V, V)).astype(np.float32)  # logits after each token
ids, beam, text = op.parameter([-1, -1], np.int64), op.parameter([-1], np.int32), op.parameter([-1], ov.Type.string)
last, empty = op.gather(np.eye(V, dtype=np.float32), ids, 0), np.zeros((1, 1, 0, V), np.float32)
new = op.transpose(op.reshape(last, [0, 0, 1, V], True), [0, 2, 1, 3])
both = [op.concat([op.gather(op.read_value(empty, n, np.float32, [-1, 1, -1, V]), beam, 0), new], 2) for n in NAMES]
mixed = op.transpose(op.scaled_dot_product_attention(new, *both, np.zeros((1, 1, 1, 1), np.float32)), [0, 2, 1, 3])
seen = op.add(last, op.multiply(op.reshape(mixed, [0, 0, V], True), np.float32(1e-9)))  # a pipeline wants some attention
logits, read = op.matmul(seen, table, False, False), op.string_tensor_unpack(text).output(2)
tokens, written = op.unsqueeze(op.subtract(op.convert(read, "i64"), a), 0), op.parameter([-1, -1], np.int64)
mask, signs = op.convert(op.equal(tokens, tokens), "i64"), op.convert(op.add(op.reshape(written, [-1], False), a), "u8")
spelled = op.string_tensor_pack(np.zeros(1, np.int32), op.gather(op.shape_of(written, "i32"), [1], 0), signs)
named = ((ids, "input_ids"), (beam, "beam_idx"), (logits, "logits"), (tokens, "input_ids"), (mask, "attention_mask"))
[(node.set_friendly_name(name), node.output(0).set_names({name})) for node, name in (*named, (spelled, "string_output"))]
model = ov.Model([op.result(logits)], list(map(op.assign, both, NAMES)), [ids, beam], "model")
ov.save_model(model, f"{folder}/openvino_model.xml", compress_to_fp16=False)
ov.save_model(ov.Model([tokens, mask], [text]), f"{folder}/openvino_tokenizer.xml")
ov.save_model(ov.Model([spelled], [written]), f"{folder}/openvino_detokenizer.xml")
best, said = table.argmax(1), {"max_new_tokens": 24, "ignore_eos": True, "include_stop_str_in_output": True, "eos_token_id": 31}
stops = [chr(a + first) + chr(a + best[first]) for first in best]  # of the outputs after each token
for k, more in ((0, {}), (3, {"draft_model": genai.draft_model(folder, "CPU", **EXACT)})):
    pipe = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), genai.SchedulerConfig(), "CPU", **EXACT, **more)
    asked = [genai.GenerationConfig(num_assistant_tokens=k, stop_strings={stop}, **said) for stop in stops]
    outputs = [one.m_generation_ids[0] for one in pipe.generate([ov.Tensor(np.array([[t]])) for t in range(V)], asked)]
    cut.append([stop.endswith(" ") for stop, tokens in zip(stops, outputs) if len(tokens) < 2])
    print(f"{k} drafts a round: {len(cut[-1])} of {V} outputs lack the end of their stop string, {sum(cut[-1])} times a space")
raise SystemExit(int(len(cut[0]) == sum(cut[0]) > 0 < sum(cut[1]) == len(cut[1])))
