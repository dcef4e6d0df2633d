// Prefetches memory before it is used.
#ifndef DE_CORE_ENGINE_PREFETCH_H_
#define DE_CORE_ENGINE_PREFETCH_H_

#include <cstddef>
#include <cstdint>

namespace de::engine {

/// Prefetches the cache line of `at` into the second-level cache. A core can have many more misses
/// outstanding there than in the first level. Lookups in a table larger than the caches take half
/// the time (docs/reference/benchmarks.md).
inline void PrefetchFar(const void* at) noexcept {
  __builtin_prefetch(at, /*write=*/0, /*locality=*/2);
  // GCC removes calls of a function that contains only a prefetch. The asm keeps them.
  asm volatile("" : : "r"(at));
}

/// Hides from the compiler how a number was computed. Otherwise the compiler may turn arithmetic
/// with a number that is 0 or 1 into a branch, which would be mispredicted.
template <typename Number>
inline void HideFromCompiler(Number* number) noexcept {
  asm("" : "+r"(*number));
}

/// Prefetches the cache line of `at` into the first-level cache, for writing. For output that is
/// not written in order: the hardware prefetches only lines in order, so stores to others would
/// wait.
inline void PrefetchToWrite(const void* at) noexcept {
  __builtin_prefetch(at, /*write=*/1, /*locality=*/3);
  asm volatile("" : : "r"(at));
}

/// Calls PrefetchFar for every cache line of [at, at + bytes).
inline void PrefetchBytes(const char* at, size_t bytes) noexcept {
  const uintptr_t last = (reinterpret_cast<uintptr_t>(at) + bytes - 1) & ~uintptr_t{63};
  for (uintptr_t line = reinterpret_cast<uintptr_t>(at) & ~uintptr_t{63}; line <= last;
       line += 64) {
    PrefetchFar(reinterpret_cast<const char*>(line));
  }
}

/// Like PrefetchBytes, for rows of one width in a loop. Its branches do not depend on the alignment
/// of `at`, so they are predicted: it prefetches every 64th byte and the last one.
inline void PrefetchRow(const char* at, size_t bytes) noexcept {
  for (size_t i = 0; i + 1 < bytes; i += 64) PrefetchFar(at + i);
  PrefetchFar(at + bytes - 1);
}

/// Prefetches the cache lines of [at, at + bytes) except the first, for `bytes` in (kMost - 64,
/// kMost]. If `at` is not `aligned` to a cache line, the bytes may spill into one more line, which
/// is prefetched too.
template <size_t kMost>
inline void PrefetchRest(const char* at, size_t bytes, bool aligned) noexcept {
  for (size_t i = 64; i < kMost - 1; i += 64) PrefetchFar(at + i);
  if (!aligned) PrefetchFar(at + bytes - 1);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PREFETCH_H_
