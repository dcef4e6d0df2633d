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
  /// Finds the distinct keys of `group`. An object keeps its memory from batch to batch.
  void Find(const Keys& keys, const ShardKeys& group) {
    if (keys.strings == nullptr) {
      FindAmong(group, [](uint32_t, uint32_t) { return true; });
    } else {
      FindAmong(group,
                [&keys](uint32_t a, uint32_t b) { return keys.strings[a] == keys.strings[b]; });
    }
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys keys() const noexcept { return {words_.data() + 1, positions_.data() + 1, size_}; }
  size_t size() const noexcept { return size_; }

  /// Which distinct key is key `j` of the group.
  uint32_t unique_of(size_t j) const noexcept { return unique_of_[j]; }

  /// How many keys of the group have occurred before in it, and the i-th of these keys.
  size_t again() const noexcept { return again_count_; }
  uint32_t again(size_t i) const noexcept { return again_[i]; }

 private:
  // Places of the map for each key: so many that another key's is seldom met, for then whether a
  // key is new is all that cannot be predicted, and nothing branches on that.
  static constexpr size_t kPlacesAKey = 4;

  /// `same_bytes(a, b)`: whether keys a and b of the batch, of one word, are equal.
  template <typename SameBytes>
  void FindAmong(const ShardKeys& group, const SameBytes& same_bytes) {
    size_t places = 16;
    while (places < kPlacesAKey * group.count) places *= 2;
    places_.assign(places, 0);
    MakeRoom(group.count);
    uint32_t* const place_of = places_.data();
    uint64_t* const words = words_.data();
    uint32_t* const positions = positions_.data();
    uint32_t* const unique_of = unique_of_.data();
    uint32_t* const again = again_.data();
    const uint64_t* const group_words = group.words;
    const uint32_t* const group_positions = group.positions;
    uint32_t size = 0;
    size_t repeated = 0;
    for (size_t j = 0, count = group.count, mask = places - 1; j < count; ++j) {
      const uint64_t word = group_words[j];
      const uint32_t position = group_positions[j];
      size_t at = static_cast<size_t>(Mix64(word)) & mask;
      uint32_t known = place_of[at];
      // What a free place leads to, so that whether there is one is not branched on here either.
      words[0] = word;
      positions[0] = position;
      const auto is_another = [&] {
        return words[known] != word || !same_bytes(position, positions[known]);
      };
      while (__builtin_expect(is_another(), 0)) {
        at = (at + 1) & mask;
        known = place_of[at];
      }
      const bool fresh = known == 0;
      known = fresh ? size + 1 : known;
      place_of[at] = known;
      words[size + 1] = word;
      positions[size + 1] = position;
      unique_of[j] = known - 1;
      again[repeated] = static_cast<uint32_t>(j);
      repeated += !fresh;
      size += fresh;
    }
    size_ = size;
    again_count_ = repeated;
  }

  void MakeRoom(size_t count) {
    if (count < unique_of_.size()) return;
    unique_of_.resize(count + 1);
    // Of these the place behind the last is written, too.
    words_.resize(count + 2);
    positions_.resize(count + 2);
    again_.resize(count + 1);
  }

  // Distinct keys are numbered from 1 here, and 0 is that of a free place.
  std::vector<uint32_t> places_;     ///< open addressing; numbers
  std::vector<uint32_t> unique_of_;  // (group)
  std::vector<uint32_t> again_;      // (again)
  std::vector<uint64_t> words_;      // (1 + unique)
  std::vector<uint32_t> positions_;  // (1 + unique)
  size_t size_ = 0;
  size_t again_count_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_UNIQUE_KEYS_H_
