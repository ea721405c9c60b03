// block.h - runs a grid of CUDA blocks: the scheduler, the barrier, and the meetings of a warp.
//
// Blocks run one after another. Within a block every thread is a fiber. A thread runs until it must wait, then the next
// thread in the chosen order goes on. The order is a *schedule*: ascending, descending, or a seeded shuffle. A right kernel
// gives the same bytes under all of them; a kernel that misses a barrier often doesn't (and ThreadSanitizer proves it).
//
// What is detected here and reported as an error instead of a hang or a wrong number:
//   - a barrier or a warp collective that some named thread never reaches (deadlock, with what each thread waits for);
//   - a lane that calls a collective without being named in its mask, or reads a lane outside the mask;
//   - lanes that meet in two different collectives.
// What is not modelled: weak memory order, communication between blocks, clusters, asynchronous copies, timing.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "fiber.h"

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };

namespace emulator {

constexpr int WARP = 32;
constexpr int MAX_MASKS = 8;  // different masks that one warp may use in one block

struct Thread {
  Fiber fiber;
  unsigned index;           // threadIdx as one number
  uint3 id;
  bool finished;
  const char* waiting_for;  // for the deadlock report; null while running
};

// Where the lanes of one mask meet. Two sets of slots: a fast lane may already be at the next meeting while a slow one
// still reads the results of this one. (It can't be two ahead: the next meeting needs the slow lane.)
struct Meeting {
  unsigned mask, arrived, generation;
  const char* kind;
  uint64_t value[2][WARP];
  char order_memory[2];     // the addresses that stand for "this meeting" in TSan's eyes
};

struct Warp { Meeting meetings[MAX_MASKS]; int count; };

struct Machine {
  Thread threads[MAX_FIBERS];
  Warp warps[MAX_FIBERS / WARP];
  Fiber main;
  Thread* current;
  unsigned thread_count, live;
  unsigned order[MAX_FIBERS], position[MAX_FIBERS];
  unsigned barrier_arrived, barrier_generation;
  char barrier_order_memory[2], start_order_memory, end_order_memory;
  unsigned long waits_without_progress;
  uint64_t schedule;
  bool stacks_ready, failed;
  char error[512];
  dim3 grid, block;
  uint3 block_id;
  void (*kernel)(void*);
  void* kernel_argument;
  char* dynamic_shared;
  unsigned dynamic_shared_bytes;
  unsigned long long bytes_read, bytes_written;  // global memory, as counted by the kernels' load and store helpers
};
static Machine machine;

// All fibers count together, which is no fault of the kernel's: tell TSan so.
inline void count(unsigned long long& counter, unsigned bytes) {
#if defined(__SANITIZE_THREAD__)
  __atomic_fetch_add(&counter, bytes, __ATOMIC_RELAXED);
#else
  counter += bytes;
#endif
}

inline void order_release(void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(address);
#else
  (void)address;
#endif
}
inline void order_acquire(void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(address);
#else
  (void)address;
#endif
}

// Give up on this launch: note why and leave every fiber where it stands.
[[noreturn]] EMULATOR_INTERNAL inline void fail(const char* reason) {
  Machine& m = machine;
  m.failed = true;
  std::snprintf(m.error, sizeof m.error, "%s (block %u,%u,%u, thread %u)", reason, m.block_id.x, m.block_id.y, m.block_id.z,
                m.current->index);
  switch_fiber(m.current->fiber, m.main, true);
  std::abort();  // not reached
}

[[noreturn]] EMULATOR_INTERNAL inline void fail_deadlock() {
  Machine& m = machine;
  int at_barrier = 0, in_collective = 0, finished = 0;
  const char* collective = "";
  for (unsigned i = 0; i < m.thread_count; i++) {
    const Thread& t = m.threads[i];
    if (t.finished) finished++;
    else if (t.waiting_for && !std::strcmp(t.waiting_for, "__syncthreads")) at_barrier++;
    else if (t.waiting_for) { in_collective++; collective = t.waiting_for; }
  }
  char text[256];
  std::snprintf(text, sizeof text, "deadlock: %d threads wait at __syncthreads, %d in a warp collective (%s), %d have finished",
                at_barrier, in_collective, collective, finished);
  fail(text);
}

EMULATOR_INTERNAL inline Thread* next_live_thread() {
  Machine& m = machine;
  unsigned at = m.position[m.current->index];
  for (unsigned i = 1; i <= m.thread_count; i++) {
    if (++at == m.thread_count) at = 0;
    Thread* t = &m.threads[m.order[at]];
    if (!t->finished) return t;
  }
  return nullptr;
}

EMULATOR_INTERNAL inline void run_next_thread(bool last) {
  Machine& m = machine;
  Thread* self = m.current;
  Thread* next = next_live_thread();
  if (next == self) return;
  if (next) m.current = next;
  switch_fiber(self->fiber, next ? next->fiber : m.main, last);
}

// Wait a turn. If every live thread has waited several turns and none has got further, nobody ever will.
EMULATOR_INTERNAL inline void wait_turn(const char* what) {
  Machine& m = machine;
  if (++m.waits_without_progress > 4ul * m.thread_count + 64) { m.current->waiting_for = what; fail_deadlock(); }
  m.current->waiting_for = what;
  run_next_thread(false);
  m.current->waiting_for = nullptr;
}

EMULATOR_INTERNAL inline void release_barrier_if_complete() {
  Machine& m = machine;
  if (m.live && m.barrier_arrived == m.live) { m.barrier_arrived = 0; m.barrier_generation++; }
}

// __syncthreads: every live thread of the block arrives before any leaves; what each wrote before, all see after.
EMULATOR_INTERNAL inline void barrier() {
  Machine& m = machine;
  const unsigned generation = m.barrier_generation;
  m.waits_without_progress = 0;
  order_release(&m.barrier_order_memory[generation & 1]);
  m.barrier_arrived++;
  release_barrier_if_complete();
  while (m.barrier_generation == generation) wait_turn("__syncthreads");
  m.waits_without_progress = 0;
  order_acquire(&m.barrier_order_memory[generation & 1]);
}

// The one primitive below every warp collective: the lanes of `mask` meet, each leaves a value, all see all values.
EMULATOR_INTERNAL inline const uint64_t* meet(unsigned mask, uint64_t value, const char* kind) {
  Machine& m = machine;
  const unsigned lane = m.current->index % WARP;
  Warp& warp = m.warps[m.current->index / WARP];
  if (!(mask >> lane & 1)) fail("a lane calls a warp collective whose mask does not name it");
  Meeting* meeting = nullptr;
  for (int i = 0; i < warp.count; i++) if (warp.meetings[i].mask == mask) meeting = &warp.meetings[i];
  if (!meeting) {
    if (warp.count == MAX_MASKS) fail("a warp uses too many different masks");
    meeting = &warp.meetings[warp.count++];
    meeting->mask = mask; meeting->arrived = 0; meeting->generation = 0; meeting->kind = kind;
  }
  if (meeting->arrived && std::strcmp(meeting->kind, kind)) fail("lanes of one warp meet in two different collectives");
  meeting->kind = kind;
  const unsigned generation = meeting->generation, set = generation & 1;
  meeting->value[set][lane] = value;
  meeting->arrived |= 1u << lane;
  m.waits_without_progress = 0;
  order_release(&meeting->order_memory[set]);
  if (meeting->arrived == mask) { meeting->arrived = 0; meeting->generation++; }
  while (meeting->generation == generation) wait_turn(kind);
  m.waits_without_progress = 0;
  order_acquire(&meeting->order_memory[set]);
  return meeting->value[set];
}

// Every fiber starts here.
EMULATOR_INTERNAL inline void thread_main() {
  Machine& m = machine;
  arrived_in(m.current->fiber, m.current->index == m.order[0] ? &m.main : nullptr);
  order_acquire(&m.start_order_memory);
  m.kernel(m.kernel_argument);
  m.current->finished = true;
  m.live--;
  m.waits_without_progress = 0;
  release_barrier_if_complete();  // a thread that has returned counts as arrived
  order_release(&m.end_order_memory);
  run_next_thread(true);
  std::abort();  // not reached
}

EMULATOR_INTERNAL inline void choose_order() {
  Machine& m = machine;
  const unsigned n = m.thread_count;
  for (unsigned i = 0; i < n; i++) m.order[i] = m.schedule == 1 ? n - 1 - i : i;
  if (m.schedule > 1) {  // Fisher-Yates with a linear congruential generator; other blocks get other orders
    uint64_t state = m.schedule + 977ull * m.block_id.x + 131ull * m.block_id.y + 31ull * m.block_id.z;
    for (unsigned i = n; i > 1; i--) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const unsigned j = (state >> 33) % i, swap = m.order[i - 1];
      m.order[i - 1] = m.order[j]; m.order[j] = swap;
    }
  }
  for (unsigned i = 0; i < n; i++) m.position[m.order[i]] = i;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline void poison_shared() {}  // ASan puts red zones around each __shared__ array only where the compiler places it
#else
// `__shared__` arrays lie in a section of their own (see cuda.h), so that the linker tells us where they are.
extern "C" char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));
inline void poison_shared() {
  if (__start_cuda_shared) std::memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
}
#endif

