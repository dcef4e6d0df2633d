// Random words of a row: a function of (seed, key word, element), the same on every machine.
//
// Counter-based: the word of an element is a hash of a counter, so each element can be computed
// alone. The function must never change: a key without a row reads as its initial row, so another
// bit would change the results of served models.
#ifndef DE_CORE_ENGINE_KEY_RANDOM_H_
#define DE_CORE_ENGINE_KEY_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

/// The part of KeyRandom that depends only on the seed.
struct RandomSeed {
  explicit RandomSeed(uint64_t seed) noexcept
      : rows(Mix64(seed + 0x9e3779b97f4a7c15ULL)), blocks(Mix64(rows + 0x9e3779b97f4a7c15ULL)) {}

  uint64_t rows;
  uint64_t blocks;
};

/// The words of one row: 32-bit words for float, half and bfloat16 elements, 64-bit words for
/// double.
class KeyRandom {
 public:
  KeyRandom(const RandomSeed& seed, uint64_t key_word) noexcept
      : row_(Mix64(key_word ^ seed.rows)),
        distinct_(Distinct(static_cast<uint32_t>(key_word) & kBlockMask,
                           Mix64((key_word >> kBlockBits) ^ seed.blocks))) {}

  /// Computes the words of elements [first, first + count).
  ///
  /// Uses 32-bit lanes, so that the loop vectorizes on plain SSE2. Each word is a 32-bit hash of a
  /// counter xored with one half of the row's state. The other half is the counter's step. The
  /// counter starts at the number whose hash is Distinct(), so that is the word of element 0.
  /// Source of the hash: C. Wellons, hash-prospector, without its last step, which improves only
  /// the lower bits.
  void Fill(size_t first, size_t count, uint32_t* words) const noexcept {
    const auto step = static_cast<uint32_t>(row_) | 1U, key = static_cast<uint32_t>(row_ >> 32);
    const uint32_t start = Start(distinct_, key) + static_cast<uint32_t>(first) * step;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t x = ((start + i * step) ^ key) * 0x21f0aaadU;
      words[i] = (x ^ (x >> 15)) * 0x735a2d97U;
    }
  }

  void Fill(size_t first, size_t count, uint64_t* words) const noexcept {
    uint64_t counter = row_ + first * kGolden;
    for (size_t i = 0; i < count; ++i) words[i] = Mix64(counter += kGolden);
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  static constexpr unsigned kBlockBits = 23;
  static constexpr uint32_t kBlockMask = (1U << kBlockBits) - 1;

  /// Returns the counter for which Fill computes `word`, by the inverse of its hash.
  static uint32_t Start(uint32_t word, uint32_t key) noexcept {
    const uint32_t x = word * 0x97132227U;                     // 0x735a2d97^-1 modulo 2^32
    return ((x ^ (x >> 15) ^ (x >> 30)) * 0x333c4925U) ^ key;  // 0x21f0aaad^-1
  }

  /// Returns the word of element 0, distinct among the 2^23 keys of a block. A block's keys share
  /// their upper 41 bits, as most sequential ids do. A random float has about 2^23 equally spaced
  /// values, so among a million rows of one random float, thousands would be equal. Instead, this
  /// function permutes the lower 23 bits of the keys. The result is the word's upper 23 bits. The
  /// word's lower bits are the middle of their range. Normal deviates of such words, scaled and
  /// rounded to float, are distinct too; with blocks of 2^24 keys they would not be.
  static uint32_t Distinct(uint32_t in_block, uint64_t block) noexcept {
    const auto low = static_cast<uint32_t>(block), high = static_cast<uint32_t>(block >> 32);
    uint32_t x = in_block ^ (low & kBlockMask);
    x = (x * 0x6b43a9b5U) & kBlockMask;  // odd factors and xor-shifts: each step is bijective
    x ^= x >> 13;
    x = ((x ^ (low >> 8)) * 0x52a4bf1dU) & kBlockMask;
    x ^= x >> 11;
    x = ((x ^ (high & kBlockMask)) * 0x1d7f3b2bU) & kBlockMask;
    x ^= x >> 13;
    x = ((x ^ (high >> 8)) * 0x68e31da5U) & kBlockMask;
    x ^= x >> 12;
    return x << (32 - kBlockBits) | 1U << (31 - kBlockBits);
  }

  uint64_t row_;
  uint32_t distinct_;  ///< the 32-bit word of element 0
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KEY_RANDOM_H_
