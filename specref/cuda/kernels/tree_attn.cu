// tree_attn - attention of a tree's nodes to the committed prefix and to their ancestors, on tensor cores.
//
//   q T[B, N, Hq, D]                     T = bf16 or f16, D = 64 or 128; Hq is a multiple of Hk
//   k_cache, v_cache T[B, S, Hk, D]      or paged T[pages, page_size, Hk, D] with block_table i32[B, pages_per_row]
//   k_tree, v_tree T[B, N, Hk, D]        finite, padding too: a masked value is still multiplied by its weight, 0
//   mask i64[B, N]                       bit j: the node attends to node j (see tree_build)
//   lengths i32[B]                       tokens of the prefix in the cache          scale f32, usually 1 / sqrt(D)
//   out T[B, N, Hq, D]                   lse f32[B, N, Hq]: natural log of the sum of exponentials; -inf (and out 0) for a node
//                                        that may attend to nothing
//   status i32[B]                        BAD_SETTING: a length or a page out of range; out is then 0
//
// All query heads that share a key head are worked on together: their N * Hq / Hk rows are cut into tiles of 16, one per warp,
// four to a block. A block walks over the keys 32 at a time: scores = Q K^T, running softmax (Milakov and Gimelshein 1805.02867;
// Dao et al. 2205.14135), then the weights, rounded to T, times V. The scores' registers are already laid out as the next
// product's left matrix, so they never leave them.
//
// Floor: keys and values once, (length + N) * 2 * Hk * D * sizeof(T) bytes per request (several tiles of one head share them
// through the cache); 4 * rows * keys * D operations, which at 64 nodes is the larger bound: hence tensor cores.
//
// Grid: (tiles of 64 rows, Hk, B), 128 threads.
#include "mma.cuh"

const int KEYS = 32, WARPS = 4, TILE = 16;

template <class T> struct Attention {
  const T *q, *k_cache, *v_cache;
  const int* block_table;
  const T *k_tree, *v_tree;
  const i64* mask;
  const int* lengths;
  float scale;
  T* out;
  float* lse;
  int* status;
  int N, S, Hq, Hk, page_size, pages, pages_per_row;
};

template <class T, int D> __device__ void tree_attn(const Attention<T>& a) {
  const int PAD = 8;  // a row of shared memory starts 4 banks after the one before: no conflicts among a warp's 8 keys
  __shared__ __align__(16) u16 keys[KEYS][D + PAD], values[KEYS][D + PAD];
  __shared__ int s_bad;
  const int b = blockIdx.z, key_head = blockIdx.y, group = a.Hq / a.Hk, rows = a.N * group;
  const int g = lane_id() / 4, t = lane_id() % 4;  // as in mma.cuh
  const int length = a.lengths[b], first_row = (blockIdx.x * WARPS + warp_id()) * TILE;
  const int slots = a.block_table ? a.pages_per_row * a.page_size : a.S;
  const int* const table = a.block_table ? a.block_table + i64(b) * a.pages_per_row : nullptr;

  const bool bad_length = length < 0 || length > slots;
  if (threadIdx.x == 0) s_bad = bad_length;
  __syncthreads();
  if (table && !bad_length)
    for (int page = threadIdx.x; page * a.page_size < length; page += blockDim.x)
      if (table[page] < 0 || table[page] >= a.pages) atomicOr(&s_bad, 1);
  __syncthreads();
  const bool bad = s_bad;
  if (blockIdx.x == 0 && key_head == 0 && threadIdx.x == 0) store(&a.status[b], bad ? int(BAD_SETTING) : 0);
  const int total = bad ? 0 : length + a.N;

  // This lane's two rows: which node, which head, what it may see.
  int node[2], head[2];
  u64 sees[2];
  u32 q[D / 16][4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = first_row + g + 8 * i;
    node[i] = row < rows ? row / group : -1;
    head[i] = key_head * group + row % group;
    sees[i] = node[i] < 0 ? 0 : u64(a.mask[i64(b) * a.N + node[i]]);
    const u32* const from = reinterpret_cast<const u32*>(a.q + ((i64(b) * a.N + (node[i] < 0 ? 0 : node[i])) * a.Hq + head[i]) * D);
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
      q[step][i] = node[i] < 0 ? 0 : load(from + step * 8 + t);
      q[step][i + 2] = node[i] < 0 ? 0 : load(from + step * 8 + t + 4);
    }
  }

  float out[D / 8][4], top[2] = {-INFINITE, -INFINITE}, sum[2] = {0.f, 0.f};
