"""Chunks of samples on disk: each a gzipped file of JSON Lines, whole or absent, that names its own checksum."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout
from pydantic import ValidationError

from conformance.evidence.files import EvidenceProblem, checksum, remove_leftovers, write_whole
from conformance.protocols import Mode, Output, Request
from conformance.samples.lines import SampleLine, entry

_NAME = re.compile(r"(\d{6})-([0-9a-f]{16})-([0-9a-f]{16})\.jsonl\.gz")


@dataclass(frozen=True)
class Chunk:
    """What one call of the engine gave. number: in its mode, in the order of submission. key, sum: of requests and lines."""

    path: Path
    number: int
    key: str
    sum: str

    @classmethod
    def at(cls, path: Path) -> Chunk:
        """From a file's name. Raises EvidenceProblem for a file that is no chunk."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise EvidenceProblem(f"samples/{path.parent.name}/{path.name} is no file of this evidence folder: take it away")
        return cls(path, int(match[1]), match[2], match[3])

    def lines(self) -> list[SampleLine]:
        """The samples. Raises EvidenceProblem if the file is truncated or otherwise damaged."""
        try:
            data = gzip.decompress(self.path.read_bytes())
            if checksum(data)[:16] != self.sum:
                raise ValueError("its checksum is not the one in its name")
            return [SampleLine.model_validate_json(line) for line in data.splitlines()]
        except (OSError, EOFError, zlib.error, ValueError) as error:
            why = "its lines are not samples" if isinstance(error, ValidationError) else str(error) or type(error).__name__
            raise EvidenceProblem(
                f"samples/{self.path.parent.name}/{self.path.name} is damaged ({why}). Put back a copy of it; or delete this "
                "one file and give the same command again: its requests alone are then asked once more"
            ) from error


class Store:
    """The samples of one evidence folder. Reading needs no lock: what is there is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mode_folder(self, number: int, mode: Mode) -> Path:
        """Where the samples of a mode lie. number: its place among the engine's modes."""
        slug = re.sub(r"[^a-z0-9]+", "-", mode.name.lower()).strip("-")[:40]
        return self.folder / "samples" / f"{number:02d}-{slug}"

    def chunks(self, place: Path) -> list[Chunk]:
        """The chunks in a mode's folder, in the order of submission."""
        if not place.is_dir():
            return []
        found = sorted((Chunk.at(path) for path in place.glob("[!.]*.gz")), key=lambda chunk: chunk.number)
        for one, other in pairwise(found):
            if one.number == other.number:
                names = f"{one.path.name} and {other.path.name}"
                raise EvidenceProblem(f"samples/{place.name} holds two chunks number {one.number} ({names}): take one away")
        return found

    def append(
        self, place: Path, key: str, number: int, first: int, mode: Mode, asked: Sequence[Request], answers: Sequence[Output]
    ) -> None:
        """Store what `asked` gave, as chunk `number`. first: number of its first request in the mode."""
        pairs = zip(asked, answers, strict=True)
        lines = [
            json.dumps(entry(first + i, mode.name, *pair), separators=(",", ":"), allow_nan=False)
            for i, pair in enumerate(pairs)
        ]
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvidenceProblem(f"cannot make samples/{place.name} in the evidence folder: {error.strerror}") from error
        write_whole(place / f"{number:06d}-{key}-{checksum(data)[:16]}.jsonl.gz", gzip.compress(data, 6, mtime=0))


class WriterLock:
    """At most one writer in a folder; a writer that is killed leaves it free. Raises EvidenceProblem."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / "lock")
            self._lock.acquire(timeout=0)
            remove_leftovers(folder)
        except Timeout:
            raise EvidenceProblem(
                f"another process is writing to the evidence folder {folder.name!r}: wait until it ends, or give another folder"
            ) from None
        except OSError as error:
            raise EvidenceProblem(
                f"cannot write to the evidence folder {folder.name!r}: {error.strerror or error}; give another folder"
            ) from error

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Let others write."""
        self._lock.release()


def key_of(mode: Mode, pair: int, requests: Sequence[Request]) -> str:
    """Names what was asked: the same for the same requests in the same mode, on the same pair of models."""
    return checksum(json.dumps([mode.name, pair, [request.to_json() for request in requests]], default=float).encode())[:16]
