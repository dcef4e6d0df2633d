// Data that a lookup keeps for an update of the same keys: the keys' shards, which keys are equal,
// and their rows.
#ifndef DE_CORE_ENGINE_KNOWN_KEYS_H_
#define DE_CORE_ENGINE_KNOWN_KEYS_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// For one batch of integer keys. The keys alone decide shards and equality, so these stay valid.
/// Row numbers are valid while Shard::renumbered() is unchanged.
struct KnownKeys {
  struct OfShard {
    UniqueKeys unique;
    std::vector<uint32_t> rows;  ///< (distinct keys) row numbers; kNoRow for keys without a row
    uint64_t renumbered = 0;     ///< Shard::renumbered() when the first of `rows` was read
  };

  Partition partition;
  OfShard of[kShards];
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KNOWN_KEYS_H_
