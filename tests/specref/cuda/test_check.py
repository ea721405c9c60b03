"""The command that shows the kernels to be right: its parts, its table, its exit codes."""

from __future__ import annotations

import pytest

from specref.cuda import check
from specref.cuda.cache import kernel_files
from specref.cuda.proof import resources
from specref.cuda.proof.faults import planted_faults
from specref.cuda.proof.variants import OPS_OF_FILE, deleted_barriers, ops_of, replaced


def test_table_and_exit_code(emulator, capsys, monkeypatch):
    assert check.main(["--short", "--only", "build", "--only", "traffic"]) == 0
    out = capsys.readouterr().out
    assert "11 kernel files with g++" in out
    assert "row_norm: each logit once" in out
    assert out.rstrip().endswith("8 passed, 0 FAILED, 0 not run")

    def breaks(short):
        raise RuntimeError("no more disk")
        yield

    monkeypatch.setitem(check.PARTS, "traffic", breaks)
    assert check.main(["--only", "traffic"]) == 1
    assert "traffic  broke off  FAILED  RuntimeError: no more disk" in capsys.readouterr().out
    monkeypatch.setattr(resources, "compiler", lambda: None)
    assert check.main(["--only", "compile"]) == 3


def test_variants_cover_every_kernel():
    assert set(OPS_OF_FILE) == set(kernel_files())
    assert ops_of("rows.cuh") == (
        *("row_norm", "sample_rows", "topk_topp_softmax", "topk_topp_threshold", "verify_chain"),
        *("verify_tree_greedy", "verify_tree_sampled"),
    )
    faults, barriers = planted_faults(), deleted_barriers()
    assert len(faults) >= 20
    assert len({variant.name for variant in [*faults, *barriers]}) == len(faults) + len(barriers)
    with pytest.raises(ValueError, match=r"row_norm\.cu has 0 occurrences of 'not there'"):
        replaced("x", "row_norm.cu", "not there", "")


def test_assembler_reports_are_read():
    text = """ptxas info    : Compiling entry function 'some_kernel' for 'sm_90'
ptxas info    : Function properties for some_kernel
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 31 registers, used 0 barriers, 1024 bytes smem"""
    entry = resources.ENTRY.search(text)
    assert entry is not None
    assert entry.groupdict() == {"kernel": "some_kernel", "stack": "8", "stores": "4", "loads": "12", "registers": "31"}
    assert resources.Resources("k", "sm_90", 31, 0, 0).good
    assert not resources.Resources("k", "sm_90", 31, 8, 0).good


@pytest.mark.long
@pytest.mark.parametrize("part", ["sanitizers", "barriers", "faults", "compile"])
def test_whole_part(emulator, part):
    lines = check.run([part], short=False)
    assert len(lines) >= 20
    assert all(line.outcome == check.PASSED for line in lines), check.table(lines)


def test_bench_runs_and_says_when_there_is_no_gpu(emulator, capsys, monkeypatch):
    from specref.cuda import bench

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert bench.main([]) == 3
    assert capsys.readouterr().out == "no GPU: not run\n"
    assert bench.main(["--small"]) == 0
    out = capsys.readouterr().out
    assert "CPU, emulated: says nothing of speed" in out
    for name in ("row_norm", "sample_rows", "topk_topp_threshold", "verify_chain, split", "tree_attn", "kv_compact_"):
        assert f"| {name}" in out
