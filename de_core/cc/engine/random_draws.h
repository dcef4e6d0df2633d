// The distributions of random initial rows: what turns words into elements.
#ifndef DE_CORE_ENGINE_RANDOM_DRAWS_H_
#define DE_CORE_ENGINE_RANDOM_DRAWS_H_

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/normal_quantile.h"
#include "de_core/cc/engine/wide_draws.h"

namespace de::engine {

// A random kind turns a block of words into a block of values.

template <typename Real>
struct Uniform {
  Real shift, scale, low, high;
  void operator()(const WordOf<Real>* words, size_t count, Real* values) const noexcept {
    for (size_t i = 0; i < count; ++i) {
      const Real value = shift + scale * SymmetricUniform<Real>(words[i]);
      const Real above = value < low ? low : value;
      values[i] = above > high ? high : above;
    }
  }
};

template <typename Real>
struct Normal {
  Real shift, scale, low, high;
  void operator()(const WordOf<Real>* words, size_t count, Real* values) const noexcept {
    StandardNormals(words, count, values);
    for (size_t i = 0; i < count; ++i) values[i] = shift + scale * values[i];
  }
};

template <typename Real>
struct Truncated {
  Real shift, scale, low, high;
  void operator()(const WordOf<Real>* words, size_t count, Real* values) const noexcept {
    TruncatedNormals(words, count, values);
    for (size_t i = 0; i < count; ++i) values[i] = shift + scale * values[i];
  }
};

#if defined(DE_WIDE_DRAWS)
// The same for several vectors of eight, for rows whose arithmetic is in float; kVectors is how
// many at once are fastest.

struct WideUniformDraw {
  static constexpr size_t kVectors = 2;
  __m256 shift, scale, low, high;
  template <size_t kCount>
  DE_EIGHT void Fill(const __m256i* words, __m256* values) const noexcept {
    WideUniform<kCount>(words, values);
    for (size_t i = 0; i < kCount; ++i) {
      const __m256 value = _mm256_add_ps(shift, _mm256_mul_ps(scale, values[i]));
      values[i] = _mm256_min_ps(_mm256_max_ps(value, low), high);
    }
  }
};

/// Of the whole normal distribution, or of what lies within two standard deviations.
template <bool kTruncated>
struct WideNormalDraw {
  static constexpr size_t kVectors = 4;
  __m256 shift, scale, low, high;
  template <size_t kCount>
  DE_EIGHT void Fill(const __m256i* words, __m256* values) const noexcept {
    constexpr TailScale kTail = kTruncated ? TailScale::WithinTwo() : TailScale::Whole();
    WideNormal<kCount>(words, kTail, values);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = _mm256_add_ps(shift, _mm256_mul_ps(scale, values[i]));
    }
  }
};

template <template <typename> class Draw>
struct WideDrawOf;
template <>
struct WideDrawOf<Uniform> {
  using Type = WideUniformDraw;
};
template <>
struct WideDrawOf<Normal> {
  using Type = WideNormalDraw<false>;
};
template <>
struct WideDrawOf<Truncated> {
  using Type = WideNormalDraw<true>;
};
#endif

/// Draws from the distribution whose quantiles at 0, 1/(q-1), …, 1 are `column`, linear between.
inline double DrawQuantile(const float* column, size_t q, uint32_t word) noexcept {
  const uint64_t position = static_cast<uint64_t>(word) * (q - 1);
  const float* at = column + (position >> 32);
  const double low = at[0];
  const double high = at[1];
  return low + (high - low) * (static_cast<double>(static_cast<uint32_t>(position)) * 0x1p-32);
}

inline double DrawQuantile(const float* column, size_t q, uint64_t word) noexcept {
  const float* at = column + MulHigh64(word, q - 1);
  const double low = at[0];
  const double high = at[1];
  return low + (high - low) * (static_cast<double>((word * (q - 1)) >> 11) * 0x1p-53);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RANDOM_DRAWS_H_
