"""llama.cpp's server as an engine under audit, in process and over HTTP."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conformance.engines.adapting import Counts
from conformance.engines.llama_cpp.gguf_file import spellings, write_gguf
from conformance.engines.llama_cpp.modes import all_modes
from conformance.engines.llama_cpp.server import SLOTS, Server
from conformance.engines.llama_cpp.settings import completion_body
from conformance.engines.llama_folder import LlamaFolder
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens

COUNTS = {"draft_tokens": "draft_n", "accepted": "draft_n_accepted", "emitted": "predicted_n"}
"""Names of `Engine.metrics`, and of the server's timings. It says nothing of rounds."""


class LlamaCppEngine(Engine):
    """One server at a time. Which tokens end an output is part of a GGUF file, so another set of them is another server."""

    name = "llama-cpp"
    version = version("xllamacpp")

    def __init__(self, models: Models) -> None:
        self._target, self._draft = (LlamaFolder.read(folder) for folder in (models.target, models.draft))
        self._spellings = spellings(self._target)
        self._place = tempfile.TemporaryDirectory(prefix="specref-gguf-")
        self._files: dict[Tokens, tuple[Path, Path]] = {}
        self._server: Server | None = None
        self._serves: tuple[Mode, Tokens] | None = None
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return all_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`. Requests with the same ends run together, as many as there are slots."""
        bodies = [completion_body(mode, request, self._spellings) for request in requests]
        answers: dict[int, dict[str, Any]] = {}
        for ends in dict.fromkeys(request.settings.eos for request in requests):
            server = self._serving(mode, tuple(ends))
            chosen = [number for number, request in enumerate(requests) if request.settings.eos == ends]
            with ThreadPoolExecutor(SLOTS) as pool:
                answers |= zip(chosen, pool.map(server.complete, [bodies[number] for number in chosen]))
        for number in range(len(requests)):
            timings = answers[number]["timings"]
            self._counts.add(mode, {ours: float(timings.get(theirs, 0)) for ours, theirs in COUNTS.items()})
            yield read_answer(mode, answers[number])

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return self._counts.of(mode)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._server is not None:
            self._server.close()
            self._server = self._serves = None

    def _serving(self, mode: Mode, ends: Tokens) -> Server:
        if self._server is None or self._serves != (mode, ends):
            self.close()
            self._server = Server(mode, *self._written(ends), self._target.longest)
            self._serves = mode, ends
        return self._server

    def _written(self, ends: Tokens) -> tuple[Path, Path]:
        """Target and draft as files whose outputs end at any of `ends`."""
        if ends not in self._files:
            folder = Path(self._place.name) / str(len(self._files))
            folder.mkdir()
            files = folder / "target.gguf", folder / "draft.gguf"
            for model, file in zip((self._target, self._draft), files):
                write_gguf(model, ends, file)
            self._files[ends] = files
        return self._files[ends]


def read_answer(mode: Mode, answer: Mapping[str, Any]) -> Output:
    """The server's answer, as recorded.

    >>> recorded = {"tokens": [5, 6], "completion_probabilities": [{"id": 5, "logprob": -0.5}, {"id": 6, "logprob": -1.5}]}
    >>> read_answer(Mode("off", logprobs="raw"), recorded)
    Output(tokens=(5, 6), rounds=None, logprobs=(-0.5, -1.5))
    """
    logprobs = None
    if mode.logprobs:
        logprobs = tuple(float(entry["logprob"]) for entry in answer.get("completion_probabilities", ()))
    return Output(tuple(int(token) for token in answer["tokens"]), None, logprobs)
