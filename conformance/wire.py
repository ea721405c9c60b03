"""What goes over the pipe between judge and engine: JSON, with arrays sent after it as raw bytes. Nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from conformance.components import Proposal, SeenRound, Trace, TreeInputs, VerifiedBatch

ARRAY, KIND, TUPLE = "__array__", "__kind__", "__tuple__"
LARGEST_ARRAY = 2**31
"""Bytes of one array: a length that a broken engine made up must not fill the judge's memory."""
KINDS = {kind.__name__: kind for kind in (VerifiedBatch, TreeInputs, Proposal, SeenRound, Trace)}


def send(pipe: Connection, message: dict[str, Any]) -> None:
    """Send a message that may hold arrays and the dataclasses of `KINDS` at any depth."""
    arrays: list[np.ndarray[Any, Any]] = []
    plain = _plain(message, arrays)
    heads = [{"dtype": array.dtype.str, "shape": array.shape} for array in arrays]
    pipe.send_bytes(json.dumps({"message": plain, "arrays": heads}).encode())
    for array in arrays:
        pipe.send_bytes(np.ascontiguousarray(array).tobytes())


def receive(hear: Callable[[], bytes]) -> Any:
    """The message that the next calls of `hear` give. Raises ValueError, KeyError or TypeError for anything else."""
    packet = json.loads(hear())
    if not isinstance(packet, dict) or set(packet) != {"message", "arrays"}:
        raise ValueError(f"not a message: {str(packet)[:60]!r}")
    return _whole(packet["message"], [_array(head, hear) for head in packet["arrays"]])


def _array(head: dict[str, Any], hear: Callable[[], bytes]) -> np.ndarray[Any, Any]:
    dtype, shape = np.dtype(head["dtype"]), tuple(int(size) for size in head["shape"])
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > LARGEST_ARRAY:
        raise ValueError(f"an array of type {dtype} and shape {shape} is not taken")
    return np.frombuffer(hear(), dtype).reshape(shape).copy()


def _plain(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {ARRAY: len(arrays) - 1}
    if isinstance(value, np.generic):
        return value.item()
    if type(value).__name__ in KINDS:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {KIND: type(value).__name__, "fields": _plain(fields, arrays)}
    if isinstance(value, dict):
        return {str(name): _plain(entry, arrays) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry, arrays) for entry in value]
    if isinstance(value, tuple):  # a component must be handed over the pipe what it would be handed here
        return {TUPLE: [_plain(entry, arrays) for entry in value]}
    return value


def _whole(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, dict):
        if ARRAY in value:
            return arrays[value[ARRAY]]
        if TUPLE in value:
            return tuple(_whole(entry, arrays) for entry in value[TUPLE])
        if KIND in value:
            return KINDS[value[KIND]](**_whole(value["fields"], arrays))
        return {name: _whole(entry, arrays) for name, entry in value.items()}
    if isinstance(value, list):
        return [_whole(entry, arrays) for entry in value]
    return value
