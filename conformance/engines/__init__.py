"""Adapters: one module per engine, each with a factory that takes `Models` and gives an `Engine`.

The registry knows how to load an engine and what to install when it is missing; nothing else here knows an engine by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[2] / ".nox"
"""Where `nox -s "audit(NAME)"` makes environments, in a clone of the project."""


@cache
def _shares_with(name: str) -> str:
    """The engine whose environment `nox -s "audit(NAME)"` uses for this one.

    >>> _shares_with("vllm-server"), _shares_with("vllm")
    ('vllm', 'vllm')
    """
    recipes = tomllib.loads(Path(__file__).with_name("environments.toml").read_text(encoding="utf-8"))
    return str(recipes.get(name, {}).get("environment_of", name))


@dataclass(frozen=True)
class Registered:
    """An engine that can be audited. package: what must be importable. install: how to get it. about: one line.

    share: of a level's samples that it is audited with; below 1 where samples are dear. dear_modes: every mode starts an engine
    of its own, so that the lowest level runs only the first mode of each rule and law of drafts. pairs: gives further pairs of
    models, of other architectures than ours, in a folder that it may write to: see `conformance.engines.transformers.pairs`.
    gpu: it runs on a GPU alone; its adapter can be made without one, and without the package.
    """

    name: str
    factory: str
    package: str
    install: str
    about: str
    share: float = 1.0
    dear_modes: bool = False
    pairs: str = ""
    gpu: bool = False

    @property
    def python(self) -> str:
        """Who runs it: the interpreter that SPECREF_PYTHON_NAME names (`nox -s "audit(NAME)"` sets it), else that of the
        environment which nox made for it before, else this one."""
        named = os.environ.get(f"SPECREF_PYTHON_{self.name.upper().replace('-', '_')}")
        program = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
        made = ENVIRONMENTS / f"audit-{_shares_with(self.name)}" / program
        return named or (str(made) if made.exists() else sys.executable)

    @property
    def importable(self) -> bool:
        """Whether its package is installed in that interpreter's environment."""
        if self.python == sys.executable:
            return find_spec(self.package) is not None
        asks = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({self.package!r}) is None)"
        return subprocess.run([self.python, "-c", asks], check=False).returncode == 0

    @property
    def missing(self) -> str:
        """What it lacks here, and what to do; "" where it can be audited."""
        if self.gpu:
            from conformance.engines.gpu import gpus  # torch is slow to import, and only these engines need it

            if not gpus():
                return f"no GPU: {self.name} runs on a CUDA GPU alone; on a machine that has one: {self.install}"
        return "" if self.importable else f"{self.package} is not installed here; {self.install}"


