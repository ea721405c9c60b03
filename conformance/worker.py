"""The engine's side of an audit: a process that holds one engine and answers the judge over a pipe.

Messages (`conformance.wire`): the judge asks `{"do": name, ...}` with a name of `_Served`'s methods, or "close". The worker
answers with `{"engine": ...}`, with one `{"output": ...}` per request and then `{"done": true}`, with `{"value": ...}` or
`{"raised": message}`, or with `{"error": kind, "message": ...}`. Started as
`python -m conformance.worker FACTORY MODELS ADDRESS`, with the pipe's key in the environment.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import sysconfig
import traceback
from contextlib import ExitStack
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from conformance.components import facts_of, kind_of
from conformance.protocols import Ended, Engine, Mode, Models, NotHere, Output, Request, Unsupported
from conformance.wire import receive, send

KEY = "SPECREF_WORKER_KEY"


def main(factory: str, models: str, address: str) -> None:
    """Serve one engine until the judge closes the pipe."""
    with Client(address, authkey=bytes.fromhex(os.environ.pop(KEY))) as pipe, ExitStack() as ending:
        try:
            engine = load_factory(factory)(Models(**{name: Path(folder) for name, folder in json.loads(models).items()}))
            ending.callback(engine.close)  # whatever ends this process: a server that it has started must not stay behind
            served = _Served(engine, pipe)
            while True:
                asked = receive(pipe.recv_bytes)
                if asked["do"] == "close":
                    return
                served.answer(asked)
        except (EOFError, BrokenPipeError, ConnectionResetError):  # the judge has gone
            return
        except Exception as error:
            send(pipe, {"error": "crash", "message": describe(error) + place_of(error)})
            raise


class _Served:
    """One engine, and the components and caches of it that the judge holds by number."""

    def __init__(self, engine: Engine, pipe: Connection) -> None:
        self.engine, self.pipe = engine, pipe
        self.objects: dict[int, Any] = {}
        self._made = 0

    def answer(self, asked: dict[str, Any]) -> None:
        """Answer one question."""
        try:
            getattr(self, f"do_{asked['do']}")(asked)
        except Unsupported as refusal:
            kind = "not run" if isinstance(refusal, NotHere) else "unsupported"
            send(self.pipe, {"error": kind, "message": str(refusal)})
        except Ended as ended:
            send(self.pipe, {"error": "ended", "message": str(ended)})

    def do_describe(self, asked: dict[str, Any]) -> None:
        """Name, version and modes, and what it is not asked."""
        one = self.engine
        modes = [dataclasses.asdict(mode) for mode in one.modes(asked["k"])]
        said = {"name": one.name, "version": one.version, "modes": modes, "not_asked": list(one.not_asked())}
        send(self.pipe, {"engine": said})

    def do_generate(self, asked: dict[str, Any]) -> None:
        """One output per request, each as soon as it is there."""
        requests = [Request.from_json(entry) for entry in asked["requests"]]
        mode = Mode(**asked["mode"])
        for output in self.engine.generate(mode, requests):
            if not isinstance(output, Output):
                came = f"{type(output).__name__} in mode {mode.name[:60]!r}"
                raise TypeError(f"generate must yield an Output(tokens) for each request, not a {came} (docs/adapters.md)")
            send(self.pipe, {"output": output.to_json()})
        send(self.pipe, {"done": True})

    def do_metrics(self, asked: dict[str, Any]) -> None:
        """The engine's own counts."""
        counts = self.engine.metrics(Mode(**asked["mode"]))
        send(self.pipe, {"value": None if counts is None else {name: float(value) for name, value in counts.items()}})

    def do_renew(self, asked: dict[str, Any]) -> None:
        """Whether the engine could forget all that it was asked."""
        send(self.pipe, {"value": self.engine.renew()})

    def do_components(self, asked: dict[str, Any]) -> None:
        """What can be audited alone: kind, number and facts of each component."""
        told = []
        for component in self.engine.components():
            kind = kind_of(component)
            told.append({"kind": kind, "number": self._keep(component), "facts": facts_of(component, kind)})
        send(self.pipe, {"value": told})

    def do_call(self, asked: dict[str, Any]) -> None:
        """Call a method of a component, or of a cache that it made. What it raises is an answer too."""
        for number in asked["dropped"]:
            self.objects.pop(number, None)
        try:
            found = getattr(self.objects[asked["number"]], asked["method"])
            value = found(*asked["arguments"], **asked["named"]) if callable(found) else found
        except Unsupported:
            raise
        except Exception as error:  # the judge decides what to make of it
            send(self.pipe, {"raised": describe(error)})
            return
        send(self.pipe, {"value": {"object": self._keep(value)} if asked["method"] == "make" else value})

    def _keep(self, value: object) -> int:
        self._made += 1
        self.objects[self._made] = value
        return self._made


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


def place_of(error: BaseException) -> str:
    """Where in the user's own files an error arose: the innermost place that is neither a library's nor specref's, or "".

    >>> place_of(ValueError("never raised"))
    ''
    """
    beside = Path(__file__).parents[1]
    libraries = *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(beside / "conformance"), str(beside / "specref")
    own = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith((*libraries, "<"))]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
