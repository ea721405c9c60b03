// rows.cuh - one row of logits as a law, and drawing from a law.
//
// A row is cut into chunks of 1024 logits, and one warp owns a chunk: lane l holds logits 128 g + 4 l + (0..3) of it for
// g = 0..7, so neighbouring lanes read neighbouring memory, and no barrier is needed inside a sweep. The chunk does not
// depend on the block size or the logits' type, so neither do the results.
//
//   scaled logit   y = z * scale, scale = inv_temp * log2(e)         (rounded once, as engines do: z / T)
//   norm           max = largest kept y;  inv = 1 / sum of 2^(y - max), float32, in the order of chunk_stat and combine
//   mass           floor(2^40 * 2^(y - max) * inv): the probability in units of 2^-40, an integer
//
// Masses make everything after the norm exact: sums in any order agree, "u < p/q" is a comparison of integers, and a draw
// t < total always falls on a token of positive mass. What is lost is any p below 2^-40, less than V * 2^-40 in all.
#pragma once
#include "portable.cuh"

const int CHUNK = 1024, LANE_GROUPS = 8, LANE_WIDTH = 4, GROUP = 32 * LANE_WIDTH;
const float ONE_IN_MASS = 1099511627776.f;  // 2^40
const u64 BAD_MASS = ~0ull;                 // a chunk that holds NaN or +infinity
const int NO_TOKEN = -1, BAD_TOKEN = -2;    // draws from an all-zero, and from a bad row

__device__ __forceinline__ int chunks_of(int V) { return (V + CHUNK - 1) / CHUNK; }

struct Norm { float max, inv; };

// What one warp finds in one chunk: the largest kept logit and the sum of 2^(y - its y). sum is NaN when the chunk is bad.
struct ChunkStat { float largest, sum; };

// The inverse temperature as a factor to log2 units; 0 when it is not positive and finite.
__device__ __forceinline__ float scale_of(float inv_temp) {
  const float scale = __fmul_rn(inv_temp, 1.4426950408889634f);
  return scale > 0.f && scale < INFINITE ? scale : 0.f;
}

// A uniform in [0, 1) as an integer in [0, 2^24); -1 when it isn't one.
__device__ __forceinline__ i64 uniform_24(float u) { return u >= 0.f && u < 1.f ? i64(__fmul_rn(u, 16777216.f)) : -1; }

// floor(u * total): the draw, always less than total.
__device__ __forceinline__ u64 draw_below(u64 total, u64 u24) { return __umul64hi(u24 << 40, total); }

// accept iff u * q < p. The product stays below 2^64; shifting it, not p, keeps p = 1 (2^40) from overflowing.
__device__ __forceinline__ bool accepts(u64 u24, u64 p, u64 q) { return (u24 * q >> 24) < p; }

template <class T> struct Row {
  const T* logits;
  float scale, threshold;  // logits below the threshold are filtered away
  int V;
  bool aligned;            // may four logits be read in one access?
  Norm norm;

  __device__ __forceinline__ Row() {}
  __device__ __forceinline__ Row(const T* logits_, float scale_, float threshold_, int V_)
      : logits(logits_), scale(scale_), threshold(threshold_), V(V_),
        aligned(reinterpret_cast<u64>(logits_) % (LANE_WIDTH * sizeof(T)) == 0) {}

  // Logits i..i+3; beyond V they are -infinite.
  __device__ __forceinline__ void four(int i, float z[LANE_WIDTH]) const {
    if (aligned && i + LANE_WIDTH <= V) { load_four(logits + i, z); return; }
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) z[j] = i + j < V ? to_float(load(logits + i + j)) : -INFINITE;
  }
  __device__ __forceinline__ bool good(float z) const { return __fmul_rn(z, scale) < INFINITE; }  // not NaN, not +infinite
  __device__ __forceinline__ bool kept(float z) const { return z >= threshold; }

  __device__ __forceinline__ u64 mass_of(float z) const {
    if (!kept(z)) return 0;
    float below = __fadd_rn(__fmul_rn(z, scale), -norm.max);
    below = below < 0.f ? below : 0.f;  // only a norm from elsewhere can be wrong; then mass stays at most 2^40
    return __float2ull_rz(__fmul_rn(__fmul_rn(exp2_nonpositive(below), norm.inv), ONE_IN_MASS));
  }
  __device__ __forceinline__ bool norm_is_usable() const {
    return norm.inv > 0.f && norm.inv <= 1.f && norm.max > -INFINITE && norm.max < INFINITE;
  }
};

