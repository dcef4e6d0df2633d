// Locks all shards of a table at once, for batches whose keys are processed in the order of the
// batch instead of shard by shard.
#ifndef DE_CORE_ENGINE_ALL_SHARDS_H_
#define DE_CORE_ENGINE_ALL_SHARDS_H_

#include <memory>
#include <vector>

#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// Holds the writer locks (or reader locks) of all shards, or none of them: see held(). Never waits
/// for one lock while it holds another. A writer never waits. A reader waits for the first lock
/// that another thread holds, and then tries the other locks. Reason: a writer of a whole batch has
/// all locks, and releases all of them after each part of the batch to let readers in. A reader
/// that waited for one lock after another would wait for many such parts.
template <bool kWriter>
class AllShards {
 public:
  /// Locks only shards [first, last].
  explicit AllShards(const std::vector<std::unique_ptr<Shard>>& shards, uint32_t first = 0,
                     uint32_t last = kShards - 1) noexcept
      : shards_(shards), first_(first), end_(last + 1) {
    const size_t taken = TryRest();
    if (taken == end_) return;
    Release();
    if constexpr (!kWriter) {
      shards[taken]->lock.lock_shared();
      held_[taken] = true;
      if (TryRest() != end_) Release();
    }
  }
  ~AllShards() { Release(); }
  AllShards(const AllShards&) = delete;
  AllShards& operator=(const AllShards&) = delete;

  bool held() const noexcept { return held_[first_]; }

 private:
  /// Takes locks, in order, up to the first lock that another thread holds. Returns the number of
  /// that shard, or end_ if all locks are held.
  size_t TryRest() noexcept {
    size_t at = first_;
    while (at < end_ && (held_[at] || (held_[at] = Try(&shards_[at]->lock)))) ++at;
    return at;
  }

  static bool Try(ShardLock* lock) noexcept {
    return kWriter ? lock->try_lock() : lock->try_lock_shared();
  }

  void Release() noexcept {
    for (size_t at = end_; at-- > first_;) {
      if (!held_[at]) continue;
      held_[at] = false;
      ShardLock& lock = shards_[at]->lock;
      if (kWriter) {
        lock.unlock();
      } else {
        lock.unlock_shared();
      }
    }
  }

  const std::vector<std::unique_ptr<Shard>>& shards_;
  const size_t first_, end_;
  bool held_[kShards] = {};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ALL_SHARDS_H_
