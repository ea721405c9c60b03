// trees.cuh - walking a token tree by its links. Node 0 is the root, the last committed token; every link leads to a
// higher node, so a walk ends; first_child and next_sibling are -1 where there is none (see tree_build).
#pragma once
#include "portable.cuh"

const int MAX_NODES = 64;

struct Tree {
  const int *ids, *first_child, *next_sibling;  // [N]
  int N;

  __device__ __forceinline__ Tree(const int* ids_, const int* first_child_, const int* next_sibling_, int b, int N_)
      : ids(ids_ + i64(b) * N_), first_child(first_child_ + i64(b) * N_), next_sibling(next_sibling_ + i64(b) * N_), N(N_) {}

  // Adds to *status (shared, set to 0 before) what is wrong with the links or, when V > 0, with the ids they lead to. The
  // whole block; every thread takes some nodes.
  __device__ void check(int V, int* status) const {
    for (int n = threadIdx.x; n < N; n += blockDim.x) {
      const int links[2] = {first_child[n], next_sibling[n]};
      for (int i = 0; i < 2; i++) {
        const int to = links[i];
        if (to == -1) continue;
        if (to <= n || to >= N) atomicOr(status, int(BAD_TREE));
        else if (ids[to] < 0 || (V > 0 && ids[to] >= V)) atomicOr(status, int(BAD_ID));
      }
    }
    __syncthreads();
  }
};

// The result of a walk: path holds the nodes from the root on, out_ids the accepted tokens and then the drawn one; -1 after
// that, and everywhere when there is a status. path, out_ids: [D + 1]; walked: shared, the nodes of the path. The whole block.
__device__ inline void write_walk(const Tree& tree, const int* walked, int accepted, int token, int status, int D, int* path,
                                  int* out_ids, int* num_accepted, int* out_status) {
  for (int j = threadIdx.x; j <= D; j += blockDim.x) {
    store(&path[j], status || j > accepted ? -1 : walked[j]);
    store(&out_ids[j], status || j > accepted ? -1 : j == accepted ? token : tree.ids[walked[j + 1]]);
  }
  if (threadIdx.x == 0) {
    store(num_accepted, status ? 0 : accepted);
    store(out_status, status);
  }
}
