"""The laws that the candidate generators of transformers claim for their drafts.

Every class under `CandidateGenerator` is found by introspection. One that this adapter cannot construct is refused by name, so
that a new one is seen to be missing. Each is brought to work by `generate` itself, and listened to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers

from conformance.components import DraftSource, Proposal
from conformance.engines.transformers import architectures
from conformance.engines.transformers.other_tokenizer import with_other_tokenizer
from conformance.protocols import Tokens, Unsupported
from specref import pretrained
from specref.models import TransformersModel

TEMPERATURE, TOP_K = 0.8, 10
"""Settings under which a law after processors and one before them are far apart."""


@dataclass
class Setup:
    """How `generate` is brought to use a generator. lengths: set on the drafting model's own configuration."""

    target: Any
    named: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    drafting: Any = None
    sampled: bool = True
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


class GeneratorDrafts:
    """One class of candidate generator as a drafter. Context ids are taken modulo its vocabulary."""

    def __init__(self, name: str, make: Callable[[], Setup]) -> None:
        self.name = name
        self._make = functools.cache(make)

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        """See `DraftSource.propose`: the first drafts after `context` (or, where it matters, after one token more)."""
        setup = self._make()
        target = setup.target
        V = int(target.config.get_text_config().vocab_size)
        if setup.drafting is not None:
            config = setup.drafting.generation_config
            config.num_assistant_tokens, config.num_assistant_tokens_schedule = k, "constant"
            config.assistant_confidence_threshold = 0.0
        ids = torch.tensor([[token % V for token in context]])
        sampling = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K} if setup.sampled else {"do_sample": False}
        settings = {name: k if value == "k" else value for name, value in setup.settings.items()}
        config = transformers.GenerationConfig(max_new_tokens=k + 3, pad_token_id=0, **sampling, **settings)
        torch.manual_seed(seed)
        with torch.inference_mode(), setup.around(), _first_drafts(target, self.name):
            try:
                target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **setup.named)
            except _Drafted as drafted:
                return drafted.proposal
        return Proposal(())


class UnknownGenerator:
    """A class of candidate generator that the adapter does not know how to bring to work."""

    def __init__(self, name: str) -> None:
        self.name = name

    def propose(self, context: Tokens, k: int, seed: int) -> Proposal:
        """Refuses, naming the class."""
        raise Unsupported(f"the transformers adapter does not know how to make a {self.name}; its drafts are not exposed")


class _Drafted(Exception):  # carries the drafts out of `generate`
    def __init__(self, proposal: Proposal) -> None:
        super().__init__("drafted")
        self.proposal = proposal


class _first_drafts:  # noqa: N801 - reads as what it does, in a with statement
    """Stops a model's `generate` once its candidate generator, of the class called `name`, has drafted a token."""

    def __init__(self, target: Any, name: str) -> None:
        self.target, self.name = target, name

    def __enter__(self) -> None:
        make = self.target._get_candidate_generator

        def listened(*arguments: Any, **named: Any) -> Any:
            generator = make(*arguments, **named)
            if type(generator).__name__ != self.name:
                raise RuntimeError(f"transformers made a {type(generator).__name__} where a {self.name} was expected")
            propose = generator.get_candidates

            def get_candidates(input_ids: Any, *more: Any, **other: Any) -> Any:
                ids, logits = propose(input_ids, *more, **other)
                tokens = tuple(ids[0, input_ids.shape[1] :].tolist())
                if tokens:
                    laws = None if logits is None else np.asarray(logits[0].double().softmax(-1))
                    raise _Drafted(Proposal(tokens, laws))
                return ids, logits

            generator.get_candidates = get_candidates
            return generator

        self.target._get_candidate_generator = listened

    def __exit__(self, *_: object) -> None:
        del self.target._get_candidate_generator


@functools.cache
def _trained(name: str) -> Any:
    model = TransformersModel.load(pretrained.path(name)).model
    model.generation_config = transformers.GenerationConfig()
    return model


def _assistant() -> Setup:
    return Setup(_trained("target"), {"assistant_model": _trained("draft")}, drafting=_trained("draft"))


def _other_tokenizer(sampled: bool) -> Setup:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(pretrained.path("target")))
    model, other = with_other_tokenizer(_trained("draft"), tokenizer)
    named = {"assistant_model": model, "tokenizer": tokenizer, "assistant_tokenizer": other}
    return Setup(_trained("target"), named, drafting=model, sampled=sampled)


def _early_exit() -> Setup:
    return Setup(_trained("target"), settings={"assistant_early_exit": 2}, drafting=_trained("target"))


def _single_position() -> Setup:
    target, assistant = architectures.gemma4_pair()
    return Setup(target, {"assistant_model": assistant}, drafting=assistant)


def _multi_token() -> Setup:
    from transformers.modeling_layers import MtpModel

    target = architectures.multi_token_target()
    layers = MtpModel(target, target.config.num_mtp_layers).eval()
    layers.apply(target._init_weights)  # else its experts are what the memory held, now and then NaN
    # The extra layers of a random model lie in memory instead of a checkpoint.
    return Setup(
        target, settings={"use_mtp": True}, around=lambda: patch.object(MtpModel, "from_pretrained", lambda *_, **__: layers)
    )


def _dflash() -> Setup:
    target, assistant = architectures.dflash_pair()
    return Setup(target, {"assistant_model": assistant}, {"speculation_type": "dflash"})


SETUPS: dict[str, Callable[[], Setup]] = {
    "AssistedCandidateGenerator": _assistant,
    "AssistedCandidateGeneratorDifferentTokenizers": lambda: _other_tokenizer(sampled=False),
    "UniversalSpeculativeDecodingGenerator": lambda: _other_tokenizer(sampled=True),
    "PromptLookupCandidateGenerator": lambda: Setup(_trained("target"), settings={"prompt_lookup_num_tokens": "k"}),
    "EarlyExitCandidateGenerator": _early_exit,
    "SinglePositionMultiTokenCandidateGenerator": _single_position,
    "MTPCandidateGenerator": _multi_token,
    "DFlashTokenCandidateGenerator": _dflash,
}
"""How each known class is brought to work."""


def generator_names() -> list[str]:
    """Every candidate generator of the installed version, by the name of its class."""
    from transformers.generation import candidate_generator

    def below(kind: type[Any]) -> Iterator[type[Any]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    found = {
        one.__name__ for one in below(candidate_generator.CandidateGenerator) if one.__module__.startswith("transformers.")
    }
    return sorted(found)


def drafters() -> Sequence[DraftSource]:
    """A drafter for every candidate generator that the installed version has."""
    return [GeneratorDrafts(name, SETUPS[name]) if name in SETUPS else UnknownGenerator(name) for name in generator_names()]
