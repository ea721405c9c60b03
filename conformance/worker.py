"""The engine's side of an audit: a process that holds one engine and answers the judge over a pipe.

Messages are JSON. The judge asks `{"do": "describe" | "generate" | "close", ...}`; the worker answers with `{"engine": ...}`,
with one `{"output": ...}` per request and then `{"done": true}`, or with `{"error": kind, "message": ...}`. Started as
`python -m conformance.worker ADDRESS FACTORY MODELS`, with the pipe's key in the environment.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from conformance.protocols import Engine, Mode, Models, Request, Unsupported

KEY = "SPECREF_WORKER_KEY"


def main(address: str, factory: str, models: str) -> None:
    """Serve one engine until the judge closes the pipe."""
    with Client(address, authkey=bytes.fromhex(os.environ.pop(KEY))) as pipe:
        try:
            engine = load_factory(factory)(Models(**{name: Path(folder) for name, folder in json.loads(models).items()}))
            while True:
                asked = json.loads(pipe.recv_bytes())
                if asked["do"] == "close":
                    engine.close()
                    return
                _answer(engine, asked, pipe)
        except EOFError:  # the judge has gone
            return
        except Exception as error:
            _send(pipe, {"error": "crash", "message": describe(error)})
            raise


def _answer(engine: Engine, asked: dict[str, Any], pipe: Connection) -> None:
    try:
        if asked["do"] == "describe":
            modes = [dataclasses.asdict(mode) for mode in engine.modes(asked["k"])]
            _send(pipe, {"engine": {"name": engine.name, "version": engine.version, "modes": modes}})
            return
        for output in engine.generate(Mode(**asked["mode"]), [Request.from_json(entry) for entry in asked["requests"]]):
            _send(pipe, {"output": output.to_json()})
        _send(pipe, {"done": True})
    except Unsupported as refusal:
        _send(pipe, {"error": "unsupported", "message": str(refusal)})


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def load_factory(factory: str) -> Any:
    """The callable that "package.module:name" names. Raises ValueError, saying what is wrong with the name."""
    module_name, _, name = factory.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot load {factory!r} (wanted: package.module:callable): {error}") from error


def describe(error: BaseException) -> str:
    """An error in one line: its type and the first line of its message.

    >>> describe(ValueError("no such row\\nand more"))
    'ValueError: no such row'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


if __name__ == "__main__":
    main(*sys.argv[1:])
