// Converts random words to normal deviates without libm. Uses only + - * /, so every machine gets
// the same bits and loops vectorize on plain SSE2.
//
// Inversion rather than Box-Muller or rejection: one word gives one value, distinct words give
// distinct values, and truncation needs no second draw.
#ifndef DE_CORE_ENGINE_NORMAL_QUANTILE_H_
#define DE_CORE_ENGINE_NORMAL_QUANTILE_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "de_core/cc/engine/initial/normal_octaves.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// The random words for arithmetic of type Real. Word times kUnit, as a signed number, is in [-1,
/// 1].
template <typename Real>
struct RealTraits;

template <>
struct RealTraits<float> {
  using Word = uint32_t;
  using Int = int32_t;
  static constexpr float kUnit = 0x1p-31F;
};

template <>
struct RealTraits<double> {
  using Word = uint64_t;
  using Int = int64_t;
  static constexpr double kUnit = 0x1p-63;
};

template <typename Real>
using WordOf = typename RealTraits<Real>::Word;

/// Reads a word as a two's complement fraction: a number in [-1, 1].
template <typename Real>
[[gnu::always_inline]] inline Real SymmetricUniform(WordOf<Real> word) noexcept {
  using Traits = RealTraits<Real>;
  return static_cast<Real>(static_cast<typename Traits::Int>(word)) * Traits::kUnit;
}

/// Returns -ln(y) for a normal number y in (0, 1]. The absolute error is below 3e-8.
[[gnu::always_inline]] inline double MinusLog(double y) noexcept {
  constexpr int kDigits = 52;
  constexpr int64_t kRootHalf = 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  const auto bits = static_cast<int64_t>(BitsOf(y));
  const int64_t above = bits - kRootHalf;
  const int64_t exponent = above >> kDigits;
  // y = 2^exponent * m with m in [sqrt(1/2), sqrt(2)); ln(m) = 2 atanh((m - 1) / (m + 1)).
  const double m =
      DoubleOfBits(static_cast<uint64_t>(bits - (above & ~((int64_t{1} << kDigits) - 1))));
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  const double series = 2.000000836793884 + s2 * (0.6664408152249623 + s2 * 0.4151761147445698);
  return static_cast<double>(exponent) * -0.6931471805599453 - s * series;
}

/// Returns the standard normal deviate z with P(|Z| < z) = |x|, with the sign of x. The caller
/// passes w = -ln(1 - x^2) too: near |x| = 1, a rounded x has lost the digits of 1 - x^2. The
/// relative error is below 1e-7.
///
/// z / x is a smooth function of w (after M. Giles, "Approximating the erfinv function", 2010). It
/// is sqrt(pi / 2) at w = 0. We add a ratio of polynomials, fitted for 0 <= w <= 44.5 to minimize
/// the largest relative error of z. All coefficients are positive, so nothing cancels. Where z is
/// small, the rounded term is small too.
[[gnu::always_inline]] inline double NormalOfCentralProbability(double x, double w) noexcept {
  const double w2 = w * w;
  const double w4 = w2 * w2;
  // Estrin's scheme: half the latency of Horner's.
  const double p = (3.2811782787e-01 + 5.1077377767e-02 * w) +
                   w2 * (1.0471132377e-02 + 9.5649289354e-04 * w) +
                   w4 * (7.4318149036e-05 + 5.7165864121e-07 * w);
  const double q = (1.0 + 1.0590492926e-01 * w) + w2 * (3.6678552369e-02 + 2.7293324983e-03 * w) +
                   w4 * ((3.0732836151e-04 + 6.7045203623e-06 * w) + w2 * 1.0774583462e-08);
  return x * 1.2533141373155001 + x * (w * p / q);
}

// The functions below work on blocks. The functions for doubles make several passes of few
// operations, because the processor overlaps short dependency chains of many elements, but not long
// ones.
inline constexpr size_t kNormalBlock = 32;

/// Standard normal deviates; |z| < 6.4.
inline void StandardNormals(const uint32_t* words, size_t count, float* values) noexcept {
  for (size_t i = 0; i < count; ++i) values[i] = NormalOfWord(words[i], TailScale::Whole());
}

/// The same for doubles; |z| < 9.2.
inline void StandardNormals(const uint64_t* words, size_t count /* <= kNormalBlock */,
                            double* values) noexcept {
  constexpr double kHalfUnit = 0x1p-64;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  double w[kNormalBlock];
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int64_t>(words[i]);
    values[i] = static_cast<double>(value) * (2 * kHalfUnit) + kHalfUnit;
    // Compute 1 - |x| from the word itself, exactly where it is small. The words value and ~value
    // give x of equal magnitude.
    const int64_t magnitude = value ^ (value >> 63);
    const double tail = static_cast<double>(kMost - magnitude) * (2 * kHalfUnit) + kHalfUnit;
    w[i] = tail * (2 - tail);
  }
  for (size_t i = 0; i < count; ++i) w[i] = MinusLog(w[i]);
  for (size_t i = 0; i < count; ++i) values[i] = NormalOfCentralProbability(values[i], w[i]);
}

/// Standard normal deviates conditioned on |z| <= 2.
inline void TruncatedNormals(const uint32_t* words, size_t count, float* values) noexcept {
  for (size_t i = 0; i < count; ++i) values[i] = NormalOfWord(words[i], TailScale::WithinTwo());
}

inline void TruncatedNormals(const uint64_t* words, size_t count /* <= kNormalBlock */,
                             double* values) noexcept {
  constexpr double kWithinTwo = 0.9544997361036416;  // erf(sqrt(2))
  double w[kNormalBlock];
  for (size_t i = 0; i < count; ++i) {
    values[i] = SymmetricUniform<double>(words[i]) * kWithinTwo;
    w[i] = (1 - values[i]) * (1 + values[i]);
  }
  for (size_t i = 0; i < count; ++i) w[i] = MinusLog(w[i]);
  for (size_t i = 0; i < count; ++i) {
    const double z = NormalOfCentralProbability(values[i], w[i]);
    const double above = z < -2 ? -2 : z;
    values[i] = above > 2 ? 2 : above;
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_NORMAL_QUANTILE_H_
