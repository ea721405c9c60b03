// row_norm - the softmax norm and the argmax of each row, without writing a single probability.
//
//   logits    T[R, V]      inv_temp f32[R]      threshold f32[R] or null (only logits >= it are kept)
//   norm      f32[R, 2]    max of the scaled logits (log2 units) and 1 / sum of 2^(y - max); (0, 0) for a bad row
//   argmax    i32[R]       lowest index of the largest logit; -1 for a bad row
//   status    i32[R]       BAD_TARGET, BAD_SETTING
//
// Floor: every logit once, R * V * sizeof(T) bytes. The argmax re-reads the one chunk (1024 logits) that holds it, instead
// of carrying an index through the sweep, which would cost two instructions per logit.
//
// Grid: one block per row. Dynamic shared memory: 8 bytes per chunk.
#include "rows.cuh"

template <class T>
__device__ void row_norm(const T* logits, const float* inv_temp, const float* threshold, Norm* norm, int* argmax,
                         int* status, int V) {
  DYNAMIC_SHARED(ChunkStat, stats);
  const int r = blockIdx.x, chunks = chunks_of(V);
  Row<T> row(logits + i64(r) * V, scale_of(inv_temp[r]), threshold ? threshold[r] : -INFINITE, V);
  float largest;
  const bool good = block_norm(row, stats, &largest);
  if (warp_id() != 0) return;

  // The first warp looks for the first chunk, and in it the first token, that holds the largest logit.
  int where = V;
  if (good) {
    int first = chunks;
    for (int c = lane_id(); c < chunks && first == chunks; c += 32) if (stats[c].largest == largest) first = c;
    first = warp_min(first);
    for (int g = 0; g < LANE_GROUPS; g++) {
      const int i = first * CHUNK + g * GROUP + lane_id() * LANE_WIDTH;
      float z[LANE_WIDTH];
      row.four(i, z);
      for (int j = 0; j < LANE_WIDTH; j++) if (z[j] == largest && i + j < where) where = i + j;
    }
    where = warp_min(where);
  }
  if (lane_id() == 0) {
    store(&norm[r].max, row.norm.max);
    store(&norm[r].inv, row.norm.inv);
    store(&argmax[r], good ? where : NO_TOKEN);
    store(&status[r], row.scale > 0.f ? (good ? 0 : int(BAD_TARGET)) : int(BAD_SETTING));
  }
}

#define ROW_NORM(S, T)                                                                                              \
  extern "C" __global__ void __launch_bounds__(512) row_norm_##S(const T* logits, const float* inv_temp,            \
                                                                 const float* threshold, Norm* norm, int* argmax,    \
                                                                 int* status, int V) {                               \
    row_norm<T>(logits, inv_temp, threshold, norm, argmax, status, V);                                               \
  }                                                                                                                 \
  KERNEL_EXPORT(row_norm_##S)
FOR_EACH_TYPE(ROW_NORM)
