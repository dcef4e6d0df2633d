// Draws random rows of floats with AVX2. Gives the same bits as KeyRandom, SymmetricUniform and
// NormalOfWord.
//
// Each step runs for several vectors before the next step runs. Steps of one vector depend on each
// other, and a processor does not look far enough ahead to overlap several vectors by itself.
#ifndef DE_CORE_ENGINE_SIMD_DRAWS_H_
#define DE_CORE_ENGINE_SIMD_DRAWS_H_

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/initial/key_random.h"
#include "de_core/cc/engine/initial/random_draws.h"
#include "de_core/cc/engine/rows/scalar_types.h"

/// Only functions compiled for AVX2 may call such a function.
#define DE_AVX2_INLINE [[gnu::target(DE_AVX2_TARGET), gnu::always_inline]] inline

namespace de::engine {

inline constexpr size_t kDrawLanes = 8;
/// Number of rows whose KeyRandom::Counters are computed together.
inline constexpr size_t kRowsAhead = 32;
/// Number of vectors of a row that are drawn together.
inline constexpr size_t kVectorsTogether = 4;

DE_AVX2_INLINE __m256i Ints(uint32_t x) noexcept { return _mm256_set1_epi32(static_cast<int>(x)); }

/// Computes the random words of kVectors vectors of a row, from element `first` on.
template <size_t kVectors, typename Counters>
DE_AVX2_INLINE void WordsOf(const Counters& counters, size_t row, uint32_t first,
                            __m256i* x /* (kVectors) */) noexcept {
  const __m256i numbers = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), Ints(first));
  const __m256i key = Ints(counters.key[row]);
  const __m256i step = Ints(counters.step[row]);
  __m256i at = _mm256_add_epi32(Ints(counters.start[row]), _mm256_mullo_epi32(step, numbers));
  const __m256i lanes = _mm256_mullo_epi32(step, Ints(uint32_t{kDrawLanes}));
  for (size_t k = 0; k < kVectors; ++k) {
    if (k > 0) at = _mm256_add_epi32(at, lanes);
    x[k] = _mm256_mullo_epi32(_mm256_xor_si256(at, key), Ints(KeyRandom::kFirstFactor));
  }
  for (size_t k = 0; k < kVectors; ++k) {
    x[k] = _mm256_mullo_epi32(_mm256_xor_si256(x[k], _mm256_srli_epi32(x[k], 15)),
                              Ints(KeyRandom::kSecondFactor));
  }
}

class UniformDraw {
 public:
  DE_AVX2_INLINE explicit UniformDraw(const DrawParameters& p) noexcept
      : shift_(_mm256_set1_ps(p.shift)),
        scale_(_mm256_set1_ps(p.scale)),
        low_(_mm256_set1_ps(p.low)),
        high_(_mm256_set1_ps(p.high)) {}

  template <size_t kVectors>
  DE_AVX2_INLINE void Fill(const __m256i* words, __m256* values) const noexcept {
    for (size_t i = 0; i < kVectors; ++i) {
      const __m256 u =
          _mm256_mul_ps(_mm256_cvtepi32_ps(words[i]), _mm256_set1_ps(RealTraits<float>::kUnit));
      const __m256 value = _mm256_fmadd_ps(scale_, u, shift_);
      values[i] = _mm256_min_ps(_mm256_max_ps(value, low_), high_);
    }
  }

 private:
  __m256 shift_, scale_, low_, high_;
};

/// The whole normal distribution, or the part within two standard deviations.
template <bool kTruncated>
class NormalDraw {
 public:
  DE_AVX2_INLINE explicit NormalDraw(const DrawParameters& p) noexcept
      : shift_(_mm256_set1_ps(p.shift)), scale_(_mm256_set1_ps(p.scale)) {
    for (uint32_t k = 0; k < kOctaveTerms; ++k) {
      coefficients_[k] = _mm256_load_ps(kOctaveCoefficients[k] + (kOctaves - kDrawLanes));
      // Keep the compiler from leaving them in memory, where a permutation takes four times as
      // long.
      asm("" : "+x"(coefficients_[k]));
    }
  }

