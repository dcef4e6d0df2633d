// Lookup: reads the rows that Avx512Probe finds.
#ifndef DE_CORE_ENGINE_AVX512_READ_H_
#define DE_CORE_ENGINE_AVX512_READ_H_

#include "de_core/cc/engine/index/avx512_probe.h"

#if defined(DE_SIMD_DRAWS)

#include "de_core/cc/engine/initial/initializer.h"

namespace de::engine {

/// Copies rows of kRowBytes, a multiple of 64 or 32, to `out`. Writes the initial rows of keys that
/// the home line proves absent. Leaves keys that may be in a later line to the caller ("away").
template <size_t kRowBytes>
class WideRead {
 public:
  /// If `found` is not null, sets found[j] to whether key j is in its home line.
  WideRead(const Initializer& initializer, char* out, bool* found) noexcept
      : initializer_(initializer), out_(out), found_(found) {}

  DE_SIXTEEN void Ask(size_t key) const noexcept {
    if (!mixed_) return;
    // Past the last key, this prefetches memory behind `out_`, which is harmless.
    const char* const to = out_ + key * kRowBytes;
    for (size_t byte = 0; byte < kRowBytes; byte += 64) PrefetchToWrite(to + byte);
  }

  DE_SIXTEEN void Fetch(size_t, const char* row) const noexcept { PrefetchBytes<kRowBytes>(row); }

  DE_SIXTEEN void Use(size_t key, const char* row) const noexcept {
    CopyRow<kRowBytes>(out_ + key * kRowBytes, row);
  }

  DE_SIXTEEN __mmask8 Misses(size_t first, __mmask8 keys, __mmask8 hits, __mmask8 passed,
                             __m512i words, __m512i numbers) noexcept {
    const __mmask8 misses = keys & static_cast<__mmask8>(~hits);
    const __mmask8 absent = misses & static_cast<__mmask8>(~passed);
    const __m512i to = _mm512_add_epi64(
        _mm512_set1_epi64(static_cast<long long>(reinterpret_cast<uintptr_t>(out_))),
        _mm512_mullo_epi64(numbers, _mm512_set1_epi64(kRowBytes)));
    _mm512_storeu_si512(absent_words_ + absent_, _mm512_maskz_compress_epi64(absent, words));
    _mm512_storeu_si512(absent_rows_ + absent_, _mm512_maskz_compress_epi64(absent, to));
    absent_ += static_cast<uint32_t>(__builtin_popcount(absent));
    // If all keys hit, rows are written in order. The hardware predicts that, so Ask need not
    // prefetch.
    misses_ += static_cast<uint32_t>(__builtin_popcount(misses));
    mixed_ = 8 * misses_ > first + 8;
    if (found_ != nullptr) {
      _mm_mask_storeu_epi8(found_ + first, keys, _mm_maskz_set1_epi8(hits, 1));
    }
    return passed;
  }

  DE_SIXTEEN void Between() noexcept {
    if (absent_ < kAbsentTogether) return;
    initializer_.FillRows(absent_words_, absent_rows_, kAbsentTogether);
    absent_ -= kAbsentTogether;
    _mm512_storeu_si512(absent_words_, _mm512_loadu_si512(absent_words_ + kAbsentTogether));
    _mm512_storeu_si512(absent_rows_, _mm512_loadu_si512(absent_rows_ + kAbsentTogether));
  }

  DE_SIXTEEN void End() const noexcept {
    initializer_.FillRows(absent_words_, absent_rows_, absent_);
  }

 private:
  // Number of initial rows drawn together.
  static constexpr size_t kAbsentTogether = 32;

  const Initializer& initializer_;
  char* const out_;
  bool* const found_;
  size_t absent_ = 0, misses_ = 0;
  bool mixed_ = false;                          ///< more than one key in eight missed
  uint64_t absent_words_[kAbsentTogether + 8];  ///< room for a group that starts near the end
  void* absent_rows_[kAbsentTogether + 8];
};

}  // namespace de::engine

#endif  // defined(DE_SIMD_DRAWS)
#endif  // DE_CORE_ENGINE_AVX512_READ_H_
