// verify_tree_greedy - temperature 0: from the root, follow the child that equals the target's argmax, as long as there is one;
// then emit the argmax itself.
//
//   ids, first_child, next_sibling i32[B, N]
//   target_argmax i32[B, N]            the target's argmax after each node (-1: its row is bad), or null, and then
//   target T[B, N, V]                  its logits, of which only the rows of visited nodes are read
//   path i32[B, D+1]                   nodes from the root on, then -1
//   out_ids i32[B, D+1]                accepted tokens, the emitted token, then -1
//   num_accepted i32[B]                status i32[B]: BAD_TARGET, BAD_ID, BAD_TREE (also: deeper than D)
//
// Ties go to the lowest index. Floor from logits: (accepted + 1) * V * sizeof(T) bytes per request instead of N * V * sizeof(T);
// from target_argmax: a launch. Grid: one block per request (one warp is enough for target_argmax).
#include "rows.cuh"
#include "trees.cuh"

// The lowest index of the row's largest logit; -1 when the row is bad. The whole block; value, index: shared, one per warp.
template <class T> __device__ int block_argmax(const Row<T>& row, float* value, int* index) {
  float best = -INFINITE;
  int at = row.V;
  bool bad = false;
  for (int i = threadIdx.x * LANE_WIDTH; i < row.V; i += blockDim.x * LANE_WIDTH) {
    float z[LANE_WIDTH];
    row.four(i, z);
    for (int j = 0; j < LANE_WIDTH; j++) {
      bad |= !row.good(z[j]);
      if (z[j] > best) { best = z[j]; at = i + j; }  // strictly: the first of equals stays
    }
  }
  const float top = warp_max(best);
  at = warp_min(best == top ? at : row.V);
  bad = __any_sync(ALL_LANES, bad);
  __syncthreads();  // the last reader has finished
  if (lane_id() == 0) { value[warp_id()] = bad ? INFINITE : top; index[warp_id()] = at; }
  __syncthreads();
  best = -INFINITE;
  at = row.V;
  for (int w = 0; w < warp_count(); w++)
    if (value[w] > best || (value[w] == best && index[w] < at)) { best = value[w]; at = index[w]; }
  return best > -INFINITE && best < INFINITE ? at : -1;
}

template <class T>
__device__ void verify_tree_greedy(const int* ids, const int* first_child, const int* next_sibling, const int* target_argmax,
                                   const T* target, int* path, int* out_ids, int* num_accepted, int* out_status, int N, int V,
                                   int D) {
  __shared__ int walked[MAX_NODES], s_status, index[32];
  __shared__ float value[32];
  const int b = blockIdx.x;
  const Tree tree(ids, first_child, next_sibling, b, N);
  if (threadIdx.x == 0) { s_status = 0; walked[0] = 0; }
  __syncthreads();
  tree.check(target_argmax ? 0 : V, &s_status);
  int status = s_status, accepted = 0, token = -1;
  for (int node = 0; !status;) {
    token = target_argmax ? target_argmax[i64(b) * N + node]
                          : block_argmax(Row<T>(target + (i64(b) * N + node) * V, 1.f, -INFINITE, V), value, index);
    if (token < 0) { status = BAD_TARGET; break; }
    int child = tree.first_child[node];
    while (child >= 0 && tree.ids[child] != token) child = tree.next_sibling[child];
    if (child < 0) break;
    if (accepted == D) { status = BAD_TREE; break; }
    node = child;
    accepted++;
    if (threadIdx.x == 0) walked[accepted] = node;
  }
  __syncthreads();
  write_walk(tree, walked, accepted, token, status, D, path + i64(b) * (D + 1), out_ids + i64(b) * (D + 1), num_accepted + b,
             out_status + b);
}

#define VERIFY_TREE_GREEDY(S, T)                                                                                          \
  extern "C" __global__ void __launch_bounds__(512)                                                                       \
      verify_tree_greedy_##S(const int* ids, const int* first_child, const int* next_sibling, const int* target_argmax,    \
                             const T* target, int* path, int* out_ids, int* num_accepted, int* status, int N, int V,       \
                             int D) {                                                                                     \
    verify_tree_greedy<T>(ids, first_child, next_sibling, target_argmax, target, path, out_ids, num_accepted, status, N, V, \
                          D);                                                                                             \
  }                                                                                                                       \
  KERNEL_EXPORT(verify_tree_greedy_##S)
FOR_EACH_TYPE(VERIFY_TREE_GREEDY)
