// Verbs that read rows.
#include <algorithm>
#include <type_traits>

#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/index/avx512_read.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/table/all_shards.h"
#include "de_core/cc/engine/table/table_scratch.h"

namespace de::engine {
namespace {

// Keys that are read while a lock is held. Bounds how long a writer waits.
constexpr size_t kKeysPerChunk = 2048;
// Number of absent keys whose initial rows are computed together. Large enough that the
// unpredictable branch to this computation is rare. Small enough that the computation ends about
// when the memory prefetched before it arrives.
constexpr size_t kAbsentRows = 32;
// Pipeline steps from the search of a key's home line to the end of the key's use.
constexpr size_t kStepsToUse = 2 * kPipelineLag / kPipelineStride;
// Greatest number of keys that were not found in their home line and are not handled yet.
constexpr size_t kAwayRing = 128;
static_assert(kAwayRing >= 3 * kPipelineLag + kPipelineStride + 2 * kAbsentRows,
              "a key must not be overwritten before it is sorted out");
// Entries that the AVX-512 loop may write past the end of a list of keys.
constexpr size_t kAwaySlack = 8;
// Use another thread only for at least this many keys per thread: fewer are not worth waking it.
constexpr size_t kKeysPerThread = 4096;
// Tasks per thread. Several, so that the other threads can take over tasks of a thread that starts
// late.
constexpr size_t kTasksPerThread = 4;

/// Keys in the batch's order: key i is at position first + i.
struct Consecutive {
  size_t first;
  size_t operator()(size_t i) const noexcept { return first + i; }
};

/// Returns the line after a hash's home line. A key that does not fit in its home line goes there.
inline const IndexLine* LineAfterHome(const Shard::Reader& reader, uint64_t hash) noexcept {
  const auto& place = *reinterpret_cast<const Shard::Place*>(
      reader.directory + (hash >> reader.shift) * sizeof(Shard::Place));
  const uint32_t after = ReduceLow32(hash, place.size) + 1;
  return place.lines + (after == place.size ? 0 : after);
}

}  // namespace

Status Table::Prepare(const Keys& keys) const {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  const bool strings = options_.key_type == KeyType::kString;
  if (keys.size > 0 && (strings ? keys.strings == nullptr : keys.ints == nullptr)) {
    return Status::InvalidArgument("keys must be of the table's type, " +
                                   std::string(NameOf(options_.key_type)) +
                                   ". Received: keys of the other type");
  }
  return Status::Ok();
}

void Table::ReadRow(const char* row, size_t position, const ValuesOut& out) const {
  const size_t bytes = layout_.value_bytes();
  if (out.data != nullptr) CopyBytes(out.data + position * bytes, row, bytes);
  if (out.strings != nullptr) ReadStrings(row, position, out);
}

void Table::ReadInitial(const IndexKey& key, size_t position, const ValuesOut& out) const {
  if (out.data != nullptr)
    initializer_->Fill(key.word, out.data + position * layout_.value_bytes());
  if (out.strings != nullptr) ReadStrings(nullptr, position, out);
}

void Table::ReadStrings(const char* row, size_t position, const ValuesOut& out) const {
  for (size_t i = 0; i < options_.dim; ++i) {
    const StringArena::Ref ref =
        row == nullptr ? 0 : StringArena::LoadRef(row + i * sizeof(StringArena::Ref));
    out.strings->Set(position * options_.dim + i, StringArena::Get(ref));
  }
}

// Returns false if a row that was found has expired. Otherwise records a use if `used` and the
// policy counts lookups as uses.
bool Table::UseRow(char* row, const Stamp& now, bool used) const noexcept {
  if (policy_.Expired(row, now)) return false;
  if (used && policy_.options().count_reads) policy_.TouchShared(row, now);
  return true;
}

template <bool kStrings, size_t kRowBytes, typename PositionOf>
size_t Table::FindLocked(const Keys& keys, uint32_t first_shard, uint32_t last_shard, size_t count,
                         const PositionOf& position_of, const ValuesOut& out, bool* found) const {
  // The pointers that a lookup needs: per shard, and the row size that all shards share.
  Shard::Reader readers[kShards];
  for (uint32_t i = first_shard; i <= last_shard; ++i) readers[i] = shards_[i]->reader(i);
  const Slab::Map map = shards_[first_shard]->slab().map();
  // With a constant row width, rows are plain values and the policy does not observe lookups: Find
  // chooses it only then.
  constexpr bool kPlain = kRowBytes != 0;
  const size_t value_bytes = kPlain ? kRowBytes : layout_.value_bytes();
  const bool values_wanted = kPlain || out.data != nullptr || out.strings != nullptr;
  const bool watched = !kPlain && policy_.watches_reads();
  const size_t touched = watched ? std::max(value_bytes, policy_.end()) : value_bytes;
  const Stamp now = watched ? policy_.Now() : Stamp{};
  const auto word_of = [&](size_t position) DE_ALWAYS_INLINE {
    return kStrings ? HashBytes(keys.strings[position])
                    : static_cast<uint64_t>(keys.ints[position]);
  };
  size_t hits = 0;
  const auto use = [&](size_t position, uint64_t word, char* row) DE_ALWAYS_INLINE {
    bool exists = row != nullptr;
    if (watched && exists) exists = UseRow(row, now, values_wanted);
    hits += exists;
    if (found != nullptr) found[position] = exists;
    if (kPlain || out.data != nullptr) {
      char* const to = out.data + position * value_bytes;
      if (exists) {
        CopyBytes(to, row, value_bytes);
      } else {
        initializer_->Fill(word, to);
      }
    } else if (values_wanted) {
      ReadStrings(exists ? row : nullptr, position, out);
    }
  };

  uint64_t words[kPipelineRing];
  uint64_t hashes[kPipelineRing];
  const IndexLine* lines[kPipelineRing];
  char* rows[kPipelineRing];
  const auto home_line_of = [&](size_t position, size_t at) DE_ALWAYS_INLINE {
    words[at] = word_of(position);
    const uint64_t hash = hashes[at] = Mix64(words[at]);
    return readers[ShardOfHash(hash)].HomeLine(hash);
  };
  // Keys that are not in their home line are listed in `away` and resolved after all other keys. So
  // neither an unpredictable branch nor a line that was not prefetched stalls the pipeline.
  uint16_t away[kKeysPerChunk + kAwaySlack];
  size_t away_count = 0;
  size_t next_away = 0;
  // For plain values, a key whose home line proves that it has no row is handled, and its initial
  // row written, while the memory of other keys is loading.
  uint64_t away_hashes[kAwayRing];
  const IndexLine* away_lines[kAwayRing];
  size_t away_then[kStepsToUse] = {};  // away_count at each recent step of the pipeline
  size_t elsewhere_count = 0;
  const auto write_absent = [&](size_t last) DE_ALWAYS_INLINE {
    uint64_t absent_words[kAbsentRows];
    void* absent_rows[kAbsentRows];
    size_t absent_count = 0;
    for (; next_away < last; ++next_away) {
      const uint16_t j = away[next_away];
      const size_t position = position_of(j), at = next_away % kAwayRing;
      const auto elsewhere = static_cast<size_t>(HasPassed(*away_lines[at], away_hashes[at]));
      absent_words[absent_count] = word_of(position);
      absent_rows[absent_count] = out.data + position * value_bytes;
      absent_count += elsewhere ^ 1;
      away[elsewhere_count] = j;
      elsewhere_count += elsewhere;
      if (found != nullptr) found[position] = false;
    }
    initializer_->FillRows(absent_words, absent_rows, absent_count);
  };
  const auto find_home = [&]() DE_ALWAYS_INLINE {
    RunPipeline(
        0, count,
        [&](size_t j, size_t at) DE_ALWAYS_INLINE { lines[at] = home_line_of(position_of(j), at); },
        [&](size_t, size_t at) DE_ALWAYS_INLINE { PrefetchFar(lines[at]); },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          const HomeProbe probe = ProbeHome(*lines[at], words[at]);
          char* const row = map.RowIn(readers[ShardOfHash(hashes[at])].extents, probe.row);
          // If the key is not in this line, `row` is some other row, which is valid memory to
          // prefetch. A string key gets nullptr instead, because its bytes would be compared with
          // the row's key.
          rows[at] = kStrings && probe.away != 0 ? nullptr : row;
          away[away_count] = static_cast<uint16_t>(j);
          if constexpr (kPlain) {
            away_hashes[away_count % kAwayRing] = hashes[at];
            away_lines[away_count % kAwayRing] = lines[at];
          }
          away_count += probe.away;
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE {
          const char* const row = rows[at];
          if constexpr (kPlain) {
            PrefetchBytes<kRowBytes>(row);
          } else if (values_wanted) {
            PrefetchBytes(row, touched);
          }
          if (kStrings) PrefetchFar(row + layout_.key_offset());
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE {
          if (!kStrings) return;
          if (rows[at] != nullptr) shards_[ShardOfHash(hashes[at])]->PrefetchKey(rows[at]);
        },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          const size_t position = position_of(j);
          if constexpr (kPlain) {
            CopyBytes(out.data + position * value_bytes, rows[at], value_bytes);
            if (found != nullptr) found[position] = true;
            return;
          }
          if (next_away < away_count && away[next_away] == j) {
            ++next_away;
            return;
          }
          if constexpr (kStrings) {
            const Shard& shard = *shards_[ShardOfHash(hashes[at])];
            if (shard.KeyBytes(rows[at]) != keys.strings[position]) {
              const uint32_t number = shard.Find({words[at], hashes[at], keys.strings + position});
              rows[at] = number == kNoRow ? nullptr : shard.Row(number);
            }
          }
          use(position, words[at], rows[at]);
        },
        [&](size_t used) DE_ALWAYS_INLINE {
          if (!kPlain) return;
          size_t& then = away_then[used / kPipelineStride % kStepsToUse];
          // the keys before this position in `away` have passed the pipeline
          const size_t due = then;
          then = away_count;
          if (due >= next_away + kAbsentRows) write_absent(next_away + kAbsentRows);
        });
    if constexpr (kPlain) {
      hits += count - away_count;
      while (next_away < away_count) write_absent(std::min(away_count, next_away + kAbsentRows));
      away_count = elsewhere_count;
    }
  };
  bool wide = false;
#if defined(DE_SIMD_DRAWS)
  if constexpr (kPlain && std::is_same_v<PositionOf, Consecutive>) {
    wide = HasAvx512();
    if (wide) {
      const size_t first = position_of(0);
      WideRead<kRowBytes> read(*initializer_, out.data + first * kRowBytes,
                               found == nullptr ? nullptr : found + first);
      const WordsInOrder words_in_order(reinterpret_cast<const uint64_t*>(keys.ints) + first);
      hits = Avx512Probe(readers, map, words_in_order, &read).Run(count, away, &away_count);
    }
  }
#endif
  if (!wide) find_home();

  const auto position_of_away = [&](size_t i) DE_ALWAYS_INLINE { return position_of(away[i]); };
  const auto nothing = [](size_t, size_t) DE_ALWAYS_INLINE {};
  RunPipeline(
      0, away_count,
      [&](size_t i, size_t at) DE_ALWAYS_INLINE {
        const IndexLine* const home = home_line_of(position_of_away(i), at);
        const uint64_t hash = hashes[at];
        lines[at] =
            HasPassed(*home, hash) ? LineAfterHome(readers[ShardOfHash(hash)], hash) : nullptr;
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        if (lines[at] != nullptr) PrefetchFar(lines[at]);
      },
      [&](size_t i, size_t at) DE_ALWAYS_INLINE {
        rows[at] = nullptr;
        if (lines[at] == nullptr) return;
        if constexpr (!kStrings) {  // most of these keys are in the line after their home line
          const HomeProbe probe = ProbeHome(*lines[at], words[at]);
          rows[at] = map.RowIn(readers[ShardOfHash(hashes[at])].extents, probe.row);
          if (!probe.away) return;
          rows[at] = nullptr;
        }
        const Shard& shard = *shards_[ShardOfHash(hashes[at])];
        const std::string_view* const bytes =
            kStrings ? keys.strings + position_of_away(i) : nullptr;
        const uint32_t number = shard.Find({words[at], hashes[at], bytes});
        if (number != kNoRow) rows[at] = shard.Row(number);
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        const char* const row = rows[at];
        if (values_wanted && row != nullptr) PrefetchBytes(row, touched);
      },
      nothing,
      [&](size_t i, size_t at) DE_ALWAYS_INLINE { use(position_of_away(i), words[at], rows[at]); });
  return hits;
}

template <bool kStrings, size_t kRowBytes>
void Table::FindRange(const Keys& keys, size_t begin, size_t end, const ValuesOut& out,
                      bool* found) const {
  size_t hits = 0;
  for (size_t at = begin; at < end; at += kKeysPerChunk) {
    const size_t count = std::min(kKeysPerChunk, end - at);
    const AllShards</*kWriter=*/false> all(shards_);
    if (all.held()) {
      hits +=
          FindLocked<kStrings, kRowBytes>(keys, 0, kShards - 1, count, Consecutive{at}, out, found);
      continue;
    }
    // A writer holds the lock of some shard. Process the keys shard by shard, to wait only for that
    // shard.
    uint16_t order[kKeysPerChunk];
    uint16_t begins[kShards + 1] = {};
    uint8_t shard_of[kKeysPerChunk];
    for (size_t j = 0; j < count; ++j) {
      shard_of[j] = static_cast<uint8_t>(ShardOfHash(Mix64(WordOf(keys, at + j))));
      ++begins[shard_of[j] + 1];
    }
    uint16_t next[kShards];
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      next[shard] = begins[shard];
      begins[shard + 1] = static_cast<uint16_t>(begins[shard + 1] + begins[shard]);
    }
    for (size_t j = 0; j < count; ++j) order[next[shard_of[j]]++] = static_cast<uint16_t>(j);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const uint16_t* first = order + begins[shard];
      const std::shared_lock<ShardLock> guard(shards_[shard]->lock);
      hits += FindLocked<kStrings, kRowBytes>(
          keys, shard, shard, static_cast<size_t>(begins[shard + 1] - begins[shard]),
          [first, at](size_t j) { return at + first[j]; }, out, found);
    }
  }
  hits_.fetch_add(hits, std::memory_order_relaxed);
  misses_.fetch_add(end - begin - hits, std::memory_order_relaxed);
}

