// verify_tree_sampled - sampled verification of a token tree, top down. At each node the children are tried in order against
// the law that is left; the first accepted one is the next node; if none is, a token is drawn from what is left.
//
//   ids, first_child, next_sibling i32[B, N]     N <= 64
//   target T[B, N, V]          row n: the target's logits after node n
//   draft T[B, N, V] or null   row n: the law that node n's children were drawn from; draft_norm f32[B, N, 2] its norms
//   mode                       0 iid (Miao et al. 2305.09781), 1 without replacement (Chen et al. 2402.12374, by Gumbel top-k),
//                              2 deterministic children (draft null): whoever chose them did not look at u
//   u f32[B, N]                column n - 1 accepts node n, the last column draws
//   inv_temp_t, inv_temp_d f32[B]     threshold_t, threshold_d f32[B, N] or null
//   path, out_ids i32[B, D+1]  num_accepted, status i32[B]: as in verify_tree_greedy, and BAD_DRAFT, BAD_SETTING
//
// The law that is left, after s rejected children x_1..x_s with laws q_1..q_s (q itself; without replacement q without the
// elder siblings, renormalised):
//     r_0 = p,   r_s = norm(max(r_{s-1} - q_s, 0)),   accept x_{s+1} iff u q_{s+1}(x) < r_s(x)
// It is never stored. r_s(v) follows from the masses of p(v) and q(v) and from s numbers, the reciprocals of the sums, which the
// block keeps; so each rejection costs one sweep over the two rows (in cache by then). For deterministic children q_s is one-hot,
// which needs no sweep: r_s is p without the rejected ids, over 1 - their sum.
//
// Floor: the target rows of visited nodes, and the draft rows of nodes where a child was rejected. Grid: one block per request.
// Dynamic shared memory: 16 bytes per chunk.
#include "rows.cuh"
#include "trees.cuh"

enum Mode { IID = 0, WITHOUT_REPLACEMENT = 1, DETERMINISTIC = 2 };

const u64 ONE_MASS = 1ull << 40;

// About 2^64 / total, so that  mass * reciprocal(total) >> 24  is mass / total in units of 2^-40. The product can't overflow:
// mass <= total. 0 for an empty total.
__device__ __forceinline__ u64 reciprocal(u64 total) { return total ? ~0ull / total : 0; }
__device__ __forceinline__ u64 normalised(u64 mass, u64 reciprocal_of_total) { return mass * reciprocal_of_total >> 24; }

template <class T> struct Left {
  static const int UNROLL = 1;
  Row<T> p, q;
  int mode, rejected;      // s
  bool restart;            // nothing was left: draw from p instead
  const int* ids;          // shared: x_1 .. x_s
  const u64* keep;         // shared: keep[i] = reciprocal of the sum of max(r_i - q_{i+1}, 0); 0 if that was empty, and then r stays
  const u64* draft_keep;   // shared: draft_keep[i] = reciprocal of q's mass without x_1 .. x_i

  // q_{i+1}(v) from q(v); `gone`: v is one of x_1 .. x_i.
  __device__ __forceinline__ u64 draft_mass(int i, u64 q_v, bool gone) const {
    if (mode == IID || i == 0) return q_v;
    return gone ? 0 : normalised(q_v, draft_keep[i]);
  }
  // What is left of token v after all rejections. `last` false: not yet renormalised after the last (to draw from, and equal to
  // the chain's residual); true: renormalised (to compare with).
  __device__ __forceinline__ u64 after(int v, u64 p_v, u64 q_v, bool last) const {
    u64 left = p_v;
    bool gone = false;
#pragma unroll 1
    for (int i = 0; i < rejected; i++) {
      const u64 minus = draft_mass(i, q_v, gone);
      const u64 rest = left > minus ? left - minus : 0;
      if (keep[i]) left = i + 1 < rejected || last ? normalised(rest, keep[i]) : rest;
      gone |= ids[i] == v;
    }
    return left;
  }
  __device__ __forceinline__ bool was_rejected(int v) const {
    bool gone = false;
#pragma unroll 1
    for (int i = 0; i < rejected; i++) gone |= ids[i] == v;
    return gone;
  }

  __device__ __forceinline__ bool four(int i, u64 w[LANE_WIDTH]) const {
    float z[LANE_WIDTH];
    bool good = true;
    p.four(i, z);
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) w[j] = p.mass_of(z[j]);
    if (restart || rejected == 0) return true;
    if (mode == DETERMINISTIC) {
#pragma unroll
      for (int j = 0; j < LANE_WIDTH; j++) if (was_rejected(i + j)) w[j] = 0;
      return true;
    }
    q.four(i, z);
#pragma unroll
    for (int j = 0; j < LANE_WIDTH; j++) { good &= q.good(z[j]); w[j] = after(i + j, w[j], q.mass_of(z[j]), false); }
    return good;
  }
};