#pragma unroll
  for (int n = 0; n < D / 8; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0.f;
  const float to_log2 = __fmul_rn(a.scale, 1.4426950408889634f);

  for (int start = 0; start < total; start += KEYS) {
    // The block brings 32 keys and values to shared memory, 16 bytes at a time.
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * (D / 8); i += blockDim.x) {
      const int key = start + i / (D / 8), part = i % (D / 8) * 8;
      uint4 k = {0, 0, 0, 0}, v = {0, 0, 0, 0};
      if (key < total) {
        const bool in_cache = key < length;
        const i64 token = !in_cache ? i64(b) * a.N + (key - length)
                          : table   ? i64(table[key / a.page_size]) * a.page_size + key % a.page_size
                                    : i64(b) * a.S + key;
        const i64 at = (token * a.Hk + key_head) * D + part;
        k = load(reinterpret_cast<const uint4*>((in_cache ? a.k_cache : a.k_tree) + at));
        v = load(reinterpret_cast<const uint4*>((in_cache ? a.v_cache : a.v_tree) + at));
      }
      *reinterpret_cast<uint4*>(&keys[i / (D / 8)][part]) = k;
      *reinterpret_cast<uint4*>(&values[i / (D / 8)][part]) = v;
    }
    __syncthreads();

    // Scores of 16 rows and 32 keys, in log2 units.
    float score[KEYS / 8][4];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
      score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0.f;
#pragma unroll
      for (int step = 0; step < D / 16; step++) {
        const u32* const column = reinterpret_cast<const u32*>(&keys[n * 8 + g][step * 16]);
        const u32 right[2] = {column[t], column[t + 4]};
        matrix_multiply(score[n], q[step], right, T());
      }
    }

    // Mask, and the running softmax of the lane's two rows. Four lanes share a row.
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float highest = top[i];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int key = start + n * 8 + 2 * t + j, of_tree = key - length;
          const bool visible = node[i] >= 0 && (of_tree < 0 || (of_tree < a.N && (sees[i] >> of_tree & 1)));
          float& s = score[n][2 * i + j];
          s = visible ? __fmul_rn(s, to_log2) : -INFINITE;
          highest = s > highest ? s : highest;
        }
      for (int bit = 1; bit < 4; bit <<= 1) {
        const float other = __shfl_xor_sync(ALL_LANES, highest, bit);
        highest = other > highest ? other : highest;
      }
      const float shrink = exp2_nonpositive(__fadd_rn(top[i], -highest));
      sum[i] = __fmul_rn(sum[i], shrink);
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        out[n][2 * i] = __fmul_rn(out[n][2 * i], shrink);
        out[n][2 * i + 1] = __fmul_rn(out[n][2 * i + 1], shrink);
      }
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          float& s = score[n][2 * i + j];
          s = s > -INFINITE ? exp2_nonpositive(__fadd_rn(s, -highest)) : 0.f;
          sum[i] = __fadd_rn(sum[i], s);
        }
      top[i] = highest;
    }

    // Weights times values, 16 keys at a time.
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
      u32 left[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float* const s = &score[2 * step + i / 2][i % 2 * 2];
        left[i] = rounded_pair<T>(s[0], s[1]);
      }
      const int key = step * 16 + 2 * t;
#pragma unroll
      for (int n = 0; n < D / 8; n++) {
        const u32 right[2] = {pair_of(values[key][n * 8 + g], values[key + 1][n * 8 + g]),
                              pair_of(values[key + 8][n * 8 + g], values[key + 9][n * 8 + g])};
        matrix_multiply(out[n], left, right, T());
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; i++) {
    for (int bit = 1; bit < 4; bit <<= 1) sum[i] = __fadd_rn(sum[i], __shfl_xor_sync(ALL_LANES, sum[i], bit));
    if (node[i] < 0) continue;
    const i64 row = (i64(b) * a.N + node[i]) * a.Hq + head[i];
    const float inv = sum[i] > 0.f ? __fdiv_rn(1.f, sum[i]) : 0.f;
    u32* const to = reinterpret_cast<u32*>(a.out + row * D);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
      store(to + n * 4 + t, rounded_pair<T>(__fmul_rn(out[n][2 * i], inv), __fmul_rn(out[n][2 * i + 1], inv)));
    if (t == 0) store(&a.lse[row], sum[i] > 0.f ? __fmaf_rn(top[i], 0.69314718056f, logf(sum[i])) : -INFINITE);
  }
}

#define TREE_ATTN(S, T, D)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(128, 1) tree_attn_##S##_##D(                                                    \
      const T* q, const T* k_cache, const T* v_cache, const int* block_table, const T* k_tree, const T* v_tree,              \
      const i64* mask, const int* lengths, float scale, T* out, float* lse, int* status, int N, int S_, int Hq, int Hk,      \
      int page_size, int pages, int pages_per_row) {                                                                        \
    const Attention<T> a = {q,   k_cache, v_cache, block_table, k_tree, v_tree, mask,      lengths, scale, out,             \
                            lse, status,  N,       S_,          Hq,     Hk,     page_size, pages,   pages_per_row};         \
    tree_attn<T, D>(a);                                                                                                     \
  }                                                                                                                         \
  KERNEL_EXPORT(tree_attn_##S##_##D)
TREE_ATTN(bf16, bf16, 64)
TREE_ATTN(bf16, bf16, 128)
TREE_ATTN(f16, f16, 64)
TREE_ATTN(f16, f16, 128)
