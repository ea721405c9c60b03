"""On a GPU: the same bits as the references, graph capture, streams. Elsewhere these say that they were not run."""

from __future__ import annotations

import pytest
import torch

from specref.cuda.proof.cases import Case, cases

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _gpu():
    if not torch.cuda.is_available():
        print("no GPU: not run")
        pytest.skip("no GPU: not run")


def _on_gpu(case):
    arguments = tuple(a.cuda() if isinstance(a, torch.Tensor) else a for a in case.arguments)
    return Case(case.op, case.name, arguments, case.plain, case.mutated, case.tolerance)


@pytest.mark.parametrize("V", [1000, 1003, 32_000, 128_256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_bits(dtype, V):
    wrong = []
    for case in cases(dtype, V, size=6):
        difference = _on_gpu(case).difference(tuple(t.cuda() for t in case.expected()))
        if difference:
            wrong.append(difference)
    assert not wrong, "\n".join(wrong)


def test_capture_and_replay():
    case = next(c for c in cases(torch.bfloat16, 32_000, size=6) if c.op == "verify_chain")
    on_gpu = _on_gpu(case)
    op = torch.ops.specref.verify_chain
    op(*on_gpu.arguments)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = op(*on_gpu.arguments)
    for output in outputs:
        output.fill_(-7)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(mine.cpu(), theirs) for mine, theirs in zip(outputs, case.expected(), strict=True))


def test_another_stream():
    case = next(c for c in cases(torch.float32, 1003, size=6) if c.op == "row_norm")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        outputs = torch.ops.specref.row_norm(*_on_gpu(case).arguments)
    stream.synchronize()
    assert all(torch.equal(mine.cpu(), theirs) for mine, theirs in zip(outputs, case.expected(), strict=True))
