"""Options of older vLLM versions and their names today, asked of the installed version: offline, and the server's parser."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from engine_here import ROOT, needs, python_of

from specref import pretrained

PYTHON = python_of("vllm", "vllm")
pytestmark = [pytest.mark.long, needs("vllm", "vllm")]

GONE = {
    "speculative_model": "m",
    "num_speculative_tokens": 3,
    "ngram_prompt_lookup_max": 3,
    "ngram_prompt_lookup_min": 1,
    "speculative_draft_tensor_parallel_size": 1,
    "speculative_max_model_len": 64,
    "speculative_model_quantization": "fp8",
    "use_v2_block_manager": True,
    "spec_decoding_acceptance_method": "typical_acceptance_sampler",
    "speculative_disable_by_batch_size": 4,
    "speculative_disable_mqa_scorer": True,
    "disable_logprobs_during_spec_decoding": False,
}
TODAY: list[dict[str, Any]] = [
    {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3},
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1},
    {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3, "max_model_len": 64},
    {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3, "quantization": None},
    {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3, "rejection_sample_method": "block"},
]
UNKNOWN = ("speculative_token_tree", "disable_by_batch_size", "acceptance_method", "posterior_threshold")

PROGRAM = """
import contextlib, io, json, os, sys
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

asked, answers = json.loads(sys.argv[1]), []
for kind, arguments in asked:
    said = io.StringIO()
    try:
        if kind == "offline":
            EngineArgs(model=sys.argv[2], **arguments)
        elif kind == "config":
            named = {"skip_tokenizer_init": True, "dtype": "float32", "max_model_len": 64}
            EngineArgs(model=sys.argv[2], speculative_config=arguments, **named).create_engine_config()
        else:
            with contextlib.redirect_stderr(said):
                make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", sys.argv[2], *arguments])
        answers.append("taken")
    except SystemExit as end:
        answers.append(f"exit {end.code}: {said.getvalue().splitlines()[-1]}")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
print("ANSWERS" + json.dumps(answers))
"""


BASE = {"model": str(pretrained.path("draft")), "num_speculative_tokens": 3}
SHORT = {"spec_method": "ngram", "spec_tokens": 3}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@pytest.fixture(scope="module")
def answers() -> dict[str, list[str]]:
    """All questions in one process: vLLM takes long to import."""
    questions: dict[str, list[tuple[str, Any]]] = {
        "gone offline": [("offline", {name: value}) for name, value in GONE.items()],
        "gone from the server": [("server", [flag(name), "3"]) for name in GONE],
        "unknown": [("config", BASE | {name: 1}) for name in UNKNOWN],
        "taken": [
            *[("config", config) for config in TODAY],
            *[("server", ["--speculative-config", json.dumps(config)]) for config in TODAY],
            ("offline", SHORT),
            ("server", [word for name, value in SHORT.items() for word in (flag(name), str(value))]),
        ],
    }
    asked = [question for some in questions.values() for question in some]
    words = [PYTHON, "-c", PROGRAM, json.dumps(asked), str(pretrained.path("target"))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ANSWERS" in done.stdout, done.stderr
    told = iter(json.loads(done.stdout.rpartition("ANSWERS")[2]))
    return {what: [next(told) for _ in some] for what, some in questions.items()}


def test_options_of_older_versions_are_gone_and_say_so(answers: dict[str, list[str]]) -> None:
    offline = [f"TypeError: EngineArgs.__init__() got an unexpected keyword argument {name!r}" for name in GONE]
    assert answers["gone offline"] == offline
    for name, answer in zip(GONE, answers["gone from the server"], strict=True):
        assert answer == f"exit 2: -c: error: unrecognized arguments: {flag(name)}"
    for name, answer in zip(UNKNOWN, answers["unknown"], strict=True):
        assert name in answer
        assert "Unexpected keyword argument" in answer


def test_what_replaced_them_is_taken(answers: dict[str, list[str]]) -> None:
    assert set(answers["taken"]) == {"taken"}


def test_the_page_names_them_all() -> None:
    page = (ROOT / "docs" / "vllm.md").read_text(encoding="utf-8")
    assert [name for name in (*GONE, "speculative_token_tree") if name not in page] == []
