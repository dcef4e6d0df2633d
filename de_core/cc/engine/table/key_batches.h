// The keys of a batch, or of some of its shards, as a verb processes them: word, hash, and position
// in the batch of each key.
#ifndef DE_CORE_ENGINE_KEY_BATCHES_H_
#define DE_CORE_ENGINE_KEY_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/picked_keys.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// The keys of a batch that belong to one shard.
struct OneShardsKeys {
  static constexpr bool kInOrder = false;  ///< see AllShardsKeys

  const std::unique_ptr<Shard>* shards;  // (kShards) the table's shards
  uint32_t shard;
  ShardKeys group;

  uint32_t first() const noexcept { return shard; }
  uint32_t last() const noexcept { return shard; }
  size_t count() const noexcept { return group.count; }
  uint64_t word(size_t j) const noexcept { return group.words[j]; }
  uint64_t int_word(size_t j) const noexcept { return group.words[j]; }
  uint64_t hash(uint64_t word, size_t) const noexcept { return Mix64(word); }
  /// Position of key j in the batch.
  size_t position(size_t j) const noexcept { return group.positions[j]; }
};

/// Integer keys that were selected from a batch because they belong to shards first() to last().
struct SomeShardsKeys {
  static constexpr bool kInOrder = false;  ///< see AllShardsKeys

  SomeShardsKeys(const std::unique_ptr<Shard>* all, const Keys& keys, const PickedKeys& picked)
      : shards(all),
        picked_first(picked.first()),
        picked_last(picked.last()),
        ints(keys.ints),
        hashes(picked.hashes()),
        positions(picked.positions()) {}

  const std::unique_ptr<Shard>* shards;  // (kShards) the table's shards
  uint32_t picked_first, picked_last;
  const int64_t* ints;
  const uint64_t* hashes;
  const uint32_t* positions;

  uint32_t first() const noexcept { return picked_first; }
  uint32_t last() const noexcept { return picked_last; }
  uint64_t word(size_t j) const noexcept { return static_cast<uint64_t>(ints[positions[j]]); }
  uint64_t int_word(size_t j) const noexcept { return word(j); }
  uint64_t hash(uint64_t, size_t j) const noexcept { return hashes[j]; }
  size_t position(size_t j) const noexcept { return positions[j]; }
};

/// A whole batch, with keys of all shards.
struct AllShardsKeys {
  /// position(j) is j, so the hardware predicts reads of the batch's rows.
  static constexpr bool kInOrder = true;

  const std::unique_ptr<Shard>* shards;  // (kShards) the table's shards
  Keys keys;

  uint32_t first() const noexcept { return 0; }
  uint32_t last() const noexcept { return kShards - 1; }
  size_t count() const noexcept { return keys.size; }
  uint64_t word(size_t j) const noexcept { return WordOf(keys, j); }
  /// The word of an integer key.
  uint64_t int_word(size_t j) const noexcept { return static_cast<uint64_t>(keys.ints[j]); }
  uint64_t hash(uint64_t word, size_t) const noexcept { return Mix64(word); }
  size_t position(size_t j) const noexcept { return j; }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_KEY_BATCHES_H_
