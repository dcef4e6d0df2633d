// The write pipeline of one shard: prefetches a key's index line, then searches the line and
// prefetches the row, then writes the row.
#ifndef DE_CORE_ENGINE_SHARD_UPDATE_H_
#define DE_CORE_ENGINE_SHARD_UPDATE_H_

#include <algorithm>
#include <memory>
#include <mutex>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/batch/picked_keys.h"
#include "de_core/cc/engine/index/avx512_write.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/engine/table/shard.h"

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

/// Data for a fast loop that replaces whole row values. kBytes is the size of a value, or 0 to not
/// use this loop. `from` is (keys, kBytes) in the order of the batch. With kWatch, some of the
/// shards have observers.
template <size_t kBytes, bool kWatch = false>
struct PlainRows {
  static constexpr size_t kRowBytes = kBytes;
  static constexpr bool kWatched = kWatch;
  using Watched = PlainRows<kBytes, /*kWatch=*/true>;
  const char* from = nullptr;
};

/// The keys of a batch that belong to one shard.
struct OneShardsKeys {
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
#if defined(DE_SIMD_DRAWS)
  WordsInOrder words_from(size_t j) const noexcept { return WordsInOrder(group.words + j); }
#endif
};

/// Integer keys that were selected from a batch because they belong to shards first() to last().
struct SomeShardsKeys {
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
#if defined(DE_SIMD_DRAWS)
  PickedWords words_from(size_t j) const noexcept {
    return PickedWords(ints, positions + j, hashes + j);
  }
#endif
};

/// A whole batch, with keys of all shards.
struct AllShardsKeys {
  const std::unique_ptr<Shard>* shards;  // (kShards) the table's shards
  const Keys* keys;

  uint32_t first() const noexcept { return 0; }
  uint32_t last() const noexcept { return kShards - 1; }
  size_t count() const noexcept { return keys->size; }
  uint64_t word(size_t j) const noexcept { return WordOf(*keys, j); }
  /// The word of an integer key.
  uint64_t int_word(size_t j) const noexcept { return static_cast<uint64_t>(keys->ints[j]); }
  uint64_t hash(uint64_t word, size_t) const noexcept { return Mix64(word); }
  size_t position(size_t j) const noexcept { return j; }
#if defined(DE_SIMD_DRAWS)
  WordsInOrder words_from(size_t j) const noexcept {
    return WordsInOrder(reinterpret_cast<const uint64_t*>(keys->ints) + j);
  }
#endif
};

