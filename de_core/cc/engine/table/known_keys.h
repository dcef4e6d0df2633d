// What a lookup learns of its keys and the update of the same keys needs: their shards, which of
// them are equal, where their rows are.
#ifndef DE_CORE_ENGINE_KNOWN_KEYS_H_
#define DE_CORE_ENGINE_KNOWN_KEYS_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// Of one batch of integer keys. Shards are divided and told apart by the keys alone, so that holds
/// for ever; rows hold while Shard::renumbered() does.
struct KnownKeys {
  struct OfShard {
    UniqueKeys unique;
    std::vector<uint32_t> rows;  ///< (unique) row numbers, kNoRow where there was none
    uint64_t renumbered = 0;     ///< the shard's, when the first of `rows` was read
  };

  Partition partition;
  OfShard of[kShards];
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KNOWN_KEYS_H_
