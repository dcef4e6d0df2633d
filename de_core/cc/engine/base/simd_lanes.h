// Vectors of 32-bit lanes for simd_draws.inc: eight lanes with AVX2, sixteen with AVX-512. Each
// operation gives exactly the bits of its scalar counterpart.
#ifndef DE_CORE_ENGINE_SIMD_LANES_H_
#define DE_CORE_ENGINE_SIMD_LANES_H_

#if defined(__x86_64__)
#define DE_SIMD_DRAWS 1

// GCC 12 wrongly warns about undefined registers inside its own AVX-512 functions.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/simd_targets.h"

/// Attributes of functions on vectors, for AVX2 and for AVX-512. Only functions compiled for the
/// same instruction set may call them.
#define DE_EIGHT [[gnu::target(DE_AVX2_TARGET), gnu::always_inline]] inline
#define DE_SIXTEEN [[gnu::target(DE_AVX512_TARGET), gnu::always_inline]] inline
/// Attributes of an AVX-512 function that may be called from code for the baseline instruction set.
/// All functions that it calls are inlined.
#define DE_SIXTEEN_CALL [[gnu::target(DE_AVX512_TARGET), gnu::flatten, gnu::noinline]]

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
  /// Returns the significand of a positive number: the number divided by a power of two, in [1, 2).
  DE_EIGHT static Floats Digits(Floats a) noexcept {
    const __m256i digits = _mm256_and_si256(Bits(a), _mm256_set1_epi32(0x7fffff));
    return _mm256_castsi256_ps(_mm256_or_si256(digits, _mm256_set1_epi32(0x3f800000)));
  }
  /// Returns the positive number `a` with the uppermost bit of `sign` as its sign.
  DE_EIGHT static Floats WithSign(Floats a, Ints sign) noexcept {
    const __m256 uppermost = _mm256_set1_ps(-0.0F);
    return _mm256_or_ps(a, _mm256_and_ps(_mm256_castsi256_ps(sign), uppermost));
  }
  DE_EIGHT static void Store(float* to, Floats a) noexcept { _mm256_storeu_ps(to, a); }

  /// Loads eight numbers into a register. The asm keeps the compiler from leaving them in memory,
  /// where Lookup would take four times as long.
  DE_EIGHT static Floats Load(const float* from) noexcept {
    Floats a = _mm256_load_ps(from);
    asm("" : "+x"(a));
    return a;
  }
  DE_EIGHT static Floats Lookup(Floats from, Ints at) noexcept {
    return _mm256_permutevar8x32_ps(from, at);
  }
  /// Returns a mask: bit i is set if a[i] < b[i].
  DE_EIGHT static uint32_t Below(Floats a, Floats b) noexcept {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
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

  DE_SIXTEEN static Floats Load(const float* from) noexcept {
    Floats a = _mm512_load_ps(from);
    asm("" : "+v"(a));
    return a;
  }
  DE_SIXTEEN static Floats Lookup(Floats from, Ints at) noexcept {
    return _mm512_permutexvar_ps(at, from);
  }
  DE_SIXTEEN static uint32_t Below(Floats a, Floats b) noexcept {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
  }
};

}  // namespace de::engine

#endif  // defined(__x86_64__)
#endif  // DE_CORE_ENGINE_SIMD_LANES_H_
