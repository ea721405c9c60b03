// topk_topp_softmax - the filtered law itself, for those who want probabilities. Our own verifiers never do.
//
//   logits T[R, V]     inv_temp f32[R]     threshold f32[R] or null
//   probs f32[R, V]    2^(y - max) * inv where kept, else 0; all 0 for a bad row
//   status i32[R]      BAD_TARGET, BAD_SETTING
//
// Floor: every logit twice (the second time from cache), every probability once: R * V * (2 sizeof(T) + 4) bytes.
//
// Grid: one block per row. Dynamic shared memory: 8 bytes per chunk.
#include "rows.cuh"

template <class T>
__device__ void topk_topp_softmax(const T* logits, const float* inv_temp, const float* threshold, float* probs,
                                  int* status, int V) {
  DYNAMIC_SHARED(ChunkStat, stats);
  const int r = blockIdx.x;
  Row<T> row(logits + i64(r) * V, scale_of(inv_temp[r]), threshold ? threshold[r] : -INFINITE, V);
  float largest;
  const bool good = block_norm(row, stats, &largest);
  for (int i = threadIdx.x * LANE_WIDTH; i < V; i += blockDim.x * LANE_WIDTH) {
    float z[LANE_WIDTH];
    row.four(i, z);
    for (int j = 0; j < LANE_WIDTH && i + j < V; j++) {
      const float below = __fadd_rn(__fmul_rn(z[j], row.scale), -row.norm.max);
      const bool possible = good && row.kept(z[j]) && below > -126.f;
      store(&probs[i64(r) * V + i + j], possible ? __fmul_rn(exp2_nonpositive(below), row.norm.inv) : 0.f);
    }
  }
  if (threadIdx.x == 0) store(&status[r], row.scale > 0.f ? (good ? 0 : int(BAD_TARGET)) : int(BAD_SETTING));
}

#define TOPK_TOPP_SOFTMAX(S, T)                                                                                        \
  extern "C" __global__ void __launch_bounds__(512)                                                                    \
      topk_topp_softmax_##S(const T* logits, const float* inv_temp, const float* threshold, float* probs, int* status,  \
                            int V) {                                                                                   \
    topk_topp_softmax<T>(logits, inv_temp, threshold, probs, status, V);                                               \
  }                                                                                                                    \
  KERNEL_EXPORT(topk_topp_softmax_##S)
FOR_EACH_TYPE(TOPK_TOPP_SOFTMAX)
