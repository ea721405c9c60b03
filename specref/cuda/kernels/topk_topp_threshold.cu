// topk_topp_threshold - top-k, then top-p on what is left, as one number per row: keep the logits >= threshold.
//
//   logits T[R, V]     inv_temp f32[R]     k i32[R] (0 or >= V: off)     p f32[R] in (0, 1] (1: off; read in steps of 2^-24)
//   threshold f32[R]   the smallest kept logit; -infinite when nothing is filtered
//   kept i32[R]        how many logits are kept (never -infinite ones)
//   mass i64[R]        their mass (unit below)
//   status i32[R]      BAD_TARGET, BAD_SETTING
//
// Meaning. Top-k: the largest t with at least k logits >= t. Top-p: the largest t with mass(>= t) >= p * mass(after top-k).
// Logits equal to the threshold are all kept: no order among ties is invented, and no sort is needed.
//
// Mass. Scaled logits fall into bins, 16 to the octave: y = n + f, n = floor(y), bin = (n, floor(16 f)). A token weighs
// m = floor(2^24 * 2^(f-1)), an integer. A bin's mass is (sum of m) * 2^16 >> (N - n), N = floor(largest y), and 0 when
// N - n >= 40. All sums are of integers, so the order of summation can't matter, and the maximum need not be known first.
//
// Floor: every logit twice, 2 * R * V * sizeof(T) bytes: sweep 1 fills the bins (counts and sums of m), which names the few
// bins where the thresholds lie; sweep 2 gathers those bins' logits into shared memory, where a radix search ends the matter.
// A row with more than 4096 logits in the deciding bins (mass ties) searches in memory instead, 5 more reads per threshold.
//
// Grid: one block per row. Static shared memory: 31 KB.
#include "rows.cuh"

const int OCTAVES = 64, OCTAVES_BELOW = 40, PER_OCTAVE = 16;
const int BINS = (OCTAVES * PER_OCTAVE / 32 + 1) * 32;  // bin 0: everything below; 1..1024; the rest stays empty
const int CANDIDATES = 4096, RADIX = 256;

struct Place { int bin; u32 m; };  // bin BINS: above the table

// Where a scaled, finite logit falls when the table covers octaves base - 40 .. base + 23.
__device__ __forceinline__ Place place_of(float y, float base) {
  const float n = floorf(y), octave = __fadd_rn(__fadd_rn(n, -base), float(OCTAVES_BELOW));
  float f = __fadd_rn(y, -n);
  f = f < 1.f ? f : 0.99999994f;  // y just below 0: y + 1 rounds to 1, which would be the next octave's
  Place place;
  place.m = __float2uint_rz(__fmul_rn(exp2_nonpositive(__fadd_rn(f, -1.f)), 16777216.f));
  if (!(octave >= 0.f)) place.bin = 0;
  else if (octave >= float(OCTAVES)) place.bin = BINS;
  else place.bin = 1 + int(octave) * PER_OCTAVE + int(__fmul_rn(f, float(PER_OCTAVE)));
  return place;
}

