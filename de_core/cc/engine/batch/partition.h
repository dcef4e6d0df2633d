// Groups the keys of a batch by shard. Keys of one shard keep their order.
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

/// The word that the index stores for key i: the integer key, or HashBytes of the string key.
inline uint64_t WordOf(const Keys& keys, size_t i) noexcept {
  return keys.ints != nullptr ? static_cast<uint64_t>(keys.ints[i]) : HashBytes(keys.strings[i]);
}

/// A batch with at least this many keys uses several threads.
inline constexpr size_t kKeysWorthThreads = 1024;

/// Keys of one shard: `words[j]` is the word of keys[positions[j]].
struct ShardKeys {
  const uint64_t* words;      // (count)
  const uint32_t* positions;  // (count)
  size_t count;
};

/// Divides work into pieces for the tasks of one Executor::Run. Each task takes pieces that are not
/// taken yet, so that no task waits for one that has not started.
class SharedWork {
 public:
  explicit SharedWork(size_t pieces) noexcept : pieces_(pieces) {}

  /// Calls piece(i) for pieces until none is left, and returns when all are done. The task that
  /// finishes the last piece calls last() before any task returns.
  template <typename Piece, typename Last>
  void Do(const Piece& piece, const Last& last) noexcept {
    if (done_.load(std::memory_order_acquire)) return;
    for (size_t i = 0; (i = taken_.fetch_add(1, std::memory_order_relaxed)) < pieces_;) {
      piece(i);
      if (passed_.fetch_add(1, std::memory_order_acq_rel) + 1 != pieces_) continue;
      last();
      done_.store(true, std::memory_order_release);
    }
    // Other tasks still work on their pieces, which take microseconds.
    for (uint32_t tries = 0; !done_.load(std::memory_order_acquire); ++tries) {
      if (tries >= kSpins) std::this_thread::yield();  // a thread may wait for a core
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
  /// Groups at most 2^32 keys by shard. Uses several threads for a large batch if `executor` has
  /// them.
  void Build(const Keys& keys, Executor* executor) {
    BuildAndRun(keys, executor, 0, [](size_t) {});
  }

  /// Groups the keys, and then runs task(0) … task(count - 1), on several threads for large
  /// batches. Wakes the threads only once for both. Tasks must not throw.
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

  /// True if this partition was built from the same integer keys in the same order.
  bool IsOf(const Keys& keys) const noexcept {
    if (keys.size != unsorted_.size()) return false;
    return keys.size == 0 ||  // no bytes to compare, and the pointer may be null
           std::memcmp(keys.ints, unsorted_.data(), keys.size * sizeof(uint64_t)) == 0;
  }

  ShardKeys Of(uint32_t shard) const noexcept {
    const size_t begin = begins_[shard];
    return {words_.data() + begin, positions_.data() + begin, begins_[shard + 1] - begin};
  }

 private:
  static constexpr size_t kParallelKeys = 8192;
  using Counts = std::array<uint32_t, kShards>;

  /// starts[worker][shard] is the number of the shard's keys that the worker has counted. Replaces
  /// it with the position in words_ where the worker must write the first of them.
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

  // The loops keep the vectors' pointers in registers. Otherwise the compiler would reload them for
  // each key, because written bytes may alias anything.

  /// Stores the words and shards of keys [begin, end), and counts the keys of each shard.
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

  /// Writes keys [begin, end) to the next positions of their shards.
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
