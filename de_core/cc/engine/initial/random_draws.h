// The distributions of random initial rows. They convert random words to elements.
#ifndef DE_CORE_ENGINE_RANDOM_DRAWS_H_
#define DE_CORE_ENGINE_RANDOM_DRAWS_H_

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/initial/normal_quantile.h"

namespace de::engine {

/// a * b + c: rounded once for floats, twice for doubles.
inline float MultiplyAdd(float a, float b, float c) noexcept { return FusedMultiplyAdd(a, b, c); }
inline double MultiplyAdd(double a, double b, double c) noexcept { return a * b + c; }

// Each class below converts `count` random words to values of one distribution: shift + scale *
// draw. Uniform values are clamped to [low, high].

template <typename Real>
struct Uniform {
  Real shift, scale, low, high;
  void operator()(const WordOf<Real>* words, size_t count, Real* values) const noexcept {
    for (size_t i = 0; i < count; ++i) {
      const Real value = MultiplyAdd(scale, SymmetricUniform<Real>(words[i]), shift);
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
    for (size_t i = 0; i < count; ++i) values[i] = MultiplyAdd(scale, values[i], shift);
  }
};

template <typename Real>
struct Truncated {
  Real shift, scale, low, high;
  void operator()(const WordOf<Real>* words, size_t count, Real* values) const noexcept {
    TruncatedNormals(words, count, values);
    for (size_t i = 0; i < count; ++i) values[i] = MultiplyAdd(scale, values[i], shift);
  }
};

/// Draws from the distribution whose quantiles at 0, 1/(q-1), …, 1 are `column` (q), interpolated
/// linearly.
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
