// Stochastic rounding of bfloat16 slots.
//
// A moving average changes by less than the distance between two bfloat16 numbers. Rounding to
// nearest would never change it. Stochastic rounding rounds up with a probability that is the
// rounded-off part, so the expected value of the result is the exact number.
//
// The random bits are a function of (seed, key, step, element): the seed of the table's
// initializer, and the table's number of steps, which snapshots contain. So a restart gives the
// same bits, and so do all processors, threads and replicas.
#ifndef DE_CORE_ENGINE_SLOT_ROUNDING_H_
#define DE_CORE_ENGINE_SLOT_ROUNDING_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/initial/key_random.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// Returns the seed of a step's random bits.
inline uint64_t RoundingSeed(uint64_t table_seed, int64_t step) noexcept {
  return Mix64(Mix64(table_seed ^ 0x736c6f7473ULL) + static_cast<uint64_t>(step));
}

/// Rounds to one of the two nearest bfloat16 numbers: up in magnitude if the 16 bits that are cut
/// off plus the lower half of `random` carry. Leaves bfloat16 numbers and infinities as they are.
inline BFloat16 RoundStochastically(float value, uint32_t random) noexcept {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + (random & 0xffffU)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  return {static_cast<uint16_t>(Select(magnitude > 0x7f800000, nan, rounded))};
}

/// The random bits of one row in one step.
class SlotRounding {
 public:
  /// Begins at element 1, because the word of KeyRandom's element 0 has fewer random bits.
  explicit SlotRounding(const KeyRandom& random) noexcept : words_(random.From(1)) {}

  /// The random bits of the slots of one element. Each Store uses other bits than the one before.
  struct Bits {
    uint32_t word;
    uint32_t unused;  ///< bits of the word that no Store has used, the next ones lowest
    int stores = 0;

    template <typename S, typename Real>
    S Store(Real value) noexcept {
      if constexpr (std::is_same_v<S, BFloat16>) {
        if (stores++ == 2) unused = Spread(word * 0x9e3779b1U);  // a word has bits for two slots
        const BFloat16 rounded = RoundStochastically(value, unused);
        unused >>= 16;
        return rounded;
      } else {
        return Scalar<S>::Store(value);
      }
    }
  };

  Bits BitsOf(size_t i) const noexcept {
    const uint32_t word = words_(static_cast<uint32_t>(i));
    return {word, Spread(word)};
  }

 private:
  /// The last step of the hash, which KeyRandom omits: it improves the lower bits.
  static uint32_t Spread(uint32_t word) noexcept { return word ^ (word >> 15); }

  KeyRandom::Words32 words_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLOT_ROUNDING_H_
