// The write pipeline of one shard: prefetches a key's index line, then searches the line and
// prefetches the row, then writes the row.
#ifndef DE_CORE_ENGINE_SHARD_UPDATE_H_
#define DE_CORE_ENGINE_SHARD_UPDATE_H_

#include <algorithm>
#include <mutex>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/index/simd_lines.h"
#include "de_core/cc/engine/rows/row_width.h"
#include "de_core/cc/engine/table/key_batches.h"

namespace de::engine {

/// The memory that a write accesses for each key, to prefetch it in time.
struct WriteTouches {
  WriteTouches(size_t row) noexcept : row_bytes(row) {}  // NOLINT: a number alone says it all
  WriteTouches(size_t row, const char* from, size_t from_bytes) noexcept
      : row_bytes(row), source(from), source_bytes(from_bytes) {}

  size_t row_bytes;  ///< the write accesses this many bytes, from the start of the row
  // (keys, source_bytes) data of the batch that is written to the rows, or nullptr
  const char* source = nullptr;
  size_t source_bytes = 0;
};

/// A callback that does nothing. Used for on_refused and on_release.
struct Ignored {
  void operator()(const IndexKey&, size_t) const noexcept {}
  void operator()() const noexcept {}
};

/// Data for a fast loop that replaces whole row values. `from` is (keys, width.bytes()) in the
/// order of the batch.
template <typename Width>
struct PlainRows {
  static constexpr bool kUsed = true;
  const char* from;
  Width width;  ///< at most kMostPlainBytes
};

/// Without the fast loop.
template <>
struct PlainRows<void> {
  static constexpr bool kUsed = false;
};

/// Wider rows do not need the fast loop: writing their bytes takes most of the time.
inline constexpr size_t kMostPlainBytes = 1024;

/// Updates keys [begin, end) of a batch, at most kKeysPerLock. Requires the writer locks of their
/// shards. Otherwise like UpdateShard. With Plain::kUsed, `gate` must be nullptr and keys must be
/// integers; then the rows of keys in their home line are replaced by rows of `plain`, without
/// calling on_row.
template <typename Plain, typename Batch, typename Gate, typename OnRow, typename OnRefused>
void UpdateLocked(const Batch& of, const Keys& keys, size_t begin, size_t end,
                  const WriteTouches& touch, const Gate* gate, const OnRow& on_row,
                  const OnRefused& on_refused, const Plain& plain) {
  // Copy the batch: the compiler cannot know that writes to rows leave `of` unchanged, so it would
  // reload its members for each key.
  const Batch batch = of;
  constexpr bool kPlain = Plain::kUsed;
  const bool strings = !kPlain && keys.strings != nullptr;
  const auto key_at = [&](size_t j, uint64_t word, uint64_t hash) DE_ALWAYS_INLINE {
    return IndexKey{word, hash, strings ? keys.strings + batch.position(j) : nullptr};
  };
  const auto shard_of = [&](uint64_t hash) -> Shard& { return *batch.shards[ShardOfHash(hash)]; };
  bool watched = false;
  ChangeObserver* shard_watches[kShards];
  for (uint32_t i = batch.first(); i <= batch.last(); ++i) {
    shard_watches[i] = batch.shards[i]->watch.get();
    watched = watched || shard_watches[i] != nullptr;
  }
  // `row` is nullptr if the key has no row yet.
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
    if (watched && shard.watch != nullptr) {
      shard.watch->BeforeWrite(key.word, key.hash, number, row, absent);
    }
    on_row(shard, key, row, j, inserted);
  };

