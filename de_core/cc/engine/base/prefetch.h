// Asking for memory before it is used.
#ifndef DE_CORE_ENGINE_PREFETCH_H_
#define DE_CORE_ENGINE_PREFETCH_H_

#include <cstddef>
#include <cstdint>

namespace de::engine {

/// Brings the cache line of `at` to the second-level cache. A core has buffers for many more misses
/// of that one than of the first, and reading from there costs less than waiting for such a buffer:
/// lookups in a table beyond the caches take half the time (docs/benchmarks.md).
inline void PrefetchFar(const void* at) noexcept {
  __builtin_prefetch(at, /*write=*/0, /*locality=*/2);
  // GCC takes a function that does nothing else for one without effect and drops its calls.
  asm volatile("" : : "r"(at));
}

/// Makes the compiler forget what it knows of a number, or it branches on what nobody can predict.
template <typename Number>
inline void HideFromCompiler(Number* number) noexcept {
  asm("" : "+r"(*number));
}

/// Brings the cache line of `at` to the first-level cache, to be written: where the lines of an
/// output are not written one after the other, the processor does not foresee them, and stores
/// wait.
inline void PrefetchToWrite(const void* at) noexcept {
  __builtin_prefetch(at, /*write=*/1, /*locality=*/3);
  asm volatile("" : : "r"(at));
}

/// PrefetchFar of every cache line of [at, at + bytes).
inline void PrefetchBytes(const char* at, size_t bytes) noexcept {
  const uintptr_t last = (reinterpret_cast<uintptr_t>(at) + bytes - 1) & ~uintptr_t{63};
  for (uintptr_t line = reinterpret_cast<uintptr_t>(at) & ~uintptr_t{63}; line <= last;
       line += 64) {
    PrefetchFar(reinterpret_cast<const char*>(line));
  }
}

/// The same for a width known to the compiler: without a branch, for it does not ask how `at` is
/// aligned.
template <size_t kBytes>
inline void PrefetchBytes(const char* at) noexcept {
  for (size_t i = 0; i < kBytes - 1; i += 64) PrefetchFar(at + i);
  PrefetchFar(at + kBytes - 1);
}

/// The cache lines of [at, at + bytes) but the first, for `bytes` in (kMost - 64, kMost]. A row
/// that is `aligned` to lines has no part in one more.
template <size_t kMost>
inline void PrefetchRest(const char* at, size_t bytes, bool aligned) noexcept {
  for (size_t i = 64; i < kMost - 1; i += 64) PrefetchFar(at + i);
  if (!aligned) PrefetchFar(at + bytes - 1);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PREFETCH_H_
