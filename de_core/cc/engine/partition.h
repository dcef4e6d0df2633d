// A batch of keys sorted by the shard they belong to, keeping the order within a shard.
#ifndef DE_CORE_ENGINE_PARTITION_H_
#define DE_CORE_ENGINE_PARTITION_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "de_core/cc/engine/executor.h"
#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/shard.h"
#include "de_core/cc/engine/types.h"

namespace de::engine {

/// The index word of one key of a batch.
inline uint64_t WordOf(const Keys& keys, size_t i) noexcept {
  return keys.ints != nullptr ? static_cast<uint64_t>(keys.ints[i]) : HashBytes(keys.strings[i]);
}

/// Keys of one shard: `words[j]` is the word of keys[positions[j]].
struct ShardKeys {
  const uint64_t* words;      // (count)
  const uint32_t* positions;  // (count)
  size_t count;
};

class Partition {
 public:
  /// Sorts at most 2^32 keys. Runs on several threads when `executor` has them.
  void Build(const Keys& keys, Executor* executor) {
    const size_t n = keys.size;
    const size_t workers =
        executor == nullptr || n < kParallelKeys ? 1 : std::min<size_t>(executor->threads(), 16);
    words_.resize(n);
    positions_.resize(n);
    unsorted_.resize(n);
    shards_.resize(n);
    std::vector<Counts> starts(workers);
    const auto run = [&](const std::function<void(size_t)>& task) {
      if (workers == 1) {
        task(0);
      } else {
        executor->Run(workers, task);
      }
    };
    const auto begin_of = [&](size_t worker) { return n * worker / workers; };
    run([&](size_t worker) {
      const size_t begin = begin_of(worker), end = begin_of(worker + 1);
      starts[worker] =
          keys.ints != nullptr ? Count<false>(keys, begin, end) : Count<true>(keys, begin, end);
    });
    uint32_t at = 0;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      begins_[shard] = at;
      for (auto& counts : starts) {
        const uint32_t count = counts[shard];
        counts[shard] = at;
        at += count;
      }
    }
    begins_[kShards] = at;
    run([&](size_t worker) { Sort(begin_of(worker), begin_of(worker + 1), starts[worker]); });
  }

  ShardKeys Of(uint32_t shard) const noexcept {
    const size_t begin = begins_[shard];
    return {words_.data() + begin, positions_.data() + begin, begins_[shard + 1] - begin};
  }

 private:
  static constexpr size_t kParallelKeys = 8192;
  using Counts = std::array<uint32_t, kShards>;

  // The loops keep where the vectors lie in registers: written bytes might be anything's, so that
  // the compiler would read it anew for each key.

  /// Notes words and shards of keys [begin, end), and how many each shard has.
  template <bool kStrings>
  Counts Count(const Keys& keys, size_t begin, size_t end) noexcept {
    uint64_t* const unsorted = unsorted_.data();
    uint8_t* const shards = shards_.data();
    const int64_t* const ints = keys.ints;
    Counts counts{};
    for (size_t i = begin; i < end; ++i) {
      const uint64_t word = kStrings ? HashBytes(keys.strings[i]) : static_cast<uint64_t>(ints[i]);
      const uint32_t shard = ShardOfHash(Mix64(word));
      unsorted[i] = word;
      shards[i] = static_cast<uint8_t>(shard);
      ++counts[shard];
    }
    return counts;
  }

  /// Puts keys [begin, end) where their shards' next keys belong.
  void Sort(size_t begin, size_t end, Counts next) noexcept {
    const uint64_t* const unsorted = unsorted_.data();
    const uint8_t* const shards = shards_.data();
    uint64_t* const words = words_.data();
    uint32_t* const positions = positions_.data();
    for (size_t i = begin; i < end; ++i) {
      const uint32_t to = next[shards[i]]++;
      words[to] = unsorted[i];
      positions[to] = static_cast<uint32_t>(i);
    }
  }

  std::vector<uint64_t> words_, unsorted_;
  std::vector<uint32_t> positions_;
  std::vector<uint8_t> shards_;
  std::array<uint32_t, kShards + 1> begins_{};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PARTITION_H_
