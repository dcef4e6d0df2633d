// A Bloom filter over the hashes of a run's keys: answers "absent" without a read.
//
// Split-block filter: the hash chooses a block of 256 bits, then sets one bit in each of its eight
// words. A test touches one cache line. With 12 bits per key about 0.5 % of absent keys pass.
#ifndef DE_CORE_ENGINE_RUN_FILTER_H_
#define DE_CORE_ENGINE_RUN_FILTER_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"

namespace de::engine {

/// A key's hash for filters. Independent of the top bits, which choose the run and the block.
inline uint64_t FilterHash(uint64_t hash) noexcept { return Mix64(hash + 0x9e3779b97f4a7c15ULL); }

class RunFilter {
 public:
  RunFilter() = default;
  RunFilter(uint64_t keys, uint32_t bits_per_key)
      : words_((keys * bits_per_key / kBlockBits + 1) * kWords) {}

  void Add(uint64_t filter_hash) noexcept {
    uint32_t* const block = words_.data() + BlockOf(filter_hash);
    for (uint32_t i = 0; i < kWords; ++i) block[i] |= BitOf(filter_hash, i);
  }

  /// False if the key was not added.
  bool MayContain(uint64_t filter_hash) const noexcept {
    const uint32_t* const block = words_.data() + BlockOf(filter_hash);
    uint32_t missing = 0;
    for (uint32_t i = 0; i < kWords; ++i) missing |= BitOf(filter_hash, i) & ~block[i];
    return missing == 0;
  }

  void Prefetch(uint64_t filter_hash) const noexcept {
    PrefetchFar(words_.data() + BlockOf(filter_hash));
  }

  uint64_t bytes() const noexcept { return words_.size() * sizeof(uint32_t); }

 private:
  static constexpr uint32_t kWords = 8;
  static constexpr uint32_t kBlockBits = 32 * kWords;
  static constexpr uint32_t kSalts[kWords] = {0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
                                              0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U};

  size_t BlockOf(uint64_t filter_hash) const noexcept {
    return ReduceHigh(filter_hash, words_.size() / kWords) * kWords;
  }
  static uint32_t BitOf(uint64_t filter_hash, uint32_t i) noexcept {
    return 1U << (static_cast<uint32_t>(filter_hash) * kSalts[i] >> 27);
  }

  std::vector<uint32_t> words_;  // (blocks, kWords)
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_FILTER_H_
