"""OpenVINO GenAI 2026.4.1.0: with a draft model, the log-probabilities of sampled tokens are those of other tokens.
The model writes 0 with probability 0.8, else 1. The draft is the target itself. Exit code 1 if the fault is there."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, REQUESTS, NEW, NAMES, folder = 32, 64, 16, ("key", "value"), tempfile.mkdtemp()
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
law = np.tile(np.array([np.log(0.8), np.log(0.2), *[-40] * (V - 2)], np.float32), (V, 1))  # logits after each token
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
fixed = {"do_sample": True, "ignore_eos": True, "eos_token_id": 31, "logprobs": 1}
found, scheduler = [], genai.SchedulerConfig()
scheduler.cache_size = 1
for k in (0, 3):
    more = EXACT | ({"draft_model": genai.draft_model(folder, "CPU", **EXACT)} if k else {})
    pipeline = genai.ContinuousBatchingPipeline(folder, genai.Tokenizer(folder), scheduler, "CPU", **more)
    asked = [genai.GenerationConfig(max_new_tokens=NEW, num_assistant_tokens=k, rng_seed=s, **fixed) for s in range(REQUESTS)]
    handles = [pipeline.add_request(number, ov.Tensor(np.array([[0]])), one) for number, one in enumerate(asked)]
    [pipeline.step() for _ in range(2 * NEW) if pipeline.has_non_finished_requests()]
    outs = [handle.read_all()[0] for handle in handles]
    found.append(sum(int((np.abs(law[0, one.generated_ids] - one.generated_log_probs) > 0.01).sum()) for one in outs))
    print(f"{k} drafts a round: {found[-1]} of {REQUESTS * NEW} log-probabilities are wrong")
raise SystemExit(int(found[0] == 0 < found[1]))
