// Vectors of 32-bit lanes for wide_draws.inc: eight with AVX2, sixteen with AVX-512. Each operation
// gives the bits that its counterpart on one lane gives.
#ifndef DE_CORE_ENGINE_WIDE_LANES_H_
#define DE_CORE_ENGINE_WIDE_LANES_H_

#if defined(__x86_64__)
#define DE_WIDE_DRAWS 1

// GCC 12 takes the undefined registers of its own AVX-512 functions for mistakes of the caller.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/normal_octaves.h"
#include "de_core/cc/engine/wide_vectors.h"

/// For functions of vectors; they may be called by each other and by those of the same target.
#define DE_EIGHT [[gnu::target(DE_EIGHT_LANES), gnu::always_inline]] inline
#define DE_SIXTEEN [[gnu::target(DE_SIXTEEN_LANES), gnu::always_inline]] inline

namespace de::engine {

struct EightLanes {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr size_t kCount = 8;

  DE_EIGHT static Ints Set(uint32_t x) noexcept { return _mm256_set1_epi32(static_cast<int>(x)); }
  DE_EIGHT static Floats Set(float x) noexcept { return _mm256_set1_ps(x); }
  DE_EIGHT static Ints Numbers() noexcept { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  DE_EIGHT static Ints Add(Ints a, Ints b) noexcept { return _mm256_add_epi32(a, b); }
  DE_EIGHT static Ints Times(Ints a, Ints b) noexcept { return _mm256_mullo_epi32(a, b); }
  DE_EIGHT static Ints And(Ints a, Ints b) noexcept { return _mm256_and_si256(a, b); }
  DE_EIGHT static Ints Xor(Ints a, Ints b) noexcept { return _mm256_xor_si256(a, b); }
  template <int kBits>
  DE_EIGHT static Ints ShiftRight(Ints a) noexcept {
    return _mm256_srli_epi32(a, kBits);
  }
  DE_EIGHT static Floats ToFloats(Ints a) noexcept { return _mm256_cvtepi32_ps(a); }
  DE_EIGHT static Ints Bits(Floats a) noexcept { return _mm256_castps_si256(a); }
  DE_EIGHT static Floats Minus(Floats a, Floats b) noexcept { return _mm256_sub_ps(a, b); }
  DE_EIGHT static Floats Times(Floats a, Floats b) noexcept { return _mm256_mul_ps(a, b); }
  DE_EIGHT static Floats TimesPlus(Floats a, Floats b, Floats c) noexcept {
    return _mm256_fmadd_ps(a, b, c);
  }
  DE_EIGHT static Floats Least(Floats a, Floats b) noexcept { return _mm256_min_ps(a, b); }
  DE_EIGHT static Floats Most(Floats a, Floats b) noexcept { return _mm256_max_ps(a, b); }
  /// The digits of a positive number: it divided by a power of two, in [1, 2).
  DE_EIGHT static Floats Digits(Floats a) noexcept {
    const __m256i digits = _mm256_and_si256(Bits(a), _mm256_set1_epi32(0x7fffff));
    return _mm256_castsi256_ps(_mm256_or_si256(digits, _mm256_set1_epi32(0x3f800000)));
  }
  /// A positive number with the uppermost bit of `sign`.
  DE_EIGHT static Floats WithSign(Floats a, Ints sign) noexcept {
    const __m256 uppermost = _mm256_set1_ps(-0.0F);
    return _mm256_or_ps(a, _mm256_and_ps(_mm256_castsi256_ps(sign), uppermost));
  }
  DE_EIGHT static void Store(float* to, Floats a) noexcept { _mm256_storeu_ps(to, a); }

  /// The likeliest octaves' coefficients of a term. In a register, for a permutation of what is in
  /// memory takes four times as long.
  struct Coefficients {
    Floats likeliest;
    Coefficients() = default;
    DE_EIGHT explicit Coefficients(uint32_t term) noexcept
        : likeliest(_mm256_load_ps(kOctaveCoefficients[term] + (kOctaves - kCount))) {
      asm("" : "+x"(likeliest));
    }
    DE_EIGHT Floats Of(Ints octaves) const noexcept {
      return _mm256_permutevar8x32_ps(likeliest, octaves);
    }
  };
  /// A bit for each tail in an octave that Coefficients does not hold, one of 256.
  DE_EIGHT static uint32_t Beyond(Floats tails) noexcept {
    const __m256 least = _mm256_set1_ps(kLeastLikelyTail);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(tails, least, _CMP_LT_OQ)));
  }
};

