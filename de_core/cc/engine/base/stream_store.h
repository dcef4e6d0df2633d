// Writes memory without reading it into the caches first: non-temporal stores.
#ifndef DE_CORE_ENGINE_STREAM_STORE_H_
#define DE_CORE_ENGINE_STREAM_STORE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace de::engine {

/// Streamed addresses and sizes are multiples of this many bytes.
inline constexpr size_t kStreamBlock = 16;

/// True if StreamBytes may write rows of `bytes` from `to` on, and if this processor has
/// non-temporal stores.
inline bool CanStream(const char* to, size_t bytes) noexcept {
#if defined(__SSE2__)
  return (reinterpret_cast<uintptr_t>(to) | bytes) % kStreamBlock == 0;
#else
  (void)to;
  (void)bytes;
  return false;
#endif
}

/// memcpy past the caches, if CanStream. A cached line of `to` leaves the cache. Write whole cache
/// lines in ascending order: the processor collects them before it sends them to memory.
inline void StreamBytes(char* to, const char* from, size_t bytes) noexcept {
#if defined(__SSE2__)
  for (size_t at = 0; at < bytes; at += kStreamBlock) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Makes all that this thread has streamed visible to other threads before its later stores.
inline void FinishStreams() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_STREAM_STORE_H_
