// cuda.h - the part of CUDA C++ that our kernels use, for an ordinary C++17 compiler.
//
//   g++ -x c++ -std=c++17 -ffp-contract=off -fno-strict-aliasing -include cuda.h kernel.cu -shared -fPIC -o kernel.so
//
// The kernel's source stays as it is: keywords become nothing or `static`, built-in variables come from the running fiber,
// warp collectives are meetings (block.h). -ffp-contract=off matters: fused multiply-add only where the source says so, as
// NVRTC does with fma=False; then CPU and GPU round alike.
#pragma once
#include <cmath>

#include "block.h"

#define CUDA_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define __shared__ static
#else
#define __shared__ static __attribute__((section("cuda_shared")))
#endif

struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };

#define threadIdx (emulator::machine.current->id)
#define blockIdx (emulator::machine.block_id)
#define blockDim (emulator::machine.block)
#define gridDim (emulator::machine.grid)

// ---- barriers and warp collectives --------------------------------------------------------------------------------
inline void __syncthreads() { emulator::barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { emulator::meet(mask, 0, "__syncwarp"); }

namespace emulator {
template <class T> inline uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8, "warp collectives carry at most 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T> inline T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
inline unsigned lane() { return machine.current->index % WARP; }
template <class T> inline T shuffle(unsigned mask, T value, unsigned source) {
  const uint64_t* values = meet(mask, to_bits(value), "__shfl_sync");
  if (!(mask >> source & 1)) fail("a shuffle reads a lane outside its mask");
  return from_bits<T>(values[source]);
}
}  // namespace emulator

template <class T> inline T __shfl_sync(unsigned mask, T value, int source) {
  return emulator::shuffle(mask, value, unsigned(source) % 32);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulator::shuffle(mask, value, emulator::lane() ^ unsigned(bits));
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = emulator::lane();
  return emulator::shuffle(mask, value, lane >= delta ? lane - delta : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* values = emulator::meet(mask, predicate != 0, "__ballot_sync");
  unsigned bits = 0;
  for (int i = 0; i < 32; i++) if (mask >> i & 1) bits |= unsigned(values[i]) << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

// ---- atomics (fibers never interrupt each other, so a plain update is atomic; TSan wants to be told) -----------------
template <class T> inline T atomicAdd(T* address, T value) { return __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
template <class T> inline T atomicOr(T* address, T value) { return __atomic_fetch_or(address, value, __ATOMIC_RELAXED); }

// ---- arithmetic: each is one correctly rounded operation, on both sides ----------------------------------------------
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __uint_as_float(unsigned bits) { return emulator::from_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return unsigned(emulator::to_bits(value)); }
inline unsigned __float2uint_rz(float value) { return unsigned(value); }
inline unsigned long long __float2ull_rz(float value) { return (unsigned long long)(value); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

// ---- entry points: KERNEL_EXPORT(name) makes `run_name`, which has cuLaunchKernel's shape ------------------------------
#define KERNEL_EXPORT(name)                                                                                                  \
  extern "C" int run_##name(const unsigned* grid, const unsigned* block, unsigned dynamic_shared_bytes, void** arguments) {  \
    return emulator::launch(&name, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, dynamic_shared_bytes,         \
                            arguments);                                                                                      \
  }
