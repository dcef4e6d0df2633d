// A batch of keys sorted by the shard they belong to, keeping the order within a shard.
#ifndef DE_CORE_ENGINE_PARTITION_H_
#define DE_CORE_ENGINE_PARTITION_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/base/types.h"

namespace de::engine {

/// The index word of one key of a batch.
inline uint64_t WordOf(const Keys& keys, size_t i) noexcept {
  return keys.ints != nullptr ? static_cast<uint64_t>(keys.ints[i]) : HashBytes(keys.strings[i]);
}

/// Keys of a batch worth more than one thread.
inline constexpr size_t kKeysWorthThreads = 1024;

/// Keys of one shard: `words[j]` is the word of keys[positions[j]].
struct ShardKeys {
  const uint64_t* words;      // (count)
  const uint32_t* positions;  // (count)
  size_t count;
};

/// Work in pieces that tasks of a Run do together, whichever of them comes first: each takes what
/// nobody has taken, so that none waits for a task that has not begun.
class SharedWork {
 public:
  explicit SharedWork(size_t pieces) noexcept : pieces_(pieces) {}

  /// Does pieces, calling piece(i), and returns when all are done. The one who does the last piece
  /// calls last() before anybody returns.
  template <typename Piece, typename Last>
  void Do(const Piece& piece, const Last& last) noexcept {
    if (done_.load(std::memory_order_acquire)) return;
    for (size_t i = 0; (i = taken_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
      piece(i);
      if (passed_.fetch_add(1, std::memory_order_acq_rel) + 1 != pieces_) continue;
      last();
      done_.store(true, std::memory_order_release);
    }
    // Others are at theirs, which take microseconds.
    for (uint32_t tries = 0; !done_.load(std::memory_order_acquire); ++tries) {
      if (tries >= kSpins) std::this_thread::yield();  // a thread has lost its core
    }
  }

 private:
  static constexpr uint32_t kSpins = 4096;
  const size_t pieces_;
  std::atomic<size_t> taken_{0};
  std::atomic<size_t> passed_{0};
  std::atomic<bool> done_{false};
};

class Partition {
 public:
  /// Sorts at most 2^32 keys. Runs on several threads when `executor` has them.
  void Build(const Keys& keys, Executor* executor) {
    BuildAndRun(keys, executor, 0, [](size_t) {});
  }

  /// Build, and then task(0) … task(count - 1), which may be run by several threads too if the
  /// keys are many: these are woken only once for all of it. No task throws.
  template <typename Task>
  void BuildAndRun(const Keys& keys, Executor* executor, size_t count, const Task& task) {
    const size_t n = keys.size;
    const size_t workers =
        executor == nullptr || n < kParallelKeys ? 1 : std::min<size_t>(executor->threads(), 16);
    words_.resize(n);
    positions_.resize(n);
    unsorted_.resize(n);
    shards_.resize(n);
    std::vector<Counts> starts(workers);
    SharedWork counting(workers), sorting(workers);
    const auto begin_of = [&](size_t worker) { return n * worker / workers; };
    const auto count_keys = [&](size_t worker) {
      const size_t begin = begin_of(worker), end = begin_of(worker + 1);
      starts[worker] =
          keys.ints != nullptr ? Count<false>(keys, begin, end) : Count<true>(keys, begin, end);
    };
    const auto sort_keys = [&](size_t worker) {
      Sort(begin_of(worker), begin_of(worker + 1), starts[worker]);
    };
    const auto run = [&](size_t number) {
      counting.Do(count_keys, [&] { Place(&starts); });
      sorting.Do(sort_keys, [] {});
      if (number < count) task(number);
    };
    const size_t tasks = std::max(count, workers);
    RunTasks(ThreadsFor(n >= kKeysWorthThreads, executor), tasks, run);
  }

  /// Whether it is that of `keys`, which are integers, in this order.
  bool IsOf(const Keys& keys) const noexcept {
    if (keys.size != unsorted_.size()) return false;
    return keys.size == 0 ||  // no bytes, and perhaps no memory either
           std::memcmp(keys.ints, unsorted_.data(), keys.size * sizeof(uint64_t)) == 0;
  }

  ShardKeys Of(uint32_t shard) const noexcept {
    const size_t begin = begins_[shard];
    return {words_.data() + begin, positions_.data() + begin, begins_[shard + 1] - begin};
  }

 private:
  static constexpr size_t kParallelKeys = 8192;
  using Counts = std::array<uint32_t, kShards>;

  /// Turns how many keys each worker has of each shard into where it puts the first of them.
  void Place(std::vector<Counts>* starts) noexcept {
    uint32_t at = 0;
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      begins_[shard] = at;
      for (Counts& counts : *starts) {
        const uint32_t count = counts[shard];
        counts[shard] = at;
        at += count;
      }
    }
    begins_[kShards] = at;
  }

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
