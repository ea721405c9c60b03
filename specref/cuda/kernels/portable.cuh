// portable.cuh - what every kernel here stands on. Compiles under NVRTC (which has no headers at all), nvcc, and
// g++ with emulator/cuda.h; so the types, conversions and even 2^x are our own.
//
// The rule that makes CPU, GPU and torch agree bit for bit: only correctly rounded operations (+, *, fma, /), and sums
// that are either exact (integers) or taken in one stated order that doesn't depend on the number of threads.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;

#define INFINITE __uint_as_float(0x7f800000u)
const u32 ALL_LANES = 0xffffffffu;

// Why a row has no result. Bits of the int32 status that every operation returns per row; 0 is good.
enum Status {
  BAD_TARGET = 1,   // a target logit is NaN or +infinite, or the whole row is -infinite or filtered away
  BAD_DRAFT = 2,    // the same for a draft row, or its norm is not one
  BAD_ID = 4,       // a token id outside [0, V)
  BAD_TREE = 8,     // parents, links or a path that describe no tree
  BAD_SETTING = 16  // inverse temperature, uniform, top-p or a length out of range
};

// ---- shared memory whose size is chosen at launch -----------------------------------------------------------------------
#ifdef CUDA_EMULATOR
#define DYNAMIC_SHARED(T, name) T* const name = reinterpret_cast<T*>(emulator::machine.dynamic_shared)
#else
#define DYNAMIC_SHARED(T, name)                               \
  extern __shared__ __align__(16) unsigned char raw_shared[]; \
  T* const name = reinterpret_cast<T*>(raw_shared)
#define KERNEL_EXPORT(name)
#endif

// ---- 16-bit floats: storage only; all arithmetic is in float ------------------------------------------------------------
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ __forceinline__ float to_float(f16 x) {
  const u32 sign = u32(x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u, fraction = x.bits & 1023u;
  if (exponent == 31u) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112u) << 23 | fraction << 13);
  const float tiny = __fmul_rn(float(fraction), 5.9604644775390625e-8f);  // subnormal: fraction * 2^-24, exact
  return sign ? -tiny : tiny;
}

__device__ __forceinline__ void from_float(float x, bf16* out) {  // round to nearest, ties to even; NaN stays NaN
  const u32 u = __float_as_uint(x);
  out->bits = (u & 0x7fffffffu) > 0x7f800000u ? u16(u >> 16 | 64u) : u16((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
__device__ __forceinline__ void from_float(float x, f16* out) {
  const u32 u = __float_as_uint(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  u32 h;
  if (magnitude > 0x7f800000u) h = 0x7e00u;         // NaN
  else if (magnitude >= 0x477ff000u) h = 0x7c00u;   // rounds to 2^16 or more: infinite
  else if (magnitude < 0x38800000u) {               // below 2^-14: subnormal; adding 1/2 rounds at bit 2^-24
    h = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - 0x3f000000u;
  } else {
    const u32 rebased = magnitude - (112u << 23);
    h = (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13;
  }
  out->bits = u16(sign | h);
}

// ---- global memory: bulk data goes through these, so the emulator can count bytes ---------------------------------------
// (A setting of the row, read by all threads at once, is one broadcast on a GPU; those are read plainly and not counted.)
template <class T> __device__ __forceinline__ T load(const T* p) {
#ifdef CUDA_EMULATOR
  emulator::count(emulator::machine.bytes_read, sizeof(T));
#endif
  return *p;
}
template <class T> __device__ __forceinline__ void store(T* p, T value) {
#ifdef CUDA_EMULATOR
  emulator::count(emulator::machine.bytes_written, sizeof(T));
#endif
  *p = value;
}

// Four neighbouring elements in one access. The caller has made sure that p is aligned to the access.
__device__ __forceinline__ void load_four(const float* p, float out[4]) {
  const uint4 w = load(reinterpret_cast<const uint4*>(p));
  out[0] = __uint_as_float(w.x); out[1] = __uint_as_float(w.y); out[2] = __uint_as_float(w.z); out[3] = __uint_as_float(w.w);
}
template <class T> __device__ __forceinline__ void load_four(const T* p, float out[4]) {
  const uint2 w = load(reinterpret_cast<const uint2*>(p));
  T h;
  h.bits = u16(w.x); out[0] = to_float(h); h.bits = u16(w.x >> 16); out[1] = to_float(h);
  h.bits = u16(w.y); out[2] = to_float(h); h.bits = u16(w.y >> 16); out[3] = to_float(h);
}

// ---- 2^x for x <= 0, within 1 unit in the last place ------------------------------------------------------------------------
// x = n + f with n an integer and |f| <= 1/2; a polynomial gives 2^f; n is added to the exponent bits. Below -126 (and for
// NaN) the result is 2^-126, which every user here rounds away to nothing. Not monotone in the last bit: compare logits,
// never their exponentials.
__device__ __forceinline__ float exp2_nonpositive(float x) {
  const float ROUND = 12582912.f;  // 1.5 * 2^23: adding it leaves no bits for a fraction
  x = x > -126.f ? x : -126.f;
  const float t = __fadd_rn(x, ROUND);
  const float f = __fadd_rn(x, -__fadd_rn(t, -ROUND));
  float p = 1.535336188319500e-4f;
  p = __fmaf_rn(p, f, 1.339887440266574e-3f);
  p = __fmaf_rn(p, f, 9.618437357674640e-3f);
  p = __fmaf_rn(p, f, 5.550332471162809e-2f);
  p = __fmaf_rn(p, f, 2.402264791363012e-1f);
  p = __fmaf_rn(p, f, 6.931472028550421e-1f);
  p = __fmaf_rn(p, f, 1.f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

// ---- one warp -----------------------------------------------------------------------------------------------------------------
__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }
__device__ __forceinline__ int warp_id() { return threadIdx.x >> 5; }
__device__ __forceinline__ int warp_count() { return blockDim.x >> 5; }

// A butterfly: all lanes get the same bits, since a + b and b + a are the same bits.
template <class T> __device__ __forceinline__ T warp_sum(T v) {
  for (int bit = 16; bit; bit >>= 1) v = v + __shfl_xor_sync(ALL_LANES, v, bit);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int bit = 16; bit; bit >>= 1) { const float w = __shfl_xor_sync(ALL_LANES, v, bit); v = w > v ? w : v; }
  return v;
}
__device__ __forceinline__ int warp_min(int v) {
  for (int bit = 16; bit; bit >>= 1) { const int w = __shfl_xor_sync(ALL_LANES, v, bit); v = w < v ? w : v; }
  return v;
}
// Sum of the values of this lane and all lanes before it.
__device__ __forceinline__ u64 warp_prefix_sum(u64 v) {
  for (int d = 1; d < 32; d <<= 1) { const u64 w = __shfl_up_sync(ALL_LANES, v, d); if (lane_id() >= d) v += w; }
  return v;
}

// Makes one entry point per type of logits; a compiler option can name fewer of them, for a quick build.
#ifndef FOR_EACH_TYPE
#define FOR_EACH_TYPE(DEFINE) DEFINE(f32, float) DEFINE(bf16, bf16) DEFINE(f16, f16)
#endif
