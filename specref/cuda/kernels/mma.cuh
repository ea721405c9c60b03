// mma.cuh - the tensor cores' warp-wide matrix product, D[16, 8] += A[16, 16] B[16, 8], and its emulation.
//
// The 32 lanes share the matrices as the PTX ISA lays them out (mma.m16n8k16); with g = lane / 4 and t = lane % 4 a lane holds
//     A   a[0], a[1], a[2], a[3] = rows g, g+8, g, g+8; columns 2t, 2t+1 (first two) and 2t+8, 2t+9 (last two)
//     B   b[0], b[1]             = rows 2t, 2t+1 and 2t+8, 2t+9; column g
//     D   d[0], d[1]; d[2], d[3] = row g; row g+8; columns 2t, 2t+1
// two 16-bit numbers to a register, the lower index in the lower half. Products are exact in float; in which order the hardware
// adds them is not documented, so results are equal to the emulation's only to rounding.
#pragma once
#include "portable.cuh"

__device__ __forceinline__ u32 pair_of(u16 low, u16 high) { return u32(low) | u32(high) << 16; }

template <class T> __device__ __forceinline__ u32 rounded_pair(float low, float high) {
  T a, b;
  from_float(low, &a);
  from_float(high, &b);
  return pair_of(a.bits, b.bits);
}

#ifdef CUDA_EMULATOR
template <class T> inline void matrix_multiply(float d[4], const u32 a[4], const u32 b[2], T) {
  u64 top[32], bottom[32], right[32];  // every lane's a[0..1], a[2..3], b[0..1]
  std::memcpy(top, emulator::meet(ALL_LANES, a[0] | u64(a[1]) << 32, "mma"), sizeof top);
  std::memcpy(bottom, emulator::meet(ALL_LANES, a[2] | u64(a[3]) << 32, "mma"), sizeof bottom);
  std::memcpy(right, emulator::meet(ALL_LANES, b[0] | u64(b[1]) << 32, "mma"), sizeof right);
  const auto half = [](u64 registers, int index) {
    T x;
    x.bits = u16(registers >> 16 * index);
    return to_float(x);
  };
  for (int e = 0; e < 4; e++) {
    const int row = lane_id() / 4 + 8 * (e / 2), column = lane_id() % 4 * 2 + e % 2;
    for (int k = 0; k < 16; k++) {
      const int lane_of_a = row % 8 * 4 + k % 8 / 2, lane_of_b = column * 4 + k % 8 / 2;
      const u64 of_a = (k < 8 ? top : bottom)[lane_of_a];
      d[e] += half(of_a, 2 * (row / 8) + k % 2) * half(right[lane_of_b], 2 * (k / 8) + k % 2);
    }
  }
}
#else
#define MMA(TYPE)                                                                                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ __forceinline__ void matrix_multiply(float d[4], const u32 a[4], const u32 b[2], bf16) { MMA("bf16"); }
__device__ __forceinline__ void matrix_multiply(float d[4], const u32 a[4], const u32 b[2], f16) { MMA("f16"); }
#endif
