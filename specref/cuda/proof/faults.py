"""Faults planted in the kernels' sources. Each must be caught: by value (a difference from the torch reference, or an error of
the emulator), or by a sanitizer. Most are what was found in published kernels, or what a hurried hand would write.
"""

from __future__ import annotations

from specref.cuda.proof.variants import Variant, replaced

ROWS, CHAIN, SAMPLED = "rows.cuh", "chain.cuh", "verify_tree_sampled.cu"


def planted_faults() -> list[Variant]:
    """All of them; the name says what is wrong."""
    return [
        # randomness
        replaced(
            "one coin for all positions", CHAIN, "uniform_24(chain.u[i])), p.mass_of", "uniform_24(chain.u[0])), p.mass_of"
        ),
        replaced("the draw reuses the first coin", "verify_chain.cu", "uniform_24(chain.u[chain.K])", "uniform_24(chain.u[0])"),
        replaced("u = 0 accepts anything", ROWS, "(u24 * q >> 24) < p", "(u24 * q >> 24) <= p", "verify_chain"),
        replaced("a tree node reads its sibling's coin", SAMPLED, "uniform_24(u[child - 1])", "uniform_24(u[child])"),
        # the rule
        replaced("p and q swapped in the ratio", ROWS, "(u24 * q >> 24) < p", "(u24 * p >> 24) < q", "verify_chain"),
        replaced("residual not clamped", ROWS, "w[j] = w[j] > mass ? w[j] - mass : 0;", "w[j] = w[j] - mass;", "verify_chain"),
        replaced(
            "residual of the wrong sign", ROWS, "w[j] > mass ? w[j] - mass : 0", "w[j] < mass ? mass - w[j] : 0", "verify_chain"
        ),
        replaced(
            "drawn from p, not from the residual", CHAIN, "weights.plain = accepted == chain.drafted", "weights.plain = true"
        ),
        replaced(
            "the rejected one-hot token may return",
            ROWS,
            "if (i + j == drafted) w[j] = 0",
            "if (i + j == drafted) w[j] = w[j]",
            "verify_chain",
        ),
        replaced(
            "the last draft is never tried",
            CHAIN,
            "c.drafted = num_draft ? num_draft[b] : K",
            "c.drafted = num_draft ? num_draft[b] : K - 1",
        ),
        replaced("siblings tested against the same p", SAMPLED, "left.after(x, p_x, q_x, true)", "p_x"),
        replaced(
            "draft not renormalised without replacement",
            SAMPLED,
            "return gone ? 0 : normalised(q_v, draft_keep[i]);",
            "return gone ? 0 : q_v;",
        ),
        replaced("an accepted draft beyond p = 1 overflows", ROWS, "(u24 * q >> 24) < p", "u24 * q < p << 24", "verify_chain"),
        # rows and positions
        replaced(
            "draft row of the next position",
            CHAIN,
            "draft + i64(i) * V, scale_d",
            "draft + i64(i + 1 < K ? i + 1 : i) * V, scale_d",
        ),
        replaced("row of another request", CHAIN, "c.u = u + i64(b) * (K + 1)", "c.u = u"),
        replaced("target's temperature for the draft", CHAIN, "scale_of(inv_temp_d[b])", "scale_of(inv_temp_t[b])"),
        replaced(
            "accepted child's row not taken", SAMPLED, "const i64 row = i64(b) * N + node;", "const i64 row = i64(b) * N;"
        ),
        # chunks and tails
        replaced("off-by-one chunk", ROWS, "return base + lane;", "return base + lane + 1;", "sample_rows"),
        replaced("last chunk forgotten", ROWS, "(V + CHUNK - 1) / CHUNK", "(V > CHUNK ? V / CHUNK : 1)"),
        replaced(
            "tail read beyond the row",
            ROWS,
            "z[j] = i + j < V ? to_float(load(logits + i + j)) : -INFINITE;",
            "z[j] = to_float(load(logits + i + j));",
        ),
        replaced("cumulative weight >= t, not > t", ROWS, "upto > t);", "upto >= t);", "sample_rows"),
        replaced(
            "misaligned row read as vectors",
            ROWS,
            "aligned(reinterpret_cast<u64>(logits_) % (LANE_WIDTH * sizeof(T)) == 0)",
            "aligned(true)",
        ),
        # numbers
        replaced(
            "NaN rows pass as good",
            ROWS,
            "return __fmul_rn(z, scale) < INFINITE;",
            "return !(__fmul_rn(z, scale) >= INFINITE);",
        ),
        replaced(
            "subnormal fp16 logits lose their sign", "portable.cuh", "return sign ? -tiny : tiny;", "return tiny;", "row_norm"
        ),
        replaced(
            "chunk sums not rescaled to the row's maximum",
            ROWS,
            "__fmul_rn(stats[c].sum, exp2_nonpositive(below))",
            "stats[c].sum",
        ),
        replaced("filter keeps what is above the threshold only", ROWS, "return z >= threshold;", "return z > threshold;"),
        replaced("argmax takes the last of equals", "verify_tree_greedy.cu", "if (z[j] > best)", "if (z[j] >= best)"),
        replaced("no check of ids", CHAIN, "if (draft_ids[i] < 0 || draft_ids[i] >= V) status |= BAD_ID;", ""),
        # filters
        replaced(
            "top-k keeps one less",
            "topk_topp_threshold.cu",
            "u64(k) - above_k, 0)",
            "u64(k) - above_k - (u64(k) - above_k > 1), 0)",
        ),
        replaced(
            "top-p of the whole row, not of top-k",
            "topk_topp_threshold.cu",
            "share_of(sum_from(mass_of, k_bin), p24);\n    last",
            "share_of(sum_from(mass_of, 0), p24);\n    last",
        ),
        replaced("top-p stops one short", "topk_topp_threshold.cu", "upto >= need);", "upto > need);"),
        replaced("logits just below 0 counted as above", "topk_topp_threshold.cu", "f = f < 1.f ? f : 0.99999994f;", ""),
        # trees and caches
        replaced("a node does not see itself", "tree_build.cu", "ancestors = 1ull << n;", "ancestors = 0;"),
        replaced(
            "mask of the grandparent",
            "tree_build.cu",
            "int a = parent[n]; a >= 0;",
            "int a = n ? parent[parent[n] < 0 ? 0 : parent[n]] : -1; a >= 0;",
        ),
        replaced("position off by one", "tree_build.cu", "prefix + depth", "prefix + depth + 1"),
        replaced("attention sees all tree nodes", "tree_attn.cu", "(sees[i] >> of_tree & 1)", "true"),
        replaced("softmax maximum not carried over", "tree_attn.cu", "out[n][2 * i] = __fmul_rn(out[n][2 * i], shrink);", ""),
        replaced("page offset forgotten", "tree_attn.cu", "* a.page_size + key % a.page_size", "* a.page_size"),
        replaced("cache moved from the wrong slot", "kv_compact.cu", "place(length + nodes[i])", "place(length + i)"),
        replaced("values not moved", "kv_compact.cu", "store(&v[to], load(&v[from]));", ""),
        # synchronisation
        replaced(
            "lane asks outside its mask",
            ROWS,
            "sum = warp_sum(sum);\n  return __any_sync",
            "sum = lane_id() < 31 ? warp_sum(sum) : sum;\n  return __any_sync",
            "sample_rows",
        ),
        replaced(
            "barrier in a branch",
            "verify_chain.cu",
            "if (threadIdx.x == 0) s_status = chain.check();\n  __syncthreads();",
            "if (threadIdx.x == 0) { s_status = chain.check(); __syncthreads(); }",
        ),
    ]