// Floats as unsigned integers of the same order.
__device__ __forceinline__ u32 key_of(float z) {
  const u32 bits = __float_as_uint(z);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float float_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// A whole warp: the highest bin b with value(b) + value(b + 1) + ... >= need, and what lies above b.
template <class Value> __device__ __forceinline__ int bin_from_top(const Value& value, int bins, u64 need, u64* above) {
  u64 before = 0;
  for (int base = bins - 32; base >= 0; base -= 32) {
    const int bin = base + 31 - lane_id();
    const u64 mine = value(bin), upto = before + warp_prefix_sum(mine);
    const u32 reached = __ballot_sync(ALL_LANES, upto >= need);
    if (reached) {
      const int lane = __ffs(int(reached)) - 1;
      *above = __shfl_sync(ALL_LANES, upto - mine, lane);
      return base + 31 - lane;
    }
    before = __shfl_sync(ALL_LANES, upto, 31);
  }
  *above = before;
  return 0;
}

// A whole warp: value(low) + value(low + 1) + ...
template <class Value> __device__ __forceinline__ u64 sum_from(const Value& value, int low) {
  u64 total = 0;
  for (int bin = lane_id(); bin < BINS; bin += 32) if (bin >= low) total += value(bin);
  return warp_sum(total);
}

template <class T> struct Filter {
  Row<T> row;
  float base;          // the table's octave, as above
  int lead;            // N - base
  u32* count;          // shared, [BINS]
  u64* sum;            // shared, [BINS], of m
  u64* histogram;      // shared, [RADIX]
  float* candidates;   // shared, [CANDIDATES]
  int* found;          // shared: how many logits the deciding bins hold; more than CANDIDATES: they were not gathered
  u64* scratch;        // shared, [2]

  __device__ __forceinline__ u64 shifted(int bin, u64 m) const {  // a bin's mass from its sum of m
    const int below = lead + OCTAVES_BELOW - (bin - 1) / PER_OCTAVE;
    return m == 0 || bin == 0 || below >= 40 ? 0 : (m << 16) >> below;
  }
  __device__ __forceinline__ u64 unshifted(int bin, u64 mass) const {  // the smallest sum of m with at least that mass
    const int below = lead + OCTAVES_BELOW - (bin - 1) / PER_OCTAVE;
    return ((mass << below) + 65535) >> 16;
  }

  template <class Each> __device__ __forceinline__ void each_logit(const Each& each) const {
    for (int i = threadIdx.x * LANE_WIDTH; i < row.V; i += blockDim.x * LANE_WIDTH) {
      float z[LANE_WIDTH];
      row.four(i, z);
      for (int j = 0; j < LANE_WIDTH; j++) if (z[j] > -INFINITE) each(__fadd_rn(z[j], 0.f));  // + 0: -0 and 0 are one value
    }
  }
  // The logits of one bin, from shared memory if they were gathered.
  template <class Each> __device__ __forceinline__ void each_in_bin(int bin, const Each& each) const {
    const float b = base, scale = row.scale;
    auto in_bin = [&](float z) {
      const Place place = place_of(__fmul_rn(z, scale), b);
      if (place.bin == bin) each(z, place.m);
    };
    if (*found > CANDIDATES) { each_logit(in_bin); return; }
    for (int i = threadIdx.x; i < *found; i += blockDim.x) in_bin(candidates[i]);
  }

  // A whole block: the largest key t in `bin` for which the logits >= t of that bin weigh at least `need` together; each
  // weighs 1 or its m. Eight bits of the key per round, from the top. Then count[bin] and sum[bin] become what is >= t.
  __device__ __forceinline__ u32 search(int bin, bool by_count, u64 need, u32 at_least) {
    u32 prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = threadIdx.x; i < RADIX; i += blockDim.x) histogram[i] = 0;
      __syncthreads();
      each_in_bin(bin, [&](float z, u32 m) {
        const u32 key = key_of(z);
        if (key >= at_least && (shift == 24 || key >> (shift + 8) == prefix))
          atomicAdd(&histogram[key >> shift & 255u], by_count ? 1ull : u64(m));
      });
      __syncthreads();
      u64 above;  // every warp takes the same step
      const u64* const h = histogram;
      const int digit = bin_from_top([h](int i) { return h[i]; }, RADIX, need, &above);
      need -= above;
      prefix = prefix << 8 | u32(digit);
      __syncthreads();
    }
    if (threadIdx.x < 2) scratch[threadIdx.x] = 0;
    __syncthreads();
    each_in_bin(bin, [&](float z, u32 m) {
      if (key_of(z) >= prefix) { atomicAdd(&scratch[0], 1ull); atomicAdd(&scratch[1], u64(m)); }
    });
    __syncthreads();
    if (threadIdx.x == 0) { count[bin] = u32(scratch[0]); sum[bin] = scratch[1]; }
    __syncthreads();
    return prefix;
  }
};

// ceil(mass * p24 / 2^24), at least 1.
__device__ __forceinline__ u64 share_of(u64 mass, u64 p24) {
  const u64 whole = __umul64hi(mass, p24 << 40), rest = mass * (p24 << 40);
  const u64 share = whole + (rest != 0);
  return share ? share : 1;
}

// The largest value over a block, in every thread. of_warp: shared, one per warp; who calls twice has a barrier in between.
__device__ __forceinline__ float block_max(float v, float* of_warp) {
  v = warp_max(v);
  if (lane_id() == 0) of_warp[warp_id()] = v;
  __syncthreads();
  for (int w = 0; w < warp_count(); w++) v = of_warp[w] > v ? of_warp[w] : v;
  return v;
}