REGISTRY = (
    Registered(
        "specref",
        "conformance.engines.own:make",
        "specref",
        "comes with specref",
        "our own reference: ratio rule, token matching, one-hot and greedy verification",
        share=0.25,  # written to be read: it samples one request at a time
    ),
    Registered(
        "specref-engine",
        "conformance.engines.reference_engine:make",
        "specref",
        "comes with specref",
        "our reference engine: batches, pages, trees, stops and seeds around every rule",
        share=0.25,
    ),
    Registered(
        "transformers",
        "conformance.engines.transformers:make",
        "transformers",
        "pip install transformers",
        "Hugging Face transformers: every kind of assisted generation, its caches, candidate generators and tree masks",
        pairs="conformance.engines.transformers.pairs:make",
    ),
    Registered(
        "vllm",
        "conformance.engines.vllm:make",
        "vllm",
        'nox -s "audit(vllm)" (its own environment; with a GPU: pip install vllm)',
        "vLLM, offline: n-gram, draft model, Medusa, EAGLE, MTP, suffix, custom drafters; caches, seeds, log-probabilities",
        dear_modes=True,
    ),
    Registered(
        "vllm-server",
        "conformance.engines.vllm:make_server",
        "vllm",
        'nox -s "audit(vllm-server)" (shares the environment of vllm)',
        "vLLM's OpenAI-compatible server, started by the adapter: n-gram, draft model, Medusa, EAGLE",
        share=0.25,  # every request is sent on its own
        dear_modes=True,
    ),
    Registered(
        "onnxruntime-genai",
        "conformance.engines.onnxruntime_genai:make",
        "onnxruntime_genai",
        'nox -s "audit(onnxruntime-genai)" (its own environment)',
        "ONNX Runtime GenAI: draft model, n-gram lookup, adaptive widths, rewinding, logits",
        share=10.0,
        pairs="conformance.engines.onnxruntime_genai.pairs:make",
    ),
    Registered(
        "llama-cpp",
        "conformance.engines.llama_cpp:make",
        "xllamacpp",
        'nox -s "audit(llama-cpp)" (its own environment)',
        "llama.cpp's server (xllamacpp): draft model, drawn drafts, four n-gram tables; prompt cache, log-probabilities",
        share=4.0,
    ),
    Registered(
        "economize",
        "conformance.engines.economize:make",
        "economize",
        'nox -s "audit(economize)" (its own environment)',
        "economize: draft model, lookup, early exit, Medusa chain and tree; typical and accept-all as declared",
        share=5.0,
    ),
    Registered(
        "sequential-speculative-decoding",
        "conformance.engines.small:make_sequential",
        "seqspecdecod",
        'nox -s "audit(sequential-speculative-decoding)" (its own environment)',
        "sequential-speculative-decoding: its rounds, standard and hierarchical",
        share=0.3,  # it reads everything anew for every token
    ),
    Registered(
        "specdec",
        "conformance.engines.small:make_specdec",
        "specdec",
        'nox -s "audit(specdec)" (shares the environment of sequential-speculative-decoding)',
        "specdec: its rounds, at temperature 1",
        share=0.3,
    ),
    Registered(
        "speculative-decoding",
        "conformance.engines.small:make_lucidrains",
        "speculative_decoding",
        'nox -s "audit(speculative-decoding)" (shares the environment of sequential-speculative-decoding)',
        "lucidrains' speculative-decoding: draft model, one prompt at a time and in batches",
    ),
    Registered(
        "mini-infer",
        "conformance.engines.small:make_mini_infer",
        "mini_infer",
        'nox -s "audit(mini-infer)" (shares the environment of sequential-speculative-decoding)',
        "mini-infer: its speculative rounds; its paged engine, chunked, pre-empted and with cached prefixes",
    ),
    Registered(
        "flashspec",
        "conformance.engines.small:make_flashspec",
        "flashspec",
        'nox -s "audit(flashspec)" (shares the environment of sequential-speculative-decoding)',
        "flashspec: draft model, prompt lookup, both, a bandit of two widths, static caches, batches; typical as declared",
        share=0.25,
    ),
    Registered(
        "rotalabs-accel",
        "conformance.engines.small:make_rotalabs",
        "rotalabs_accel",
        'nox -s "audit(rotalabs-accel)" (shares the environment of sequential-speculative-decoding)',
        "rotalabs-accel: draft model, EAGLE, Medusa, token trees",
        share=0.25,
    ),
    Registered(
        "core-deepinfer",
        "conformance.engines.small:make_deepinfer",
        "core_deepinfer",
        'nox -s "audit(core-deepinfer)" (shares the environment of sequential-speculative-decoding)',
        "core-deepinfer: greedy speculation with states that are rolled back, and its recomputing oracle",
        share=0.25,  # every row is computed anew
    ),
    Registered(
        "mlx-lm",
        "conformance.engines.mlx_lm:make",
        "mlx_lm",
        'nox -s "audit(mlx-lm)" (its own environment)',
        "mlx-lm on a CPU: draft model, cached prefixes, log-probabilities, processors",
        share=0.3,
    ),
    Registered(
        "openvino-genai",
        "conformance.engines.openvino_genai:make",
        "openvino_genai",
        'nox -s "audit(openvino-genai)" (its own environment)',
        "OpenVINO GenAI on a CPU: draft model, drafts by confidence, prompt lookup; log-probabilities",
    ),
    Registered(
        "flashinfer",
        "conformance.engines.flashinfer:make",
        "flashinfer",
        'nox -s "audit(flashinfer)" (its own environment)',
        "FlashInfer on a GPU: its verification of chains alone",
        gpu=True,
    ),
    Registered(
        "sgl-kernel",
        "conformance.engines.sgl_kernel:make",
        "sgl_kernel",
        'nox -s "audit(sgl-kernel)" (shares the environment of sglang)',
        "SGLang's kernels on a GPU: two verifications of token trees, and what builds the trees' inputs",
        gpu=True,
    ),
    Registered(
        "sglang",
        "conformance.engines.sglang:make",
        "sglang",
        'nox -s "audit(sglang)" (its own environment)',
        "SGLang's server on a GPU, started by the adapter: n-gram, draft model, EAGLE, trees; thresholds as declared",
        share=0.25,  # every request is sent on its own
        dear_modes=True,
        gpu=True,
    ),
)

BY_NAME = {entry.name: entry for entry in REGISTRY}
