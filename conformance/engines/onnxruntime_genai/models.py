"""The models under audit as ONNX Runtime GenAI loads them: two graphs in a folder of their own, with their configuration."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime_genai as og

from conformance.engines.llama_folder import LlamaFolder
from conformance.engines.onnxruntime_genai.graph import PAST, PRESENT, write_graph
from conformance.protocols import Models, Tokens

GRAPHS = ("target.onnx", "draft.onnx")
ONE_THREAD = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}


class LoadedModels:
    """Target and draft, written once; loaded once for each set of ends, which GenAI reads from the configuration.

    GenAI wants an end. Where a request names none it is the id behind the vocabulary, which the graphs give no probability.
    """

    def __init__(self, models: Models) -> None:
        self.target, self.draft = (LlamaFolder.read(folder) for folder in (models.target, models.draft))
        self._place = tempfile.TemporaryDirectory(prefix="specref-genai-")
        self._root = Path(self._place.name)
        self._loaded: dict[tuple[Tokens, bool], Any] = {}
        for name, model in zip(GRAPHS, (self.target, self.draft)):
            write_graph(model, self._root / name)

    def load(self, ends: Tokens, *, drafts: bool) -> Any:
        """The target, ending at any of `ends`, with the draft model beside it or without."""
        if (ends, drafts) not in self._loaded:
            folder = self._root / str(len(self._loaded))
            folder.mkdir()
            for name in GRAPHS:
                (folder / name).hardlink_to(self._root / name)
            (folder / "genai_config.json").write_text(json.dumps(self._configuration(ends, drafts)))
            self._loaded[ends, drafts] = og.Model(str(folder))
        return self._loaded[ends, drafts]

    def close(self) -> None:
        """Let go of the models, and remove their folder."""
        self._loaded.clear()
        self._place.cleanup()

    def _configuration(self, ends: Tokens, drafts: bool) -> dict[str, Any]:
        target = self.target
        model = {
            "type": "llama",
            "vocab_size": target.vocabulary + 1,
            "context_length": target.longest,
            "bos_token_id": target.first or 0,
            "eos_token_id": list(ends) or [target.vocabulary],
            "pad_token_id": 0,
            "decoder": _decoder(target, "target.onnx"),
        }
        if drafts:
            model["draft"] = _decoder(self.draft, "draft.onnx")
        return {"model": model, "search": {"max_length": target.longest, "past_present_share_buffer": False}}


def _decoder(model: LlamaFolder, file: str) -> dict[str, Any]:
    caches = {
        f"{when}_{part}_names": names.replace("%s", part)
        for when, names in (("past", PAST), ("present", PRESENT))
        for part in ("key", "value")
    }
    inputs = {name: value for name, value in caches.items() if name.startswith("past")}
    outputs = {name: value for name, value in caches.items() if name.startswith("present")}
    return {
        "session_options": {"provider_options": [], **ONE_THREAD},
        "filename": file,
        "head_size": model.head_size,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_heads,
        "num_hidden_layers": model.layers,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **inputs},
        "outputs": {"logits": "logits", **outputs},
    }
