"""An engine by its name: one of the registry, an adapter of one's own as `package.module:callable`, or a server's address."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder

from conformance.engines import BY_NAME, Registered
from conformance.problems import UsageProblem

LOAD = "import importlib, sys; sys.exit(not callable(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])))"
"""Run as the engine's process will be: the current folder is looked in first."""


@dataclass(frozen=True)
class OwnEngine(Registered):
    """An adapter that is not in the registry. It was imported when it was named."""

    @property
    def importable(self) -> bool:
        """See `Registered.importable`."""
        return True


def engine_named(name: str) -> Registered:
    """The engine called `name`.

    >>> engine_named("transformers").factory, engine_named("conformance.engines.own:make").name
    ('conformance.engines.transformers:make', 'own')

    Raises UsageProblem for a name that is not in the registry, and for an adapter that cannot be imported.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    if name.startswith(("http://", "https://")):
        os.environ["SPECREF_SERVER"] = name  # the engine's process reads it
        return OwnEngine("server", "conformance.engines.http_server:make", "httpx2", "", "a server at this address")
    module, colon, made = name.partition(":")
    if not colon:
        like = f"; an adapter is named as {name}:make" if _is_module(name) else ""
        raise UsageProblem(f"no engine is called {name!r}; there are {', '.join(BY_NAME)} (specref engines tells more){like}")
    if not module or not made:
        raise UsageProblem(f"{name!r} names no adapter; write package.module:callable, for instance my_engine_adapter:make")
    engine = OwnEngine(module.rpartition(".")[2], name, module.partition(".")[0], "", "an adapter of your own")
    tried = subprocess.run([engine.python, "-c", LOAD, module, made], check=False, text=True, capture_output=True)
    if tried.returncode:
        raise UsageProblem(_why(name, module, tried.stderr.strip().splitlines()))
    return engine


def _why(name: str, module: str, said: list[str]) -> str:
    """Why an adapter cannot be loaded, and what to do, from the last words of trying."""
    if not said:
        return f"{name} cannot be called; name a function that takes the models and gives the engine"
    kind, _, message = said[-1].partition(": ")
    if kind == "AttributeError" and message.startswith("module "):
        return (
            f"cannot load {name}: {message}; name the function in it that takes the models and gives the engine, such as make"
        )
    if kind == "ModuleNotFoundError":
        return f"cannot load {name}: {message}; modules are looked for in the current folder, then among the installed packages"
    return f"importing {module} ends with {said[-1]}; `python -c 'import {module}'` shows where"


def _is_module(name: str) -> bool:
    try:
        return PathFinder.find_spec(name.partition(".")[0], [os.getcwd(), *sys.path]) is not None
    except (ImportError, ValueError):
        return False
