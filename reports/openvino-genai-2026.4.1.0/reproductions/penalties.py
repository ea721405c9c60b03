"""OpenVINO GenAI 2026.4.1.0: `presence_penalty` and `frequency_penalty` make repetitions likelier where logits are negative.
After tokens 0 and 1 come 0 and 1, after 2 and 3 come 2 and 3, by the same law, as the logits differ by a constant alone: first
positive, then negative. A penalty of 1 makes repetitions rarer than without one. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, REQUESTS, NAMES, folder = 4, 2000, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = np.array([[10.5, 10, -99, -99]] * 2 + [[-99, -99, -9.5, -10]] * 2, np.float32)  # logits after each token
ids, beam, text = op.parameter([-1, -1], np.int64), op.parameter([-1], np.int32), op.parameter([-1], ov.Type.string)
last, empty = op.gather(np.eye(V, dtype=np.float32), ids, 0), np.zeros((1, 1, 0, V), np.float32)
new = op.transpose(op.reshape(last, [0, 0, 1, V], True), [0, 2, 1, 3])
both = [op.concat([op.gather(op.read_value(empty, n, np.float32, [-1, 1, -1, V]), beam, 0), new], 2) for n in NAMES]
mixed = op.transpose(op.scaled_dot_product_attention(new, *both, np.zeros((1, 1, 1, 1), np.float32)), [0, 2, 1, 3])
seen = op.add(last, op.multiply(op.reshape(mixed, [0, 0, V], True), np.float32(1e-9)))  # a pipeline wants some attention
logits, read = op.matmul(seen, law, False, False), op.unsqueeze(op.string_tensor_unpack(text).output(0), 1)
tokens, mask = op.convert(read, "i64"), op.convert(op.equal(read, read), "i64")  # a tokenizer, which is not used
named = ((ids, "input_ids"), (beam, "beam_idx"), (logits, "logits"), (tokens, "input_ids"), (mask, "attention_mask"))
[(node.set_friendly_name(name), node.output(0).set_names({name})) for node, name in named]
model = ov.Model([op.result(logits)], list(map(op.assign, both, NAMES)), [ids, beam], "model")
ov.save_model(model, f"{folder}/openvino_model.xml", compress_to_fp16=False)
ov.save_model(ov.Model([tokens, mask], [text]), f"{folder}/openvino_tokenizer.xml")
fixed = {"max_new_tokens": 2, "do_sample": True, "ignore_eos": True, "eos_token_id": 0}
scheduler, twice = genai.SchedulerConfig(), []
scheduler.cache_size = 1
pipeline = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, "CPU", **EXACT)
for penalty in ({}, {"presence_penalty": 1.0}, {"frequency_penalty": 1.0}):
    asked = [genai.GenerationConfig(rng_seed=seed, **fixed, **penalty) for seed in range(REQUESTS)]
    written = [pipeline.generate([ov.Tensor(np.array([[start]]))] * REQUESTS, asked) for start in (0, 2)]
    twice.append([sum(len(set(one.m_generation_ids[0])) == 1 for one in some) for some in written])
    print(f"{penalty or 'no penalty'}: {twice[-1]} of {REQUESTS} pairs repeat a token, at positive and at negative logits")
raise SystemExit(int(all(some[0] < twice[0][0] and some[1] > twice[0][1] for some in twice[1:])))
