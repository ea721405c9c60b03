"""Files that are whole or absent, and damage that is noticed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from conformance.problems import UsageProblem

TEMPORARY = ".tmp"


class EvidenceProblem(UsageProblem):
    """An evidence folder cannot be used as it is; the message says what to do. What lies in it is left as it was."""


def checksum(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file: beside its place, to the disk, then moved. Raises EvidenceProblem (a full disk), leaving what was there."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}")  # one writer at a time: nobody else uses this name
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _to_disk(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise EvidenceProblem(
            f"cannot write {path.name} to the evidence folder: {error.strerror or error}. All that was stored before is whole: "
            "make room (or mend the folder's permissions) and give the same command again, with --evidence and this folder; "
            "it goes on from there"
        ) from error


def _to_disk(folder: Path) -> None:
    """Make the folder's entries last, where the system lets folders be opened."""
    with contextlib.suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Delete what a writer that was killed left half written. Only the holder of the folder's lock may do so."""
    for path in folder.rglob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def write_sealed(path: Path, content: Any) -> str:
    """Write JSON with the digest of its content, and return the digest."""
    plain = to_plain(content)
    digest = digest_of(plain)
    write_whole(path, json.dumps({"sha256": digest, "content": plain}, allow_nan=False).encode())
    return digest


def read_sealed(path: Path) -> tuple[Any, str]:
    """What `write_sealed` wrote, and its digest. Raises EvidenceProblem if the file is absent, damaged or was changed."""
    try:
        document = json.loads(path.read_bytes())
        content, digest = document["content"], document["sha256"]
    except OSError as error:
        raise EvidenceProblem(f"cannot read {path.name} in the evidence folder: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceProblem(
            f"{path.name} in the evidence folder is damaged ({type(error).__name__}): put back a copy of it, "
            "or begin in a new folder"
        ) from error
    if digest_of(content) != digest:
        raise EvidenceProblem(
            f"{path.name} in the evidence folder was changed after it was sealed, so its evidence proves nothing: "
            "put back a copy of it, or begin in a new folder"
        )
    return from_plain(content), digest


def digest_of(plain: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return checksum(json.dumps(plain, sort_keys=True).encode())


def to_plain(value: Any) -> Any:
    """The value for JSON: tuples as lists, numbers that JSON has no way to write as {"float": "inf"}.

    >>> to_plain({"e": (1.5, -math.inf)})
    {'e': [1.5, {'float': '-inf'}]}
    """
    if isinstance(value, dict):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`, lists for tuples."""
    if isinstance(value, dict):
        return float(value["float"]) if value.keys() == {"float"} else {name: from_plain(item) for name, item in value.items()}
    return [from_plain(item) for item in value] if isinstance(value, list) else value
