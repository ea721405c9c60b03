"""The emulator reports what would hang or corrupt on a GPU, and its schedules, shared memory and counters are what they say."""

from __future__ import annotations

import pytest
import torch

from specref.cuda.emulator import EmulatorError, emulated, launch_emulated, take_bytes

SOURCE = r"""
#include "portable.cuh"

extern "C" __global__ void deadlock(int* out) {          // some wait at the barrier, some for their warp
  if (threadIdx.x < 40) __syncthreads();
  else __syncwarp();
  out[threadIdx.x] = 1;
}
KERNEL_EXPORT(deadlock)

extern "C" __global__ void missing_lane(int* out) {      // lane 3 is named in the mask, but returns
  if (threadIdx.x == 3) return;
  out[threadIdx.x] = __shfl_sync(ALL_LANES, int(threadIdx.x), 0);
}
KERNEL_EXPORT(missing_lane)

extern "C" __global__ void not_in_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0fffffffu, 1, 0); }
KERNEL_EXPORT(not_in_mask)

extern "C" __global__ void outside_mask(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}
KERNEL_EXPORT(outside_mask)

extern "C" __global__ void two_collectives(int* out) {
  if (threadIdx.x < 16) out[0] = __shfl_sync(ALL_LANES, 1, 0);
  else __syncwarp();
}
KERNEL_EXPORT(two_collectives)

extern "C" __global__ void order_of_threads(int* out) {  // no barrier: the schedule shows
  __shared__ int next;
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  out[threadIdx.x] = atomicAdd(&next, 1);
}
KERNEL_EXPORT(order_of_threads)

extern "C" __global__ void unwritten(int* out) {         // shared memory as a block finds it
  __shared__ int fixed[4];
  DYNAMIC_SHARED(int, dynamic);
  if (threadIdx.x == 0) { store(&out[2 * blockIdx.x], fixed[1]); store(&out[2 * blockIdx.x + 1], dynamic[1]); }
  __syncthreads();
  fixed[threadIdx.x % 4] = dynamic[threadIdx.x % 4] = 7;
}
KERNEL_EXPORT(unwritten)

extern "C" __global__ void collectives(int* out) {       // each against what a warp must give
  const int lane = threadIdx.x, high = lane >= 16;
  int bad = __shfl_sync(ALL_LANES, lane, 5) != 5;
  bad += __shfl_xor_sync(ALL_LANES, lane, 3) != (lane ^ 3);
  bad += __shfl_up_sync(ALL_LANES, lane, 2) != (lane < 2 ? lane : lane - 2);
  bad += __ballot_sync(ALL_LANES, lane % 3 == 0) != 0x49249249u;
  bad += __any_sync(ALL_LANES, lane == 40) != 0;
  const unsigned half = high ? 0xffff0000u : 0xffffu;    // two halves meet on their own
  bad += __shfl_sync(half, lane, high ? 20 : 2) != (high ? 20 : 2);
  bad += warp_sum(1) != 32 || warp_prefix_sum(2) != u64(2 * lane + 2) || warp_max(float(lane)) != 31.f || warp_min(lane) != 0;
  out[lane] = bad;
}
KERNEL_EXPORT(collectives)

extern "C" __global__ void conversions(const float* in, float* out, int n) {   // float -> 16 bits -> float
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    f16 h; bf16 b;
    from_float(in[i], &h); from_float(in[i], &b);
    out[i] = to_float(h); out[n + i] = to_float(b); out[2 * n + i] = exp2_nonpositive(in[i]);
  }
}
KERNEL_EXPORT(conversions)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from specref.cuda.cache import KERNEL_FOLDER

    path = tmp_path_factory.mktemp("kernels")
    (path / "probe.cu").write_text(SOURCE)
    (path / "portable.cuh").write_text((KERNEL_FOLDER / "portable.cuh").read_text())
    return path


@pytest.fixture
def probe(folder, emulator):
    def run(kernel, *arguments, threads=32, blocks=1, shared=0, schedule=0):
        with emulated(sources=folder, schedule=schedule):
            launch_emulated("probe", kernel, (blocks, 1, 1), threads, shared, arguments)

    return run


@pytest.mark.parametrize(
    ("kernel", "threads", "message"),
    [
        ("deadlock", 64, "deadlock: 40 threads wait at __syncthreads, 24 in a warp collective"),
        ("missing_lane", 32, "deadlock: 0 threads wait at __syncthreads, 31 in a warp collective"),
        ("not_in_mask", 32, "whose mask does not name it"),
        ("outside_mask", 32, "reads a lane outside its mask"),
        ("two_collectives", 32, "meet in two different collectives"),
    ],
)
def test_a_fault_is_an_error_and_the_next_launch_works(probe, kernel, threads, message):
    out = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(EmulatorError, match=message):
        probe(kernel, out, threads=threads)
    probe("collectives", out)
    assert not out[:32].any()


def test_bad_launches(probe):
    out = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(EmulatorError, match="multiple of 32"):
        probe("collectives", out, threads=20)
    with pytest.raises(EmulatorError, match="bytes of shared memory"):
        probe("collectives", out, shared=50_000)


def test_schedules(probe):
    orders = {}
    for schedule in (0, 1, 2, 3, 2):
        out = torch.zeros(64, dtype=torch.int32)
        probe("order_of_threads", out, threads=64, schedule=schedule)
        assert sorted(out.tolist()) == list(range(64))
        assert orders.setdefault(schedule, out.tolist()) == out.tolist()  # the same schedule, the same order
    assert len(set(map(tuple, orders.values()))) == 4
    # After a barrier the last to arrive goes on first; the others follow in order.
    assert orders[0] == [*range(1, 64), 0]


def test_shared_memory_begins_poisoned_in_every_block(probe):
    out = torch.zeros(6, dtype=torch.int32)
    probe("unwritten", out, blocks=3, shared=16)
    assert out.tolist() == [-1] * 6


def test_bytes_are_counted(probe, folder):
    out = torch.zeros(6, dtype=torch.int32)
    with emulated(sources=folder):
        take_bytes("probe")
        probe("unwritten", out, blocks=3, shared=16)
        assert take_bytes("probe") == (0, 24)
        assert take_bytes("probe") == (0, 0)


def test_conversions_are_torchs_and_exp2_is_accurate(probe):
    generator = torch.Generator().manual_seed(torch.initial_seed() % 2**31)
    bits = torch.randint(-(2**31), 2**31, (20_000,), generator=generator).int().view(torch.float32)  # NaN, inf, subnormals
    corners = torch.tensor([0.0, -0.0, 65504.0, 65519.9, 65520.0, 6.1e-5, 6.09e-5, 5.96e-8, 2.98e-8, 2.99e-8, 1e-9, 1.0009766])
    small = torch.randn(20_000, generator=generator) * 10
    x = torch.cat([bits, corners, -corners, small, -torch.rand(20_000, generator=generator) * 126])
    out = torch.zeros(3, len(x))
    probe("conversions", x, out, len(x))
    for got, dtype in ((out[0], torch.float16), (out[1], torch.bfloat16)):
        assert torch.equal(got.nan_to_num(nan=123.0), x.to(dtype).float().nan_to_num(nan=123.0))

    from specref.cuda.reference import exp2_nonpositive

    negative = x <= 0
    assert torch.equal(out[2][negative], exp2_nonpositive(x)[negative])
    inside = negative & (x > -126)
    exact = torch.exp2(x[inside].double())
    assert float(((out[2][inside].double() - exact) / exact).abs().max()) < 2**-23  # within 1 unit in the last place
