"""OpenVINO GenAI 2026.4.1.0: with a draft model, tokens are sampled that the target cannot write. The draft is the target.
After t the model writes t + 1, t + 4, t + 7 or t + 10 (modulo 30), and others with probability e^-40 each. With a draft model
others come too, most of them t + 2, t + 5 ...: what may come after the next token. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, REQUESTS, NEW, NAMES, folder = 32, 32, 128, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = np.full((V, V), -40, np.float32)  # logits after each token
for t in range(30):
    law[t, (t + np.array([1, 4, 7, 10])) % 30] = np.log([8 / 15, 4 / 15, 2 / 15, 1 / 15])
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
fixed, found, scheduler = {"do_sample": True, "ignore_eos": True, "eos_token_id": 31}, [], genai.SchedulerConfig()
scheduler.cache_size = 1
for k in (0, 3):
    more = {"draft_model": genai.draft_model(folder, "CPU", **EXACT)} if k else {}
    pipeline = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, "CPU", **EXACT, **more)
    asked = [genai.GenerationConfig(max_new_tokens=NEW, num_assistant_tokens=k, rng_seed=s, **fixed) for s in range(REQUESTS)]
    results = pipeline.generate([ov.Tensor(np.array([[0]]))] * REQUESTS, asked)
    found.append(np.bincount(np.diff([[0, *one.m_generation_ids[0]] for one in results]).ravel() % 3, minlength=3))
    print(f"{k} drafts a round: (next - last) % 3 is 1 for {found[-1][1]} tokens, 2 for {found[-1][2]}, 0 for {found[-1][0]}")
raise SystemExit(int(found[0][2] == 0 < found[1][2]))
