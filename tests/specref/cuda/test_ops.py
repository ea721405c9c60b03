"""The ops as torch sees them: schemas, fake implementations, compilation, errors at the border, statuses, life without g++."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import specref.cuda as cuda
from specref.cuda import emulator, ops
from specref.cuda.proof.cases import cases

OPS = (
    *("row_norm", "sample_rows", "verify_chain", "topk_topp_threshold", "topk_topp_softmax", "tree_build"),
    *("verify_tree_greedy", "verify_tree_sampled", "tree_attn", "kv_compact_"),
)


def _first_case(op):
    return next(case for case in cases(torch.bfloat16, 40, size=2) if case.op == op and "bad" not in case.name)


@pytest.mark.parametrize("op", OPS)
def test_opcheck(emulator, op):
    case = _first_case(op)
    arguments = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in case.arguments)
    outcome = torch.library.opcheck(getattr(torch.ops.specref, op).default, arguments)
    assert set(outcome.values()) == {"SUCCESS"}
    assert len(outcome) == 4


def test_compiled_equals_eager(emulator):
    by_op = {op: _first_case(op).arguments for op in OPS}

    def everything(*cache):
        results = []
        for op, arguments in by_op.items():
            given = (*cache, *arguments[2:]) if op == "kv_compact_" else arguments
            results += getattr(torch.ops.specref, op)(*given)
        first = results[0] * 2 + 1  # something for the compiler to do
        return (first, *results, *cache)

    keys, values = by_op["kv_compact_"][:2]
    eager = everything(keys.clone(), values.clone())
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager")(keys.clone(), values.clone())
    assert len(eager) == len(compiled)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))


@pytest.mark.long
def test_compiled_by_inductor_equals_eager(emulator):
    target, draft, norm, ids, count, u, inv_t, inv_d, *_ = _first_case("verify_chain").arguments

    def verify(target, draft):
        out, accepted, status = torch.ops.specref.verify_chain(target * 0.5, draft, norm, ids, count, u, inv_t, inv_d)
        return out.clamp(min=0), accepted + 1, status

    torch._dynamo.reset()
    compiled = torch.compile(verify, fullgraph=True)(target, draft)
    assert all(torch.equal(a, b) for a, b in zip(verify(target, draft), compiled, strict=True))


def test_functions_name_the_bad_rows(emulator):
    logits = torch.zeros(4, 10)
    logits[1, 3] = math.nan
    logits[3] = -math.inf
    with pytest.raises(cuda.BadRows, match=r"row_norm: rows 1, 3: target logits are NaN") as caught:
        cuda.row_norm(logits, torch.ones(4))
    assert list(caught.value.rows) == [1, 3]
    with pytest.raises(cuda.BadRows, match=r"row 0: a setting is out of range"):
        cuda.sample_rows(torch.zeros(1, 10), torch.ones(1), torch.ones(1))
    with pytest.raises(cuda.BadRows, match=r"rows 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"):
        cuda.row_norm(torch.full((10, 4), math.nan), torch.ones(10))
    with pytest.raises(cuda.BadRows, match="describe no tree"):
        cuda.tree_build(torch.tensor([[-1, 1]], dtype=torch.int32), torch.tensor([2], dtype=torch.int32), torch.zeros(1).int())
    norm, argmax = cuda.row_norm(torch.tensor([[0.0, 3.0, 3.0]]), torch.ones(1))
    assert argmax.tolist() == [1]
    assert norm[0, 0] == pytest.approx(3 / math.log(2))


def test_every_function_runs(emulator):
    for op in OPS:
        arguments = dict(zip(_names(op), _first_case(op).arguments, strict=False))
        arguments.pop("split", None)
        found = getattr(cuda, op)(**arguments)
        assert all(isinstance(one, torch.Tensor) for one in (found if isinstance(found, tuple) else (found,))), op


def _names(op):
    return [argument.name for argument in getattr(torch.ops.specref, op).default._schema.arguments]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops._row_norm(torch.zeros(2, 3).double(), torch.ones(2)),
            r"must be float32 or bfloat16 or float16 \[\*, \*\]",
        ),
        (lambda: ops._row_norm(torch.zeros(2, 3), torch.ones(3)), r"inv_temp must be float32 \[2\], got float32 \[3\]"),
        (lambda: ops._row_norm(torch.zeros(3, 2).T, torch.ones(2)), r"not contiguous; pass logits.contiguous\(\)"),
        (lambda: ops._row_norm(torch.zeros(2, 0), torch.ones(2)), r"the vocabulary must have 1 to 2097152 tokens, got 0"),
        (
            lambda: torch.ops.specref.verify_chain(
                *(torch.zeros(1, 2, 4), torch.zeros(1, 1, 4), None, torch.zeros(1, 1).int(), None),
                *(torch.zeros(1, 2), torch.ones(1)),
            ),
            "draft was given without draft_norm; pass both or neither",
        ),
        (
            lambda: torch.ops.specref.verify_tree_greedy(*[torch.zeros(1, 2).int()] * 3, None, None, 1),
            "pass either target_argmax or target, got neither",
        ),
        (lambda: torch.ops.specref.tree_build(torch.zeros(1, 65).int(), *[torch.zeros(1).int()] * 2), "1 to 64 nodes, got 65"),
        (
            lambda: torch.ops.specref.tree_attn(
                *(*[torch.zeros(1, 2, 2, 32).half()] * 3, None, *[torch.zeros(1, 2, 2, 32).half()] * 2),
                *(torch.zeros(1, 2).long(), torch.zeros(1).int(), 1.0),
            ),
            "heads have 64 or 128 dimensions, got 32",
        ),
    ],
)
def test_wrong_arguments(emulator, call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_empty_batches(emulator):
    norm, argmax = cuda.row_norm(torch.zeros(0, 10), torch.ones(0))
    assert norm.shape == (0, 2)
    assert argmax.shape == (0,)


def test_without_a_compiler_the_reference_answers(monkeypatch):
    reason = "the CUDA emulator needs g++ (`apt install g++`), which is not on the PATH: the torch reference is used instead"
    case = _first_case("verify_chain")
    expected = case.expected()
    emulator.emulator_unavailable_reason.cache_clear()
    ops._warn_once.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("shutil.which", lambda name: None)
            assert not emulator.emulator_available()
            assert emulator.emulator_unavailable_reason() == reason
            with pytest.warns(RuntimeWarning, match=r"apt install g\+\+"):
                assert case.difference(expected) is None
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # it is said once
                assert case.difference(expected) is None
            with pytest.raises(emulator.EmulatorError, match=r"apt install g\+\+"):
                emulator.compile_kernels("row_norm")
    finally:
        emulator.emulator_unavailable_reason.cache_clear()
        ops._warn_once.cache_clear()


def test_a_missing_cuda_core_is_said(monkeypatch):
    import sys

    from specref.cuda.nvrtc import CudaUnavailable, compile_cubin

    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert not cuda.nvrtc_available()
    with pytest.raises(CudaUnavailable, match=r'pip install "specref\[cuda\]"'):
        compile_cubin("row_norm", "sm_90")


def test_processes_build_at_the_same_time(emulator, tmp_path):
    from specref.cuda.cache import build_once

    target = tmp_path / "library.so"

    def build(path):
        if not target.exists():  # someone else is faster
            build_once(target, lambda other: other.write_text("theirs"))
        path.write_text("ours")

    assert build_once(target, build).read_text() == "ours"
    assert build_once(target, lambda path: path.write_text("again")).read_text() == "ours"
    with pytest.raises(RuntimeError, match="broken"):
        build_once(tmp_path / "other.so", _fail)
    assert [path.name for path in tmp_path.iterdir()] == ["library.so"]


def _fail(path):
    raise RuntimeError("broken")
