// Finds the distinct keys of a batch, or of its keys in one shard.
#ifndef DE_CORE_ENGINE_UNIQUE_KEYS_H_
#define DE_CORE_ENGINE_UNIQUE_KEYS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"

namespace de::engine {

class UniqueKeys {
 public:
  /// Finds the distinct keys of `group`. Call it again for the next batch to reuse the memory.
  void Find(const Keys& keys, const ShardKeys& group) {
    if (keys.strings == nullptr) {
      FindAmong(group, [](uint32_t, uint32_t) { return true; });
    } else {
      FindAmong(group,
                [&keys](uint32_t a, uint32_t b) { return keys.strings[a] == keys.strings[b]; });
    }
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys keys() const noexcept { return {words_.data(), positions_.data(), size_}; }
  size_t size() const noexcept { return size_; }

  /// The keys of the group that repeat an earlier key, and each key's number among the distinct
  /// keys. Holds pointers, because a loop over vectors that also writes bytes would reload the
  /// vectors' pointers for each key.
  struct Repeats {
    const uint32_t* keys;  // (count) indices in the group
    size_t count;
    const uint32_t* unique_of;  // (group)
  };
  Repeats repeats() const noexcept { return {again_.data(), again_count_, unique_of_.data()}; }

 private:
  // Number of places in the hash map per key: enough to make collisions rare, so that branches on
  // them are predicted well. Whether a key is new is unpredictable, but no code branches on it.
  static constexpr size_t kPlacesPerKey = 4;

  /// `same_bytes(a, b)` compares keys a and b of the batch, whose words are equal.
  template <typename SameBytes>
  void FindAmong(const ShardKeys& group, const SameBytes& same_bytes) {
    // 16-bit places, if they suffice, leave more of the first-level cache for the keys.
    if (group.count <= 0xffff) {
      FindIn(&small_places_, group, same_bytes);
    } else {
      FindIn(&places_, group, same_bytes);
    }
  }

  /// A place of the hash map holds the index in `group` where a distinct key first occurs. A free
  /// place holds a number greater than every index.
  template <typename Place, typename SameBytes>
  void FindIn(std::vector<Place>* map, const ShardKeys& group, const SameBytes& same_bytes) {
    size_t places = 16;
    while (places < kPlacesPerKey * group.count) places *= 2;
    map->assign(places, std::numeric_limits<Place>::max());
    MakeRoom(group.count);
    // Use two loops: one loop would need more data than fits into registers. The first loop finds,
    // for each key of the group, the first key of the group that equals it.
    const size_t count = group.count;
    uint32_t* const unique_of = unique_of_.data();
    const uint64_t* const group_words = group.words;
    const uint32_t* const group_positions = group.positions;
    Place* const place_of = map->data();
    for (size_t j = 0, mask = places - 1; j < count; ++j) {
      const uint64_t word = group_words[j];
      size_t at = static_cast<size_t>(Mix64(word)) & mask;
      // At a free place, `first` is j: the key is compared with itself, so no branch is needed.
      // Compare with `group`, which this loop never writes: a load of what was just stored would
      // wait for the store.
      const auto first_at = [&] { return std::min(j, static_cast<size_t>(place_of[at])); };
      size_t first = first_at();
      const auto is_another = [&] {
        return group_words[first] != word ||
               !same_bytes(group_positions[j], group_positions[first]);
      };
      while (__builtin_expect(is_another(), 0)) {
        at = (at + 1) & mask;
        first = first_at();
      }
      place_of[at] = static_cast<Place>(first);
      unique_of[j] = static_cast<uint32_t>(first);
    }
    uint64_t* const words = words_.data();
    uint32_t* const positions = positions_.data();
    uint32_t* const again = again_.data();
    uint32_t size = 0, repeated = 0;
    for (uint32_t j = 0; j < count; ++j) {
      const uint32_t first = unique_of[j];
      uint32_t fresh = first == j ? 1 : 0;
      HideFromCompiler(&fresh);
      words[size] = group_words[j];
      positions[size] = group_positions[j];
      again[repeated] = j;
      const uint32_t known = unique_of[first];
      unique_of[j] = known ^ ((known ^ size) & (0U - fresh));
      repeated += 1 - fresh;
      size += fresh;
    }
    size_ = size;
    again_count_ = repeated;
  }

  void MakeRoom(size_t count) {
    if (count < unique_of_.size()) return;
    // The loops write one element past the end.
    words_.resize(count + 1);
    positions_.resize(count + 1);
    again_.resize(count + 1);
    unique_of_.resize(count + 1);  // last: its size tells that all vectors have room
  }

  std::vector<uint16_t> small_places_;  ///< the hash map, with open addressing
  std::vector<uint32_t> places_;        ///< the hash map for more than 65535 keys
  std::vector<uint32_t> unique_of_;     // (group)
  std::vector<uint32_t> again_;         // (again) indices of repeated keys
  std::vector<uint64_t> words_;         // (unique)
  std::vector<uint32_t> positions_;     // (unique)
  size_t size_ = 0;
  size_t again_count_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_UNIQUE_KEYS_H_
