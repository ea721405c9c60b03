"""Runs cases on variants of the kernels, each in a forked child: a crash, a hang or a sanitizer's abort ends only that child.

    python -m specref.cuda.proof.worker address|thread|none  < jobs.json  > results.json

A sanitizer must be in the process from its start. `run_jobs` starts this module with the sanitizer's library preloaded; torch's
own code is not instrumented and is not judged.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

REPORT = re.compile(r"SUMMARY: (\w+Sanitizer: [^\n]*)|(runtime error: [^\n]*)")
# TSan sees torch allocate and free what our kernels use, without seeing how torch orders that.
SUPPRESSIONS = "called_from_lib:libtorch_cpu.so\nrace:libtorch_cpu.so\nrace:libc10.so\nrace:libgomp\n"


@dataclass(frozen=True)
class Job:
    """Cases of some ops on one variant of the sources, at each (threads, schedule)."""

    name: str
    sources: str
    ops: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    vocabularies: tuple[int, ...] = (1003, 2100)
    settings: tuple[tuple[int, int], ...] = ((64, 0), (96, 1), (64, 77))
    size: int = 3
    seconds: int = 300
    flags: tuple[str, ...] = ()


@dataclass
class Result:
    """What happened: a difference from the reference or an emulator's error, and the sanitizer's reports."""

    name: str
    difference: str | None = None
    crash: str | None = None
    reports: list[str] = field(default_factory=list)
    cases: int = 0

    @property
    def clean(self) -> bool:
        """Equal to the reference, and nothing reported."""
        return self.difference is None and self.crash is None and not self.reports

    @property
    def verdict(self) -> str:
        """One line for a table."""
        if self.reports:
            return f"sanitizer: {self.reports[0][:90]}"
        return f"value: {self.difference[:90]}" if self.difference else self.crash or "equal"


@cache
def _library(name: str) -> str:
    return subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def run_jobs(jobs: Sequence[Job], sanitizer: str = "none", keep: bool = True) -> list[Result]:
    """Run the jobs in a process of their own under a sanitizer ("address" with undefined behaviour, "thread", or "none").

    keep False: what is compiled for them goes to a temporary folder and not to the user's cache.
    """
    environment = dict(os.environ, SPECREF_EMULATOR_SANITIZER=sanitizer, OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        suppressions = Path(folder) / "suppressions"
        suppressions.write_text(SUPPRESSIONS)
        if not keep:
            environment["XDG_CACHE_HOME"] = folder
        if sanitizer == "address":
            environment |= {"LD_PRELOAD": _library("libasan.so"), "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0"}
            environment |= {"UBSAN_OPTIONS": "print_stacktrace=0"}
        if sanitizer == "thread":
            options = f"suppressions={suppressions} ignore_noninstrumented_modules=1 exitcode=0 report_signal_unsafe=0"
            environment |= {"LD_PRELOAD": _library("libtsan.so"), "TSAN_OPTIONS": options}
        text = json.dumps([asdict(job) for job in jobs])
        command = [sys.executable, "-m", "specref.cuda.proof.worker", sanitizer]
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULTS ")), None)
    if line is None:
        raise RuntimeError(f"the worker for {sanitizer!r} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return [Result(**result) for result in json.loads(line.removeprefix("RESULTS "))]


def _run_in_child(job: Job, output: str) -> int:
    """Fork; the child runs the job with its output in a file. Returns the child's exit code (negative: a signal)."""
    child = os.fork()
    if child:
        deadline = time.monotonic() + job.seconds
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return -signal.SIGALRM
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    code = 0
    try:
        code = _run_cases(job)
    except Exception as error:  # the child's last words; the parent reads them
        print(f"DIFFERENCE {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        code = 1
    sys.stdout.flush()
    os._exit(code)


@cache
def _prepared(ops: tuple[str, ...], dtype: str, V: int, size: int) -> list[tuple[object, object]]:
    import torch

    from specref.cuda.proof.cases import cases

    return [(case, case.expected()) for case in cases(getattr(torch, dtype), V, size) if case.op in ops]


def _run_cases(job: Job) -> int:
    from specref.cuda.emulator import emulated
    from specref.cuda.proof.cases import Case

    for threads, schedule in job.settings:
        with emulated(threads=threads, schedule=schedule, sources=Path(job.sources), flags=job.flags):
            for dtype in job.dtypes:
                for V in job.vocabularies:
                    for case, expected in _prepared(job.ops, dtype, V, job.size):
                        assert isinstance(case, Case)
                        difference = case.difference(expected)  # type: ignore[arg-type]
                        if difference is not None:
                            where = f"{dtype}, V = {V}, {threads} threads, schedule {schedule}"
                            print(f"DIFFERENCE {difference} ({where})", flush=True)
                            return 1
    return 0


def run_job(job: Job) -> Result:
    """Run one job in a child of this process."""
    prepared = [
        _prepared(job.ops, dtype, V, job.size) for dtype in job.dtypes for V in job.vocabularies
    ]  # shared by all children
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        code = _run_in_child(job, str(output))
        text = output.read_text(errors="replace")
    result = Result(job.name, cases=sum(map(len, prepared)) * len(job.settings))
    result.reports = [re.sub(r"\S*/", "", "".join(report)) for report in REPORT.findall(text)]
    for line in text.splitlines():
        if line.startswith("DIFFERENCE "):
            result.difference = line.removeprefix("DIFFERENCE ")
    if code and not result.difference:
        result.crash = f"no end after {job.seconds} s" if code == -signal.SIGALRM else f"exit code {code}: {text[-300:]}"
    return result


def _job(fields: dict[str, Any]) -> Job:
    """A Job from JSON, which knows lists but no tuples."""
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Job(**plain | {"settings": tuple((threads, schedule) for threads, schedule in plain["settings"])})


def main() -> None:
    """Read jobs from standard input, run them, write the results."""
    import torch

    torch.set_num_threads(1)
    import specref.cuda  # noqa: F401  registers the ops

    jobs = [_job(fields) for fields in json.load(sys.stdin)]
    print("RESULTS " + json.dumps([asdict(run_job(job)) for job in jobs]), flush=True)


if __name__ == "__main__":
    main()
