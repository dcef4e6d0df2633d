// Normal deviates of 32-bit words by a table: the tail of the normal distribution cut into octaves.
//
// The magnitude z of a deviate is a function of the probability beyond it, its tail, from 1/2 to
// 2^-33. Between two powers of two that function is a polynomial of degree 5, to an absolute error
// below 5e-6, which a test of 10^10 draws could not see; at the powers of two neighbours agree, so
// the whole ascends (over all words but four, where it falls by one unit in the last place). An
// octave is the exponent of the tail as a float, and its eight likeliest fit a vector register
// (wide_draws.h). Only + - * and bits: every machine gets the same numbers.
#ifndef DE_CORE_ENGINE_NORMAL_OCTAVES_H_
#define DE_CORE_ENGINE_NORMAL_OCTAVES_H_

#include <cstdint>

#include "de_core/cc/engine/scalar_types.h"

namespace de::engine {

inline constexpr uint32_t kOctaves = 32;
inline constexpr uint32_t kOctaveTerms = 6;

/// Coefficients of z in d, the part of the octave that is left above the tail: 0 at its upper end.
/// Column: the tail's octave, the likeliest last.
alignas(64) inline constexpr float kOctaveCoefficients[kOctaveTerms][kOctaves] = {
    {6.23026037F, 6.12075615F, 6.00935364F,  5.89595127F, 5.78043938F, 5.66269779F, 5.54259396F,
     5.41998339F, 5.29470396F, 5.16657829F,  5.03540611F, 4.90096426F, 4.76300097F, 4.62123108F,
     4.47532845F, 4.32491922F, 4.16956949F,  4.00877237F, 3.84193063F, 3.66832924F, 3.48710418F,
     3.29719329F, 3.09726906F, 2.8856349F,   2.66006756F, 2.41755891F, 2.15387464F, 1.86273193F,
     1.53412056F, 1.15034938F, 0.674489737F, 0.0F},
    {0.0783946961F, 0.0797311068F, 0.0811372101F, 0.0826192051F, 0.0841841251F, 0.0858399197F,
     0.0875956565F, 0.0894616842F, 0.0914499536F, 0.0935742483F, 0.095850639F,  0.0982979685F,
     0.100938477F,  0.103798643F,  0.106910266F,  0.110311933F,  0.114050984F,  0.118186191F,
     0.122791559F,  0.1279618F,    0.133820251F,  0.140531078F,  0.148318127F,  0.157495797F,
     0.168521553F,  0.182090893F,  0.199321494F,  0.222144827F,  0.254248053F,  0.303774565F,
     0.393531621F,  0.62683636F},
    {0.0182737131F, 0.0185708385F,  0.0188826825F, 0.0192104857F, 0.0195556413F, 0.0199197121F,
     0.0203044713F, 0.0207119212F,  0.0211443491F, 0.0216043741F, 0.0220950078F, 0.0226197392F,
     0.023182625F,  0.0237884242F,  0.0244427454F, 0.0251522642F, 0.0259249751F, 0.0267705433F,
     0.0277007669F, 0.0287301857F,  0.0298769157F, 0.0311637688F, 0.0326197706F, 0.0342821628F,
     0.036198847F,  0.0384306796F,  0.0410505794F, 0.0441269465F, 0.0476348028F, 0.0509930737F,
     0.0499920957F, -0.00224430044F},
    {0.00966865942F, 0.00981924869F, 0.00997698028F, 0.0101424288F, 0.0103162387F, 0.0104991291F,
     0.0106919091F,  0.0108954897F,  0.0111109037F,  0.0113393273F, 0.0115821017F, 0.0118407691F,
     0.0121171102F,  0.0124131925F,  0.0127314338F,  0.0130746765F, 0.0134462919F, 0.0138503043F,
     0.0142915649F,  0.0147759682F,  0.0153107522F,  0.0159048978F, 0.0165696647F, 0.0173193384F,
     0.0181722343F,  0.0191520527F,  0.02028968F,    0.0216256622F, 0.0232158247F, 0.0251703244F,
     0.028190542F,   0.0499279313F},
    {-0.00328386715F, -0.00333232502F, -0.00338295358F, -0.00343591813F, -0.00349140121F,
     -0.00354960607F, -0.00361075928F, -0.00367511483F, -0.00374295702F, -0.00381460716F,
     -0.00389042846F, -0.00397083396F, -0.00405629491F, -0.00414735172F, -0.00424462883F,
     -0.00434884848F, -0.00446085446F, -0.00458163675F, -0.00471236557F, -0.00485443417F,
     -0.00500951568F, -0.00517963432F, -0.00536726369F, -0.00557545712F, -0.00580802513F,
     -0.00606978266F, -0.0063668997F,  -0.00670741918F, -0.0071021365F,  -0.00756829837F,
     -0.00820802338F, -0.0145202512F},
    {0.00464441814F, 0.00471498026F, 0.0047888034F,  0.00486614369F, 0.0049472861F,  0.00503254822F,
     0.00512228673F, 0.00521690119F, 0.00531684328F, 0.00542262429F, 0.00553482678F, 0.0056541157F,
     0.0057812552F,  0.00591712911F, 0.00606276281F, 0.00621935539F, 0.00638831919F, 0.0065713278F,
     0.00677038077F, 0.0069878879F,  0.00722677866F, 0.00749065075F, 0.00778396754F, 0.00811232906F,
     0.00848283991F, 0.00890461542F, 0.00938946567F, 0.0099528078F,  0.010614777F,   0.0114015117F,
     0.0123533942F,  0.0144900298F},
};

/// Below it a tail, as TailScale gives it, is in none of the eight likeliest octaves.
inline constexpr float kLeastLikelyTail = 0x1p25F;

/// How a word becomes a tail: its distance from the ends of the range, times `factor`, plus `term`,
/// is 2^34 times the tail.
struct TailScale {
  float factor;
  float term;

  /// All of the distribution. The factor is just below 4, so that no tail reaches 1/2, where
  /// another octave would begin.
  static constexpr TailScale Whole() noexcept { return {0x1.fffffep+1F, 2.0F}; }
  /// What lies within two standard deviations: tails from just above
  /// 0.0227501319, where the deviate is 2 to its last digit, up to 1/2 as above.
  static constexpr TailScale WithinTwo() noexcept { return {0x1.e8b424p+1F, 390847104.0F}; }
};

/// The standard normal deviate of a word read as a two's complement fraction.
inline float NormalOfWord(uint32_t word, TailScale scale) noexcept {
  const auto value = static_cast<int32_t>(word);
  // value and ~value are mirror images, and this is how far both are from the ends.
  const int32_t distance = value ^ (value >> 31) ^ 0x7fffffff;
  const uint32_t tail = BitsOf(static_cast<float>(distance) * scale.factor + scale.term);
  const uint32_t octave = tail >> 23 & (kOctaves - 1);
  const float d = 2.0F - FloatOfBits((tail & 0x7fffffU) | 0x3f800000U);
  const auto c = [octave](uint32_t term) { return kOctaveCoefficients[term][octave]; };
  // Estrin's scheme: half the latency of Horner's.
  const float d2 = d * d;
  const float z = (c(0) + c(1) * d) + d2 * ((c(2) + c(3) * d) + d2 * (c(4) + c(5) * d));
  return FloatOfBits(BitsOf(z) ^ (word & 0x80000000U));
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_NORMAL_OCTAVES_H_
