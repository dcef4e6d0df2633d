// The write pipeline of one shard: prefetch the index line, probe and prefetch the row, write.
#ifndef DE_CORE_ENGINE_SHARD_UPDATE_H_
#define DE_CORE_ENGINE_SHARD_UPDATE_H_

#include <algorithm>
#include <memory>
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

/// Rows of plain values that replace what is there, of a width the compiler knows; `from` is
/// (keys, kBytes) of the batch.
template <size_t kBytes>
struct PlainRows {
  static constexpr size_t kRowBytes = kBytes;
  const char* from = nullptr;
};

/// The keys of a batch that one shard holds.
struct OneShardsKeys {
  const std::unique_ptr<Shard>* shards;  // (kShards) of the table
  uint32_t shard;
  const ShardKeys* group;

  uint32_t first() const noexcept { return shard; }
  uint32_t last() const noexcept { return shard; }
  size_t count() const noexcept { return group->count; }
  uint64_t word(size_t j) const noexcept { return group->words[j]; }
  /// Of key j in the batch.
  size_t position(size_t j) const noexcept { return group->positions[j]; }
};

/// A whole batch, whatever shards hold its keys.
struct AllShardsKeys {
  const std::unique_ptr<Shard>* shards;  // (kShards) of the table
  const Keys* keys;

  uint32_t first() const noexcept { return 0; }
  uint32_t last() const noexcept { return kShards - 1; }
  size_t count() const noexcept { return keys->size; }
  uint64_t word(size_t j) const noexcept { return WordOf(*keys, j); }
  size_t position(size_t j) const noexcept { return j; }
};

/// Keys [begin, end) of a batch, at most kKeysALock, under the locks of their shards. As
/// UpdateShard. With `plain` there is no gate, keys are integers and nobody watches: on_row is not
/// asked for rows in their home line, which become plain's.
template <typename Plain = PlainRows<0>, typename Batch, typename Gate, typename OnRow,
          typename OnRefused = Ignored>
