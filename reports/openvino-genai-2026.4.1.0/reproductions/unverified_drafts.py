"""OpenVINO GenAI 2026.4.1.0: with prompt lookup, drafts that nothing verified are left in the output, -1 (padding) among them,
where a step (256 tokens by default) has room for one token of a request: here for 5 tokens of 51 requests, and one of another.
Greedy, 64 prompts of 10 tokens. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, REQUESTS, NEW, NAMES, folder = 32, 64, 24, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = np.eye(V, k=1, dtype=np.float32)  # logits: the model counts on, 1, 2, 3 ...
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
found, scheduler, prompts = [], genai.SchedulerConfig(), np.random.default_rng(0).integers(0, 31, (REQUESTS, 10))
scheduler.cache_size, prompts[:, -1] = 1, 0
for k, scheduler.max_num_batched_tokens in ((0, 256), (4, 4096), (4, 256)):
    lookup = {"num_assistant_tokens": k, "max_ngram_size": 3} if k else {}
    more = EXACT | ({"prompt_lookup": True} if k else {})
    pipeline = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, "CPU", **more)
    asked = genai.GenerationConfig(max_new_tokens=NEW, ignore_eos=True, eos_token_id=31, **lookup)
    written = pipeline.generate([ov.Tensor(prompt[None]) for prompt in prompts], [asked] * REQUESTS)
    wrong = [one for result in written for one in result.m_generation_ids if one != list(range(1, NEW + 1))]
    print(f"{k} drafts, {scheduler.max_num_batched_tokens} tokens a step: {len(wrong)} outputs are wrong", *wrong[:1])
    found.append(len(wrong))
raise SystemExit(int(found[0] == found[1] == 0 < found[2]))
