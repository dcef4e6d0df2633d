// Selects the keys of a batch that belong to some adjacent shards, some hundred at a time.
#ifndef DE_CORE_ENGINE_PICKED_KEYS_H_
#define DE_CORE_ENGINE_PICKED_KEYS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/index/pipeline.h"

namespace de::engine {

/// A writer releases its lock after this many keys, so that readers can run.
inline constexpr size_t kKeysPerLock = 512;
/// Greatest number of keys that are selected at once.
inline constexpr size_t kMostPicked = 2048;

/// Reads the batch once, in order. Several threads can share a batch without sorting it: each takes
/// some shards and reads all keys, at about a nanosecond per key. No thread waits for another.
class PickedKeys {
 public:
  /// Selects keys in [begin, end) that belong to shards [first, last], `most` (at most kMostPicked)
  /// at a time.
  PickedKeys(const Keys& keys, size_t begin, size_t end, uint32_t first, uint32_t last,
             size_t most = kKeysPerLock) noexcept
      : keys_(keys), at_(begin), end_(end), most_(most), first_(first), last_(last) {}

  /// Selects the next keys, or the remaining ones. Returns false if there are none.
  bool Next() noexcept {
    count_ = 0;
    if (keys_.ints != nullptr) {
      Pick([ints = keys_.ints](size_t i)
               DE_ALWAYS_INLINE { return static_cast<uint64_t>(ints[i]); });
    } else {
      Pick([strings = keys_.strings](size_t i) DE_ALWAYS_INLINE { return HashBytes(strings[i]); });
    }
    return count_ > 0;
  }

  uint32_t first() const noexcept { return first_; }
  uint32_t last() const noexcept { return last_; }

  // The selected keys, in the order of the batch.
  size_t count() const noexcept { return count_; }
  const uint64_t* hashes() const noexcept { return hashes_; }
  const uint32_t* positions() const noexcept { return positions_; }

  /// Calls use(shard, keys) for each shard with selected keys.
  template <typename Use>
  void ForEachShard(const Use& use) const {
    uint64_t words[kMostPicked];
    uint32_t positions[kMostPicked];
    size_t begins[kShards + 1] = {}, next[kShards];
    for (size_t i = 0; i < count_; ++i) ++begins[ShardOfHash(hashes_[i]) + 1];
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      next[shard] = begins[shard];
      begins[shard + 1] += begins[shard];
    }
    for (size_t i = 0; i < count_; ++i) {
      const size_t to = next[ShardOfHash(hashes_[i])]++;
      words[to] = UnMix64(hashes_[i]);
      positions[to] = positions_[i];
    }
    for (uint32_t shard = first_; shard <= last_; ++shard) {
      const size_t begin = begins[shard], count = begins[shard + 1] - begin;
      if (count > 0) use(shard, ShardKeys{words + begin, positions + begin, count});
    }
  }

 private:
  template <typename WordAt>
  void Pick(const WordAt& word_at) noexcept {
    // Avoid a branch on the key's shard: write every key where the next selected key belongs. A key
    // that is not selected is overwritten by the next.
    const uint64_t first = FirstHashOf(first_), span = LastHashOf(last_) - first;
    size_t at = at_, count = 0;
    while (at < end_ && count < most_) {
      for (const size_t stop = std::min(end_, at + (most_ - count)); at < stop; ++at) {
        const uint64_t hash = Mix64(word_at(at));
        hashes_[count] = hash;
        positions_[count] = static_cast<uint32_t>(at);
        count += static_cast<size_t>(hash - first <= span);
      }
    }
    at_ = at;
    count_ = count;
  }

  const Keys keys_;
  size_t at_;
  const size_t end_, most_;
  const uint32_t first_, last_;
  size_t count_ = 0;
  uint64_t hashes_[kMostPicked];
  uint32_t positions_[kMostPicked];
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PICKED_KEYS_H_
