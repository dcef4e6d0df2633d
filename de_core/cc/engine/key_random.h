// Random words of a row: a function of (seed, key word, element) alone, the same on every machine.
//
// Counter-based: element words are mixes of a counter, so any element can be computed by itself.
// The function is a persistent promise (a missing row must read the same for ever): a change of any
// bit breaks served models.
#ifndef DE_CORE_ENGINE_KEY_RANDOM_H_
#define DE_CORE_ENGINE_KEY_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/hash.h"

namespace de::engine {

/// What of KeyRandom depends on the seed alone.
struct RandomSeed {
  explicit RandomSeed(uint64_t seed) noexcept
      : rows(Mix64(seed + 0x9e3779b97f4a7c15ULL)), blocks(Mix64(rows + 0x9e3779b97f4a7c15ULL)) {}

  uint64_t rows;
  uint64_t blocks;
};

/// The words of one row. 32-bit words serve float, half and bfloat16 elements, 64-bit ones double.
class KeyRandom {
 public:
  KeyRandom(RandomSeed seed, uint64_t key_word) noexcept
      : row_(Mix64(key_word ^ seed.rows)),
        block_(Mix64((key_word >> kBlockBits) ^ seed.blocks)),
        in_block_(static_cast<uint32_t>(key_word) & kBlockMask) {}

  /// Words of elements [first, first + count).
  ///
  /// 32-bit lanes, so that the loop vectorises on plain SSE2: a 32-bit finalizer over a counter,
  /// keyed midway with one half of the row's state; the other half is the counter's step. The
  /// counter starts where the finalizer makes the word of element 0 a DistinctWord.
  /// Source of the finalizer: C. Wellons, hash-prospector ("lowbias32").
  void Fill(size_t first, size_t count, uint32_t* words) const noexcept {
    const Counter row = counter();
    const uint32_t start = row.start + static_cast<uint32_t>(first) * row.step;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t x = start + i * row.step;
      x = (x ^ (x >> 16)) * kFirstFactor;
      x ^= row.key;
      x = (x ^ (x >> 15)) * kSecondFactor;
      words[i] = x ^ (x >> 15);
    }
  }

  /// What the 32-bit words of a row are made of.
  struct Counter {
    uint32_t start, step, key;
  };
  Counter counter() const noexcept {
    const auto key = static_cast<uint32_t>(row_ >> 32);
    return {Unfinalize(DistinctWord(), key), static_cast<uint32_t>(row_) | 1U, key};
  }
  static constexpr uint32_t kFirstFactor = 0x21f0aaadU;
  static constexpr uint32_t kSecondFactor = 0x735a2d97U;

  void Fill(size_t first, size_t count, uint64_t* words) const noexcept {
    uint64_t counter = row_ + first * kGolden;
    for (size_t i = 0; i < count; ++i) words[i] = Mix64(counter += kGolden);
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  static constexpr unsigned kBlockBits = 23;
  static constexpr uint32_t kBlockMask = (1U << kBlockBits) - 1;

  /// The inverse of the finalizer in Fill.
  static uint32_t Unfinalize(uint32_t x, uint32_t key) noexcept {
    x = (x ^ (x >> 15) ^ (x >> 30)) * 0x97132227U;  // 0x735a2d97^-1 modulo 2^32
    x = x ^ (x >> 15) ^ (x >> 30);
    x = (x ^ key) * 0x333c4925U;  // 0x21f0aaad^-1 modulo 2^32
    return x ^ (x >> 16);
  }

  /// The word of element 0. A draw of a float has about 2^23 equally spaced values, so among a
  /// million rows of one random float thousands would be equal. Here the 2^23 keys of a block
  /// (those that share their upper 41 bits, as most sequential ids do) are permuted instead: no two
  /// of them share this word's upper 23 bits, and its lower bits are 0. Normal deviates of such
  /// words, scaled and rounded to float, are distinct too; one more bit would be too many.
  uint32_t DistinctWord() const noexcept {
    const uint32_t low = static_cast<uint32_t>(block_);
    const uint32_t high = static_cast<uint32_t>(block_ >> 32);
    uint32_t x = in_block_ ^ (low & kBlockMask);
    x = (x * 0x6b43a9b5U) & kBlockMask;  // odd factors and shifts of itself: each step is bijective
    x ^= x >> 13;
    x = ((x ^ (low >> 8)) * 0x52a4bf1dU) & kBlockMask;
    x ^= x >> 11;
    x = ((x ^ (high & kBlockMask)) * 0x1d7f3b2bU) & kBlockMask;
    x ^= x >> 13;
    x = ((x ^ (high >> 8)) * 0x68e31da5U) & kBlockMask;
    x ^= x >> 12;
    return x << (32 - kBlockBits);
  }

  uint64_t row_;
  uint64_t block_;
  uint32_t in_block_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KEY_RANDOM_H_
