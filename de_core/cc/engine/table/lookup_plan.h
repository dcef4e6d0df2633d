// Remembers what a table's last lookups found out about their keys (KnownKeys), for updates of the
// same keys.
#ifndef DE_CORE_ENGINE_LOOKUP_PLAN_H_
#define DE_CORE_ENGINE_LOOKUP_PLAN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "de_core/cc/engine/base/object_pool.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// What a lookup of a batch of integer keys records for an update of the same keys: the keys'
/// shards, which keys are equal, and their rows. The keys alone decide shards and equality, so
/// these stay valid. Row numbers are valid while Shard::renumbered() is unchanged.
struct KnownKeys {
  struct OfShard {
    UniqueKeys unique;
    std::vector<uint32_t> rows;  ///< (distinct keys) row numbers; kNoRow for keys without a row
    uint64_t renumbered = 0;     ///< Shard::renumbered() when the first of `rows` was read
  };

  Partition partition;
  OfShard of[kShards];
};

/// Decides which lookups record their findings. A lookup cannot know whether an update of the same
/// keys will follow, and recording costs time. So lookups record only while updates use the
/// records: not before the first update, and at most twice between two updates. If updates have
/// other keys, for example because one update joins several lookups, lookups record less and less
/// often. Thread-safe.
class LookupPlan {
 public:
  /// What a lookup recorded. The next lookup that records uses its memory again.
  using Record = ObjectPool<KnownKeys>::Lease;

  /// For a lookup: returns an object to fill and to pass to Put, or nullptr if the lookup should
  /// record nothing.
  Record Begin();

  void Put(Record known) noexcept;

  /// For an update: returns what a lookup of exactly these keys, in this order, recorded, or
  /// nullptr.
  Record Take(const Keys& keys) noexcept;

 private:
  static constexpr uint32_t kKept = 2;          ///< most records kept between two updates
  static constexpr uint32_t kMostPause = 4096;  ///< most updates for which lookups record nothing

  std::atomic<bool> wanted_{false};
  ObjectPool<KnownKeys> spare_{1};
  std::mutex mutex_;  ///< guards the members below
  Record kept_[kKept];
  uint32_t begun_ = 0;  ///< lookups that recorded since the last update
  /// consecutive updates that found no record of their keys, not counting skipped updates
  uint32_t failures_ = 0;
  uint32_t pause_ = 0;  ///< number of updates until lookups record again
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LOOKUP_PLAN_H_
