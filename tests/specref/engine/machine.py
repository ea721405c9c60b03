"""Random schedules: requests come, are skipped, pre-empted, cancelled; after every step the invariants are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from specref.engine import Engine, Grammar, RequestState, Speculation
from specref.models import Tokens
from specref.processors import SamplingSettings

from .invariants import books_balance, check, published_pages_hold_what_their_names_say, same_as_alone
from .subjects import EOS, GREEDY, SPECULATIONS, TARGET, VOCABULARY, WORDS

LONGEST_PROMPT, MOST_TOKENS, MOST_NODES = 10, 16, 5
TOKENS = st.integers(0, VOCABULARY - 1)


@st.composite
def sampling(draw: Callable[..., Any], greedy: bool, grammar: Grammar | None) -> SamplingSettings:
    most = draw(st.sampled_from([MOST_TOKENS, 12, 9, 5, 2, 1]))
    eos = draw(st.sampled_from([(), (), (EOS,), (EOS, 0)] if grammar is None else [(EOS,), (EOS, 0)]))
    return SamplingSettings(
        max_tokens=most,
        temperature=0 if greedy else draw(st.sampled_from([1.0, 0.7, 2.0, 0])),
        top_k=draw(st.sampled_from([None, 3])),
        presence_penalty=draw(st.sampled_from([0.0, 1.5])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.8])),
        logit_bias=draw(st.sampled_from([{}, {1: 1.0}])),
        min_tokens=draw(st.integers(0, most)) if eos and grammar is None else 0,
        eos=eos,
        stop_sequences=draw(st.sampled_from([(), (), ((1, 2),), ((0, 0), (2, 1))])),
        seed=draw(st.integers(0, 9)),
    )


@cache
def alone(
    engine_type: type[Engine], prompt: Tokens, asked: SamplingSettings, speculation: Speculation, grammar: Grammar | None
) -> RequestState:
    """The request in an engine of its own, with all the memory and chunk that it could want."""
    engine = engine_type(TARGET, chunk=LONGEST_PROMPT)
    number = engine.submit(prompt, asked, speculation, grammar)
    engine.run()
    return engine.state(number)


class Schedules(RuleBasedStateMachine):
    engine_type: ClassVar[type[Engine]] = Engine
    speculations: ClassVar[Mapping[str, Speculation]] = SPECULATIONS

    @initialize(
        page_size=st.integers(1, 3),
        spare=st.sampled_from([0, 1, 3, 6, 40]),
        batch=st.sampled_from([3, 2, 1]),
        chunk=st.sampled_from([5, 3, 2, 1]),
        requests=st.sampled_from([3, 2, 1]),
        data=st.data(),
    )
    def start(self, page_size: int, spare: int, batch: int, chunk: int, requests: int, data: st.DataObject) -> None:
        enough_for_one = -(-(LONGEST_PROMPT + MOST_TOKENS + MOST_NODES) // page_size) + 1
        pages = enough_for_one + spare
        self.engine = self.engine_type(TARGET, pages=pages, page_size=page_size, batch=batch, chunk=chunk)
        self.checked: dict[int, int] = {}  # request -> its rounds that were checked
        self.texts: dict[int, Tokens] = {}  # request -> what it has committed
        self.names: list[str] = []
        for _ in range(requests):
            self.submit_one(data)

    def living(self) -> list[int]:
        return [number for number, request in self.engine.requests.items() if not request.ended]

    def running(self) -> list[int]:
        return [request.number for request in self.engine.scheduler.running]

    @precondition(lambda self: len(self.living()) < 4)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self.submit_one(data)

    def submit_one(self, data: st.DataObject) -> None:
        like_the_last = bool(self.names) and data.draw(st.booleans(), label="speculates like the last one")
        name = self.names[-1] if like_the_last else data.draw(st.sampled_from(sorted(SPECULATIONS)), label="speculation")
        self.names.append(name)
        more = data.draw(st.lists(TOKENS, min_size=1, max_size=7), label="new text")
        known = data.draw(st.sampled_from([(), *self.texts.values()]), label="known text")
        prompt = (*known[: data.draw(st.integers(0, len(known)), label="of it")], *more)[:LONGEST_PROMPT]
        grammar = data.draw(st.sampled_from([None, None, None, WORDS]), label="grammar")
        asked = data.draw(sampling(name in GREEDY, grammar), label="settings")
        number = self.engine.submit(prompt, asked, self.speculations[name], grammar)
        self.checked[number], self.texts[number] = 0, prompt

    @precondition(lambda self: self.living())
    @rule(event=st.sampled_from(["withdraw", "nothing", "preempt", "withdraw", "nothing", "skip", "cancel"]), data=st.data())
    def step(self, event: str, data: st.DataObject) -> None:
        """A step, and perhaps something that happens to one of the running requests before it or in the middle of it."""
        if event != "nothing" and self.running():
            number = data.draw(st.sampled_from(self.running()), label="request")
            getattr(self.engine, event)(number)
            self.check_memory()
        self.checked_step()

    def teardown(self) -> None:
        """Everything ends, and not later than by one prefill and one round per step and request."""
        if not getattr(self, "sound", False):
            return
        for _ in range(4 * len(self.living()) * (LONGEST_PROMPT + MOST_TOKENS)):
            if self.living():
                self.checked_step()
        if self.living():
            raise AssertionError(f"requests {self.living()} do not end")

    def checked_step(self) -> None:
        self.sound = False
        for state in self.engine.step():
            number = state.number
            self.texts[number] = state.committed
            check(state, since=self.checked[number])
            self.checked[number] = len(state.rounds)
            same_as_alone(state, alone(self.engine_type, state.prompt, state.settings, state.speculation, state.grammar))
        self.check_memory()
        self.sound = True

    def check_memory(self) -> None:
        books_balance(self.engine)
        published_pages_hold_what_their_names_say(self.engine, self.texts.values())


def run(machine: type[Schedules], examples: int, steps: int = 20, shrink: bool = False) -> None:
    """Drive the machine through fresh random schedules; with `shrink` a failure is reported for the smallest that shows it."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
