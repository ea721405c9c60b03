"""An engine behind HTTP: what is asked and read, and what happens when the server refuses, drops, stalls or talks nonsense."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conformance.checks.stop import stop_findings
from conformance.engines import http_client
from conformance.engines.http_client import Client, ServerFailed
from conformance.engines.http_server import ServerEngine, make, own_ends, read_completion
from conformance.findings import Verdict
from conformance.protocols import Models, Request, Unsupported
from specref.processors import SamplingSettings

KEY = "sk-very-secret"
Answer = Callable[[int, dict[str, Any]], tuple[int, Any]]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server whose n-th completion is `answer(n, body)`: a status and a body, or -1 to drop the connection."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, {"data": [{"id": "tiny"}]} if self.path.endswith("models") else {"version": "1.2"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Authorization"] == f"Bearer {KEY}"
            asked.append(body)
            status, said = answer(len(asked) - 1, body)
            if status < 0:
                self.close_connection = True
                return
            self.reply(status, said)

        def reply(self, status: int, said: Any) -> None:
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "pause", lambda number: 0.001)


def echo(number: int, body: dict[str, Any]) -> tuple[int, Any]:
    """Answers with the last prompt token, three times."""
    tokens = [body["prompt"][-1]] * 3
    return 200, {"choices": [{"text": "x", "token_ids": tokens, "logprobs": {"token_logprobs": [-0.1] * 3}}]}


def requests(number: int) -> list[Request]:
    return [Request((1, 10 + i), SamplingSettings(max_tokens=3, eos=(2,)), seed=i) for i in range(number)]


def engine(address: str, **more: Any) -> ServerEngine:
    return ServerEngine(Client(address, KEY, **more), None, None)


def test_answers_come_in_the_order_of_the_requests_with_their_log_probabilities() -> None:
    with serving(echo) as (address, asked):
        server = engine(address)
        outputs = list(server.generate(server.modes(4)[0], requests(40)))
        assert [output.tokens for output in outputs] == [(10 + i,) * 3 for i in range(40)]
        assert outputs[0].logprobs == (-0.1,) * 3
        assert {body["model"] for body in asked} == {"tiny"}
        assert all(body["stop_token_ids"] == [2] and "ignore_eos" not in body for body in asked)
        assert server.version == "1.2"


def test_it_tries_again_after_429_500_and_dropped_connections() -> None:
    def stumbling(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        return [(429, {}), (500, {}), (-1, {}), (503, {})][number] if number < 4 else echo(number, body)

    with serving(stumbling) as (address, _):
        outputs = list(engine(address).generate(engine(address).modes(1)[0], requests(1)))
        assert outputs[0].tokens == (10, 10, 10)


@pytest.mark.parametrize(
    ("answer", "says"), [((429, {}), "status 429"), ((500, {}), "status 500"), ((-1, {}), "failed 3 times")]
)
def test_it_gives_up_within_a_bound(answer: tuple[int, Any], says: str) -> None:
    with serving(lambda number, body: answer) as (address, asked):
        server = engine(address, tries=3)
        with pytest.raises(ServerFailed, match=says) as failed:
            list(server.generate(server.modes(1)[0], requests(1)))
        assert len(asked) == 3
        assert KEY not in str(failed.value)


def test_a_server_that_stalls_is_given_up_too() -> None:
    stalled = threading.Event()

    def stalling(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        stalled.wait(600)  # longer than any pause of a busy machine; the test ends it
        return echo(number, body)

    with serving(stalling) as (address, _):
        server = ServerEngine(Client(address, KEY, tries=2, timeout=0.2), None, "tiny")  # asks for no model in so short a time
        with pytest.raises(ServerFailed, match="Timeout"):
            list(server.generate(server.modes(1)[0], requests(1)))
        stalled.set()


@pytest.mark.parametrize(
    "answer", [(400, {"error": f"the key {KEY} is not valid"}), (200, KEY.encode()), (401, KEY.encode()), (500, {"error": KEY})]
)
def test_a_key_that_a_server_repeats_is_left_out(answer: tuple[int, Any]) -> None:
    with serving(lambda number, body: answer) as (address, _):
        server = engine(address.replace("//", "//me:hunter2@") + "?token=abc123", tries=2)
        with pytest.raises(ServerFailed) as failed:
            list(server.generate(server.modes(1)[0], requests(1)))
    for secret in (KEY, "hunter2", "abc123"):
        assert secret not in str(failed.value)


def test_no_model_no_token_and_no_version_brings_a_key_along() -> None:
    said = {"choices": [{"text": KEY, "token_ids": [5], "logprobs": {"token_logprobs": [-0.1], "tokens": [KEY]}}]}
    with serving(lambda number, body: (200, said)) as (address, _):
        assert KEY not in json.dumps(Client(address, KEY).post("completions", {"prompt": [1]}))


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-\x1b[31m", "sk-é", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_not_told(key: str) -> None:
    with pytest.raises(ValueError, match="set SPECREF_API_KEY again") as refused:
        Client("http://127.0.0.1:1/v1", key)
    assert "sk-" not in str(refused.value)
    Client("http://127.0.0.1:1/v1", "sk-usual\n").close()  # as `export KEY=$(cat file)` may leave it


def test_what_trying_again_cannot_mend_ends_at_once() -> None:
    with serving(lambda number, body: (400, {"error": "top_k is not known"})) as (address, asked):
        server = engine(address)
        with pytest.raises(ServerFailed, match="top_k is not known"):
            list(server.generate(server.modes(1)[0], requests(1)))
        assert len(asked) == 1
    with serving(lambda number, body: (200, b"<html>")) as (address, _), pytest.raises(ServerFailed, match="not JSON"):
        list(engine(address).generate(engine(address).modes(1)[0], requests(1)))


def test_text_without_token_ids_is_refused_with_what_to_do() -> None:
    with pytest.raises(Unsupported, match="return_token_ids"):
        read_completion({"choices": [{"text": "hello"}]})
    with pytest.raises(ValueError, match="no completion"):
        read_completion({"error": "?"})


def ending(tokens: list[int], **more: Any) -> Answer:
    """A server that says of these tokens that they were stopped."""
    return lambda number, body: (200, {"choices": [{"token_ids": tokens, "finish_reason": "stop", **more}]})


@pytest.mark.parametrize(("eos", "ignored"), [((2,), False), ((2, 9), False), ((9,), True), ((), True)])
def test_the_models_own_end_ends_an_output_only_where_the_request_names_it(eos: tuple[int, ...], ignored: bool) -> None:
    with serving(echo) as (address, asked):
        server = ServerEngine(Client(address, KEY), None, None, ends=(2,))
        list(server.generate(server.modes(1)[0], [Request((1, 5), SamplingSettings(max_tokens=3, eos=eos), 0)]))
    assert asked[0].get("ignore_eos", False) == ignored
    assert asked[0].get("stop_token_ids", []) == list(eos)


@pytest.mark.parametrize(
    ("answer", "eos", "wanted"),
    [
        (ending([5, 6]), (2,), (5, 6, 2)),
        (ending([5, 2]), (2,), (5, 2)),
        (ending([5, 6], stop_reason=9), (2, 9), (5, 6, 9)),
        (ending([5, 6], matched_stop=9), (2, 9), (5, 6, 9)),
        (ending([5, 6], finish_reason="length"), (2,), (5, 6)),
        (ending([5, 2]), (9,), (5, 2)),
    ],
    ids=["left out", "there", "which one is said", "in SGLang's words", "the limit", "not asked for"],
)
def test_an_end_that_the_server_leaves_out_is_put_back(answer: Answer, eos: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Else the output seems to have ended for no reason, and the target's ends never to come."""
    asked = Request((1, 5), SamplingSettings(max_tokens=8, eos=eos), 0)
    with serving(answer) as (address, _):
        server = ServerEngine(Client(address, KEY), None, None, ends=(2,))
        (output,) = server.generate(server.modes(1)[0], [asked])
    assert output.tokens == wanted
    ends_well = {one.requirement: one.verdict for one in stop_findings("m", [asked], [output], 1)}["STOP-5"]
    assert (ends_well is Verdict.CONFORMS) == (wanted[-1] in eos)


