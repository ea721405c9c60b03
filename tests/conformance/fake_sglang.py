"""A server with the documented shape of SGLang's `/health` and `/generate` (sglang 0.5.23), strict about what it is asked.

`python fake_sglang.py PORT`. It writes the prompt's tokens, over and over, up to one that stops it.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

TOP = {"input_ids": list, "sampling_params": dict, "return_logprob": bool, "stream": bool}
PARAMS = {
    "max_new_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "stop_token_ids": list,
    "logit_bias": dict,
}


def problem(body: dict[str, Any]) -> str:
    """Why SGLang would not take a request, or ""."""
    params = body.get("sampling_params", {})
    for given, known in ((body, TOP), (params, PARAMS)):
        for name, value in given.items():
            if name not in known or type(value) is not known[name]:
                return f"{name} is {value!r}"
    if not all(type(token) is int for token in [*body["input_ids"], *params.get("stop_token_ids", ())]):
        return "a token is no integer"
    if not all(key.isdigit() for key in params.get("logit_bias", {})):
        return "logit_bias must have ids as keys"
    if params["top_k"] != -1 and params["top_k"] < 1:
        return f"top_k must be -1 or at least 1, got {params['top_k']}"
    if not -2 <= params["presence_penalty"] <= 2:
        return f"presence_penalty must be in [-2, 2], got {params['presence_penalty']}"
    return ""


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """What it answers without a tokenizer."""
    params, tokens = body["sampling_params"], []
    reason: dict[str, Any] = {"type": "length", "length": params["max_new_tokens"]}
    for token in cycle(body["input_ids"]):
        tokens.append(token)
        if token in params.get("stop_token_ids", ()):
            reason = {"type": "stop", "matched": token}
            break
        if len(tokens) == params["max_new_tokens"]:
            break
    meta = {
        "id": "1",
        "finish_reason": reason,
        "prompt_tokens": len(body["input_ids"]),
        "completion_tokens": len(tokens),
        "spec_verify_ct": 2,
        "spec_num_proposed_drafts": 6,
        "spec_num_correct_drafts": 3,
        "spec_accept_rate": 0.5,
    }
    if body["return_logprob"]:
        meta["output_token_logprobs"] = [[-0.5, token, None] for token in tokens]
    return {"output_ids": tokens, "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    """Asked at two paths."""

    def do_GET(self) -> None:
        self.reply(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/generate":
            self.reply(404, {})
        elif said := problem(body):
            self.reply(400, {"error": {"message": said}})
        else:
            self.reply(200, answer(body))

    def reply(self, status: int, said: Any) -> None:
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None: ...


if __name__ == "__main__":
    try:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)
