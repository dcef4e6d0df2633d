// The locks of all shards of a table at once, for batches that are taken as they come.
#ifndef DE_CORE_ENGINE_ALL_SHARDS_H_
#define DE_CORE_ENGINE_ALL_SHARDS_H_

#include <memory>
#include <vector>

#include "de_core/cc/engine/shard.h"

namespace de::engine {

/// Holds the writer's (or the readers') locks of all shards, or none: never waits for one while it
/// has others.
template <bool kWriter>
class AllShards {
 public:
  explicit AllShards(const std::vector<std::unique_ptr<Shard>>& shards) noexcept : shards_(shards) {
    while (held_ < shards.size() && Try(&shards[held_]->lock)) ++held_;
    if (held_ < shards.size()) Release();
  }
  ~AllShards() { Release(); }
  AllShards(const AllShards&) = delete;
  AllShards& operator=(const AllShards&) = delete;

  bool held() const noexcept { return held_ > 0; }

 private:
  static bool Try(ShardLock* lock) noexcept {
    return kWriter ? lock->try_lock() : lock->try_lock_shared();
  }

  void Release() noexcept {
    while (held_ > 0) {
      ShardLock& lock = shards_[--held_]->lock;
      if (kWriter) {
        lock.unlock();
      } else {
        lock.unlock_shared();
      }
    }
  }

  const std::vector<std::unique_ptr<Shard>>& shards_;
  size_t held_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ALL_SHARDS_H_
