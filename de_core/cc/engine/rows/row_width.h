// The width of a table's values in bytes, for loops over many rows: a constant of the compiler for
// common widths. Also copies rows past the caches, by non-temporal stores.
#ifndef DE_CORE_ENGINE_ROW_WIDTH_H_
#define DE_CORE_ENGINE_ROW_WIDTH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/values.h"

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

/// True if some rows of `bytes` begin so late in a cache line that their last bytes are in one more
/// line than a row at the start of a line. `stride`: bytes from one row to the next. The
/// first row begins at a line.
constexpr bool RowsSpill(size_t bytes, size_t stride) noexcept {
  const size_t step = stride & (~stride + 1);  // rows begin at all multiples of this power of two
  return (bytes - 1) % 64 >= std::min<size_t>(64, step);
}

/// `kBytes` is the width, or 0 if the compiler does not know it.
template <size_t kBytes>
class RowWidth {
 public:
  /// `stride`: bytes from one row of the table to the next.
  RowWidth(size_t bytes, size_t stride) noexcept
      : bytes_(bytes), spills_(RowsSpill(bytes, stride)) {}

  size_t bytes() const noexcept { return kBytes != 0 ? kBytes : bytes_; }
  void Copy(char* to, const char* from) const noexcept { CopyBytes(to, from, bytes()); }
  /// Copy past the caches. Requires CanStream.
  void Stream(char* to, const char* from) const noexcept { StreamBytes(to, from, bytes()); }
  /// Prefetches a row of the table.
  void Prefetch(const char* row) const noexcept {
    for (size_t i = 0; i < bytes(); i += 64) PrefetchFar(row + i);
    if (spills_) PrefetchFar(row + bytes() - 1);
  }

 private:
  size_t bytes_;
  bool spills_;  ///< RowsSpill
};

/// Returns use(RowWidth). The widths of 8 to 64 floats are constants, because loops without them
/// were slower at these widths (docs/reference/benchmarks.md). All other widths share one version.
template <typename Use>
auto WithRowWidth(size_t bytes, size_t stride, const Use& use) {
  switch (bytes) {
    case 32:
      return use(RowWidth<32>(bytes, stride));
    case 64:
      return use(RowWidth<64>(bytes, stride));
    case 128:
      return use(RowWidth<128>(bytes, stride));
    case 256:
      return use(RowWidth<256>(bytes, stride));
    default:
      return use(RowWidth<0>(bytes, stride));
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_WIDTH_H_
