// The changed rows of a table in memory: each shard's observer records its own.
#ifndef DE_CORE_ENGINE_SHARD_CHANGES_H_
#define DE_CORE_ENGINE_SHARD_CHANGES_H_

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "de_core/cc/engine/backend/save_chains.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

class ShardChanges final : public ChangeLog {
 public:
  /// `shards` must outlive the log.
  explicit ShardChanges(std::vector<std::unique_ptr<Shard>>* shards) : shards_(shards) {}

  Status Begin(uint64_t generation) override {
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

  void Keep(const std::vector<uint64_t>& marks) override {
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

  uint64_t bytes() const override {
    uint64_t bytes = 0;
    for (const auto& shard : *shards_) {
      const std::shared_lock<ShardLock> guard(shard->lock);
      if (shard->watch != nullptr && shard->watch->dirty != nullptr) {
        bytes += shard->watch->dirty->bytes();
      }
    }
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<Shard>>* shards_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_CHANGES_H_
