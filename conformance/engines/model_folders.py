"""Folders of models that an engine is given: by the role that a mode names, with another configuration, or of another model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from conformance.protocols import Models, NotHere
from specref import pretrained

CONFIG, DEFAULTS = "config.json", "generation_config.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def folder_of(models: Models, role: str) -> Path:
    """The folder of a role: target, draft, or heads that lie beside the target. Raises NotHere where there are none."""
    folders = {"target": models.target, "draft": models.draft}
    folder = folders.get(role) or models.target.resolve().parent / role
    if not (folder / CONFIG).exists():
        raise NotHere(f"{role}: no folder of that name, with such heads, lies beside the target")
    return folder


def with_config(folder: Path, into: Path, changes: dict[str, Any]) -> Path:
    """A folder of links to the same files, with changes to the configuration and without the model's own defaults of sampling.

    >>> from tempfile import TemporaryDirectory
    >>> from specref import pretrained
    >>> with TemporaryDirectory() as place:
    ...     made = with_config(pretrained.path("draft"), Path(place) / "endless", {"eos_token_id": None})
    ...     json.loads((made / CONFIG).read_text())["eos_token_id"], sorted(file.name for file in made.iterdir())
    (None, ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'])
    """
    into.mkdir(parents=True)
    for file in folder.resolve().iterdir():
        if file.name not in (CONFIG, DEFAULTS):
            os.symlink(file, into / file.name)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    (into / CONFIG).write_text(json.dumps(config | changes), encoding="utf-8")
    return into


def save_like_ours(model: Any, folder: Path) -> None:
    """Write a model of transformers to a folder, with the tokenizer and the defaults (ends among them) of our small target."""
    ours = pretrained.path("target")
    model.save_pretrained(folder)
    for name in (DEFAULTS, *TOKENIZER):
        shutil.copy(ours / name, folder / name)