template <class T>
__device__ void topk_topp_threshold(const T* logits, const float* inv_temp, const int* k_of, const float* p_of,
                                    float* threshold, int* kept, i64* mass, int* status, int V) {
  __shared__ u32 count[BINS];
  __shared__ u64 sum[BINS], histogram[RADIX], scratch[2];
  __shared__ float candidates[CANDIDATES], of_warp[32];
  __shared__ int found, bad;
  const int r = blockIdx.x, k = k_of[r];
  const float p = p_of[r];
  Filter<T> filter;
  filter.row = Row<T>(logits + i64(r) * V, scale_of(inv_temp[r]), -INFINITE, V);
  filter.count = count; filter.sum = sum; filter.histogram = histogram; filter.candidates = candidates;
  filter.found = &found; filter.scratch = scratch;
  const Row<T>& row = filter.row;
  if (threadIdx.x == 0) { bad = 0; found = 0; }

  // Sweep 1. The table must cover the octave of the largest logit: guess it from the first logits each thread reads (they stay
  // in registers), and should the guess be out of reach, sweep once more with the right one.
  float first[LANE_WIDTH], z[LANE_WIDTH], largest = -INFINITE, top;
  const int start = threadIdx.x * LANE_WIDTH, stride = blockDim.x * LANE_WIDTH;
  for (int j = 0; j < LANE_WIDTH; j++) first[j] = -INFINITE;
  if (start < V) row.four(start, first);
  for (int j = 0; j < LANE_WIDTH; j++) if (row.good(first[j]) && first[j] > largest) largest = first[j];
  top = floorf(__fmul_rn(block_max(largest, of_warp), row.scale));
  filter.base = top > -INFINITE ? top : 0.f;
  for (bool again = false; ; again = true) {
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) { count[i] = 0; sum[i] = 0; }
    __syncthreads();
    for (int i = start; i < V; i += stride) {
      if (i == start && !again) for (int j = 0; j < LANE_WIDTH; j++) z[j] = first[j];
      else row.four(i, z);
      for (int j = 0; j < LANE_WIDTH; j++) {
        if (!row.good(z[j])) atomicOr(&bad, 1);
        if (!row.good(z[j]) || !(z[j] > -INFINITE)) continue;
        largest = z[j] > largest ? z[j] : largest;
        const Place place = place_of(__fmul_rn(__fadd_rn(z[j], 0.f), row.scale), filter.base);
        if (place.bin < BINS) { atomicAdd(&count[place.bin], 1u); atomicAdd(&sum[place.bin], u64(place.m)); }
      }
    }
    top = floorf(__fmul_rn(__fadd_rn(block_max(largest, of_warp), 0.f), row.scale));  // N
    const float ahead = __fadd_rn(top, -filter.base);
    filter.lead = int(ahead >= -1.f && ahead < 64.f ? ahead : 0.f);
    if (bad || !(top > -INFINITE) || (ahead >= -1.f && ahead < float(OCTAVES - OCTAVES_BELOW))) break;
    filter.base = top;
  }

  int problem = 0;
  if (!(row.scale > 0.f) || k < 0 || !(p > 0.f && p <= 1.f)) problem = BAD_SETTING;
  else if (bad || !(top > -INFINITE)) problem = BAD_TARGET;
  if (problem) {
    if (threadIdx.x == 0) {
      store(&threshold[r], -INFINITE); store(&kept[r], 0); store(&mass[r], i64(0)); store(&status[r], problem);
    }
    return;
  }

  // Which bins decide? Every warp reads the same table and comes to the same answer, so nothing needs telling.
  const auto count_of = [&](int bin) { return u64(count[bin]); };
  const auto mass_of = [&](int bin) { return filter.shifted(bin, sum[bin]); };
  const u64 p24 = u64(__fmul_rn(p, 16777216.f));
  const bool use_k = k > 0 && u64(k) < sum_from(count_of, 0), use_p = p < 1.f;
  int k_bin = 0, low = BINS, high = BINS, last = 0;
  u64 above_k = 0, above_p;
  if (use_k) k_bin = bin_from_top(count_of, BINS, u64(k), &above_k);
  if (use_p) {  // top-k may cut its bin anywhere, so the mass that top-p is a share of is known only up to that bin
    high = bin_from_top(mass_of, BINS, share_of(sum_from(mass_of, use_k ? k_bin + 1 : 0), p24), &above_p);
    low = bin_from_top(mass_of, BINS, share_of(sum_from(mass_of, k_bin), p24), &above_p);
    low = low > k_bin ? low : k_bin;
  }

  // Sweep 2: gather the logits of the deciding bins.
  if (use_k || use_p) {
    filter.each_logit([&](float logit) {
      const int bin = place_of(__fmul_rn(logit, row.scale), filter.base).bin;
      if ((bin < low || bin > high) && !(use_k && bin == k_bin)) return;
      const int slot = atomicAdd(&found, 1);
      if (slot < CANDIDATES) candidates[slot] = logit;
    });
  }
  u32 key = 0;
  if (use_k) { key = filter.search(k_bin, true, u64(k) - above_k, 0); last = k_bin; }
  if (use_p) {
    const u64 need = share_of(sum_from(mass_of, k_bin), p24);
    last = bin_from_top(mass_of, BINS, need, &above_p);
    key = filter.search(last, false, filter.unshifted(last, need - above_p), key);
  }
  const u64 kept_count = sum_from(count_of, last), kept_mass = sum_from(mass_of, last);
  if (threadIdx.x == 0) {
    store(&threshold[r], use_k || use_p ? float_of(key) : -INFINITE);
    store(&kept[r], int(kept_count));
    store(&mass[r], i64(kept_mass));
    store(&status[r], 0);
  }
}

#define TOPK_TOPP_THRESHOLD(S, T)                                                                                          \
  extern "C" __global__ void __launch_bounds__(512, 1)                                                                        \
      topk_topp_threshold_##S(const T* logits, const float* inv_temp, const int* k, const float* p, float* threshold,       \
                              int* kept, i64* mass, int* status, int V) {                                                   \
    topk_topp_threshold<T>(logits, inv_temp, k, p, threshold, kept, mass, status, V);                                       \
  }                                                                                                                        \
  KERNEL_EXPORT(topk_topp_threshold_##S)
FOR_EACH_TYPE(TOPK_TOPP_THRESHOLD)