// ---- the norm of a row --------------------------------------------------------------------------------------------------------
template <class T> __device__ __forceinline__ ChunkStat chunk_stat(const Row<T>& row, int chunk) {
  float y[LANE_GROUPS * LANE_WIDTH], largest = -INFINITE;
  bool bad = false;
#pragma unroll
  for (int g = 0; g < LANE_GROUPS; g++) {
    float z[LANE_WIDTH];
    row.four(chunk * CHUNK + g * GROUP + lane_id() * LANE_WIDTH, z);
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) {
      bad |= !row.good(z[j]);
      const float kept = row.kept(z[j]) ? z[j] : -INFINITE;
      largest = kept > largest ? kept : largest;
      y[g * LANE_WIDTH + j] = __fmul_rn(kept, row.scale);
    }
  }
  ChunkStat stat;
  stat.largest = warp_max(largest);
  const float top = __fmul_rn(stat.largest, row.scale);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < LANE_GROUPS * LANE_WIDTH; i++) sum = __fadd_rn(sum, exp2_nonpositive(__fadd_rn(y[i], -top)));
  stat.sum = warp_sum(sum);
  if (__any_sync(ALL_LANES, bad)) stat.sum = __uint_as_float(0x7fc00000u);
  return stat;
}

// A whole warp: the row's norm from its chunks; lane l adds chunks l, l + 32, ... in turn, then the lanes meet. False if bad.
__device__ __forceinline__ bool combine(const ChunkStat* stats, int chunks, float scale, Norm* norm, float* largest) {
  float top = -INFINITE;
  for (int c = lane_id(); c < chunks; c += 32) top = stats[c].largest > top ? stats[c].largest : top;
  *largest = warp_max(top);
  norm->max = __fadd_rn(__fmul_rn(*largest, scale), 0.f);  // + 0 makes -0 into 0
  float sum = 0.f;
  for (int c = lane_id(); c < chunks; c += 32) {
    const float below = __fadd_rn(__fmul_rn(stats[c].largest, scale), -norm->max);
    sum = __fadd_rn(sum, __fmul_rn(stats[c].sum, exp2_nonpositive(below)));
  }
  sum = warp_sum(sum);
  norm->inv = __fdiv_rn(1.f, sum);
  const bool good = scale > 0.f && norm->max > -INFINITE && sum >= 1.f;  // a NaN anywhere makes sum NaN
  if (!good) { norm->max = 0.f; norm->inv = 0.f; }
  return good;
}

// A whole block: sets row.norm, the same bits in every thread. stats: shared, chunks_of(V) entries; who calls twice has a
// barrier in between.
template <class T> __device__ __forceinline__ bool block_norm(Row<T>& row, ChunkStat* stats, float* largest) {
  const int chunks = chunks_of(row.V);
  for (int c = warp_id(); c < chunks; c += warp_count()) {
    const ChunkStat stat = chunk_stat(row, c);
    if (lane_id() == 0) stats[c] = stat;
  }
  __syncthreads();
  return combine(stats, chunks, row.scale, &row.norm, largest);
}

// ---- drawing from weights ------------------------------------------------------------------------------------------------------
// `Weights` is any type with   bool four(int i, u64 w[4]) const   that gives the weights of tokens i..i+3 (0 beyond V) and
// returns false on a bad logit. Weights::UNROLL is how many groups of a chunk are worked on at a time: 8 when weights are cheap,
// so that many loads are in flight; 1 when they are so long that eight copies of them would not fit the registers.

// A whole warp: the sum of a chunk's weights, or BAD_MASS.
template <class Weights> __device__ __forceinline__ u64 chunk_mass(const Weights& weights, int chunk) {
  u64 sum = 0;
  bool good = true;
#pragma unroll Weights::UNROLL
  for (int g = 0; g < LANE_GROUPS; g++) {
    u64 w[LANE_WIDTH];
    good &= weights.four(chunk * CHUNK + g * GROUP + lane_id() * LANE_WIDTH, w);
    sum += w[0] + w[1] + w[2] + w[3];
  }
  sum = warp_sum(sum);
  return __any_sync(ALL_LANES, !good) ? BAD_MASS : sum;
}

