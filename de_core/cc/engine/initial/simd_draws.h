// Draws normal floats with AVX2. Gives the same bits as NormalOfWord.
//
// The compiler's own vectors would gather the coefficients of each element's octave from memory,
// which takes five times as long as the permutations here.
#ifndef DE_CORE_ENGINE_SIMD_DRAWS_H_
#define DE_CORE_ENGINE_SIMD_DRAWS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/initial/random_draws.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace de::engine {

#if defined(__x86_64__)

inline constexpr size_t kDrawLanes = 8;

/// Converts words like Normal<float>, or with kTruncated like Truncated<float>.
template <bool kTruncated>
struct Avx2NormalFloats {
  float shift, scale, low, high;

  /// `count` must be a multiple of kDrawLanes.
  [[gnu::target(DE_AVX2_TARGET)]] void operator()(const uint32_t* words, size_t count,
                                                  float* values) const noexcept {
    constexpr TailScale kTail = kTruncated ? TailScale::WithinTwo() : TailScale::Whole();
    __m256 coefficients[kOctaveTerms];  // of the most likely octaves
    for (uint32_t k = 0; k < kOctaveTerms; ++k) {
      coefficients[k] = _mm256_load_ps(kOctaveCoefficients[k] + (kOctaves - kDrawLanes));
    }
    for (size_t at = 0; at < count; at += kDrawLanes) {
      const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + at));
      const __m256i magnitude = _mm256_and_si256(word, _mm256_set1_epi32(0x7fffffff));
      const __m256 tail = _mm256_fmadd_ps(_mm256_cvtepi32_ps(magnitude),
                                          _mm256_set1_ps(kTail.factor), _mm256_set1_ps(kTail.term));
      const __m256i bits = _mm256_castps_si256(tail);
      const __m256i octave = _mm256_srli_epi32(bits, 23);
      const __m256i digits = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)),
                                             _mm256_set1_epi32(0x3f800000));
      const __m256 d = _mm256_sub_ps(_mm256_set1_ps(2.0F), _mm256_castsi256_ps(digits));
      __m256 z = _mm256_permutevar8x32_ps(coefficients[kOctaveTerms - 1], octave);
      for (uint32_t k = kOctaveTerms - 1; k-- > 0;) {
        z = _mm256_fmadd_ps(z, d, _mm256_permutevar8x32_ps(coefficients[k], octave));
      }
      const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(word), _mm256_set1_ps(-0.0F));
      _mm256_storeu_ps(values + at, _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_or_ps(z, sign),
                                                    _mm256_set1_ps(shift)));
      const __m256 is_beyond =
          _mm256_cmp_ps(tail, _mm256_set1_ps(kLeastLikelyTail<kDrawLanes>), _CMP_LT_OQ);
      auto beyond = static_cast<uint32_t>(_mm256_movemask_ps(is_beyond));
      for (; beyond != 0; beyond &= beyond - 1) {
        const size_t i = at + static_cast<size_t>(__builtin_ctz(beyond));
        values[i] = MultiplyAdd(scale, NormalOfWord(words[i], kTail), shift);
      }
    }
  }
};

template <typename Real>
using Avx2Normal =
    std::conditional_t<std::is_same_v<Real, float>, Avx2NormalFloats<false>, Normal<Real>>;
template <typename Real>
using Avx2Truncated =
    std::conditional_t<std::is_same_v<Real, float>, Avx2NormalFloats<true>, Truncated<Real>>;

#else

template <typename Real>
using Avx2Normal = Normal<Real>;
template <typename Real>
using Avx2Truncated = Truncated<Real>;

#endif

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SIMD_DRAWS_H_
