// Computes normal deviates from random 32-bit words by a table of polynomials, one per octave.
//
// The magnitude z of a deviate is a function of its tail, the probability beyond z, from 1/2 to
// 2^-33. An octave is the range between two powers of two. There, a polynomial of degree 4
// approximates z to an absolute error below 4e-5, which a test of 10^9 draws could not detect.
// Neighboring polynomials agree at the powers of two, so the function is monotonic. The exponent of
// the tail as a float is the octave's number. simd_draws.h holds the coefficients of the eight most
// likely octaves in registers. Uses only + - * and bit operations, so every machine computes the
// same numbers.
#ifndef DE_CORE_ENGINE_NORMAL_OCTAVES_H_
#define DE_CORE_ENGINE_NORMAL_OCTAVES_H_

#include <cstdint>

#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

inline constexpr uint32_t kOctaves = 32;
inline constexpr uint32_t kOctaveTerms = 5;

/// Coefficients of z as a polynomial in d, the distance of the tail from the octave's upper end as
/// a fraction of the octave. Columns are octaves; the most likely one is last.
alignas(64) inline constexpr float kOctaveCoefficients[kOctaveTerms][kOctaves] = {
    {6.23026037F, 6.12075615F, 6.00935364F,  5.89595127F, 5.78043938F, 5.66269779F, 5.54259396F,
     5.41998339F, 5.29470396F, 5.16657829F,  5.03540611F, 4.90096426F, 4.76300097F, 4.62123108F,
     4.47532845F, 4.32491922F, 4.16956949F,  4.00877237F, 3.84193063F, 3.66832924F, 3.48710418F,
     3.29719329F, 3.09726906F, 2.8856349F,   2.66006756F, 2.41755891F, 2.15387464F, 1.86273181F,
     1.53412056F, 1.15034938F, 0.674489737F, 0.0F},
    {0.0780051947F, 0.0793358386F, 0.0807356089F, 0.0822111219F, 0.0837692469F, 0.0854178965F,
     0.0871661454F, 0.089024134F,  0.0910042152F, 0.0931194648F, 0.0953865275F, 0.0978238657F,
     0.100453719F,  0.103302501F,  0.106401928F,  0.109790482F,  0.113515384F,  0.117635429F,
     0.122223973F,  0.12737599F,   0.133214444F,  0.139903218F,  0.147665694F,  0.156815886F,
     0.167810649F,  0.181344777F,  0.198534772F,  0.221311003F,  0.253358871F,  0.302819669F,
     0.392497301F,  0.625634611F},
    {0.0218513496F, 0.0222028065F, 0.0225714929F, 0.0229588449F, 0.0233664736F, 0.0237961896F,
     0.0242500361F, 0.0247303285F, 0.0252396986F, 0.0257811584F, 0.0263581667F, 0.0269747246F,
     0.0276354775F, 0.0283458605F, 0.0291122776F, 0.0299423188F, 0.0308450647F, 0.0318314731F,
     0.0329148695F, 0.0341116562F, 0.0354421921F, 0.0369320512F, 0.0386136957F, 0.0405286588F,
     0.0427303016F, 0.0452864729F, 0.0482791662F, 0.0517886095F, 0.0558052734F, 0.0597681552F,
     0.059498243F,  0.00884232018F},
    {-0.000634422118F, -0.000640328391F, -0.000646323548F, -0.000652399089F, -0.000658543664F,
     -0.000664742372F, -0.000670975714F, -0.000677218835F, -0.000683439488F, -0.000689596636F,
     -0.000695637544F, -0.000701494806F, -0.000707081927F, -0.000712287787F, -0.000716968847F,
     -0.000720939192F, -0.000723956502F, -0.000725702965F, -0.000725759135F, -0.000723566744F,
     -0.000718377589F, -0.000709180138F, -0.000694597722F, -0.000672745693F, -0.000641040853F,
     -0.000595961348F, -0.000532769714F, -0.000445049111F, -0.000321550353F, -0.000109980647F,
     0.000802189577F,  0.0179047249F},
    {0.00847549736F, 0.0086056795F,  0.00874194596F, 0.00888477918F, 0.00903471839F, 0.00919236522F,
     0.00935839303F, 0.00953356177F, 0.00971872918F, 0.00991486851F, 0.0101230908F,  0.0103446655F,
     0.0105810566F,  0.0108339572F,  0.0111053409F,  0.0113975201F,  0.0117132235F,  0.0120556951F,
     0.0124288267F,  0.0128373206F,  0.0132869184F,  0.0137846963F,  0.0143394759F,  0.0149623696F,
     0.015667541F,   0.0164732318F,  0.0174031518F,  0.0184882581F,  0.0197686888F,  0.0212933179F,
     0.0230619125F,  0.0221080706F},
};

/// A tail below this limit (scaled by TailScale) is not in the kCount most likely octaves.
template <uint32_t kCount>
inline constexpr float kLeastLikelyTail = static_cast<float>(uint64_t{1} << (33 - kCount));

/// Converts a word to a tail: the word's lower 31 bits, times `factor`, plus `term`, are 2^34 times
/// the tail. The word's uppermost bit is the deviate's sign.
struct TailScale {
  float factor;
  float term;

  /// The whole distribution. The factor is slightly below 4, so that every tail is below 1/2, where
  /// another octave would begin.
  static constexpr TailScale Whole() noexcept { return {0x1.fffffep+1F, 2.0F}; }
  /// Deviates within two standard deviations: tails from just above 0.0227499213, where the deviate
  /// is 2 to its last digit, up to 1/2 as above.
  static constexpr TailScale WithinTwo() noexcept { return {0x1.e8b43cp+1F, 390840672.0F}; }
};

/// The standard normal deviate of a word.
inline float NormalOfWord(uint32_t word, TailScale scale) noexcept {
  const auto magnitude = static_cast<float>(static_cast<int32_t>(word & 0x7fffffffU));
  const uint32_t tail = BitsOf(FusedMultiplyAdd(magnitude, scale.factor, scale.term));
  const uint32_t octave = tail >> 23 & (kOctaves - 1);
  const float d = 2.0F - FloatOfBits((tail & 0x7fffffU) | 0x3f800000U);
  float z = kOctaveCoefficients[kOctaveTerms - 1][octave];
  for (uint32_t term = kOctaveTerms - 1; term-- > 0;) {
    z = FusedMultiplyAdd(z, d, kOctaveCoefficients[term][octave]);
  }
  return FloatOfBits(BitsOf(z) | (word & 0x80000000U));
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_NORMAL_OCTAVES_H_
