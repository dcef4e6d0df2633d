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

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// Returns the seed of a step's random bits.
inline uint64_t RoundingSeed(uint64_t table_seed, int64_t step) noexcept {
  return Mix64(Mix64(table_seed ^ 0x736c6f7473ULL) + static_cast<uint64_t>(step));
}

/// Rounds to one of the two nearest bfloat16 numbers: up in magnitude if the 16 bits that are cut
/// off plus `random`, which is below 2^16, carry. Leaves bfloat16 numbers, infinities and quiet NaN
/// as they are. Results of arithmetic are never signaling NaN.
inline BFloat16 RoundStochastically(float value, uint32_t random) noexcept {
  const uint32_t number = 0U - static_cast<uint32_t>(value == value);  // 0 for NaN
  return {static_cast<uint16_t>((BitsOf(value) + (random & number)) >> 16)};
}

/// The random bits of one row in one step. A word of 32 bits serves two slots of an element. An
/// element's word is a bijection of half of `state_`, a hash of key and step. So each element and
/// slot is rounded without bias. The multiplication makes neighboring elements independent.
class SlotRounding {
 public:
  /// `seed` is RoundingSeed.
  SlotRounding(uint64_t seed, uint64_t key_word) noexcept : state_(Mix64(key_word ^ seed)) {}

  /// The random bits of slot number kSlot.
  template <size_t kSlot>
  struct Bits {
    uint32_t start;

    /// Returns the 16 bits of an element.
    uint32_t operator()(uint32_t i) const noexcept {
      uint32_t word = start + i * kStep;
      word = (word ^ (word >> 16)) * kFactor;
      return kSlot % 2 == 0 ? word >> 16 : (word ^ (word >> 16)) & 0xffffU;
    }
  };

  /// The bits of the elements from `first` on.
  template <size_t kSlot>
  Bits<kSlot> BitsOf(size_t first) const noexcept {
    const auto start = static_cast<uint32_t>(kSlot < 2 ? state_ : state_ >> 32);
    return {start + static_cast<uint32_t>(first) * kStep};
  }

 private:
  static constexpr uint32_t kStep = 0x9e3779b9U;
  static constexpr uint32_t kFactor = 0x21f0aaadU;

  uint64_t state_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLOT_ROUNDING_H_
