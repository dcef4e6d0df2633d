#include "de_core/cc/engine/table/shard_changes.h"

#include <mutex>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {

Status ShardChanges::Begin(uint64_t generation) {
  return Guarded([&] {
    for (auto& shard : *shards_) {
      const std::lock_guard<ShardLock> guard(shard->lock);
      if (shard->watch == nullptr) shard->watch = std::make_unique<ChangeObserver>();
      if (shard->watch->dirty == nullptr) {
        shard->watch->dirty = std::make_unique<DirtyRows>(generation);
      } else {
        shard->watch->dirty->Cut(generation);
      }
    }
    return Status::Ok();
  });
}

void ShardChanges::Keep(const std::vector<uint64_t>& marks) {
  for (auto& shard : *shards_) {
    const std::lock_guard<ShardLock> guard(shard->lock);
    if (shard->watch == nullptr || shard->watch->dirty == nullptr) continue;
    if (marks.empty()) {
      shard->watch->dirty.reset();
      if (shard->watch->held == nullptr) shard->watch.reset();
    } else {
      shard->watch->dirty->Keep(marks);
    }
  }
}

uint64_t ShardChanges::bytes() const {
  uint64_t bytes = 0;
  for (const auto& shard : *shards_) {
    const std::shared_lock<ShardLock> guard(shard->lock);
    if (shard->watch != nullptr && shard->watch->dirty != nullptr) {
      bytes += shard->watch->dirty->bytes();
    }
  }
  return bytes;
}

}  // namespace de::engine
