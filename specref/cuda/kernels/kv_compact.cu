// kv_compact_ - after a tree was verified, move the accepted nodes' keys and values to the front of the tree's slots, in place.
//
//   k, v T[L, B, S, H, D], or paged T[L, pages, page_size, H, D] with block_table i32[B, pages_per_row]
//   path i32[B, D+1], num_accepted i32[B]: from the verifier      lengths i32[B]: tokens before the tree; node n lies in slot
//   lengths + n                                                   new_lengths i32[B] = lengths + num_accepted + 1 (root included)
//   status i32[B]                                                 BAD_TREE, BAD_SETTING; nothing is moved then
//
// No staging buffer and no barrier: a path's nodes rise, so node path[i] >= i and every source lies at or beyond its
// destination; a thread copies its own bytes of one token after the other, lowest first, and never overwrites what it still needs.
//
// Floor: 2 (k, v) * 2 (read, write) * L * H * D * sizeof(T) per token that moves; a chain moves none, and reads nothing.
//
// Grid: (parts, L, B). The unit of copying is 16 bytes, or 2 where a token's bytes aren't a multiple of 16.
#include "portable.cuh"

template <class Unit>
__device__ void kv_compact(Unit* k, Unit* v, const int* block_table, const int* path, const int* num_accepted,
                           const int* lengths, int* new_lengths, int* out_status, int B, int S, int D, int units, int page_size,
                           int pages, int pages_per_row) {
  __shared__ int s_status;
  const int b = blockIdx.z, layer = blockIdx.y, accepted = num_accepted[b], length = lengths[b];
  const int* const nodes = path + i64(b) * (D + 1);
  const int slots = block_table ? pages_per_row * page_size : S;

  const bool bad_setting = accepted < 0 || accepted > D || length < 0;
  if (threadIdx.x == 0) s_status = bad_setting ? int(BAD_SETTING) : 0;
  __syncthreads();
  if (!bad_setting) {  // the threads share the check of the path
    for (int i = threadIdx.x; i <= accepted; i += blockDim.x) {
      const bool rises = i == 0 ? nodes[0] == 0 : nodes[i] > nodes[i - 1];
      if (!rises || nodes[i] < i) atomicOr(&s_status, int(BAD_TREE));
      else if (nodes[i] >= slots - length) atomicOr(&s_status, int(BAD_SETTING));
      else if (block_table) {  // source and destination must lie in pages that exist
        const int* const table = block_table + i64(b) * pages_per_row;
        const int from = table[(length + nodes[i]) / page_size], to = table[(length + i) / page_size];
        if (from < 0 || from >= pages || to < 0 || to >= pages) atomicOr(&s_status, int(BAD_SETTING));
      }
    }
  }
  __syncthreads();
  const int status = s_status;
  if (blockIdx.x == 0 && layer == 0 && threadIdx.x == 0) {
    store(&new_lengths[b], status ? length : length + accepted + 1);
    store(&out_status[b], status);
  }
  if (status) return;

  // Where a slot's first unit lies.
  const auto place = [&](int slot) {
    const i64 row = block_table ? (i64(layer) * pages + block_table[i64(b) * pages_per_row + slot / page_size]) * page_size +
                                      slot % page_size
                                : (i64(layer) * B + b) * S + slot;
    return row * units;
  };
  for (int unit = blockIdx.x * blockDim.x + threadIdx.x; unit < units; unit += gridDim.x * blockDim.x)
    for (int i = 0; i <= accepted; i++) {
      if (nodes[i] == i) continue;
      const i64 from = place(length + nodes[i]) + unit, to = place(length + i) + unit;
      store(&k[to], load(&k[from]));
      store(&v[to], load(&v[from]));
    }
}

#define KV_COMPACT(S, T)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      kv_compact_##S(T* k, T* v, const int* block_table, const int* path, const int* num_accepted, const int* lengths,        \
                     int* new_lengths, int* status, int B, int S_, int D, int units, int page_size, int pages,                \
                     int pages_per_row) {                                                                                    \
    kv_compact<T>(k, v, block_table, path, num_accepted, lengths, new_lengths, status, B, S_, D, units, page_size, pages,     \
                  pages_per_row);                                                                                            \
  }                                                                                                                          \
  KERNEL_EXPORT(kv_compact_##S)
KV_COMPACT(16, uint4)
KV_COMPACT(2, u16)