struct SixteenLanes {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr size_t kCount = 16;

  DE_SIXTEEN static Ints Set(uint32_t x) noexcept { return _mm512_set1_epi32(static_cast<int>(x)); }
  DE_SIXTEEN static Floats Set(float x) noexcept { return _mm512_set1_ps(x); }
  DE_SIXTEEN static Ints Numbers() noexcept {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  DE_SIXTEEN static Ints Add(Ints a, Ints b) noexcept { return _mm512_add_epi32(a, b); }
  DE_SIXTEEN static Ints Times(Ints a, Ints b) noexcept { return _mm512_mullo_epi32(a, b); }
  DE_SIXTEEN static Ints And(Ints a, Ints b) noexcept { return _mm512_and_si512(a, b); }
  DE_SIXTEEN static Ints Xor(Ints a, Ints b) noexcept { return _mm512_xor_si512(a, b); }
  template <int kBits>
  DE_SIXTEEN static Ints ShiftRight(Ints a) noexcept {
    return _mm512_srli_epi32(a, kBits);
  }
  DE_SIXTEEN static Floats ToFloats(Ints a) noexcept { return _mm512_cvtepi32_ps(a); }
  DE_SIXTEEN static Ints Bits(Floats a) noexcept { return _mm512_castps_si512(a); }
  DE_SIXTEEN static Floats Minus(Floats a, Floats b) noexcept { return _mm512_sub_ps(a, b); }
  DE_SIXTEEN static Floats Times(Floats a, Floats b) noexcept { return _mm512_mul_ps(a, b); }
  DE_SIXTEEN static Floats TimesPlus(Floats a, Floats b, Floats c) noexcept {
    return _mm512_fmadd_ps(a, b, c);
  }
  DE_SIXTEEN static Floats Least(Floats a, Floats b) noexcept { return _mm512_min_ps(a, b); }
  DE_SIXTEEN static Floats Most(Floats a, Floats b) noexcept { return _mm512_max_ps(a, b); }
  DE_SIXTEEN static Floats Digits(Floats a) noexcept {
    return _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  }
  DE_SIXTEEN static Floats WithSign(Floats a, Ints sign) noexcept {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);  // a | (sign & ~magnitude)
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(Bits(a), sign, magnitude, 0xf4));
  }
  DE_SIXTEEN static void Store(float* to, Floats a) noexcept { _mm512_storeu_ps(to, a); }

  /// Those of all octaves.
  struct Coefficients {
    Floats unlikely, likely;
    Coefficients() = default;
    DE_SIXTEEN explicit Coefficients(uint32_t term) noexcept
        : unlikely(_mm512_load_ps(kOctaveCoefficients[term])),
          likely(_mm512_load_ps(kOctaveCoefficients[term] + kCount)) {}
    DE_SIXTEEN Floats Of(Ints octaves) const noexcept {
      return _mm512_permutex2var_ps(unlikely, octaves, likely);
    }
  };
  DE_SIXTEEN static uint32_t Beyond(Floats) noexcept { return 0; }
};
static_assert(kOctaves == 2 * SixteenLanes::kCount, "two registers hold all octaves");

}  // namespace de::engine

#endif  // defined(__x86_64__)
#endif  // DE_CORE_ENGINE_WIDE_LANES_H_
