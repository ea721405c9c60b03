"""Any server that speaks the OpenAI completions protocol with token ids: vLLM, SGLang, llama.cpp and others.

Speculation is what the server was started with: it cannot be switched off by a request. So a second server, started without it,
is the control. Both are named by the environment, which `specref audit URL --control URL` fills in:

    SPECREF_SERVER, SPECREF_CONTROL   their addresses, as http://127.0.0.1:8000/v1
    SPECREF_MODEL                     the name under which the model is served; by default the first that the server lists
    SPECREF_API_KEY                   sent as a bearer token; read from the environment only, and never written anywhere
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from conformance.engines.http_client import Client
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens, Unsupported

CONCURRENCY = 16
"""Requests in flight. What comes back is handed on in the order of submission."""

NATIVE = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens")
"""Settings of the protocol itself."""
EXTRAS = {"top_k": None, "min_p": 0.0, "repetition_penalty": 1.0, "min_tokens": 0}
"""Settings that servers add, by the value that changes nothing; sent only if asked for."""


class ServerEngine(Engine):
    """One server under audit, and perhaps its control."""

    name = "server"

    def __init__(self, server: Client, control: Client | None, model: str | None, ends: Tokens = ()) -> None:
        """ends: the model's own, at which a server stops whatever a request names, unless it is told to ignore them."""
        self._ends = ends
        self._clients = {"control": control, "server": server}
        self._model = model or server.first_model()
        self.version = server.version()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`. k is the server's own affair."""
        served = Mode("as served", {"server": "as started"}, draft_law="draft model", logprobs="raw")
        off = Mode("off", rule="target", logprobs="raw")
        return (off, served) if self._clients["control"] is not None else (served,)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        client = self._clients["server" if mode.speculates else "control"]
        assert client is not None
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            yield from pool.map(partial(self._ask, client), requests)

    def _ask(self, client: Client, request: Request) -> Output:
        body = completion_request(request, self._model)
        if not set(self._ends) <= set(request.settings.eos):
            body["ignore_eos"] = True
        answer = client.post("completions", body)
        return with_its_end(read_completion(answer), answer, {*request.settings.eos, *self._ends})

    def close(self) -> None:
        """See `Engine.close`."""
        for client in self._clients.values():
            if client is not None:
                client.close()


def completion_request(request: Request, model: str) -> dict[str, Any]:
    """The body that asks for one continuation, token ids in and out. Raises Unsupported for what the protocol cannot say.

    >>> from specref.processors import SamplingSettings
    >>> settings = SamplingSettings(max_tokens=8, temperature=0.5, top_k=40, logit_bias={3: 1.5})
    >>> body = completion_request(Request((1, 2), settings, seed=7), "m")
    >>> body["prompt"], body["temperature"], body["top_k"], body["logit_bias"], "min_p" in body
    ([1, 2], 0.5, 40, {'3': 1.5}, False)
    """
    settings = request.settings
    if settings.stop_sequences:
        raise Unsupported("stop_sequences: the completions protocol takes strings, not token ids, as stops")
    if settings.bad_words:
        raise Unsupported("bad_words: the completions protocol takes strings, not token ids, as forbidden words")
    body: dict[str, Any] = {"model": model, "prompt": list(request.prompt), "seed": request.seed, "n": 1, "logprobs": 0}
    body |= {name: _plain(getattr(settings, name)) for name in NATIVE}
    body |= {name: _plain(getattr(settings, name)) for name, idle in EXTRAS.items() if getattr(settings, name) != idle}
    if settings.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in settings.logit_bias.items()}
    if settings.eos:
        body["stop_token_ids"] = list(settings.eos)
    else:
        body["ignore_eos"] = True
    return body | {"return_token_ids": True, "return_tokens_as_token_ids": True}


def _plain(value: Any) -> Any:
    return float(value) if hasattr(value, "denominator") and not isinstance(value, int) else value


def read_completion(answer: Any) -> Output:
    """The tokens of an answer, and their log-probabilities if they came. Raises Unsupported if it holds no token ids.

    >>> read_completion({"choices": [{"text": "ab", "token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -0.25]}}]})
    Output(tokens=(5, 6), rounds=None, logprobs=(-0.5, -0.25))
    >>> read_completion({"choices": [{"text": "ab", "logprobs": {"tokens": ["token_id:5"], "token_logprobs": [-0.5]}}]})
    Output(tokens=(5,), rounds=None, logprobs=(-0.5,))
    """
    try:
        choice = answer["choices"][0]
        logprobs = choice.get("logprobs") or {}
        named = [str(token) for token in logprobs.get("tokens") or ()]
        values = logprobs.get("token_logprobs")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError(f"the server's answer is no completion: {str(answer)[:80]!r}") from None
    if choice.get("token_ids") is not None:
        tokens = tuple(choice["token_ids"])
    elif choice.get("tokens") is not None:
        tokens = tuple(choice["tokens"])
    elif named and all(token.startswith("token_id:") for token in named):
        tokens = tuple(int(token.removeprefix("token_id:")) for token in named)
    else:
        raise Unsupported(
            "the server returns text without token ids, which cannot be judged token by token; start one that knows "
            "return_token_ids or return_tokens_as_token_ids (vLLM, SGLang), or judge samples gathered elsewhere: specref judge"
        )
    return Output(tokens, None, None if values is None else tuple(float(value) for value in values))


def with_its_end(output: Output, answer: Any, ends: Set[int]) -> Output:
    """The output with the id that ended it, which some servers leave out. ends: the ids that may have.

    Without it, it would seem to have ended for no reason, and the target's ends never to come. Raises Unsupported where several
    ids may have ended it and the server does not say which.

    >>> stopped = {"choices": [{"finish_reason": "stop"}]}
    >>> [with_its_end(Output(tokens), stopped, {2}).tokens for tokens in ((5, 6), (5, 2), ())]
    [(5, 6, 2), (5, 2), (2,)]
    >>> with_its_end(Output((5, 6)), {"choices": [{"finish_reason": "stop", "stop_reason": 3}]}, {2, 3}).tokens
    (5, 6, 3)
    """
    choice = answer["choices"][0]
    if choice.get("finish_reason") != "stop" or (output.tokens and output.tokens[-1] in ends):
        return output
    said = [choice.get(name) for name in ("stop_reason", "matched_stop") if type(choice.get(name)) is int]
    possible = said[:1] or sorted(ends)
    if len(possible) != 1:
        raise Unsupported(
            f"the server leaves out the id that ended an output, and does not say which of {possible} it was (stop_reason); "
            "without it the output cannot be judged"
        )
    return replace(output, tokens=(*output.tokens, possible[0]))


def own_ends(folder: Path) -> Tokens:
    """The end-of-sequence ids that a model's folder names; none if it names none."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            found = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
            if found is not None:
                return tuple(found) if isinstance(found, list) else (found,)
    return ()


def make(models: Models) -> ServerEngine:
    """The server that the environment names."""
    address, control = os.environ.get("SPECREF_SERVER"), os.environ.get("SPECREF_CONTROL")
    if not address:
        raise ValueError("no server is named; give its address: specref audit http://127.0.0.1:8000/v1")
    key = os.environ.get("SPECREF_API_KEY")
    other = Client(control, key) if control else None
    return ServerEngine(Client(address, key), other, os.environ.get("SPECREF_MODEL"), own_ends(models.target))