  Shard::Reader all_readers[kShards];
  for (uint32_t i = batch.first(); i <= batch.last(); ++i) {
    all_readers[i] = batch.shards[i]->reader(i);
  }
  const Slab::Map map = batch.shards[batch.first()]->slab().map();
  // Keys that are not in their home line are listed in `away`, and written after all other keys. So
  // nothing is inserted before, and prefetched lines and rows stay in place. Equal keys keep their
  // order, because equal keys are either all in their home line or all not.
  uint16_t away_keys[kKeysPerLock + 1];
  // string keys whose home line has another key with the same word (hash)
  uint16_t other_keys[kKeysPerLock];
  size_t others = 0;
  // Writes the rows of keys in their home line. Returns the number of keys in `away`. Captures by
  // value: see AtSimdLevel.
  const auto write_home = [=, readers = &all_readers[0], away = &away_keys[0],
                           of_others = &other_keys[0], watches = &shard_watches[0], &others, &write,
                           &key_at, &shard_of](auto compare) DE_ALWAYS_INLINE {
    const Batch home = batch;
    // The fast loop writes the rows of keys that are away here, instead of branching.
    alignas(64) char nowhere[kPlain ? kMostPlainBytes : 1];
    size_t away_count = 0;
    uint64_t words[kPipelineRing];
    uint64_t hashes[kPipelineRing];
    const IndexLine* lines[kPipelineRing];
    uint32_t numbers[kPipelineRing];
    char* rows[kPipelineRing];
    const auto hash_key = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
      const uint64_t word = kPlain ? home.int_word(j) : home.word(j);
      const uint64_t hash = home.hash(word, j);
      words[at] = word;
      hashes[at] = hash;
      lines[at] = readers[ShardOfHash(hash)].HomeLine(hash);
      PrefetchFar(lines[at]);
    };
    const auto probe = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
      // Prefetch explicitly: the keys of one shard are scattered in the batch, so the hardware does
      // not predict the next address.
      if constexpr (kPlain) {
        if constexpr (!Batch::kInOrder) {
          PrefetchRow(plain.from + home.position(j) * plain.width.bytes(), plain.width.bytes());
        }
      } else if (touch.source_bytes != 0) {
        PrefetchBytes(touch.source + home.position(j) * touch.source_bytes, touch.source_bytes);
      }
      const HomeProbe found = ProbeHome(compare, *lines[at], words[at]);
      char* const row = map.RowIn(readers[ShardOfHash(hashes[at])].extents, found.row);
      numbers[at] = found.row;
      rows[at] = found.away == 0 ? row : kPlain ? nowhere : nullptr;
      away[away_count] = static_cast<uint16_t>(j - begin);
      away_count += found.away;
      if constexpr (kPlain) {
        plain.width.Prefetch(rows[at]);
      } else {
        PrefetchBytes(row, touch.row_bytes);
      }
      if (!watched) return;
      const ChangeObserver* const watch = watches[ShardOfHash(hashes[at])];
      if (watch != nullptr) watch->Prefetch(found.row);
    };
    const auto prefetch_key = [&](size_t, size_t at) DE_ALWAYS_INLINE {
      if (rows[at] != nullptr) shard_of(hashes[at]).PrefetchKey(rows[at]);
    };
    const auto write_row = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
      if constexpr (kPlain) {
        if (watched) {
          ChangeObserver* const watch = watches[ShardOfHash(hashes[at])];
          if (watch != nullptr && rows[at] != nowhere) {
            watch->BeforeWrite(words[at], hashes[at], numbers[at], rows[at], /*inserted=*/false);
          }
        }
        plain.width.Copy(rows[at], plain.from + home.position(j) * plain.width.bytes());
        return;
      }
      if (rows[at] == nullptr) return;
      Shard& shard = shard_of(hashes[at]);
      const IndexKey key = key_at(j, words[at], hashes[at]);
      if (strings && !shard.IsRowOf(numbers[at], key)) {
        of_others[others++] = static_cast<uint16_t>(j - begin);
        return;
      }
      write(shard, key, j, numbers[at], rows[at]);
    };
    if (strings) {
      RunPipeline(begin, end, hash_key, probe, prefetch_key, write_row);
    } else {
      RunPipeline(begin, end, hash_key, probe, write_row);
    }
    return away_count;
  };
  size_t away_count;
  if constexpr (kPlain) {
    away_count = AtSimdLevel(write_home);
  } else {
    away_count = write_home(BaselineLines{});
  }

  const auto at_away = [&](uint16_t listed, const auto& use) DE_ALWAYS_INLINE {
    const size_t j = begin + listed;
    const uint64_t word = batch.word(j), hash = batch.hash(word, j);
    use(shard_of(hash), key_at(j, word, hash), j);
  };
  const auto write_away = [&](const uint16_t* list, size_t count) {
    uint32_t found[kKeysPerLock];
    // The keys that may be in a later line, or that will be inserted there. Searches only for them.
    uint16_t behind[kKeysPerLock + 1];
    size_t behind_count = 0;
    for (size_t i = 0; i < count; ++i) {
      found[i] = kNoRow;
      at_away(list[i], [&](const Shard& shard, const IndexKey& key, size_t) DE_ALWAYS_INLINE {
        behind[behind_count] = static_cast<uint16_t>(i);
        behind_count += static_cast<size_t>(shard.PrefetchBehind(key.hash));
      });
    }
    for (size_t k = 0; k < behind_count; ++k) {
      const size_t i = behind[k];
      at_away(list[i], [&](const Shard& shard, const IndexKey& key, size_t) {
        found[i] = shard.Find(key);
        if (found[i] != kNoRow) PrefetchBytes(shard.Row(found[i]), touch.row_bytes);
      });
    }
    for (size_t i = 0; i < count; ++i) {
      at_away(list[i], [&](Shard& shard, const IndexKey& key, size_t j) {
        // An equal key earlier in this list may have been inserted since the search.
        const uint32_t row = found[i] != kNoRow ? found[i] : shard.Find(key);
        write(shard, key, j, row, row == kNoRow ? nullptr : shard.Row(row));
      });
    }
  };
  write_away(away_keys, away_count);
  if (strings) write_away(other_keys, others);
}

/// Calls on_row(shard, key, row, j, inserted) for key j of a shard, for every j. Inserts absent
/// keys; on_row must then write the row's value and slots. `touch` describes the memory that on_row
/// accesses, to prefetch it. Equal keys are processed in the batch's order, other keys in any
/// order. Takes the shard's lock, and releases it after every kKeysPerLock keys.
///
/// `gate` is the table's policy (TableGate), or nullptr. If the gate says that a row is expired,
/// on_row gets it as inserted. If the gate does not admit a key, on_refused(key, j) is called
/// instead of on_row. The gate evicts rows while the lock is released. on_release() is called
/// before the lock is released; on_row may defer writes to rows until then.
template <typename Gate, typename OnRow, typename OnRefused = Ignored, typename OnRelease = Ignored,
          typename Plain = PlainRows<void>>
void UpdateShard(const OneShardsKeys& batch, const Keys& keys, const WriteTouches& touch,
                 const Gate* gate, const OnRow& on_row, const OnRefused& on_refused = {},
                 const OnRelease& on_release = {}, const Plain& plain = {}) {
  Shard& shard = *batch.shards[batch.shard];
  for (size_t begin = 0; begin < batch.count(); begin += kKeysPerLock) {
    if (begin > 0) shard.lock.LetReadersIn();
    if (begin > 0 && gate != nullptr) gate->MakeRoom();
    shard.Prefault();
    const std::lock_guard<ShardLock> guard(shard.lock);
    UpdateLocked(batch, keys, begin, std::min(batch.count(), begin + kKeysPerLock), touch, gate,
                 on_row, on_refused, plain);
    on_release();
    if (gate != nullptr) gate->Weigh(shard, batch.group);
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_UPDATE_H_
