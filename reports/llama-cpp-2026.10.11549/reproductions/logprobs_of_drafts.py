"""llama.cpp (2026.10.11549): with speculation, n_probs gives 0.0 as the log-probability of every token of a round with
drafts, and no alternatives, without a word. Speculation off, it gives the right ones. A random model drafts for itself.
Needs gguf. Exit code 1 if the fault is there."""

import http.client
import json
import tempfile
import urllib.parse

import gguf
import numpy as np
import xllamacpp

V, H = 32, 32
file, random = tempfile.mktemp(suffix=".gguf"), np.random.default_rng(0)
writer = gguf.GGUFWriter(file, "llama")
writer.add_context_length(128), writer.add_embedding_length(H), writer.add_block_count(1), writer.add_feed_forward_length(H)
writer.add_head_count(1), writer.add_layer_norm_rms_eps(1e-6), writer.add_rope_dimension_count(H)
writer.add_tokenizer_model("rwkv"), writer.add_token_list([chr(65 + i) for i in range(V)]), writer.add_token_types([1] * V)
names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
for name in ("token_embd", "output", *(f"blk.0.{name}" for name in names)):
    writer.add_tensor(f"{name}.weight", random.standard_normal((H, H)).astype(np.float32))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(f"{name}.weight", np.ones(H, dtype=np.float32))
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
body, found = {"prompt": [1, 2, 3], "n_predict": 12, "temperature": 0, "n_probs": 2}, {}
for drafts in (False, True):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.verbosity, params.cpuparams.n_threads = file, 128, 0, 1
    if drafts:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path = file
    server = xllamacpp.Server(params)
    connection = http.client.HTTPConnection(urllib.parse.urlparse(server.listening_address).netloc)
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())["completion_probabilities"]
    found[drafts] = [round(entry["logprob"], 2) for entry in answer]
    print("with drafts" if drafts else "without", found[drafts], "alternatives", [len(e["top_logprobs"]) for e in answer])
raise SystemExit(int(max(abs(np.subtract(found[True], found[False]))) > 0.1))
