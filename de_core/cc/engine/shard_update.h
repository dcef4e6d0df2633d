// The write pipeline of one shard: prefetch the index line, probe and prefetch the row, write.
#ifndef DE_CORE_ENGINE_SHARD_UPDATE_H_
#define DE_CORE_ENGINE_SHARD_UPDATE_H_

#include <algorithm>
#include <mutex>

#include "de_core/cc/engine/partition.h"
#include "de_core/cc/engine/pipeline.h"
#include "de_core/cc/engine/prefetch.h"
#include "de_core/cc/engine/shard.h"
#include "de_core/cc/engine/values.h"

namespace de::engine {

/// Keys a writer handles before it lets readers in.
inline constexpr size_t kKeysALock = 512;

/// What a write touches for each key, so that it is asked for in time.
struct WriteTouches {
  WriteTouches(size_t row) noexcept : row_bytes(row) {}  // NOLINT: a number alone says it all
  WriteTouches(size_t row, const char* from, size_t from_bytes) noexcept
      : row_bytes(row), source(from), source_bytes(from_bytes) {}

  size_t row_bytes;              ///< from the beginning of a row
  const char* source = nullptr;  // (keys, source_bytes) of the batch: what is written
  size_t source_bytes = 0;
};

/// Where nothing is to be done: for keys that are not admitted, and when the lock is dropped.
struct Ignored {
  void operator()(const IndexKey&, size_t) const noexcept {}
  void operator()() const noexcept {}
};

/// Calls on_row(key, row, j, inserted) for every key of `group`, inserting absent keys; an inserted
/// row's value and slots are for on_row to write. `touch` is what it reads and
/// writes. The shard's lock is taken here, and dropped now and then.
///
/// `gate`, or nullptr, is the table's policy at work (TableGate): a row it calls expired is passed
/// on as inserted, a key it does not admit goes to on_refused(key, j), and it makes room between
/// two holds of the lock. on_release() is called before the lock is dropped: until then rows that
/// on_row was given may be written later.
template <typename Gate, typename OnRow, typename OnRefused = Ignored, typename OnRelease = Ignored>
void UpdateShard(Shard& shard, const Keys& keys, const ShardKeys& group, const WriteTouches& touch,
                 const Gate* gate, const OnRow& on_row, const OnRefused& on_refused = {},
                 const OnRelease& on_release = {}) {
  const auto key_at = [&](size_t j, uint64_t hash) {
    return IndexKey{group.words[j], hash,
                    keys.strings == nullptr ? nullptr : keys.strings + group.positions[j]};
  };
  uint64_t hashes[kPipelineRing];
  uint32_t rows[kPipelineRing];
  for (size_t begin = 0; begin < group.count; begin += kKeysALock) {
    if (begin > 0) shard.lock.LetReadersIn();
    if (begin > 0 && gate != nullptr) gate->MakeRoom();
    const std::lock_guard<ShardLock> guard(shard.lock);
    RunPipeline(
        begin, std::min(group.count, begin + kKeysALock),
        [&](size_t j, size_t at) DE_ALWAYS_INLINE { hashes[at] = Mix64(group.words[j]); },
        [&](size_t, size_t at) DE_ALWAYS_INLINE { shard.PrefetchLine(hashes[at]); },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          // Keys of one shard lie apart in the batch, where no hardware foresees the next.
          if (touch.source_bytes != 0) {
            PrefetchBytes(touch.source + group.positions[j] * touch.source_bytes,
                          touch.source_bytes);
          }
          const uint32_t row = shard.Probe(group.words[j], hashes[at]);
          rows[at] = row;
        },
        [&](size_t, size_t at)
            DE_ALWAYS_INLINE { PrefetchBytes(shard.Row(RowOrFirst(rows[at])), touch.row_bytes); },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          uint32_t& row = rows[at];
          if (row == kUnsettled) {
            row = shard.Find(key_at(j, hashes[at]));
            if (row != kNoRow) PrefetchBytes(shard.Row(row), touch.row_bytes);
          } else if (keys.strings != nullptr && row != kNoRow) {
            shard.PrefetchKey(shard.Row(row));
          }
        },
        [&](size_t j, size_t at) {
          const IndexKey key = key_at(j, hashes[at]);
          uint32_t row = rows[at];
          // An equal key earlier in the pipeline may have inserted the row meanwhile; a string key
          // may share its word with another.
          if (row == kNoRow || !shard.IsRowOf(row, key)) row = shard.Find(key);
          const bool absent = row == kNoRow;
          bool inserted = absent;
          if (gate != nullptr) {
            inserted = inserted || gate->Expired(shard.Row(row));
            if (inserted && !gate->Admits(key)) return on_refused(key, j);
          }
          if (absent) row = shard.Insert(key);
          char* const bytes = shard.Row(row);
          if (shard.watch != nullptr) shard.watch->BeforeWrite(key.word, row, bytes, absent);
          on_row(key, bytes, j, inserted);
        });
    on_release();
    if (gate != nullptr) gate->Weigh(shard, group);
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_UPDATE_H_
