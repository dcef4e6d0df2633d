// The pass of all lookups: finds the rows of keys whose shards are locked, and reads them.
#ifndef DE_CORE_ENGINE_TABLE_FIND_H_
#define DE_CORE_ENGINE_TABLE_FIND_H_

#include <algorithm>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/batch/picked_keys.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/index/simd_lines.h"
#include "de_core/cc/engine/rows/row_width.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Keys that are read while a lock is held. Bounds how long a writer waits.
inline constexpr size_t kKeysPerChunk = kMostPicked;

/// A lookup whose output has at least this many bytes writes it past the caches, which would not
/// hold it. Stores that wait for memory took a fifth of such a lookup.
inline constexpr size_t kBytesToStream = size_t{4} << 20;

/// A lookup of fewer keys records nothing for an update: to find its keys again costs less than the
/// record (docs/reference/benchmarks.md). Tests may set it while no table is in use.
size_t& LeastKeysToRecord() noexcept;

enum class FindKind {
  kPlain,    ///< integer keys, values wanted that are not strings, no policy that observes lookups
  kInts,     ///< integer keys otherwise
  kStrings,  ///< string keys
};

// Reads the rows of keys [begin, end) of `batch`, at most kKeysPerChunk, whose shards the caller
// has locked. Returns how many have a row. With kRecord, numbers[j] receives the row number of key
// j, or kNoRow. For plain values, the caller sets `found` to true; this function sets it to false
// for the keys without a row.
template <FindKind kKind, bool kRecord, typename Width, typename Batch>
size_t Table::FindLocked(const Width& width, const Batch& batch, const Keys& keys, size_t begin,
                         size_t end, const ValuesOut& out, bool* found, uint32_t* numbers) const {
  Shard::Reader all_readers[kShards];
  for (uint32_t i = batch.first(); i <= batch.last(); ++i) {
    all_readers[i] = batch.shards[i]->reader(i);
  }
  const Shard::Reader* const readers = all_readers;
  const Slab::Map map = batch.shards[batch.first()]->slab().map();
  const uint64_t seed = readers[batch.first()].seed;  // the same in all shards
  return AtSimdLevel([=](auto compare) {
    constexpr bool kPlain = kKind == FindKind::kPlain, kStrings = kKind == FindKind::kStrings;
    // Local copies: writes of rows could change what a pointer reaches, so that the compiler would
    // load it again for each key.
    const Batch of = batch;
    char* const data = out.data;
    const size_t value_bytes = width.bytes(), stride = out.StrideOf(value_bytes);
    const bool values_wanted = kPlain || data != nullptr || out.strings != nullptr;
    const bool watched = !kPlain && policy_.watches_reads();
    const size_t touched = watched ? std::max(value_bytes, policy_.end()) : value_bytes;
    const Stamp now = watched ? policy_.Now() : Stamp{};
    const auto word_of = [&](size_t j)
                             DE_ALWAYS_INLINE { return kStrings ? of.word(j) : of.int_word(j); };
    const auto prefetch_row = [&](const char* row) DE_ALWAYS_INLINE {
      if constexpr (kPlain) {
        width.Prefetch(row);
      } else if (values_wanted) {
        PrefetchRow(row, touched);
      }
    };
    // Only rows in order and without gaps fill whole cache lines one after another.
    const bool streams = kPlain && Batch::kInOrder && stride == value_bytes &&
                         keys.size * value_bytes >= kBytesToStream && CanStream(data, value_bytes);
    bool mixed = false;  // many of the last keys were absent
    const auto write_row = [&](char* to, const char* row) DE_ALWAYS_INLINE {
      // Initial rows overwrite the rows of absent keys soon, so they need the cache.
      if (streams && !mixed) {
        width.Stream(to, row);
      } else {
        width.Copy(to, row);
      }
    };
    size_t hits = 0;
    const auto use = [&](size_t position, uint64_t word, char* row) DE_ALWAYS_INLINE {
      bool exists = row != nullptr;
      if (watched && exists) exists = UseRow(row, now, values_wanted);
      hits += exists;
      if (found != nullptr) found[position] = exists;
      if (kPlain || data != nullptr) {
        char* const to = data + position * stride;
        if (exists) {
          write_row(to, row);
        } else {
          initializer_->Fill(word, to);
        }
      } else if (values_wanted) {
        ReadStrings(exists ? row : nullptr, position, out);
      }
    };

    uint64_t hashes[kPipelineRing];
    const IndexLine* lines[kPipelineRing];
    char* rows[kPipelineRing];
    // Keys that are not in their home line are listed in `away`, and resolved later. So neither an
    // unpredictable branch nor a line that was not prefetched stalls the pipeline. For plain
    // values, their rows are overwritten below.
    uint16_t away[kKeysPerChunk + 1];
    size_t away_count = 0, sorted = 0, displaced = 0;
    const auto hash_key = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
      const uint64_t hash = Mix64(word_of(j));
      hashes[at] = hash;
      lines[at] = readers[ShardOfHash(hash)].HomeLine(hash);
      PrefetchFar(lines[at]);
      if (!kPlain || !mixed) return;
      const char* const to = data + of.position(j) * stride;
      for (size_t byte = 0; byte < value_bytes; byte += 64) PrefetchToWrite(to + byte);
    };
    const auto probe = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
      const HomeProbe home = ProbeHome(compare, *lines[at], word_of(j));
      // Without a match, this is some other row, which is valid memory to read.
      char* const row = map.RowIn(readers[ShardOfHash(hashes[at])].extents, home.row);
      rows[at] = kPlain || home.away == 0 ? row : nullptr;
      away[away_count] = static_cast<uint16_t>(j - begin);
      away_count += home.away;
      if constexpr (kRecord) numbers[j] = home.row;
      prefetch_row(row);
      if (kStrings) PrefetchFar(row + layout_.key_offset());
    };
    if constexpr (kPlain) {
      // Writes the initial rows of the keys before `done` whose home line proves that they have no
      // row. Keeps the other keys, which are displaced, at the start of `away`. Returns true if
      // many keys have no row: their rows are written out of order, which the hardware does not
      // predict. Not inlined, to leave the registers to the pipeline.
      const auto sort_away = [=, this_hashes = &hashes[0], this_lines = &lines[0],
                              this_away = &away[0], &sorted,
                              &displaced](size_t done, size_t count) __attribute__((noinline)) {
        uint64_t absent_words[kStepsPerRest];
        void* absent_rows[kStepsPerRest];
        size_t absent = 0, i = sorted, kept = displaced;
        for (; i < count && this_away[i] < done; ++i) {
          const uint16_t listed = this_away[i];
          const size_t j = begin + listed, position = of.position(j), at = listed % kPipelineRing;
          const uint64_t seeded = SeededHash(this_hashes[at], seed);
          const auto passed = static_cast<size_t>(HasPassed(*this_lines[at], seeded));
          absent_words[absent] = of.int_word(j);
          absent_rows[absent] = data + position * stride;
          absent += passed ^ 1;
          this_away[kept] = listed;
          kept += passed;
          if (found != nullptr) found[position] = false;
          if constexpr (kRecord) numbers[j] = kNoRow;
        }
        sorted = i;
        displaced = kept;
        initializer_->FillRows(absent_words, absent_rows, absent);
        return absent > kStepsPerRest / 8;
      };
      RunPipelineWithRests(
          begin, end,
          [&](size_t done) DE_ALWAYS_INLINE {
            if (away_count != 0) mixed = sort_away(done - begin, away_count);
          },
          hash_key, probe,
          [&](size_t j, size_t at)
              DE_ALWAYS_INLINE { write_row(data + of.position(j) * stride, rows[at]); });
      if (streams) FinishStreams();
      hits = end - begin - away_count;
    } else {
      const auto prefetch_key = [&](size_t, size_t at) DE_ALWAYS_INLINE {
        if (rows[at] != nullptr) shards_[ShardOfHash(hashes[at])]->PrefetchKey(rows[at]);
      };
      const auto use_row = [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        if (rows[at] == nullptr) return;
        const size_t position = of.position(j);
        const uint64_t word = word_of(j);
        if constexpr (kStrings) {
          const Shard& shard = *shards_[ShardOfHash(hashes[at])];
          if (shard.KeyBytes(rows[at]) != keys.strings[position]) {
            const uint32_t number = shard.Find({word, hashes[at], keys.strings + position});
            rows[at] = number == kNoRow ? nullptr : shard.Row(number);
          }
        }
        use(position, word, rows[at]);
      };
      if constexpr (kStrings) {
        RunPipeline(begin, end, hash_key, probe, prefetch_key, use_row);
      } else {
        RunPipeline(begin, end, hash_key, probe, use_row);
      }
      displaced = away_count;
    }

    // Most displaced keys are in the line after their home line.
    char* displaced_rows[kKeysPerChunk];
    const auto shard_of = [&](uint64_t hashed) -> const Shard& {
      return *shards_[ShardOfHash(hashed)];
    };
    for (size_t i = 0; i < displaced; ++i) {
      const uint64_t hashed = Mix64(word_of(begin + away[i]));
      PrefetchFar(readers[ShardOfHash(hashed)].HomeLine(hashed) + 1);
    }
    for (size_t i = 0; i < displaced; ++i) {
      const size_t j = begin + away[i];
      const uint64_t word = word_of(j), hashed = Mix64(word);
      const Shard& shard = shard_of(hashed);
      const uint32_t number =
          shard.Find({word, hashed, kStrings ? keys.strings + of.position(j) : nullptr});
      displaced_rows[i] = number == kNoRow ? nullptr : shard.Row(number);
      if (number != kNoRow) prefetch_row(displaced_rows[i]);
      if constexpr (kRecord) numbers[j] = number;
    }
    for (size_t i = 0; i < displaced; ++i) {
      const size_t j = begin + away[i];
      use(of.position(j), word_of(j), displaced_rows[i]);
    }
    if (streams) FinishStreams();
    return hits;
  });
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_FIND_H_
