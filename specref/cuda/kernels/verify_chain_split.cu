// verify_chain, split - the same function, bit for bit, for batches too small to fill the GPU with one block per request.
// Rows are cut over many blocks, in three launches:
//
//   chain_stats      every target row in use: the norm's chunks                          grid (parts, B * (K + 1))
//   chain_residual   decide how many drafts are accepted; masses of the rejected row     grid (parts, B)
//   chain_draw       draw the token from the masses                                      grid (B)
//
// Workspace: stats f32[B, K+1, chunks, 2]; masses i64[B, chunks]; decision i32[B, 4] = (accepted, status, norm of p as bits).
// Arguments and results as in verify_chain.cu.
//
// Floor: all K + 1 target rows (this form can't stop early), the last one reached a second time, and the draft row of a
// rejection.
#include "chain.cuh"

struct Decision { int accepted, status; Norm norm; };

// Every block of a request takes the same decision from the same statistics: cheaper than a launch or a wait in between.
// The first warp; returns the row the walk ended at, with its norm.
template <class T>
__device__ Row<T> decide(const Chain<T>& chain, const ChunkStat* stats, int chunks, int* accepted, int* status) {
  Row<T> p;
  *accepted = 0;
  *status = __shfl_sync(ALL_LANES, lane_id() == 0 ? chain.check() : 0, 0);
  while (!*status) {
    p = chain.target_row(*accepted);
    float largest;
    if (!combine(stats + i64(*accepted) * chunks, chunks, p.scale, &p.norm, &largest)) { *status = BAD_TARGET; break; }
    if (*accepted == chain.drafted) break;
    int accept = 0, problem = 0;
    if (lane_id() == 0) accept = accepts_draft(chain, p, *accepted, &problem);
    *status = __shfl_sync(ALL_LANES, problem, 0);
    if (!__shfl_sync(ALL_LANES, accept, 0)) break;
    (*accepted)++;
  }
  return p;
}

template <class T> __device__ void chain_stats(const ChainBatch<T>& batch, ChunkStat* stats) {
  const int b = blockIdx.y / (batch.K + 1), i = blockIdx.y % (batch.K + 1), chunks = chunks_of(batch.V);
  const Chain<T> chain = batch.request(b);
  if (i > chain.drafted) return;  // a padded position
  const Row<T> row = chain.target_row(i);
  for (int c = blockIdx.x * warp_count() + warp_id(); c < chunks; c += gridDim.x * warp_count()) {
    const ChunkStat stat = chunk_stat(row, c);
    if (lane_id() == 0) stats[i64(blockIdx.y) * chunks + c] = stat;
  }
}

template <class T>
__device__ void chain_residual(const ChainBatch<T>& batch, const ChunkStat* stats, u64* masses, Decision* decisions) {
  __shared__ int s_accepted, s_status;
  __shared__ Norm s_norm;
  const int b = blockIdx.y, chunks = chunks_of(batch.V);
  const Chain<T> chain = batch.request(b);
  if (warp_id() == 0) {
    int accepted, status;
    const Row<T> p = decide(chain, stats + i64(b) * (batch.K + 1) * chunks, chunks, &accepted, &status);
    if (lane_id() == 0) { s_accepted = accepted; s_status = status; s_norm = p.norm; }
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) decisions[b] = {s_accepted, s_status, s_norm};
  if (s_status) return;
  Row<T> p = chain.target_row(s_accepted);
  p.norm = s_norm;
  const Residual<T> weights = weights_after(chain, p, s_accepted);
  for (int c = blockIdx.x * warp_count() + warp_id(); c < chunks; c += gridDim.x * warp_count()) {
    const u64 mass = chunk_mass(weights, c);
    if (lane_id() == 0) masses[i64(b) * chunks + c] = mass;
  }
}

template <class T>
__device__ void chain_draw(const ChainBatch<T>& batch, const u64* masses, const Decision* decisions, int* out_ids,
                           int* num_accepted, int* out_status) {
  DYNAMIC_SHARED(u64, own_masses);
  __shared__ int s_token;
  const int b = blockIdx.x, chunks = chunks_of(batch.V);
  const Chain<T> chain = batch.request(b);
  const Decision decision = decisions[b];
  int status = decision.status, token = NO_TOKEN;
  if (!status) {
    Row<T> p = chain.target_row(decision.accepted);
    p.norm = decision.norm;
    Residual<T> weights = weights_after(chain, p, decision.accepted);
    const u64 u24 = u64(uniform_24(chain.u[chain.K]));
    const u64* from = masses + i64(b) * chunks;
    for (;;) {
      if (warp_id() == 0) {
        const int drawn = draw(weights, from, chunks, u24);
        if (lane_id() == 0) s_token = drawn;
      }
      __syncthreads();
      token = s_token;
      if (token != NO_TOKEN || weights.plain) break;
      weights.plain = true;  // the residual is empty but for rounding: draw from p (rare, so this block sweeps it alone)
      block_masses(weights, own_masses, chunks);
      from = own_masses;
    }
    if (token == BAD_TOKEN) status = BAD_DRAFT;
  }
  write_result(chain, decision.accepted, token, status, out_ids + i64(b) * (batch.K + 1), num_accepted + b, out_status + b);
}

#define VERIFY_CHAIN_SPLIT(S, T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(512) chain_stats_##S(CHAIN_PARAMETERS(T), ChunkStat* stats) {         \
    const ChainBatch<T> batch = CHAIN_ARGUMENTS;                                                                     \
    chain_stats<T>(batch, stats);                                                                                    \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(512)                                                                  \
      chain_residual_##S(CHAIN_PARAMETERS(T), const ChunkStat* stats, u64* masses, Decision* decisions) {             \
    const ChainBatch<T> batch = CHAIN_ARGUMENTS;                                                                     \
    chain_residual<T>(batch, stats, masses, decisions);                                                              \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(512)                                                                  \
      chain_draw_##S(CHAIN_PARAMETERS(T), const u64* masses, const Decision* decisions, int* out_ids,                 \
                     int* num_accepted, int* status) {                                                               \
    const ChainBatch<T> batch = CHAIN_ARGUMENTS;                                                                     \
    chain_draw<T>(batch, masses, decisions, out_ids, num_accepted, status);                                          \
  }                                                                                                                  \
  KERNEL_EXPORT(chain_stats_##S) KERNEL_EXPORT(chain_residual_##S) KERNEL_EXPORT(chain_draw_##S)
FOR_EACH_TYPE(VERIFY_CHAIN_SPLIT)