Status Table::Find(const Keys& keys, const ValuesOut& out, bool* found, Executor* executor) const {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    // Common row widths (in bytes) get specialized code. All other widths share one version.
    const auto find_range = [&] {
      if (options_.key_type == KeyType::kString) return &Table::FindRange<true, 0>;
      switch (out.data != nullptr && !policy_.watches_reads() ? layout_.value_bytes() : 0) {
        case 32:
          return &Table::FindRange<false, 32>;
        case 64:
          return &Table::FindRange<false, 64>;
        case 128:
          return &Table::FindRange<false, 128>;
        case 256:
          return &Table::FindRange<false, 256>;
        default:
          return &Table::FindRange<false, 0>;
      }
    }();
    const auto range = [&](size_t begin, size_t end) {
      (this->*find_range)(keys, begin, end, out, found);
    };
    const size_t threads = executor == nullptr ? 1 : executor->threads();
    const size_t worth = std::min(threads, keys.size / kKeysPerThread);
    const size_t tasks = std::min(worth * kTasksPerThread, keys.size / kKeysPerChunk);
    if (worth <= 1) {
      range(0, keys.size);
    } else {
      return RunGuarded(executor, tasks, [&](size_t task) {
        range(keys.size * task / tasks, keys.size * (task + 1) / tasks);
        return Status::Ok();
      });
    }
    return Status::Ok();
  });
}

Status Table::Contains(const Keys& keys, bool* found, Executor* executor) const {
  return Find(keys, ValuesOut{}, found, executor);
}

}  // namespace de::engine
