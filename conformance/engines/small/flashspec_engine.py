"""flashspec's `SpeculativeEngine`, on a CPU: its fast path for one prompt, its loop for several, and its static caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

import torch
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.bandit import UCB1Selector
from flashspec.engine import ArmSpec, HuggingFaceDrafter, NgramDrafter, TargetModel

from conformance.engines.adapting import Counts, alike, filled_up, refuse_others
from conformance.engines.small.flashspec_modes import all_modes
from conformance.engines.small.rounds import both_models, transformers_alone
from conformance.protocols import Engine, Mode, Models, Output, Request, Tokens, Unsupported

SAMPLED = ("max_tokens", "temperature", "top_p", "eos", "seed")
"""Settings that it has. They are handed on in every mode, whether the mode heeds them or not."""
CPU = torch.device("cpu")


class Flashspec(Engine):
    """A `SpeculativeEngine` for each call, since that is where it takes its seed; its models are kept."""

    name = "flashspec"
    version = version("flashspec")

    def __init__(self, models: Models) -> None:
        torch.set_num_threads(1)
        self._model, self._draft = both_models(models)
        self._wrapped: dict[str, tuple[TargetModel, HuggingFaceDrafter]] = {}
        self._selectors: dict[str, UCB1Selector] = {}
        self._counts = Counts()

    def modes(self, k: int) -> Sequence[Mode]:
        """See `Engine.modes`."""
        return all_modes(k)

    def generate(self, mode: Mode, requests: Sequence[Request]) -> Iterator[Output]:
        """See `Engine.generate`."""
        for request in requests:
            refuse_others(request.settings, SAMPLED, "this engine has no such setting")
            if mode.lossy and request.settings.temperature == 0:
                raise Unsupported("temperature: flashspec refuses 0 with the typical variant")
        written: dict[int, Tokens] = {}
        for batch in alike(requests, mode.options.get("rows", 1)):
            written |= zip(batch, self._decoded(mode, [requests[at] for at in batch]))
        for at in range(len(requests)):
            yield Output(written[at])

    def metrics(self, mode: Mode) -> Mapping[str, float] | None:
        """See `Engine.metrics`."""
        return None if mode.options else self._counts.of(mode)  # a batch's steps are counted for all of its rows together

    def close(self) -> None:
        """See `Engine.close`."""

    def _decoded(self, mode: Mode, batch: Sequence[Request]) -> list[Tokens]:
        settings = batch[0].settings
        prompts = torch.tensor(filled_up([request.prompt for request in batch], mode.options.get("rows", 1)))
        if not mode.speculates:
            return [transformers_alone(self._model, request) for request in batch]
        engine = self._engine(mode, batch[0])
        result = engine.generate(prompts, max_new_tokens=settings.max_tokens, eos_token_ids=settings.eos)
        for step in result.arm_steps:
            counts = {"drafts": bool(step.proposed), "draft_tokens": step.proposed, "accepted": step.accepted}
            self._counts.add(mode, counts | {"emitted": step.emitted})
        rows = result.output_ids[: len(batch)].tolist()
        return [tuple(token for token in row if token != -1) for row in rows]  # -1 pads a row that has ended

    def _engine(self, mode: Mode, request: Request) -> SpeculativeEngine:
        asked, settings = mode.speculation, request.settings
        target, draft = self._models(mode)
        draft.set_temperature(float(settings.temperature))
        sampling = {"gamma": asked["gamma"], "temperature": float(settings.temperature)}
        sampling["top_p"] = float(asked.get("typical_p", settings.top_p))
        variant = {"variant": asked["variant"]} if "variant" in asked else {}
        drafters = [NgramDrafter()] if "lookup" in asked else [draft]
        arms = [ArmSpec(0, gamma) for gamma in asked.get("arms", ())] or None
        config = FlashSpecConfig(
            device="cpu",
            dtype="float32",
            drafter_strategy=asked.get("strategy", "bandit"),
            bandit=BanditConfig(n_arms=len(arms or drafters)),
            sampling=SamplingConfig(**sampling, seed=request.seed, **variant),
        )
        return SpeculativeEngine(config, drafters, target, bandit=self._selector(mode, arms), arms=arms)

    def _models(self, mode: Mode) -> tuple[TargetModel, HuggingFaceDrafter]:
        """Of the mode: they hold its caches."""
        if mode.name not in self._wrapped:
            target = TargetModel("target", CPU, torch.float32, model=self._model)
            draft = HuggingFaceDrafter("draft", CPU, torch.float32, model=self._draft)
            if "static_cache" in mode.speculation:
                for one in (target, draft):
                    one.use_static_cache(int(mode.speculation["static_cache"]), compile_forward=False)
            self._wrapped[mode.name] = (target, draft)
        return self._wrapped[mode.name]

    def _selector(self, mode: Mode, arms: Sequence[ArmSpec] | None) -> UCB1Selector | None:
        """What chooses between several arms learns from one request to the next."""
        return self._selectors.setdefault(mode.name, UCB1Selector(n_arms=len(arms))) if arms else None
