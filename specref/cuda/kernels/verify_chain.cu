// verify_chain, fused - the ratio rule for a chain of drafts, straight from logits (Leviathan et al. 2211.17192,
// Chen et al. 2302.01318): accept draft x_i iff u_i q_i(x_i) < p_i(x_i); at the first rejection draw from max(p_i - q_i, 0);
// after the last draft draw from p.
//
//   target T[B, K+1, V]    draft T[B, K, V] or null (one-hot drafts)     draft_norm f32[B, K, 2], null with draft
//   draft_ids i32[B, K]    num_draft i32[B] or null (all K)              u f32[B, K+1]: column i accepts draft i, column K draws
//   inv_temp_t, inv_temp_d f32[B]                                        threshold_t f32[B, K+1], threshold_d f32[B, K], or null
//   out_ids i32[B, K+1]    the accepted drafts, the drawn token, then -1
//   num_accepted i32[B]    status i32[B]
//
// Floor per request with a accepted drafts: the a + 1 target rows that were reached, the last of them a second time (from
// cache), and the draft row of a rejection. Rows after the first rejection are never touched: with acceptance alpha that is
// (1 - alpha^(K+1)) / (1 - alpha) rows instead of K + 1. No probability is written anywhere.
//
// Grid: one block per request. Dynamic shared memory: 16 bytes per chunk.
#include "chain.cuh"

template <class T>
__device__ void verify_chain(const ChainBatch<T>& batch, int* out_ids, int* num_accepted, int* out_status) {
  DYNAMIC_SHARED(u64, masses);
  __shared__ int s_accepted, s_status, s_token;
  const int b = blockIdx.x, chunks = chunks_of(batch.V);
  ChunkStat* const stats = reinterpret_cast<ChunkStat*>(masses + chunks);
  const Chain<T> chain = batch.request(b);

  if (threadIdx.x == 0) s_status = chain.check();
  __syncthreads();
  int status = s_status, accepted = 0, token = NO_TOKEN;

  // Walk down the chain until a draft is rejected or there is none left.
  Row<T> p;
  while (!status) {
    p = chain.target_row(accepted);
    float largest;
    if (!block_norm(p, stats, &largest)) { status = BAD_TARGET; break; }
    if (accepted == chain.drafted) break;
    if (threadIdx.x == 0) {  // one thread gathers two logits and decides for all
      s_accepted = accepts_draft(chain, p, accepted, &s_status);
    }
    __syncthreads();
    status = s_status;
    if (!s_accepted) break;
    accepted++;
  }

  // Draw the next token.
  if (!status) {
    Residual<T> weights = weights_after(chain, p, accepted);
    for (;;) {
      block_masses(weights, masses, chunks);
      if (warp_id() == 0) {
        const int drawn = draw(weights, masses, chunks, u64(uniform_24(chain.u[chain.K])));
        if (lane_id() == 0) s_token = drawn;
      }
      __syncthreads();
      token = s_token;
      if (token != NO_TOKEN || weights.plain) break;
      weights.plain = true;  // p <= q everywhere but for rounding: the residual is empty, and p is the law to draw from
    }
    if (token == BAD_TOKEN) status = BAD_DRAFT;
  }
  write_result(chain, accepted, token, status, out_ids + i64(b) * (batch.K + 1), num_accepted + b, out_status + b);
}

#define VERIFY_CHAIN(S, T)                                                                                       \
  extern "C" __global__ void __launch_bounds__(512)                                                              \
      verify_chain_##S(CHAIN_PARAMETERS(T), int* out_ids, int* num_accepted, int* status) {                       \
    const ChainBatch<T> batch = CHAIN_ARGUMENTS;                                                                 \
    verify_chain<T>(batch, out_ids, num_accepted, status);                                                       \
  }                                                                                                              \
  KERNEL_EXPORT(verify_chain_##S)
FOR_EACH_TYPE(VERIFY_CHAIN)