/// UpdateLocked, with the existence of observers as a compile-time constant: Plain::kWatched.
template <typename Plain, typename Batch, typename Gate, typename OnRow, typename OnRefused>
void UpdateHeld(const Batch& of, const Keys& keys, size_t begin, size_t end,
                const WriteTouches& touch, const Gate* gate, const OnRow& on_row,
                const OnRefused& on_refused, const Plain& plain) {
  // Copy the batch: the compiler cannot know that writes to rows leave `of` unchanged, so it would
  // reload its members for each key.
  const Batch batch = of;
  constexpr size_t kRowBytes = Plain::kRowBytes;
  constexpr bool kPlain = kRowBytes != 0;
  const bool strings = !kPlain && keys.strings != nullptr;
  const auto key_at = [&](size_t j, uint64_t word, uint64_t hash) DE_ALWAYS_INLINE {
    return IndexKey{word, hash, strings ? keys.strings + batch.position(j) : nullptr};
  };
  const auto shard_of = [&](uint64_t hash) -> Shard& { return *batch.shards[ShardOfHash(hash)]; };
  bool watched = Plain::kWatched;
  ChangeObserver* watches[kShards];
  if constexpr (!kPlain || Plain::kWatched) {
    for (uint32_t i = batch.first(); i <= batch.last(); ++i) {
      watches[i] = batch.shards[i]->watch.get();
      watched = watched || watches[i] != nullptr;
    }
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

  Shard::Reader readers[kShards];
  for (uint32_t i = batch.first(); i <= batch.last(); ++i) readers[i] = batch.shards[i]->reader(i);
  const Slab::Map map = batch.shards[batch.first()]->slab().map();
  uint64_t words[kPipelineRing];
  uint64_t hashes[kPipelineRing];
  const IndexLine* lines[kPipelineRing];
  uint32_t numbers[kPipelineRing];
  char* rows[kPipelineRing];
  // Keys that are not in their home line are listed in `away`, and written after all other keys. So
  // nothing is inserted before, and prefetched lines and rows stay in place. Equal keys keep their
  // order, because equal keys are either all in their home line or all not.
  constexpr size_t kAwaySlack = 8;  // entries that the AVX-512 loop may write past the last one
  // flag in `away`: the key may be in a later line, or will be inserted there
  constexpr uint32_t kBehind = 1U << 15;
  static_assert(kKeysPerLock <= kBehind, "a position in the batch must not overlap it");
  uint16_t away[kKeysPerLock + kAwaySlack];
  // string keys whose home line has another key with the same word (hash)
  uint16_t of_others[kKeysPerLock];
  size_t away_count = 0, of_others_count = 0, next_away = 0;
  // The fast loop writes the rows of keys that are away here, instead of branching.
  alignas(64) char nowhere[kPlain ? kRowBytes : 1];
  // True if the key may be in a later line, or if the home line is full, so that the key will be
  // inserted into a later line.
  const auto is_behind = [](const IndexLine& line, uint64_t hash) DE_ALWAYS_INLINE {
    return static_cast<uint32_t>(HasPassed(line, hash)) |
           static_cast<uint32_t>(line.used == kFullLine);
  };
  const auto find_home = [&]() DE_ALWAYS_INLINE {
    RunPipeline(
        begin, end,
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          const uint64_t word = kPlain ? batch.int_word(j) : batch.word(j);
          const uint64_t hash = batch.hash(word, j);
          words[at] = word;
          hashes[at] = hash;
          lines[at] = readers[ShardOfHash(hash)].HomeLine(hash);
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE { PrefetchFar(lines[at]); },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          // Prefetch explicitly: the keys of one shard are scattered in the batch, so the hardware
          // does not predict the next address.
          if (touch.source_bytes != 0) {
            PrefetchBytes(touch.source + batch.position(j) * touch.source_bytes,
                          touch.source_bytes);
          }
          const HomeProbe probe = ProbeHome(*lines[at], words[at]);
          numbers[at] = probe.row;
          rows[at] = map.RowIn(readers[ShardOfHash(hashes[at])].extents, probe.row);
          const uint32_t behind = is_behind(*lines[at], hashes[at]);
          PrefetchFar(lines[at] + (behind & probe.away));
          if (kPlain && probe.away != 0) rows[at] = nowhere;
          away[away_count] = static_cast<uint16_t>((j - begin) | behind * kBehind);
          away_count += probe.away;
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE {
          if constexpr (kPlain) {
            PrefetchBytes<kRowBytes>(rows[at]);
          } else {
            PrefetchBytes(rows[at], touch.row_bytes);
          }
          if (!watched) return;
          const ChangeObserver* const watch = watches[ShardOfHash(hashes[at])];
          if (watch != nullptr) watch->Prefetch(numbers[at]);
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE {
          if (!strings) return;
          const Shard& shard = shard_of(hashes[at]);
          if (shard.size() > 0) shard.PrefetchKey(rows[at]);
        },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          if constexpr (kPlain) {
            if constexpr (Plain::kWatched) {
              ChangeObserver* const watch = watches[ShardOfHash(hashes[at])];
              if (watch != nullptr && rows[at] != nowhere) {
                watch->BeforeWrite(words[at], hashes[at], numbers[at], rows[at],
                                   /*inserted=*/false);
              }
            }
            CopyBytes(rows[at], plain.from + batch.position(j) * kRowBytes, kRowBytes);
            return;
          }
          if (next_away < away_count && (away[next_away] & ~kBehind) == j - begin) {
            ++next_away;
            return;
          }
          Shard& shard = shard_of(hashes[at]);
          const IndexKey key = key_at(j, words[at], hashes[at]);
          if (strings && !shard.IsRowOf(numbers[at], key)) {
            of_others[of_others_count++] = static_cast<uint16_t>((j - begin) | kBehind);
            return;
          }
          write(shard, key, j, numbers[at], rows[at]);
        });
  };
  bool wide = false;
#if defined(DE_SIMD_DRAWS)
  if constexpr (kPlain && !Plain::kWatched) {
    wide = HasAvx512();
    if (wide) {
      const auto position_of = [&](size_t j) DE_ALWAYS_INLINE { return batch.position(begin + j); };
      WideWrite<kRowBytes, decltype(position_of)> rows_of(plain.from, position_of);
      Avx512Probe(readers, map, batch.words_from(begin), &rows_of)
          .Run(end - begin, away, &away_count);
      for (size_t i = 0; i < away_count; ++i) {
        const size_t j = begin + away[i];
        const uint64_t hash = batch.hash(batch.word(j), j);
        const IndexLine* const line = readers[ShardOfHash(hash)].HomeLine(hash);
        const uint32_t behind = is_behind(*line, hash);
        PrefetchFar(line + behind);
        away[i] = static_cast<uint16_t>(away[i] | behind * kBehind);
      }
    }
  }
#endif
  if (!wide) find_home();

  const auto at_away = [&](uint32_t listed, const auto& use) DE_ALWAYS_INLINE {
    const size_t j = begin + (listed & ~kBehind);
    const uint64_t word = batch.word(j), hash = batch.hash(word, j);
    use(shard_of(hash), key_at(j, word, hash), j);
  };
  const auto write_away = [&](const uint16_t* list, size_t count) {
    uint32_t found[kKeysPerLock];
    for (size_t i = 0; i < count; ++i) {
      if ((list[i] & kBehind) == 0) continue;
      at_away(list[i], [](const Shard& shard, const IndexKey& key, size_t) {
        shard.PrefetchBehind(key.hash);
      });
    }
    for (size_t i = 0; i < count; ++i) {
      found[i] = kNoRow;
      if ((list[i] & kBehind) == 0) continue;
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
  write_away(away, away_count);
  if (strings) write_away(of_others, of_others_count);
}

/// Updates keys [begin, end) of a batch, at most kKeysPerLock. Requires the writer locks of their
/// shards. Otherwise like UpdateShard. If Plain::kRowBytes is not 0, `gate` must be nullptr and
/// keys must be integers; then the rows of keys in their home line are replaced by rows of `plain`,
/// without calling on_row.
template <typename Plain, typename Batch, typename Gate, typename OnRow, typename OnRefused>
void UpdateLocked(const Batch& batch, const Keys& keys, size_t begin, size_t end,
                  const WriteTouches& touch, const Gate* gate, const OnRow& on_row,
                  const OnRefused& on_refused, const Plain& plain) {
  if constexpr (Plain::kRowBytes != 0) {
    // Use a separate loop for shards with observers, so that the main loop need not check for an
    // observer at each key.
    const auto* const shards = batch.shards;
    if (std::any_of(shards + batch.first(), shards + batch.last() + 1,
                    [](const auto& shard) { return shard->watch != nullptr; })) {
      return UpdateHeld(batch, keys, begin, end, touch, gate, on_row, on_refused,
                        typename Plain::Watched{plain.from});
    }
  }
  UpdateHeld(batch, keys, begin, end, touch, gate, on_row, on_refused, plain);
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
          typename Plain = PlainRows<0>>
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
