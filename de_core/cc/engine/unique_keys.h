// The distinct keys of a batch, or of one shard's share of it.
#ifndef DE_CORE_ENGINE_UNIQUE_KEYS_H_
#define DE_CORE_ENGINE_UNIQUE_KEYS_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/partition.h"
#include "de_core/cc/engine/types.h"

namespace de::engine {

class UniqueKeys {
 public:
  /// In `repeat(j)`: the key occurs once.
  static constexpr uint32_t kOnce = 0xffffffffU;

  /// Finds the distinct keys of `group`. An object keeps its memory from batch to batch.
  void Find(const Keys& keys, const ShardKeys& group) {
    size_t places = 16;
    while (places < 2 * group.count) places *= 2;
    places_.assign(places, 0);
    unique_of_.resize(group.count);
    words_.clear();
    positions_.clear();
    repeat_of_.clear();
    repeated_ = 0;
    for (size_t j = 0; j < group.count; ++j) {
      const uint64_t word = group.words[j];
      size_t at = static_cast<size_t>(Mix64(word)) & (places - 1);
      uint32_t unique = 0;
      for (; places_[at] != 0; at = (at + 1) & (places - 1)) {
        unique = places_[at] - 1;
        if (words_[unique] == word && SameBytes(keys, group.positions[j], positions_[unique])) {
          break;
        }
      }
      if (places_[at] == 0) {
        unique = static_cast<uint32_t>(words_.size());
        places_[at] = unique + 1;
        words_.push_back(word);
        positions_.push_back(group.positions[j]);
        repeat_of_.push_back(kOnce);
      } else if (repeat_of_[unique] == kOnce) {
        repeat_of_[unique] = repeated_++;
      }
      unique_of_[j] = unique;
    }
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys keys() const noexcept { return {words_.data(), positions_.data(), words_.size()}; }
  size_t size() const noexcept { return words_.size(); }

  /// Which distinct key is key `j` of the group.
  uint32_t unique_of(size_t j) const noexcept { return unique_of_[j]; }

  /// The number of distinct key `unique` among those that occur again, or kOnce.
  uint32_t repeat(uint32_t unique) const noexcept { return repeat_of_[unique]; }
  /// How many distinct keys occur again.
  uint32_t repeated() const noexcept { return repeated_; }

 private:
  static bool SameBytes(const Keys& keys, uint32_t a, uint32_t b) noexcept {
    return keys.strings == nullptr || keys.strings[a] == keys.strings[b];
  }

  std::vector<uint32_t> places_;     ///< open addressing; unique index + 1, 0 is free
  std::vector<uint32_t> unique_of_;  // (group)
  std::vector<uint64_t> words_;      // (unique)
  std::vector<uint32_t> positions_;  // (unique)
  std::vector<uint32_t> repeat_of_;  // (unique)
  uint32_t repeated_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_UNIQUE_KEYS_H_
