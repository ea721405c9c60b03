"""OpenVINO GenAI 2026.4.1.0: with a draft model, metrics of a sampled call count more generated tokens than it generated.
The draft is the target, whose next token depends on the last one alone. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, REQUESTS, NEW, NAMES, folder = 32, 32, 64, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = np.random.default_rng(0).normal(0, 1.5, (V, V)).astype(np.float32)  # logits after each token
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
    tokens = sum(len(one.m_generation_ids[0]) for one in results)
    found.append(results[0].perf_metrics.get_num_generated_tokens() - tokens)
    print(f"{k} drafts a round: {tokens} tokens in all outputs, and {tokens + found[-1]} by get_num_generated_tokens()")
raise SystemExit(int(found[0] == 0 != found[1]))