def test_an_end_that_could_be_one_of_several_is_not_guessed() -> None:
    asked = Request((1,), SamplingSettings(max_tokens=8, eos=(2, 9)), 0)
    with serving(ending([5, 6])) as (address, _):
        server = engine(address)
        with pytest.raises(Unsupported, match=r"which of \[2, 9\]"):
            list(server.generate(server.modes(1)[0], [asked]))


def test_the_ends_of_a_model_are_read_from_its_folder(tmp_path: Any) -> None:
    assert own_ends(tmp_path) == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    assert own_ends(tmp_path) == (5,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert own_ends(tmp_path) == (5, 6)


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(max_tokens=3, stop_sequences=((1, 2),)),
        SamplingSettings(max_tokens=3, bad_words=((1,),)),
    ],
)
def test_settings_that_the_protocol_cannot_say_are_refused(settings: SamplingSettings) -> None:
    with serving(echo) as (address, asked):
        server = engine(address)
        with pytest.raises(Unsupported, match=r"stop_sequences|bad_words"):
            list(server.generate(server.modes(1)[0], [Request((1,), settings, 0)]))
        assert not asked


def test_a_control_makes_the_first_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with serving(echo) as (address, _), serving(echo) as (control, asked):
        monkeypatch.setenv("SPECREF_SERVER", address)
        monkeypatch.setenv("SPECREF_CONTROL", control)
        monkeypatch.setenv("SPECREF_API_KEY", KEY)
        server = make(Models(tmp_path, tmp_path))
        off, served = server.modes(1)
        assert (off.speculates, served.speculates) == (False, True)
        list(server.generate(off, requests(2)))
        assert len(asked) == 2
        server.close()


