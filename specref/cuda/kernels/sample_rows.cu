// sample_rows - draw one token per row from softmax(logits * inv_temp), filtered by a threshold. The draft's sampler.
//
//   logits    T[R, V]      inv_temp f32[R]      threshold f32[R] or null      u f32[R], multiples of 2^-24 in [0, 1)
//   ids       i32[R]       the first token whose cumulative mass exceeds u * total; -1 for a bad row
//   norm      f32[R, 2]    as in row_norm: what verify_chain wants to know of the draft's rows
//   status    i32[R]       BAD_TARGET, BAD_SETTING
//
// Floor: the row twice (the second time from cache), 2 * R * V * sizeof(T) bytes, and one chunk of 1024 logits.
//
// Grid: one block per row. Dynamic shared memory: 16 bytes per chunk.
#include "rows.cuh"

template <class T>
__device__ void sample_rows(const T* logits, const float* inv_temp, const float* threshold, const float* u, int* ids,
                            Norm* norm, int* status, int V) {
  DYNAMIC_SHARED(u64, masses);
  const int r = blockIdx.x, chunks = chunks_of(V);
  ChunkStat* const stats = reinterpret_cast<ChunkStat*>(masses + chunks);
  Row<T> row(logits + i64(r) * V, scale_of(inv_temp[r]), threshold ? threshold[r] : -INFINITE, V);
  const i64 u24 = uniform_24(u[r]);
  float largest;
  const bool good = block_norm(row, stats, &largest);
  const int problem = !(row.scale > 0.f) || u24 < 0 ? int(BAD_SETTING) : good ? 0 : int(BAD_TARGET);

  int token = NO_TOKEN;
  if (!problem) {  // the same answer in every thread
    Residual<T> weights;
    weights.p = row;
    weights.plain = true;
    block_masses(weights, masses, chunks);
    if (warp_id() == 0) token = draw(weights, masses, chunks, u64(u24));
  }
  if (threadIdx.x == 0) {
    store(&ids[r], token);
    store(&norm[r].max, row.norm.max);
    store(&norm[r].inv, row.norm.inv);
    store(&status[r], problem);
  }
}

#define SAMPLE_ROWS(S, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(512) sample_rows_##S(const T* logits, const float* inv_temp,           \
                                                                    const float* threshold, const float* u, int* ids, \
                                                                    Norm* norm, int* status, int V) {                  \
    sample_rows<T>(logits, inv_temp, threshold, u, ids, norm, status, V);                                              \
  }                                                                                                                   \
  KERNEL_EXPORT(sample_rows_##S)
FOR_EACH_TYPE(SAMPLE_ROWS)