void UpdateLocked(const Batch& batch, const Keys& keys, size_t begin, size_t end,
                  const WriteTouches& touch, const Gate* gate, const OnRow& on_row,
                  const OnRefused& on_refused = {}, const Plain& plain = {}) {
  constexpr size_t kRowBytes = Plain::kRowBytes;
  constexpr bool kPlain = kRowBytes != 0;
  const bool strings = !kPlain && keys.strings != nullptr;
  const auto key_at = [&](size_t j, uint64_t word, uint64_t hash) DE_ALWAYS_INLINE {
    return IndexKey{word, hash, strings ? keys.strings + batch.position(j) : nullptr};
  };
  const auto shard_of = [&](uint64_t hash) -> Shard& { return *batch.shards[ShardOfHash(hash)]; };
  // `row` is nullptr where the key has none yet.
  const auto write = [&](Shard& shard, const IndexKey& key, size_t j, uint32_t number, char* row) {
    const bool absent = row == nullptr;
    bool inserted = absent;
    if (gate != nullptr) {
      inserted = inserted || gate->Expired(row);
      if (inserted && !gate->Admits(key)) return on_refused(key, j);
    }
    if (absent) {
      number = shard.Insert(key);
      row = shard.Row(number);
    }
    if (shard.watch != nullptr) shard.watch->BeforeWrite(key.word, number, row, absent);
    on_row(shard, key, row, j, inserted);
  };

  Shard::Reader readers[kShards];
  for (uint32_t i = batch.first(); i <= batch.last(); ++i) readers[i] = batch.shards[i]->reader(i);
  const Slab::Map map = batch.shards[batch.first()]->slab().map();
  uint64_t words[kPipelineRing];
  uint64_t hashes[kPipelineRing];
  const IndexLine* lines[kPipelineRing];
  uint32_t numbers[kPipelineRing];
  char* rows[kPipelineRing];
  // Keys that are not in their home line are written when all others are. So nothing is inserted
  // meanwhile, and lines and rows that were asked for stay where they are; equal keys keep their
  // order, for either all of them wait or none.
  uint16_t away[kKeysALock + 1];
  uint16_t of_others[kKeysALock];  // whose word a string key in their home line shares
  size_t away_count = 0, of_others_count = 0, next_away = 0;
  alignas(64) char nowhere[kPlain ? kRowBytes : 1];  // becomes what is for keys that are away
  RunPipeline(
      begin, end,
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        const uint64_t word =
            kPlain ? static_cast<uint64_t>(keys.ints[batch.position(j)]) : batch.word(j);
        const uint64_t hash = Mix64(word);
        words[at] = word;
        hashes[at] = hash;
        lines[at] = readers[ShardOfHash(hash)].HomeLine(hash);
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE { PrefetchFar(lines[at]); },
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        // Keys of one shard lie apart in the batch, where no hardware foresees the next.
        if (touch.source_bytes != 0) {
          PrefetchBytes(touch.source + batch.position(j) * touch.source_bytes, touch.source_bytes);
        }
        const HomeProbe probe = ProbeHome(*lines[at], words[at]);
        numbers[at] = probe.row;
        rows[at] = map.RowIn(readers[ShardOfHash(hashes[at])].extents, probe.row);
        // Behind a full line the next one is where the key may be.
        const auto passed = static_cast<size_t>((Passed(*lines[at]) & PassBit(hashes[at])) != 0);
        PrefetchFar(lines[at] + (passed & probe.away));
        if (kPlain && probe.away != 0) rows[at] = nowhere;
        away[away_count] = static_cast<uint16_t>(j - begin);
        away_count += probe.away;
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        if constexpr (kPlain) {
          PrefetchBytes<kRowBytes>(rows[at]);
        } else {
          PrefetchBytes(rows[at], touch.row_bytes);
        }
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        if (!strings) return;
        const Shard& shard = shard_of(hashes[at]);
        if (shard.size() > 0) shard.PrefetchKey(rows[at]);
      },
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        if constexpr (kPlain) {
          CopyBytes(rows[at], plain.from + batch.position(j) * kRowBytes, kRowBytes);
          return;
        }
        if (next_away < away_count && away[next_away] == j - begin) {
          ++next_away;
          return;
        }
        Shard& shard = shard_of(hashes[at]);
        const IndexKey key = key_at(j, words[at], hashes[at]);
        if (strings && !shard.IsRowOf(numbers[at], key)) {
          of_others[of_others_count++] = static_cast<uint16_t>(j - begin);
          return;
        }
        write(shard, key, j, numbers[at], rows[at]);
      });

  const auto write_away = [&](const uint16_t* list, size_t count) {
    uint32_t found[kKeysALock];
    for (size_t i = 0; i < count; ++i) {
      const size_t j = begin + list[i];
      const uint64_t word = batch.word(j), hash = Mix64(word);
      found[i] = shard_of(hash).Find(key_at(j, word, hash));
      if (found[i] != kNoRow) PrefetchBytes(shard_of(hash).Row(found[i]), touch.row_bytes);
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t j = begin + list[i];
      const uint64_t word = batch.word(j), hash = Mix64(word);
      Shard& shard = shard_of(hash);
      const IndexKey key = key_at(j, word, hash);
      // An equal key may have been inserted meanwhile.
      const uint32_t row = found[i] != kNoRow ? found[i] : shard.Find(key);
      write(shard, key, j, row, row == kNoRow ? nullptr : shard.Row(row));
    }
  };
  write_away(away, away_count);
  if (strings) write_away(of_others, of_others_count);
}

/// Calls on_row(shard, key, row, j, inserted) for every key of a shard, inserting absent keys; an
/// inserted row's value and slots are for on_row to write. `touch` is what it reads and writes.
/// Equal keys come in the order of the batch, others in any. The shard's lock is taken here, and
/// dropped now and then.
///
/// `gate`, or nullptr, is the table's policy at work (TableGate): a row it calls expired is passed
/// on as inserted, a key it does not admit goes to on_refused(key, j), and it makes room between
/// two holds of the lock. on_release() is called before the lock is dropped: until then rows that
/// on_row was given may be written later.
template <typename Gate, typename OnRow, typename OnRefused = Ignored, typename OnRelease = Ignored>
void UpdateShard(const OneShardsKeys& batch, const Keys& keys, const WriteTouches& touch,
                 const Gate* gate, const OnRow& on_row, const OnRefused& on_refused = {},
                 const OnRelease& on_release = {}) {
  Shard& shard = *batch.shards[batch.shard];
  for (size_t begin = 0; begin < batch.count(); begin += kKeysALock) {
    if (begin > 0) shard.lock.LetReadersIn();
    if (begin > 0 && gate != nullptr) gate->MakeRoom();
    shard.Prefault();
    const std::lock_guard<ShardLock> guard(shard.lock);
    UpdateLocked(batch, keys, begin, std::min(batch.count(), begin + kKeysALock), touch, gate,
                 on_row, on_refused);
    on_release();
    if (gate != nullptr) gate->Weigh(shard, *batch.group);
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_UPDATE_H_
