"""A model of transformers in OpenVINO's format, made once and kept in the engine's environment."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

KEPT = Path(sys.prefix) / "converted-models"


def converted(folder: Path) -> Path:
    """The folder that holds what is in `folder`, converted; it takes a minute the first time."""
    digest = hashlib.sha256()
    for file in sorted((*folder.glob("*.json"), *folder.glob("*.safetensors"))):
        digest.update(file.read_bytes())
    kept = KEPT / digest.hexdigest()[:16]
    if not kept.exists():
        KEPT.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=KEPT))
        _convert(folder, made)
        try:
            made.rename(kept)  # a folder is there whole or not at all
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return kept


def _convert(folder: Path, made: Path) -> None:
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel.openvino import OVModelForCausalLM
    from transformers import AutoTokenizer

    OVModelForCausalLM.from_pretrained(str(folder), export=True, compile=False, load_in_8bit=False).save_pretrained(str(made))
    read, write = convert_tokenizer(AutoTokenizer.from_pretrained(str(folder)), with_detokenizer=True)
    openvino.save_model(read, made / "openvino_tokenizer.xml")
    openvino.save_model(write, made / "openvino_detokenizer.xml")