EMULATOR_INTERNAL inline void run_block() {
  Machine& m = machine;
  m.live = m.thread_count;
  m.barrier_arrived = 0;
  m.waits_without_progress = 0;
  for (Warp& warp : m.warps) warp.count = 0;
  choose_order();
  for (unsigned i = 0; i < m.thread_count; i++) {
    Thread& t = m.threads[i];
    t.index = i;
    t.id = {i % m.block.x, i / m.block.x % m.block.y, i / (m.block.x * m.block.y)};
    t.finished = false;
    t.waiting_for = nullptr;
    prepare_fiber(t.fiber, thread_main, i);
  }
  // Shared memory starts as 0xff bytes (NaN as a float): a kernel that reads before it writes shows.
  poison_shared();
  if (m.dynamic_shared_bytes) std::memset(m.dynamic_shared, 0xff, m.dynamic_shared_bytes);
#if defined(__SANITIZE_THREAD__)
  m.main.tsan_fiber = __tsan_get_current_fiber();
#endif
  order_release(&m.start_order_memory);
  m.current = &m.threads[m.order[0]];
  switch_fiber(m.main, m.current->fiber);
  order_acquire(&m.end_order_memory);
}

template <class... A, size_t... I>
inline void call_with(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::decay_t<A>*>(arguments[I])...);
}

