from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.controls import instance
from conformance.engines.own import ReferenceEngine
from conformance.evidence import files
from conformance.evidence.files import EvidenceProblem, write_whole
from conformance.evidence.recording import Kept
from conformance.evidence.rejudge import judge_evidence
from conformance.findings import EngineReport
from conformance.levels import Level
from tests.conformance.evidence.audits import SETTINGS, Small, chunks, comparable, kept, left_alone, subject


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damaged(chunk: Path, how: str) -> None:
    data = chunk.read_bytes()
    if how == "truncated":
        chunk.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        chunk.write_bytes(b"")
    elif how == "one bit":
        chunk.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    elif how == "edited":
        lines = gzip.decompress(data).replace(b'"output":[', b'"output":[1,', 1)
        chunk.write_bytes(gzip.compress(lines))


@pytest.mark.parametrize("how", ["truncated", "empty", "one bit", "edited"])
def test_a_damaged_chunk_is_named_with_the_remedy_and_nothing_is_touched(complete: Path, how: str) -> None:
    chunk = chunks(complete)[3]
    damaged(chunk, how)
    before = everything(complete / "samples")
    for use in (lambda: kept(complete), lambda: judge_evidence(complete, [subject()])):
        with pytest.raises(EvidenceProblem, match=f"{chunk.name} is damaged .*Put back a copy of it; or delete this one file"):
            use()
    assert everything(complete / "samples") == before
    chunk.unlink()  # the remedy that the message offers
    assert comparable(kept(complete)) == comparable(left_alone())
    assert chunk.exists()


@pytest.mark.parametrize("name", ["plan.json", "environment.json"])
def test_a_damaged_or_edited_sealed_file_is_refused(complete: Path, name: str) -> None:
    path = complete / name
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(EvidenceProblem, match=f"{name} in the evidence folder is damaged"):
        kept(complete)
    document = json.loads(whole)
    content = document["content"]
    if name == "plan.json":
        content["settings"]["alpha"] = 0.5
    else:
        content[0]["started"] = "earlier"
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceProblem, match=f"{name} in the evidence folder was changed after it was sealed"):
        kept(complete)


MORE = Level("test", 320, 3, "a test")


class Renamed(Small):
    version = "another"

    def __init__(self) -> None:
        super().__init__(*instance())
        self.version = "another"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: kept(folder, settings=replace(SETTINGS, seed=6)), "settings seed was 5 and is 6"),
        (lambda folder: kept(folder, settings=replace(SETTINGS, alpha=1e-3)), "settings alpha was 1e-06 and is 0.001"),
        (lambda folder: kept(folder, settings=replace(SETTINGS, level=MORE)), "level tokens was 160 and is 320"),
        (lambda folder: kept(folder, Renamed()), 'engine version was "source" and is "another"'),
        (lambda folder: kept(folder, ReferenceEngine(*instance())), "engine modes was"),
        (lambda folder: other_models(folder), "models 1 log-likelihood, "),
    ],
)
def test_a_changed_plan_is_refused_by_name(complete: Path, change: object, says: str) -> None:
    before = everything(complete)
    if "version" in says:
        says = says.replace("source", Small(*instance()).version)
    with pytest.raises(EvidenceProblem) as refused:
        change(complete)  # type: ignore[operator]
    assert says in str(refused.value)
    assert "begin in a new folder" in str(refused.value)
    assert everything(complete) == before


def other_models(folder: Path) -> EngineReport:
    return judge_evidence(folder, [subject(number=1)])


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    with Kept(tmp_path, "small", SETTINGS, {"first pair": subject()}):
        with pytest.raises(EvidenceProblem, match="another process is writing"):
            Kept(tmp_path, "small", SETTINGS, {"first pair": subject()})
        program = "import filelock, sys; filelock.FileLock(sys.argv[1]).acquire(timeout=0)"
        ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], capture_output=True, text=True)
        assert "Timeout" in ended.stderr
    kept(tmp_path)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_full_disk_is_said_and_what_was_stored_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    writes = 0

    def full(handle: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(EvidenceProblem, match=r"No space left on device.*make room .*and give the same command again"):
            kept(tmp_path, lanes=lanes)
    assert not list(tmp_path.rglob("*.tmp"))
    before = everything(tmp_path / "samples")
    assert before
    assert comparable(kept(tmp_path)) == comparable(left_alone())
    assert before.items() <= everything(tmp_path / "samples").items()


def test_a_real_limit_on_file_size_is_a_full_disk(tmp_path: Path) -> None:
    program = (
        "import resource, sys; from pathlib import Path; from conformance.evidence.files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_whole(Path(sys.argv[1]), b'x' * 5000)\n"
        "except Exception as problem: print(problem)"
    )
    target = tmp_path / "data"
    write_whole(target, b"before")
    ended = subprocess.run([sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=True)
    assert "make room" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert target.read_bytes() == b"before"


def test_folders_that_are_no_evidence_say_so(tmp_path: Path) -> None:
    with pytest.raises(EvidenceProblem, match="is no evidence folder of an engine"):
        judge_evidence(tmp_path, [subject()])
    (tmp_path / "file").write_text("")
    with pytest.raises(EvidenceProblem, match="give another folder"):
        Kept(tmp_path / "file", "small", SETTINGS, {"first pair": subject()})
    (tmp_path / "samples").mkdir()
    with pytest.raises(EvidenceProblem, match=r"holds samples but no plan\.json"):
        kept(tmp_path)


def test_a_strange_file_and_a_doubled_chunk_are_refused(complete: Path) -> None:
    chunk = chunks(complete)[0]
    strange = chunk.with_name("notes.gz")
    strange.write_bytes(b"")
    with pytest.raises(EvidenceProblem, match=r"notes\.gz is no file of this evidence folder: take it away"):
        kept(complete)
    strange.unlink()
    chunk.with_name(f"000000-{'0' * 16}-{'0' * 16}.jsonl.gz").write_bytes(chunk.read_bytes())
    with pytest.raises(EvidenceProblem, match=r"two chunks number 0 .*take one away"):
        kept(complete)


def test_evidence_names_no_machine(complete: Path) -> None:
    for path in complete.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            text = gzip.decompress(data) if path.suffix == ".gz" else data
            assert str(Path.home()).encode() not in text
            assert str(complete).encode() not in text
            assert os.uname().nodename.encode() not in text
