// Normal deviates from random words, without libm: only + - * /, so every machine gets the same
// bits and loops vectorise on plain SSE2.
//
// Inversion rather than Box-Muller or rejection: one word gives one value, monotonically (distinct
// words give distinct values), and truncation needs no second draw.
#ifndef DE_CORE_ENGINE_NORMAL_QUANTILE_H_
#define DE_CORE_ENGINE_NORMAL_QUANTILE_H_

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/scalar_types.h"

namespace de::engine {

/// The IEEE layout behind a type of arithmetic, and the random words that feed it.
template <typename Real>
struct RealTraits;

template <>
struct RealTraits<float> {
  using Word = uint32_t;
  using Int = int32_t;
  static constexpr int kDigits = 23;
  static constexpr Int kRootHalf = 0x3f3504f3;  // sqrt(1/2)
  static constexpr float kHalfUnit = 0x1p-32F;
  static float FromBits(Int bits) noexcept { return FloatOfBits(static_cast<Word>(bits)); }
};

template <>
struct RealTraits<double> {
  using Word = uint64_t;
  using Int = int64_t;
  static constexpr int kDigits = 52;
  static constexpr Int kRootHalf = 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  static constexpr double kHalfUnit = 0x1p-64;
  static double FromBits(Int bits) noexcept { return DoubleOfBits(static_cast<Word>(bits)); }
};

template <typename Real>
using WordOf = typename RealTraits<Real>::Word;

/// A word as a number in [-1, 1], read as a two's complement fraction.
template <typename Real>
[[gnu::always_inline]] inline Real SymmetricUniform(WordOf<Real> word) noexcept {
  using Traits = RealTraits<Real>;
  return static_cast<Real>(static_cast<typename Traits::Int>(word)) * (2 * Traits::kHalfUnit);
}

/// -ln(y) for a normal number y in (0, 1], absolute error below 3e-8 (and the type's rounding).
template <typename Real>
[[gnu::always_inline]] inline Real MinusLog(Real y) noexcept {
  using Traits = RealTraits<Real>;
  using Int = typename Traits::Int;
  const Int bits = static_cast<Int>(BitsOf(y));
  const Int above = bits - Traits::kRootHalf;
  const Int exponent = above >> Traits::kDigits;
  // y = 2^exponent * m with m in [sqrt(1/2), sqrt(2)); ln(m) = 2 atanh((m - 1) / (m + 1)).
  const Real m = Traits::FromBits(bits - (above & ~((Int{1} << Traits::kDigits) - 1)));
  const Real s = (m - 1) / (m + 1);
  const Real s2 = s * s;
  const Real series =
      static_cast<Real>(2.000000836793884) +
      s2 * (static_cast<Real>(0.6664408152249623) + s2 * static_cast<Real>(0.4151761147445698));
  return static_cast<Real>(exponent) * static_cast<Real>(-0.6931471805599453) - s * series;
}

/// The standard normal deviate z with P(|Z| < z) = |x|, signed as x; w = -ln(1 - x^2), passed on
/// its own because it holds the tail's precision. Relative error below 1e-7 (and rounding).
///
/// z / x is a smooth function of w (the idea of M. Giles, "Approximating the erfinv function",
/// 2010), sqrt(pi / 2) at w = 0. The ratio of polynomials that is added to that was fitted for
/// 0 <= w <= 44.5, minimising the largest relative error of z. All coefficients are positive:
/// nothing cancels, and where z is small so is the part that rounding affects.
template <typename Real>
[[gnu::always_inline]] inline Real NormalOfCentralProbability(Real x, Real w) noexcept {
  const auto c = [](double value) { return static_cast<Real>(value); };
  const Real w2 = w * w;
  const Real w4 = w2 * w2;
  // Estrin's scheme: half the latency of Horner's.
  const Real p = (c(3.2811782787e-01) + c(5.1077377767e-02) * w) +
                 w2 * (c(1.0471132377e-02) + c(9.5649289354e-04) * w) +
                 w4 * (c(7.4318149036e-05) + c(5.7165864121e-07) * w);
  const Real q = (c(1.0) + c(1.0590492926e-01) * w) +
                 w2 * (c(3.6678552369e-02) + c(2.7293324983e-03) * w) +
                 w4 * ((c(3.0732836151e-04) + c(6.7045203623e-06) * w) + w2 * c(1.0774583462e-08));
  return x * c(1.2533141373155001) + x * (w * p / q);
}

// The functions below work on blocks, in passes of few operations each: the processor overlaps
// many elements of a short dependency chain, but hardly two of a long one.
inline constexpr size_t kNormalBlock = 32;

/// Standard normal deviates; |z| < 6.4 from 32-bit words, < 9.2 from 64-bit ones.
template <typename Real>
void StandardNormals(const WordOf<Real>* words, size_t count /* <= kNormalBlock */,
                     Real* values) noexcept {
  using Traits = RealTraits<Real>;
  using Int = typename Traits::Int;
  constexpr Int kMost = static_cast<Int>(static_cast<WordOf<Real>>(~Int{0}) >> 1);
  Real w[kNormalBlock];
  for (size_t i = 0; i < count; ++i) {
    const Int value = static_cast<Int>(words[i]);
    values[i] = static_cast<Real>(value) * (2 * Traits::kHalfUnit) + Traits::kHalfUnit;
    // 1 - |x| from the word itself, exact where it is small: value and ~value are mirror images.
    const Int magnitude = value ^ (value >> (8 * sizeof(Int) - 1));
    const Real tail =
        static_cast<Real>(kMost - magnitude) * (2 * Traits::kHalfUnit) + Traits::kHalfUnit;
    w[i] = tail * (2 - tail);
  }
  for (size_t i = 0; i < count; ++i) w[i] = MinusLog(w[i]);
  for (size_t i = 0; i < count; ++i) values[i] = NormalOfCentralProbability(values[i], w[i]);
}

/// Standard normal deviates conditioned on |z| <= 2.
template <typename Real>
void TruncatedNormals(const WordOf<Real>* words, size_t count /* <= kNormalBlock */,
                      Real* values) noexcept {
  constexpr Real kWithinTwo = static_cast<Real>(0.9544997361036416);  // erf(sqrt(2))
  Real w[kNormalBlock];
  for (size_t i = 0; i < count; ++i) {
    values[i] = SymmetricUniform<Real>(words[i]) * kWithinTwo;
    w[i] = (1 - values[i]) * (1 + values[i]);
  }
  for (size_t i = 0; i < count; ++i) w[i] = MinusLog(w[i]);
  for (size_t i = 0; i < count; ++i) {
    const Real z = NormalOfCentralProbability(values[i], w[i]);
    const Real above = z < -2 ? Real{-2} : z;
    values[i] = above > 2 ? Real{2} : above;
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_NORMAL_QUANTILE_H_
