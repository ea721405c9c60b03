"""SGLang's server as an engine under audit: started by the adapter, one at a time, on a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conformance.engines.gpu import installed_version, require_cuda
from conformance.engines.model_folders import CONFIG, folder_of, with_config
from conformance.engines.sglang.asking import counts_of, generate_request, read_generated
from conformance.engines.sglang.modes import DRAFT, server_modes
from conformance.engines.started_server import StartedServer, words_of
from conformance.protocols import Mode, Models, Output, Request

ARGUMENTS = {
    "host": "127.0.0.1",
    "dtype": "float32",
    "attention-backend": "triton",  # the others compute in half precision only
    "max-running-requests": 64,
    "max-total-tokens": 32_768,
    "log-level": "warning",
}
SWITCHES = ("--skip-tokenizer-init", "--skip-server-warmup")
PLAIN = {
    "prefix_cache": ("--disable-radix-cache",),
    "cuda_graphs": ("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
}
"""What switches off that a mode's options may switch on."""
EAGLE_LAYERS = "eagle_aux_hidden_state_layer_ids"


class SglangServer(StartedServer):
    """The server. Its log-probabilities are told to be those of the target's logits, before the temperature."""

    name = "sglang"
    called, path = "SGLang's server", "generate"
    environment: Mapping[str, str] = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1", "HF_HUB_OFFLINE": "1"}

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self.version = installed_version("sglang")
        self._told: list[dict[str, float]] = []

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return server_modes(k)

    def counted(self) -> Mapping[str, float]:
        """See `OneMode.counted`: what its answers said of themselves since it was started."""
        names = dict.fromkeys(name for counts in self._told for name in counts)
        return {name: sum(counts.get(name, 0.0) for counts in self._told) for name in names}

    def close(self) -> None:
        """See `Engine.close`."""
        super().close()
        self._told.clear()

    def command(self, mode: Mode, port: int) -> list[str]:
        """See `StartedServer.command`. Raises NotHere without a GPU, and for heads that do not lie beside the target."""
        require_cuda()
        asked = dict(mode.speculation)
        if DRAFT in asked:
            asked[DRAFT] = self.drafter(str(asked[DRAFT]))
        return command(self.target, port, asked, mode.options)

    def body(self, request: Request) -> dict[str, Any]:
        """See `StartedServer.body`."""
        return generate_request(request)

    def read(self, answer: Any) -> Output:
        """See `StartedServer.read`."""
        output = read_generated(answer)
        self._told.append(counts_of(answer))
        return output

    @cached_property
    def _place(self) -> TemporaryDirectory[str]:
        return TemporaryDirectory(prefix="specref-sglang-")

    @cached_property
    def target(self) -> Path:
        """The target without ends of its own: told to ignore those, SGLang would ignore a request's too."""
        return with_config(self._models.target, Path(self._place.name) / "target", {"eos_token_id": None})

    def drafter(self, role: str) -> Path:
        """The folder of what drafts, as SGLang reads it: its names of EAGLE's nets, and its numbers of the layers they read."""
        folder, made = folder_of(self._models, role), Path(self._place.name) / role
        if role == "draft" or made.exists():
            return made if made.exists() else folder
        return with_config(folder, made, as_sglang_reads(json.loads((folder / CONFIG).read_text(encoding="utf-8"))))


def as_sglang_reads(config: dict[str, Any]) -> dict[str, Any]:
    """What differs in SGLang's configuration of an EAGLE or EAGLE-3 net.

    >>> as_sglang_reads({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]})
    {'eagle_config': {'eagle_aux_hidden_state_layer_ids': [0, 1, 2]}}
    """
    if EAGLE_LAYERS in config:  # it counts the layer whose output is read, and not the one that reads it
        return {"eagle_config": {EAGLE_LAYERS: [layer - 1 for layer in config[EAGLE_LAYERS]]}}
    return {"architectures": ["LlamaForCausalLMEagle"]}


def command(target: Path, port: int, speculation: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """The command line of a server.

    >>> command(Path("m"), 8000, {"speculative-use-rejection-sampling": True, "speculative-num-steps": 3}, {})[-3:]
    ['--speculative-num-steps', '3', '--speculative-use-rejection-sampling']
    """
    words = [sys.executable, "-m", "sglang.launch_server", *SWITCHES]
    words += words_of({"model-path": target, "port": port, **ARGUMENTS})
    words += [word for name, off in PLAIN.items() if not options.get(name) for word in off]
    words += words_of({name: value for name, value in speculation.items() if value is not True})
    return words + [f"--{name}" for name, value in speculation.items() if value is True]
