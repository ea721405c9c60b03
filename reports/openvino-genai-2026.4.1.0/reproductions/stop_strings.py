"""OpenVINO GenAI 2026.4.1.0: with a draft model, stop strings are passed over, at temperature 0 too. Tokens are letters, the
next one depends on the last alone, and each output is to end with the two that it begins with. Exit code 1 if it is so."""

import tempfile

import numpy as np
import openvino as ov
import openvino.opset15 as op
import openvino_genai as genai

V, NAMES, EXACT = 32, ("key", "value"), {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
folders, stops, passed = (tempfile.mkdtemp(), tempfile.mkdtemp()), [set()] * V, []  # of target and draft
for folder, table in zip(folders, np.random.default_rng(0).normal(0, 1, (2, V, V)).astype(np.float32).cumsum(0)):  # logits
    ids, beam, text = op.parameter([-1, -1], np.int64), op.parameter([-1], np.int32), op.parameter([-1], ov.Type.string)
    last, empty = op.gather(np.eye(V, dtype=np.float32), ids, 0), np.zeros((1, 1, 0, V), np.float32)
    new = op.transpose(op.reshape(last, [0, 0, 1, V], True), [0, 2, 1, 3])
    both = [op.concat([op.gather(op.read_value(empty, n, np.float32, [-1, 1, -1, V]), beam, 0), new], 2) for n in NAMES]
    mixed = op.transpose(op.scaled_dot_product_attention(new, *both, np.zeros((1, 1, 1, 1), np.float32)), [0, 2, 1, 3])
    seen = op.add(last, op.multiply(op.reshape(mixed, [0, 0, V], True), np.float32(1e-9)))  # a pipeline wants some attention
    logits, read, a = op.matmul(seen, table, False, False), op.string_tensor_unpack(text).output(2), np.int64(ord("A"))
    tokens, written = op.unsqueeze(op.subtract(op.convert(read, "i64"), a), 0), op.parameter([-1, -1], np.int64)
    mask, letters = op.convert(op.equal(tokens, tokens), "i64"), op.convert(op.add(op.reshape(written, [-1], False), a), "u8")
    spelled = op.string_tensor_pack(np.zeros(1, np.int32), op.gather(op.shape_of(written, "i32"), [1], 0), letters)
    named = ((ids, "input_ids"), (beam, "beam_idx"), (logits, "logits"), (tokens, "input_ids"), (mask, "attention_mask"))
    [(node.set_friendly_name(name), node.output(0).set_names({name})) for node, name in (*named, (spelled, "string_output"))]
    model = ov.Model([op.result(logits)], list(map(op.assign, both, NAMES)), [ids, beam], "model")
    ov.save_model(model, f"{folder}/openvino_model.xml", compress_to_fp16=False)
    ov.save_model(ov.Model([tokens, mask], [text]), f"{folder}/openvino_tokenizer.xml")
    ov.save_model(ov.Model([spelled], [written]), f"{folder}/openvino_detokenizer.xml")
for k in (0, 0, 3):  # the first time without stop strings
    more = EXACT | ({"draft_model": genai.draft_model(folders[1], "CPU", **EXACT)} if k else {})
    pipe = genai.ContinuousBatchingPipeline(folders[0], genai.Tokenizer(folders[0]), genai.SchedulerConfig(), "CPU", **more)
    said = {"num_assistant_tokens": k, "max_new_tokens": 24, "ignore_eos": True, "include_stop_str_in_output": True}
    asked = [genai.GenerationConfig(eos_token_id=31, stop_strings=some, **said) for some in stops]
    outputs = [one.m_generation_ids[0] for one in pipe.generate([ov.Tensor(np.array([[t]])) for t in range(V)], asked)]
    stops = stops if passed else [{"".join(chr(65 + t) for t in tokens[:2])} for tokens in outputs]
    passed.append(sum(len(tokens) > 2 for tokens in outputs))
print(f"of {V} outputs go on: {passed[0]} without stop strings, {passed[1]} with them, {passed[2]} with a draft model too")
raise SystemExit(int(passed[1] == 0 < passed[2]))
