// The write pipeline of one shard: prefetch the index line, probe and prefetch the row, write.
#ifndef DE_CORE_ENGINE_SHARD_UPDATE_H_
#define DE_CORE_ENGINE_SHARD_UPDATE_H_

#include <algorithm>
#include <mutex>

#include "de_core/cc/engine/partition.h"
#include "de_core/cc/engine/shard.h"
#include "de_core/cc/engine/values.h"

namespace de::engine {

/// Keys handled in one stage before the next stage begins: enough to hide a memory access.
inline constexpr size_t kPipelineBlock = 16;
/// Keys a writer handles before it lets readers in.
inline constexpr size_t kKeysALock = 512;

/// Calls on_row(key, row, j, inserted) for every key of `group`, inserting absent keys; an inserted
/// row's value and slots are for on_row to write. `touched` is how many bytes of a row it reads or
/// writes. The shard's lock is taken here, and dropped now and then.
template <typename OnRow>
void UpdateShard(Shard& shard, const Keys& keys, const ShardKeys& group, size_t touched,
                 const OnRow& on_row) {
  const auto key_at = [&](size_t j, uint64_t hash) {
    return IndexKey{group.words[j], hash,
                    keys.strings == nullptr ? nullptr : keys.strings + group.positions[j]};
  };
  for (size_t begin = 0; begin < group.count; begin += kKeysALock) {
    const size_t end = std::min(group.count, begin + kKeysALock);
    const size_t blocks = (end - begin + kPipelineBlock - 1) / kPipelineBlock;
    uint64_t hashes[3][kPipelineBlock];
    uint32_t rows[2][kPipelineBlock];
    const std::lock_guard<ShardLock> guard(shard.lock);
    for (size_t step = 0; step < blocks + 2; ++step) {
      if (step < blocks) {
        const size_t first = begin + step * kPipelineBlock;
        const size_t last = std::min(end, first + kPipelineBlock);
        for (size_t j = first; j < last; ++j) {
          const uint64_t hash = Mix64(group.words[j]);
          hashes[step % 3][j - first] = hash;
          shard.PrefetchLine(hash);
        }
      }
      if (step >= 1 && step - 1 < blocks) {
        const size_t block = step - 1;
        const size_t first = begin + block * kPipelineBlock;
        const size_t last = std::min(end, first + kPipelineBlock);
        for (size_t j = first; j < last; ++j) {
          const uint32_t row = shard.Find(key_at(j, hashes[block % 3][j - first]));
          rows[block % 2][j - first] = row;
          if (row != kNoRow) PrefetchBytes(shard.Row(row), touched);
        }
      }
      if (step >= 2) {
        const size_t block = step - 2;
        const size_t first = begin + block * kPipelineBlock;
        const size_t last = std::min(end, first + kPipelineBlock);
        for (size_t j = first; j < last; ++j) {
          const IndexKey key = key_at(j, hashes[block % 3][j - first]);
          uint32_t row = rows[block % 2][j - first];
          // An equal key earlier in the pipeline may have inserted the row meanwhile.
          if (row == kNoRow) row = shard.Find(key);
          const bool inserted = row == kNoRow;
          if (inserted) row = shard.Insert(key);
          on_row(key, shard.Row(row), j, inserted);
        }
      }
    }
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_UPDATE_H_