// Run every block of the grid. `arguments` points to the kernel's arguments, exactly as cuLaunchKernel takes them.
// Returns 0, or 1 with the reason in machine.error.
template <class... A>
inline int launch(void (*kernel)(A...), dim3 grid, dim3 block, unsigned dynamic_shared_bytes, void** arguments) {
  Machine& m = machine;
  m.failed = false;
  m.error[0] = 0;
  if (!m.stacks_ready) {
    static Fiber* fibers[MAX_FIBERS];
    for (int i = 0; i < MAX_FIBERS; i++) fibers[i] = &m.threads[i].fiber;
    if (!allocate_stacks(fibers, MAX_FIBERS)) { std::snprintf(m.error, sizeof m.error, "no memory for stacks"); return 1; }
    m.stacks_ready = true;
  }
  m.grid = grid;
  m.block = block;
  m.thread_count = block.x * block.y * block.z;
  if (m.thread_count == 0 || m.thread_count > MAX_FIBERS || m.thread_count % WARP || dynamic_shared_bytes > (48u << 10)) {
    std::snprintf(m.error, sizeof m.error, "bad launch: %u threads (need a multiple of 32, at most %d), %u bytes of shared memory",
                  m.thread_count, MAX_FIBERS, dynamic_shared_bytes);
    return 1;
  }
  struct Call { void (*kernel)(A...); void** arguments; } call{kernel, arguments};
  m.kernel_argument = &call;
  m.kernel = [](void* c) {
    auto* self = static_cast<Call*>(c);
    call_with(self->kernel, self->arguments, std::index_sequence_for<A...>{});
  };
  // Of exactly the size asked for, so that ASan reports a step beyond it.
  m.dynamic_shared_bytes = dynamic_shared_bytes;
  m.dynamic_shared = static_cast<char*>(std::malloc(dynamic_shared_bytes ? dynamic_shared_bytes : 1));
  for (unsigned z = 0; z < grid.z && !m.failed; z++)
    for (unsigned y = 0; y < grid.y && !m.failed; y++)
      for (unsigned x = 0; x < grid.x && !m.failed; x++) {
        m.block_id = {x, y, z};
        run_block();
      }
  std::free(m.dynamic_shared);
  return m.failed ? 1 : 0;
}

}  // namespace emulator

// What Python calls through ctypes.
extern "C" inline __attribute__((used)) const char* emulator_error() { return emulator::machine.error; }
extern "C" inline __attribute__((used)) void emulator_set_schedule(unsigned long long schedule) {
  emulator::machine.schedule = schedule;
}
extern "C" inline __attribute__((used)) void emulator_take_bytes(unsigned long long* read, unsigned long long* written) {
  *read = emulator::machine.bytes_read;
  *written = emulator::machine.bytes_written;
  emulator::machine.bytes_read = emulator::machine.bytes_written = 0;
}