def test_without_an_address_it_says_what_to_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("SPECREF_SERVER", raising=False)
    with pytest.raises(ValueError, match="specref audit http"):
        make(Models(tmp_path, tmp_path))


def echo_of_the_target(number: int, body: dict[str, Any]) -> tuple[int, Any]:
    """A server that samples nothing: every token is the last of the prompt."""
    tokens = [body["prompt"][-1]] * body["max_tokens"]
    return 200, {"choices": [{"text": "x", "token_ids": tokens, "logprobs": {"token_logprobs": [-0.1] * len(tokens)}}]}


@pytest.mark.long
def test_the_command_audits_a_server_and_finds_what_it_does_wrong(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from conformance.cli import app
    from specref import pretrained

    monkeypatch.setenv("SPECREF_API_KEY", KEY)
    for name in ("SPECREF_SERVER", "SPECREF_CONTROL", "SPECREF_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with serving(echo_of_the_target) as (address, _):
        words = ["audit", address, "--level", "smoke", "--target", str(pretrained.path("target"))]
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 1, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "violates" in {finding["verdict"] for finding in report["engines"][0]["findings"]}
    for written in (tmp_path / "out").iterdir():
        assert KEY not in written.read_text(), written.name


@pytest.mark.long
def test_a_server_that_breaks_down_is_an_error_and_what_was_judged_before_is_kept(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from conformance.cli import app
    from specref import pretrained

    monkeypatch.setenv("SPECREF_API_KEY", KEY)
    for name in ("SPECREF_SERVER", "SPECREF_CONTROL", "SPECREF_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def breaking(number: int, body: dict[str, Any]) -> tuple[int, Any]:
        return echo_of_the_target(number, body) if number < 60 else (500, {"error": KEY})

    with serving(breaking) as (address, asked):
        words = ["audit", address, "--level", "smoke", "--target", str(pretrained.path("target")), "--workers", "1"]
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out"), "--evidence", str(tmp_path / "kept")])
    assert done.exit_code in (1, 3), done.output
    (report,) = json.loads((tmp_path / "out" / "report.json").read_text())["engines"]
    errors = [finding for finding in report["findings"] if finding["verdict"] == "error"]
    assert errors
    assert any("status 500" in finding["summary"] for finding in errors)
    assert len(asked) < 200, "it is not asked for ever"
    assert sum(mode["tokens_judged"] for mode in report["modes"]) > 0, "what came before is judged"
    for written in [*tmp_path.rglob("*")]:
        assert written.is_dir() or KEY.encode() not in written.read_bytes(), written.name


def test_a_server_without_its_target_is_a_usage_problem() -> None:
    from conformance.cli import audit
    from conformance.problems import UsageProblem

    with pytest.raises(UsageProblem, match="--target"):
        audit(["http://127.0.0.1:1/v1"])
