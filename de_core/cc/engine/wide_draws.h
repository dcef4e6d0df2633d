// Random elements of rows of floats, eight at a time where the processor has AVX2: the same bits as
// KeyRandom, SymmetricUniform and NormalOfWord give one by one.
#ifndef DE_CORE_ENGINE_WIDE_DRAWS_H_
#define DE_CORE_ENGINE_WIDE_DRAWS_H_

#if defined(__x86_64__)
#define DE_WIDE_DRAWS 1

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "de_core/cc/engine/key_random.h"
#include "de_core/cc/engine/normal_octaves.h"

/// For functions of eight elements; they may be called by each other and by DE_WIDE_VECTORS ones.
#define DE_EIGHT [[gnu::target("avx2"), gnu::always_inline]] inline

namespace de::engine {

inline constexpr size_t kWide = 8;

/// Eight times that number, as a float.
DE_EIGHT __m256 WideFloats(double value) noexcept {
  return _mm256_set1_ps(static_cast<float>(value));
}

// Below every step is taken for all of several vectors before the next: a step waits for the one
// before, and a processor does not look ahead by all the steps of a vector.

/// The words of a row, eight by eight.
class WideWords {
 public:
  DE_EIGHT explicit WideWords(const KeyRandom::Counter& counter) noexcept
      : key_(_mm256_set1_epi32(static_cast<int>(counter.key))),
        step_(_mm256_set1_epi32(static_cast<int>(counter.step * kWide))),
        at_(_mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(counter.start)),
                             _mm256_mullo_epi32(_mm256_set1_epi32(static_cast<int>(counter.step)),
                                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))) {}

  template <size_t kVectors>
  DE_EIGHT void Next(__m256i* x /* (kVectors) */) noexcept {
    const __m256i first = _mm256_set1_epi32(static_cast<int>(KeyRandom::kFirstFactor));
    const __m256i second = _mm256_set1_epi32(static_cast<int>(KeyRandom::kSecondFactor));
    for (size_t i = 0; i < kVectors; ++i) {
      x[i] = at_;
      at_ = _mm256_add_epi32(at_, step_);
    }
    for (size_t i = 0; i < kVectors; ++i) {
      x[i] = _mm256_mullo_epi32(_mm256_xor_si256(x[i], _mm256_srli_epi32(x[i], 16)), first);
    }
    for (size_t i = 0; i < kVectors; ++i) {
      x[i] = _mm256_xor_si256(x[i], key_);
      x[i] = _mm256_mullo_epi32(_mm256_xor_si256(x[i], _mm256_srli_epi32(x[i], 15)), second);
    }
    for (size_t i = 0; i < kVectors; ++i) {
      x[i] = _mm256_xor_si256(x[i], _mm256_srli_epi32(x[i], 15));
    }
  }

 private:
  __m256i key_, step_, at_;
};

/// SymmetricUniform of words.
template <size_t kVectors>
DE_EIGHT void WideUniform(const __m256i* words, __m256* values) noexcept {
  for (size_t i = 0; i < kVectors; ++i) {
    values[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(words[i]), _mm256_set1_ps(0x1p-31F));
  }
}

/// A term's coefficients of the likeliest octaves; in a register, for a permutation of what is in
/// memory takes four times as long.
DE_EIGHT __m256 WideCoefficients(uint32_t term) noexcept {
  __m256 likeliest = _mm256_load_ps(kOctaveCoefficients[term] + (kOctaves - kWide));
  asm("" : "+x"(likeliest));
  return likeliest;
}

/// to = coefficient * d.
template <size_t kVectors>
DE_EIGHT void WideTimes(uint32_t term, const __m256i* octave, const __m256* d,
                        __m256* to) noexcept {
  const __m256 coefficients = WideCoefficients(term);
  for (size_t i = 0; i < kVectors; ++i) {
    to[i] = _mm256_mul_ps(_mm256_permutevar8x32_ps(coefficients, octave[i]), d[i]);
  }
}

/// to += coefficient.
template <size_t kVectors>
DE_EIGHT void WidePlus(uint32_t term, const __m256i* octave, __m256* to) noexcept {
  const __m256 coefficients = WideCoefficients(term);
  for (size_t i = 0; i < kVectors; ++i) {
    to[i] = _mm256_add_ps(_mm256_permutevar8x32_ps(coefficients, octave[i]), to[i]);
  }
}

/// NormalOfWord of words. The registers hold the eight likeliest octaves; in one of 256 words the
/// tail is in another.
template <size_t kVectors>
DE_EIGHT void WideNormal(const __m256i* words, TailScale scale, __m256* values) noexcept {
  const __m256i most = _mm256_set1_epi32(0x7fffffff);
  __m256i octave[kVectors];
  __m256 d[kVectors], z[kVectors];
  uint32_t far = 0;  // a bit each element
  for (size_t i = 0; i < kVectors; ++i) {
    const __m256i magnitude = _mm256_xor_si256(words[i], _mm256_srai_epi32(words[i], 31));
    const __m256 distance = _mm256_cvtepi32_ps(_mm256_xor_si256(magnitude, most));
    const __m256 tail = _mm256_add_ps(_mm256_mul_ps(distance, _mm256_set1_ps(scale.factor)),
                                      _mm256_set1_ps(scale.term));
    const __m256 below = _mm256_cmp_ps(tail, _mm256_set1_ps(kLeastLikelyTail), _CMP_LT_OQ);
    far |= static_cast<uint32_t>(_mm256_movemask_ps(below)) << (i * kWide);
    const __m256i bits = _mm256_castps_si256(tail);
    octave[i] = _mm256_srli_epi32(bits, 23);
    const __m256i rest = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)),
                                         _mm256_set1_epi32(0x3f800000));
    d[i] = _mm256_sub_ps(_mm256_set1_ps(2.0F), _mm256_castsi256_ps(rest));
  }
  __m256 high[kVectors];
  WideTimes<kVectors>(5, octave, d, high);
  WidePlus<kVectors>(4, octave, high);
  for (size_t i = 0; i < kVectors; ++i) high[i] = _mm256_mul_ps(_mm256_mul_ps(d[i], d[i]), high[i]);
  WideTimes<kVectors>(3, octave, d, z);
  WidePlus<kVectors>(2, octave, z);
  for (size_t i = 0; i < kVectors; ++i) {
    z[i] = _mm256_mul_ps(_mm256_mul_ps(d[i], d[i]), _mm256_add_ps(z[i], high[i]));
  }
  WideTimes<kVectors>(1, octave, d, high);
  WidePlus<kVectors>(0, octave, high);
  for (size_t i = 0; i < kVectors; ++i) z[i] = _mm256_add_ps(high[i], z[i]);
  for (size_t i = 0; i < kVectors; ++i) {
    const __m256i sign = _mm256_andnot_si256(most, words[i]);
    values[i] = _mm256_xor_ps(z[i], _mm256_castsi256_ps(sign));
  }
  if (__builtin_expect(far == 0, 1)) return;
  alignas(32) uint32_t word[kVectors * kWide];
  alignas(32) float value[kVectors * kWide];
  std::memcpy(word, words, sizeof(word));
  std::memcpy(value, values, sizeof(value));
  for (; far != 0; far &= far - 1) {
    const int at = __builtin_ctz(far);
    value[at] = NormalOfWord(word[at], scale);
  }
  std::memcpy(values, value, sizeof(value));
}

}  // namespace de::engine

#endif  // defined(__x86_64__)
#endif  // DE_CORE_ENGINE_WIDE_DRAWS_H_
