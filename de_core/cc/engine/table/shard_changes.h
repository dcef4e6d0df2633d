// The changed rows of a table in memory: each shard's observer records its own.
#ifndef DE_CORE_ENGINE_SHARD_CHANGES_H_
#define DE_CORE_ENGINE_SHARD_CHANGES_H_

#include <memory>
#include <vector>

#include "de_core/cc/engine/backend/save_chains.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

class ShardChanges final : public ChangeLog {
 public:
  /// `shards` must outlive the log.
  explicit ShardChanges(std::vector<std::unique_ptr<Shard>>* shards) : shards_(shards) {}

  Status Begin(uint64_t generation) override;
  void Keep(const std::vector<uint64_t>& marks) override;
  uint64_t bytes() const override;

 private:
  std::vector<std::unique_ptr<Shard>>* shards_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_CHANGES_H_