  template <size_t kVectors>
  DE_AVX2_INLINE void Fill(const __m256i* words, __m256* values) const noexcept {
    __m256i octave[kVectors];
    __m256 d[kVectors], z[kVectors];
    uint32_t beyond[kVectors], any = 0;
    for (size_t i = 0; i < kVectors; ++i) {
      const __m256i magnitude = _mm256_and_si256(words[i], Ints(0x7fffffffU));
      const __m256 tail = _mm256_fmadd_ps(_mm256_cvtepi32_ps(magnitude),
                                          _mm256_set1_ps(kTail.factor), _mm256_set1_ps(kTail.term));
      const __m256 is_beyond =
          _mm256_cmp_ps(tail, _mm256_set1_ps(kLeastLikelyTail<kDrawLanes>), _CMP_LT_OQ);
      beyond[i] = static_cast<uint32_t>(_mm256_movemask_ps(is_beyond));
      any |= beyond[i];
      const __m256i bits = _mm256_castps_si256(tail);
      octave[i] = _mm256_srli_epi32(bits, 23);
      const __m256i digits =
          _mm256_or_si256(_mm256_and_si256(bits, Ints(0x7fffffU)), Ints(0x3f800000U));
      d[i] = _mm256_sub_ps(_mm256_set1_ps(2.0F), _mm256_castsi256_ps(digits));
    }
    for (size_t i = 0; i < kVectors; ++i) {
      z[i] = _mm256_permutevar8x32_ps(coefficients_[kOctaveTerms - 1], octave[i]);
    }
    for (uint32_t k = kOctaveTerms - 1; k-- > 0;) {
      for (size_t i = 0; i < kVectors; ++i) {
        z[i] = _mm256_fmadd_ps(z[i], d[i], _mm256_permutevar8x32_ps(coefficients_[k], octave[i]));
      }
    }
    for (size_t i = 0; i < kVectors; ++i) {
      const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(words[i]), _mm256_set1_ps(-0.0F));
      z[i] = _mm256_or_ps(z[i], sign);
    }
    if (__builtin_expect(any != 0, 0)) {
      alignas(32) uint32_t word[kVectors][kDrawLanes];
      alignas(32) float value[kVectors][kDrawLanes];
      std::memcpy(word, words, sizeof(word));
      std::memcpy(value, z, sizeof(value));
      for (size_t i = 0; i < kVectors; ++i) {
        for (; beyond[i] != 0; beyond[i] &= beyond[i] - 1) {
          const int at = __builtin_ctz(beyond[i]);
          value[i][at] = NormalOfWord(word[i][at], kTail);
        }
      }
      std::memcpy(z, value, sizeof(value));
    }
    for (size_t i = 0; i < kVectors; ++i) values[i] = _mm256_fmadd_ps(scale_, z[i], shift_);
  }

 private:
  static constexpr TailScale kTail = kTruncated ? TailScale::WithinTwo() : TailScale::Whole();

  __m256 shift_, scale_;
  __m256 coefficients_[kOctaveTerms];  ///< coefficients of the most likely octaves
};

template <template <typename> class Draw>
struct DrawOf;
template <>
struct DrawOf<Uniform> {
  using Type = UniformDraw;
};
template <>
struct DrawOf<Normal> {
  using Type = NormalDraw<false>;
};
template <>
struct DrawOf<Truncated> {
  using Type = NormalDraw<true>;
};

/// Draws elements [first, first + count) of a row, at most the lanes of kVectors vectors.
template <typename T, size_t kVectors, typename Draw, typename Counters>
DE_AVX2_INLINE void DrawElements(const Draw& draw, const Counters& counters, size_t row,
                                 size_t first, size_t count, void* to) noexcept {
  constexpr size_t kMost = kVectors * kDrawLanes;
  __m256i x[kVectors];
  __m256 values[kVectors];
  WordsOf<kVectors>(counters, row, static_cast<uint32_t>(first), x);
  draw.template Fill<kVectors>(x, values);
  T* const elements = static_cast<T*>(to) + first;
  if (std::is_same_v<T, float> && count == kMost) {
    for (size_t i = 0; i < kVectors; ++i) {
      _mm256_storeu_ps(reinterpret_cast<float*>(elements) + i * kDrawLanes, values[i]);
    }
    return;
  }
  alignas(32) float floats[kMost];
  std::memcpy(floats, values, sizeof(floats));
  for (size_t i = 0; i < count; ++i) elements[i] = Scalar<T>::Store(floats[i]);
}

/// Draws `count` rows from their `counters`. With kWhole, dim must be a multiple of
/// kVectorsTogether vectors; code for a remainder would take registers from the constants.
template <typename T, bool kWhole, typename Draw, typename Counters>
[[gnu::target(DE_AVX2_TARGET), gnu::flatten, gnu::noinline]] void DrawPreparedRows(
    const DrawParameters& parameters, const Counters& counters, size_t dim, void* const* rows,
    size_t count) noexcept {
  const Draw draw(parameters);
  constexpr size_t kMost = kVectorsTogether * kDrawLanes;
  for (size_t row = 0; row < count; ++row) {
    size_t at = 0;
    for (; at + kMost <= dim; at += kMost) {
      DrawElements<T, kVectorsTogether>(draw, counters, row, at, kMost, rows[row]);
    }
    if constexpr (!kWhole) {
      for (; at < dim; at += kDrawLanes) {
        DrawElements<T, 1>(draw, counters, row, at, std::min(kDrawLanes, dim - at), rows[row]);
      }
    }
  }
}

/// Draws the rows of `count` keys, with `dim` elements of type T.
template <typename T, template <typename> class Draw>
DE_AVX2_INLINE void DrawRows(const DrawParameters& parameters, const RandomSeed& seed, size_t dim,
                             const uint64_t* key_words, void* const* rows, size_t count) noexcept {
  using Drawn = typename DrawOf<Draw>::Type;
  for (size_t begin = 0; begin < count; begin += kRowsAhead) {
    const size_t ahead = std::min(kRowsAhead, count - begin);
    KeyRandom::Counters<kRowsAhead> counters;
    counters.Fill(seed, key_words + begin, ahead);
    if (dim % (kVectorsTogether * kDrawLanes) == 0) {
      DrawPreparedRows<T, true, Drawn>(parameters, counters, dim, rows + begin, ahead);
    } else {
      DrawPreparedRows<T, false, Drawn>(parameters, counters, dim, rows + begin, ahead);
    }
  }
}

}  // namespace de::engine

#endif  // defined(__x86_64__)
#endif  // DE_CORE_ENGINE_SIMD_DRAWS_H_