template <class T> struct TreeBatch {
  const int *ids, *first_child, *next_sibling;
  const T *target, *draft;
  const Norm* draft_norm;
  const float *u, *inv_temp_t, *inv_temp_d, *threshold_t, *threshold_d;
  int mode, N, V, D;
};

template <class T>
__device__ void verify_tree_sampled(const TreeBatch<T>& batch, int* path, int* out_ids, int* num_accepted, int* out_status) {
  DYNAMIC_SHARED(u64, masses);
  __shared__ int walked[MAX_NODES], rejected_ids[MAX_NODES], s_status, s_accept, s_token;
  __shared__ u64 keep[MAX_NODES], draft_keep[MAX_NODES], s_draft_left, s_lost, s_target_left;
  const int b = blockIdx.x, N = batch.N, V = batch.V, D = batch.D, chunks = chunks_of(V), mode = batch.mode;
  ChunkStat* const stats = reinterpret_cast<ChunkStat*>(masses + chunks);
  const Tree tree(batch.ids, batch.first_child, batch.next_sibling, b, N);
  const float* const u = batch.u + i64(b) * N;
  const float scale_t = scale_of(batch.inv_temp_t[b]), scale_d = batch.draft ? scale_of(batch.inv_temp_d[b]) : 1.f;

  if (threadIdx.x == 0) {
    s_status = scale_t > 0.f && scale_d > 0.f && uniform_24(u[N - 1]) >= 0 ? 0 : int(BAD_SETTING);
    walked[0] = 0;
  }
  __syncthreads();
  tree.check(V, &s_status);
  for (int n = threadIdx.x; n < N; n += blockDim.x) {  // the uniforms of all nodes that a link leads to
    const int links[2] = {tree.first_child[n], tree.next_sibling[n]};
    for (int i = 0; i < 2; i++)
      if (links[i] > 0 && links[i] < N && uniform_24(u[links[i] - 1]) < 0) atomicOr(&s_status, int(BAD_SETTING));
  }
  __syncthreads();

  int status = s_status, accepted = 0, node = 0, token = NO_TOKEN;
  Left<T> left;
  left.mode = mode; left.ids = rejected_ids; left.keep = keep; left.draft_keep = draft_keep; left.restart = false;
  while (!status) {
    const i64 row = i64(b) * N + node;
    left.p = Row<T>(batch.target + row * V, scale_t, batch.threshold_t ? batch.threshold_t[row] : -INFINITE, V);
    left.rejected = 0;
    float largest;
    if (!block_norm(left.p, stats, &largest)) { status = BAD_TARGET; break; }
    int child = tree.first_child[node];
    if (child >= 0 && accepted == D) { status = BAD_TREE; break; }
    if (child >= 0 && batch.draft) {
      left.q = Row<T>(batch.draft + row * V, scale_d, batch.threshold_d ? batch.threshold_d[row] : -INFINITE, V);
      left.q.norm.max = load(&batch.draft_norm[row].max);
      left.q.norm.inv = load(&batch.draft_norm[row].inv);
      if (!left.q.norm_is_usable()) { status = BAD_DRAFT; break; }
    }
    if (threadIdx.x == 0) s_target_left = ONE_MASS;

    bool found = false;
    while (child >= 0) {
      // One thread decides for all.
      const int x = tree.ids[child];
      if (threadIdx.x == 0) {
        const u64 u24 = u64(uniform_24(u[child - 1]));
        const u64 p_x = left.p.mass_of(to_float(load(left.p.logits + x)));
        const bool again = left.was_rejected(x);  // a sibling with the same token came before
        if (mode == DETERMINISTIC) {
          s_accept = accepts(u24, again ? 0 : p_x, s_target_left);
          if (!s_accept && !again) s_target_left -= p_x < s_target_left ? p_x : s_target_left;
        } else {
          const float z = to_float(load(left.q.logits + x));
          if (!left.q.good(z)) s_status = BAD_DRAFT;
          const u64 q_x = left.q.good(z) ? left.q.mass_of(z) : 0;
          s_accept = accepts(u24, left.after(x, p_x, q_x, true), left.draft_mass(left.rejected, q_x, again));
          s_lost = again ? 0 : q_x;  // what the draft's law loses should x be rejected
        }
        rejected_ids[left.rejected] = x;
      }
      __syncthreads();
      status = s_status;
      if (status) break;
      if (s_accept) { found = true; break; }
      child = tree.next_sibling[child];
      const int before = left.rejected++;  // both counts are of use: before this rejection, and with it
      if (mode == DETERMINISTIC) {
        __syncthreads();  // everyone has read s_accept before the next child changes it; the sweeps below do that too
        continue;
      }

      // Without replacement, the draft's law loses this sibling. Its mass is summed up once per node, before that is needed.
      bool exhausted = false;
      if (mode == WITHOUT_REPLACEMENT && child >= 0) {
        if (before == 0) {
          Residual<T> draft_law;
          draft_law.p = left.q;
          draft_law.plain = true;
          block_masses(draft_law, masses, chunks);
          const u64 sum = total_mass(masses, chunks);
          if (threadIdx.x == 0) s_draft_left = sum;
        }
        if (threadIdx.x == 0) {
          s_draft_left -= s_lost < s_draft_left ? s_lost : s_draft_left;
          draft_keep[left.rejected] = reciprocal(s_draft_left);
        }
        __syncthreads();
        exhausted = s_draft_left == 0;  // no further sibling can have been drawn
      }

      // Sweep: the sum of what is left, and with it the masses to draw from should no child be accepted.
      if (threadIdx.x == 0) keep[before] = 1;  // not known yet; anything but 0 says that this step counts
      __syncthreads();
      block_masses(left, masses, chunks);
      const u64 total = total_mass(masses, chunks);
      if (total == BAD_MASS) { status = BAD_DRAFT; break; }
      if (threadIdx.x == 0) keep[before] = reciprocal(total);
      __syncthreads();
      if (exhausted) break;
    }
    if (status || !found) break;
    node = child;
    accepted++;
    if (threadIdx.x == 0) walked[accepted] = node;
  }

  // Draw. The last sweep left the masses in place, unless there was none or nothing was left.
  if (!status) {
    bool swept = mode != DETERMINISTIC && left.rejected > 0 && keep[left.rejected - 1] != 0;
    for (;; swept = false) {
      if (!swept) block_masses(left, masses, chunks);
      if (warp_id() == 0) {
        const int drawn = draw(left, masses, chunks, u64(uniform_24(u[N - 1])));
        if (lane_id() == 0) s_token = drawn;
      }
      __syncthreads();
      token = s_token;
      if (token != NO_TOKEN || left.restart) break;
      left.restart = true;
    }
    if (token == BAD_TOKEN) status = BAD_DRAFT;
  }
  write_walk(tree, walked, accepted, token, status, D, path + i64(b) * (D + 1), out_ids + i64(b) * (D + 1), num_accepted + b,
             out_status + b);
}

#define VERIFY_TREE_SAMPLED(S, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(512, 1) verify_tree_sampled_##S(                                                  \
      const int* ids, const int* first_child, const int* next_sibling, const T* target, const T* draft,                       \
      const Norm* draft_norm, int mode, const float* u, const float* inv_temp_t, const float* inv_temp_d,                      \
      const float* threshold_t, const float* threshold_d, int* path, int* out_ids, int* num_accepted, int* status, int N,       \
      int V, int D) {                                                                                                         \
    const TreeBatch<T> batch = {ids, first_child, next_sibling, target,      draft, draft_norm, u, inv_temp_t,                 \
                                inv_temp_d, threshold_t, threshold_d, mode, N, V, D};                                          \
    verify_tree_sampled<T>(batch, path, out_ids, num_accepted, status);                                                       \
  }                                                                                                                           \
  KERNEL_EXPORT(verify_tree_sampled_##S)
FOR_EACH_TYPE(VERIFY_TREE_SAMPLED)
