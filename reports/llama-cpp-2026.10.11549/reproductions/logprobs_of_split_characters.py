"""llama.cpp (2026.10.11549): of a character of several bytes n_probs gives the last token alone, though `tokens` has them all:
what follows stands beside the wrong token. Shown without speculation. Needs gguf. Exit code 1 if the fault is there."""

import http.client
import json
import tempfile
import urllib.parse

import gguf
import numpy as np
import xllamacpp

V, H = 64, 32
texts = [f"\\x{byte:02x}" for byte in [*range(65, 97), *range(0x80, 0x9F), 0xC3]]  # letters, and parts of two-byte characters
file, random, lost = tempfile.mktemp(suffix=".gguf"), np.random.default_rng(), 0
writer = gguf.GGUFWriter(file, "llama")
writer.add_context_length(256), writer.add_embedding_length(H), writer.add_block_count(1), writer.add_feed_forward_length(H)
writer.add_head_count(1), writer.add_layer_norm_rms_eps(1e-6), writer.add_rope_dimension_count(H)
writer.add_tokenizer_model("rwkv"), writer.add_token_list(texts), writer.add_token_types([1] * V)
names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
for name in ("token_embd", "output", *(f"blk.0.{name}" for name in names)):
    rows = V if name in ("token_embd", "output") else H
    writer.add_tensor(f"{name}.weight", 0.1 * random.standard_normal((rows, H)).astype(np.float32))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(f"{name}.weight", np.ones(H, dtype=np.float32))
writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.verbosity, params.cpuparams.n_threads = file, 256, 0, 1
server = xllamacpp.Server(params)
connection = http.client.HTTPConnection(urllib.parse.urlparse(server.listening_address).netloc)
for seed in range(20):
    body = {"prompt": [1, 2, 3], "n_predict": 100, "temperature": 1, "n_probs": 1, "return_tokens": True, "seed": seed}
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    tokens, told = answer["tokens"], [entry["id"] for entry in answer["completion_probabilities"]]
    first = next((i for i, token in enumerate(tokens) if told[i : i + 1] != [token]), None)
    print(len(tokens), "tokens,", len(told), "log-probabilities", "" if first is None else f"without {texts[tokens[first]]}")
    lost += len(tokens) - len(told)
raise SystemExit(int(lost > 0))
