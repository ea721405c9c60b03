// tree_build - from each node's parent to everything a target pass and a verifier need to know of a tree.
//
//   parents i32[B, N]       parents[0] = -1, every other parent precedes its child; N <= 64
//   num_nodes i32[B]        nodes in use, root included, 1 to N; the rest is padding
//   prefix_len i32[B]       tokens before the root
//   mask i64[B, N]          bit j of node n: j is n or an ancestor of n, so n may attend to j; 0 for padding
//   positions i32[B, N]     prefix_len + depth; prefix_len for padding
//   first_child, next_sibling i32[B, N]     -1 where there is none
//   status i32[B]           BAD_TREE, BAD_SETTING (a negative prefix); the outputs are then as for padding
//
// Floor: 28 bytes per node; in practice the time of a launch. Grid: one warp per tree.
#include "trees.cuh"

extern "C" __global__ void __launch_bounds__(128)
    tree_build(const int* parents, const int* num_nodes, const int* prefix_len, i64* mask, int* positions, int* first_child,
               int* next_sibling, int* status, int B, int N) {
  __shared__ int shared_parents[4][MAX_NODES];
  const int b = blockIdx.x * warp_count() + warp_id();
  if (b >= B) return;
  int* const parent = shared_parents[warp_id()];
  const int nodes = num_nodes[b], prefix = prefix_len[b];
  const bool bad_setting = prefix < 0;
  bool bad_tree = nodes < 1 || nodes > N;
  for (int n = lane_id(); n < N; n += 32) {
    parent[n] = load(&parents[i64(b) * N + n]);
    if (n < nodes && (n == 0 ? parent[n] != -1 : parent[n] < 0 || parent[n] >= n)) bad_tree = true;
  }
  bad_tree = __any_sync(ALL_LANES, bad_tree);  // also makes all of `parent` visible to the warp
  __syncwarp();

  for (int n = lane_id(); n < N; n += 32) {
    u64 ancestors = 0;
    int depth = 0, child = -1, sibling = -1;
    if (!bad_tree && !bad_setting && n < nodes) {
      ancestors = 1ull << n;
      for (int a = parent[n]; a >= 0; a = parent[a]) { ancestors |= 1ull << a; depth++; }
      for (int m = nodes - 1; m > n; m--) {
        if (parent[m] == n) child = m;
        if (n > 0 && parent[m] == parent[n]) sibling = m;
      }
    }
    const i64 at = i64(b) * N + n;
    store(&mask[at], i64(ancestors));
    store(&positions[at], prefix + depth);
    store(&first_child[at], child);
    store(&next_sibling[at], sibling);
  }
  if (lane_id() == 0) store(&status[b], (bad_tree ? int(BAD_TREE) : 0) | (bad_setting ? int(BAD_SETTING) : 0));
}
KERNEL_EXPORT(tree_build)
