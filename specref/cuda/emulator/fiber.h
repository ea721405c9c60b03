// fiber.h - functions that run on stacks of their own and hand the processor to each other.
//
// A CUDA block has up to 1024 threads that meet at barriers. Here each of them is a fiber: an ordinary function call
// on its own stack. Only one fiber runs at a time; it stops only where it asks to (at a barrier or a warp collective).
// So a kernel runs the same way every time, no lock is needed, and a meeting costs some nanoseconds instead of
// the microseconds that operating-system threads take.
//
// switch_fiber(from, to) is all there is: it puts the registers a function call must preserve on the current stack,
// remembers the stack pointer in `from`, and continues where `to` last stopped. x86-64 and aarch64 do that in a few
// instructions; any other processor goes through ucontext (right everywhere, but slower, as it makes a system call).
// -DEMULATOR_UCONTEXT chooses ucontext by hand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#if !defined(EMULATOR_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define EMULATOR_UCONTEXT
#endif
#ifdef EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

// The sanitizers follow the program's stacks, and must be told when we change to another.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// The emulator's own bookkeeping is shared by all fibers on purpose: the sanitizers watch the kernel, not this.
#define EMULATOR_INTERNAL __attribute__((no_sanitize("thread"), no_sanitize("address"), noinline))

namespace emulator {

constexpr size_t STACK_BYTES = 64 << 10;
constexpr size_t GUARD_BYTES = 4096;  // an unmapped page below each stack: an overflow faults instead of corrupting
constexpr int MAX_FIBERS = 1024;

struct Fiber {
  void* stack_pointer = nullptr;  // where the fiber's saved registers lie while it is not running
  const void* stack = nullptr;    // lowest address; for the main fiber filled in by ASan
  size_t stack_bytes = 0;
  void* asan_saved = nullptr;
  void* tsan_fiber = nullptr;
#ifdef EMULATOR_UCONTEXT
  ucontext_t context;
#endif
};

#ifndef EMULATOR_UCONTEXT
extern "C" void emulator_swap_stack(void** save_stack_pointer, void* load_stack_pointer);
#if defined(__x86_64__)
// The System V ABI: a call preserves rbp, rbx, r12-r15 (and rsp, which is the stack itself).
constexpr int SAVED_WORDS = 6;
asm(R"(
    .text
    .globl emulator_swap_stack
    .hidden emulator_swap_stack
    .type emulator_swap_stack, @function
emulator_swap_stack:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov  %rsp, (%rdi)
    mov  %rsi, %rsp
    pop  %r15
    pop  %r14
    pop  %r13
    pop  %r12
    pop  %rbx
    pop  %rbp
    ret
)");
#elif defined(__aarch64__)
// AAPCS64: a call preserves x19-x29 and the low halves of v8-v15; x30 holds the return address.
constexpr int SAVED_WORDS = 20;
asm(R"(
    .text
    .globl emulator_swap_stack
    .hidden emulator_swap_stack
    .type emulator_swap_stack, %function
emulator_swap_stack:
    sub  sp, sp, #160
    stp  x19, x20, [sp, #0]
    stp  x21, x22, [sp, #16]
    stp  x23, x24, [sp, #32]
    stp  x25, x26, [sp, #48]
    stp  x27, x28, [sp, #64]
    stp  x29, x30, [sp, #80]
    stp  d8,  d9,  [sp, #96]
    stp  d10, d11, [sp, #112]
    stp  d12, d13, [sp, #128]
    stp  d14, d15, [sp, #144]
    mov  x9, sp
    str  x9, [x0]
    mov  sp, x1
    ldp  x19, x20, [sp, #0]
    ldp  x21, x22, [sp, #16]
    ldp  x23, x24, [sp, #32]
    ldp  x25, x26, [sp, #48]
    ldp  x27, x28, [sp, #64]
    ldp  x29, x30, [sp, #80]
    ldp  d8,  d9,  [sp, #96]
    ldp  d10, d11, [sp, #112]
    ldp  d12, d13, [sp, #128]
    ldp  d14, d15, [sp, #144]
    add  sp, sp, #160
    ret
)");
#endif
#endif

// Give every fiber its stack; pages are only taken from the system when a fiber touches them.
EMULATOR_INTERNAL inline bool allocate_stacks(Fiber* const* fibers, int count) {
  const size_t step = STACK_BYTES + GUARD_BYTES;
  void* memory = mmap(nullptr, step * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  for (int i = 0; i < count; i++) {
    char* low = static_cast<char*>(memory) + step * i;
    mprotect(low, GUARD_BYTES, PROT_NONE);
    fibers[i]->stack = low + GUARD_BYTES;
    fibers[i]->stack_bytes = STACK_BYTES;
#if defined(__SANITIZE_THREAD__)
    fibers[i]->tsan_fiber = __tsan_create_fiber(0);
#endif
  }
  return true;
}

// Make `fiber` start in `entry` (which never returns) when it is next switched to.
// Stacks begin at different offsets: were they all equal, the tops of 1024 stacks would share one set of the first-level
// cache, which doubles the run time.
EMULATOR_INTERNAL inline void prepare_fiber(Fiber& fiber, void (*entry)(), unsigned index) {
  const size_t stagger = (index % 61) * 64;
  fiber.asan_saved = nullptr;
#ifdef EMULATOR_UCONTEXT
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = const_cast<void*>(fiber.stack);
  fiber.context.uc_stack.ss_size = fiber.stack_bytes - stagger;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#else
  void** top = reinterpret_cast<void**>(static_cast<char*>(const_cast<void*>(fiber.stack)) + fiber.stack_bytes - stagger);
#if defined(__x86_64__)
  *--top = nullptr;  // keeps the stack 16-byte aligned as after a call, and ends a debugger's backtrace
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < SAVED_WORDS; i++) *--top = nullptr;
#elif defined(__aarch64__)
  top -= SAVED_WORDS;
  std::memset(top, 0, SAVED_WORDS * sizeof(void*));
  top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  fiber.stack_pointer = top;
#endif
}

// The first thing a fiber does after it was switched to. `main`, when given, learns its stack from ASan.
EMULATOR_INTERNAL inline void arrived_in(Fiber& self, Fiber* main) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.asan_saved, main ? &main->stack : nullptr, main ? &main->stack_bytes : nullptr);
#else
  (void)self, (void)main;
#endif
}

// Stop `from` here and go on with `to`. `last` says that `from` will never run again.
EMULATOR_INTERNAL inline void switch_fiber(Fiber& from, Fiber& to, bool last = false) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &from.asan_saved, to.stack, to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  // "no sync": changing fibers orders nothing. Only barriers and collectives order memory, so TSan sees the kernel's races.
  __tsan_switch_to_fiber(to.tsan_fiber, 1);
#endif
#ifdef EMULATOR_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  emulator_swap_stack(&from.stack_pointer, to.stack_pointer);
#endif
  (void)last;
  arrived_in(from, nullptr);
}

}  // namespace emulator
