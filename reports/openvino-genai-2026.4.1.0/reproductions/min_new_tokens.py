"""OpenVINO GenAI 2026.4.1.0: with speculation, an output ends before `min_new_tokens`, once a draft has been rejected.
The model, decoding greedily, would end at once, and counts on while it may not: 1, 2, 3 ... What the prompt lets prompt lookup
draft is rejected. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, LEAST, NAMES, folder = 32, 8, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = 2 * np.eye(V, k=1, dtype=np.float32)  # logits after each token: 31 is the end
law[:, 31] = 3
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
prompt, lengths, scheduler = ov.Tensor(np.array([[0, 9, 1, 9, 2, 9, 3, 9, 0]])), [], genai.SchedulerConfig()
scheduler.cache_size = 1
for k in (0, 3):
    more = EXACT | ({"prompt_lookup": True} if k else {})
    pipeline = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, "CPU", **more)
    lookup = {"num_assistant_tokens": k, "max_ngram_size": 2} if k else {}
    config = genai.GenerationConfig(max_new_tokens=16, min_new_tokens=LEAST, eos_token_id=31, stop_token_ids={31}, **lookup)
    written = pipeline.generate([prompt], [config])[0].m_generation_ids[0]
    lengths.append(written.index(31))
    print(f"{k} drafts a round: the end comes after {lengths[-1]} tokens, {LEAST} are the least: {written}")
raise SystemExit(int(lengths[1] < LEAST <= lengths[0]))
