// Upsert: writes the rows that Avx512Probe finds.
#ifndef DE_CORE_ENGINE_AVX512_WRITE_H_
#define DE_CORE_ENGINE_AVX512_WRITE_H_

#include "de_core/cc/engine/index/avx512_probe.h"

#if defined(DE_SIMD_DRAWS)

namespace de::engine {

/// Replaces rows of kRowBytes, a multiple of 64 or 32, by rows in `from`. The new row of key j is
/// row position_of(j) of `from`. Leaves all keys that are not found to the caller ("away").
template <size_t kRowBytes, typename PositionOf>
class WideWrite {
 public:
  WideWrite(const char* from, const PositionOf& position_of) noexcept
      : from_(from), position_of_(position_of) {}

  DE_SIXTEEN void Ask(size_t) const noexcept {}

  DE_SIXTEEN void Fetch(size_t key, const char* row) const noexcept {
    PrefetchBytes<kRowBytes>(row);
    // Keys of one shard are scattered in the batch, so the hardware cannot predict the next row's
    // address.
    PrefetchBytes<kRowBytes>(from_ + position_of_(key) * kRowBytes);
  }

  DE_SIXTEEN void Use(size_t key, char* row) const noexcept {
    CopyRow<kRowBytes>(row, from_ + position_of_(key) * kRowBytes);
  }

  DE_SIXTEEN __mmask8 Misses(size_t, __mmask8 keys, __mmask8 hits, __mmask8, __m512i,
                             __m512i) const noexcept {
    return keys & static_cast<__mmask8>(~hits);
  }

  DE_SIXTEEN void Between() const noexcept {}
  DE_SIXTEEN void End() const noexcept {}

 private:
  const char* const from_;
  const PositionOf position_of_;
};

}  // namespace de::engine

#endif  // defined(DE_SIMD_DRAWS)
#endif  // DE_CORE_ENGINE_AVX512_WRITE_H_