// A whole warp: the first chunk whose cumulative mass exceeds t; t becomes what is left of it inside that chunk.
__device__ __forceinline__ int find_chunk(const u64* masses, int chunks, u64* t) {
  u64 before = 0;
  for (int base = 0; base < chunks; base += 32) {
    const u64 mine = base + lane_id() < chunks ? masses[base + lane_id()] : 0;
    const u64 upto = before + warp_prefix_sum(mine);
    const u32 beyond = __ballot_sync(ALL_LANES, upto > *t);
    if (beyond) {
      const int lane = __ffs(int(beyond)) - 1;
      *t -= __shfl_sync(ALL_LANES, upto - mine, lane);
      return base + lane;
    }
    before = __shfl_sync(ALL_LANES, upto, 31);
  }
  return NO_TOKEN;  // not reached: t < total
}

// A whole warp: the first token of the chunk whose cumulative weight exceeds t. This is the only part of a row read again.
template <class Weights> __device__ __forceinline__ int find_token(const Weights& weights, int chunk, u64 t) {
  u64 before = 0;
#pragma unroll 1
  for (int g = 0; g < LANE_GROUPS; g++) {
    const int i = chunk * CHUNK + g * GROUP + lane_id() * LANE_WIDTH;
    u64 w[LANE_WIDTH];
    weights.four(i, w);
    const u64 mine = w[0] + w[1] + w[2] + w[3];
    const u64 upto = before + warp_prefix_sum(mine);
    const u32 beyond = __ballot_sync(ALL_LANES, upto > t);
    if (beyond) {
      u64 sum = upto - mine;
      int token = i;
      for (int j = 0; j < LANE_WIDTH - 1 && sum + w[j] <= t; j++) { sum += w[j]; token = i + j + 1; }
      return __shfl_sync(ALL_LANES, token, __ffs(int(beyond)) - 1);
    }
    before = __shfl_sync(ALL_LANES, upto, 31);
  }
  return NO_TOKEN;
}

// A whole warp: the row's total; BAD_MASS if any chunk is bad.
__device__ __forceinline__ u64 total_mass(const u64* masses, int chunks) {
  u64 sum = 0;
  bool bad = false;
  for (int c = lane_id(); c < chunks; c += 32) { sum += masses[c]; bad |= masses[c] == BAD_MASS; }
  sum = warp_sum(sum);
  return __any_sync(ALL_LANES, bad) ? BAD_MASS : sum;
}

// A whole warp: draw from chunk masses.
template <class Weights>
__device__ __forceinline__ int draw(const Weights& weights, const u64* masses, int chunks, u64 u24) {
  const u64 total = total_mass(masses, chunks);
  if (total == BAD_MASS) return BAD_TOKEN;
  if (total == 0) return NO_TOKEN;
  u64 t = draw_below(total, u24);
  const int chunk = find_chunk(masses, chunks, &t);
  return find_token(weights, chunk, t);
}

// A whole block: all chunk masses of a row. masses: shared, chunks entries; who calls twice has a barrier in between.
template <class Weights> __device__ __forceinline__ void block_masses(const Weights& weights, u64* masses, int chunks) {
  for (int c = warp_id(); c < chunks; c += warp_count()) {
    const u64 mass = chunk_mass(weights, c);
    if (lane_id() == 0) masses[c] = mass;
  }
  __syncthreads();
}

// ---- the two kinds of weights that every sampler needs ----------------------------------------------------------------------
// p itself, and the residual max(p - q, 0). `one_hot` says that q is the law that gives token `drafted` with certainty.
template <class T> struct Residual {
  static const int UNROLL = 8;
  Row<T> p, q;
  bool plain, one_hot;
  int drafted;

  __device__ __forceinline__ bool four(int i, u64 w[LANE_WIDTH]) const {
    float z[LANE_WIDTH];
    bool good = true;
    p.four(i, z);
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) w[j] = p.mass_of(z[j]);
    if (plain) return true;
    if (one_hot) {
#pragma unroll
      for (int j = 0; j < LANE_WIDTH; j++) if (i + j == drafted) w[j] = 0;
      return true;
    }
    q.four(i, z);
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) {
      const u64 mass = q.mass_of(z[j]);
      w[j] = w[j] > mass ? w[j] - mass : 0;
      good &= q.good(z[j]);
    }
    return good;
  }
};
