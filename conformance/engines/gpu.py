"""Engines that run on a GPU alone: whether this machine has one, and what is said where it does not."""

from __future__ import annotations

import ctypes
import sys
from importlib.metadata import PackageNotFoundError, version

import torch

from conformance.protocols import NotHere

DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def gpus() -> int:
    """How many CUDA devices the driver shows. The driver is asked and not torch: the judge's may be a build for CPUs."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def require_cuda() -> None:
    """Raise NotHere unless torch, in this process, can use a GPU."""
    if not torch.cuda.is_available():
        raise NotHere("no GPU that torch can use; it needs one, and a build of torch for it")


def installed_version(*distributions: str) -> str:
    """The version of the first of these distributions that is installed.

    >>> installed_version("no-such-distribution")
    'not installed'
    """
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"
