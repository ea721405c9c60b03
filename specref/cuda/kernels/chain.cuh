// chain.cuh - what the two forms of verify_chain share: the request, its checks, and one decision.
#pragma once
#include "rows.cuh"

// One request of the batch. Null pointers: draft (one-hot drafts), draft_norm with it, num_draft (all K), thresholds (none).
template <class T> struct Chain {
  const T *target, *draft;       // [K + 1, V], [K, V]
  const Norm* draft_norm;        // [K]
  const int* draft_ids;          // [K]
  const float *u, *threshold_t, *threshold_d;  // [K + 1], [K + 1], [K]
  float scale_t, scale_d;
  int K, V, drafted;             // drafted: how many of the K drafts this request has

  __device__ __forceinline__ Row<T> target_row(int i) const {
    return Row<T>(target + i64(i) * V, scale_t, threshold_t ? threshold_t[i] : -INFINITE, V);
  }
  __device__ __forceinline__ Row<T> draft_row(int i) const {
    Row<T> row(draft + i64(i) * V, scale_d, threshold_d ? threshold_d[i] : -INFINITE, V);
    row.norm.max = load(&draft_norm[i].max);
    row.norm.inv = load(&draft_norm[i].inv);
    return row;
  }
  // The status of everything that can be known before a row is read. One thread.
  __device__ int check() const {
    int status = 0;
    if (!(scale_t > 0.f) || (draft && !(scale_d > 0.f)) || drafted < 0 || drafted > K) return BAD_SETTING;
    for (int i = 0; i < drafted; i++) {
      if (draft_ids[i] < 0 || draft_ids[i] >= V) status |= BAD_ID;
      if (uniform_24(u[i]) < 0) status |= BAD_SETTING;
    }
    if (uniform_24(u[K]) < 0) status |= BAD_SETTING;
    return status;
  }
};

// The arguments of one launch, as they lie in memory for the whole batch.
template <class T> struct ChainBatch {
  const T *target, *draft;
  const Norm* draft_norm;
  const int *draft_ids, *num_draft;
  const float *u, *inv_temp_t, *inv_temp_d, *threshold_t, *threshold_d;
  int K, V;

  __device__ __forceinline__ Chain<T> request(int b) const {
    Chain<T> c;
    c.target = target + i64(b) * (K + 1) * V;
    c.draft = draft ? draft + i64(b) * K * V : nullptr;
    c.draft_norm = draft_norm ? draft_norm + i64(b) * K : nullptr;
    c.draft_ids = draft_ids + i64(b) * K;
    c.u = u + i64(b) * (K + 1);
    c.threshold_t = threshold_t ? threshold_t + i64(b) * (K + 1) : nullptr;
    c.threshold_d = threshold_d ? threshold_d + i64(b) * K : nullptr;
    c.scale_t = scale_of(inv_temp_t[b]);
    c.scale_d = draft ? scale_of(inv_temp_d[b]) : 0.f;
    c.K = K;
    c.V = V;
    c.drafted = num_draft ? num_draft[b] : K;
    return c;
  }
};

// Is draft i accepted? One thread. Sets a status bit when the draft's row can't be trusted.
template <class T>
__device__ bool accepts_draft(const Chain<T>& chain, const Row<T>& p, int i, int* status) {
  const int x = chain.draft_ids[i];
  u64 q = 1ull << 40;  // a draft without a law of its own: one-hot, q(x) = 1
  if (chain.draft) {
    const Row<T> row = chain.draft_row(i);
    const float z = to_float(load(row.logits + x));
    if (!row.norm_is_usable() || !row.good(z)) { *status |= BAD_DRAFT; return false; }
    q = row.mass_of(z);
  }
  return accepts(u64(uniform_24(chain.u[i])), p.mass_of(to_float(load(p.logits + x))), q);
}

// What is drawn after `accepted` drafts: p itself after the last draft, else the residual of the rejected one.
template <class T>
__device__ __forceinline__ Residual<T> weights_after(const Chain<T>& chain, const Row<T>& p, int accepted) {
  Residual<T> weights;
  weights.p = p;
  weights.plain = accepted == chain.drafted;
  weights.one_hot = !chain.draft;
  weights.drafted = weights.plain ? NO_TOKEN : chain.draft_ids[accepted];
  if (!weights.plain && chain.draft) weights.q = chain.draft_row(accepted);
  return weights;
}

// Write the request's result; any status leaves out_ids -1 and nothing accepted. The whole block.
template <class T>
__device__ void write_result(const Chain<T>& chain, int accepted, int token, int status, int* out_ids, int* num_accepted,
                             int* out_status) {
  for (int j = threadIdx.x; j <= chain.K; j += blockDim.x) {
    const int id = status || j > accepted ? NO_TOKEN : j == accepted ? token : chain.draft_ids[j];
    store(&out_ids[j], id);
  }
  if (threadIdx.x == 0) {
    store(num_accepted, status ? 0 : accepted);
    store(out_status, status);
  }
}

#define CHAIN_PARAMETERS(T)                                                                                           \
  const T *target, const T *draft, const Norm *draft_norm, const int *draft_ids, const int *num_draft, const float *u, \
      const float *inv_temp_t, const float *inv_temp_d, const float *threshold_t, const float *threshold_d, int K, int V
#define CHAIN_ARGUMENTS \
  {target, draft, draft_norm, draft_ids, num_draft, u, inv_temp_t, inv_temp_d, threshold_t, threshold_d, K, V}
