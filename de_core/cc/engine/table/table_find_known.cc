// FindToTrain: lookups that record what an update of the same keys needs.
#include <cstring>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/table/lookup_memo.h"
#include "de_core/cc/engine/table/table_spread.h"

namespace de::engine {
namespace {

// Distinct keys that are read while a shard's lock is held. Bounds how long a writer waits.
constexpr size_t kKeysPerHold = 1024;
// Number of absent keys whose initial rows are computed together.
constexpr size_t kAbsentRows = 32;
// A batch with fewer keys is not recorded: it is not worth the memory.
constexpr size_t kKeysWorthKnowing = 64;

}  // namespace

// Writes the row of each distinct key of a shard to the position in `out` where the key first
// occurs, and copies it to the key's other positions. Records the row numbers in `known`. Returns
// how many keys of the group have a row.
template <size_t kRowBytes>
size_t Table::FindGroup(const Keys& keys, uint32_t number, const ShardKeys& group,
                        const ValuesOut& out, bool* found, KnownKeys::OfShard* known) const {
  const Shard& shard = *shards_[number];
  const size_t bytes = kRowBytes == 0 ? layout_.value_bytes() : kRowBytes;
  known->unique.Find(keys, group);
  const ShardKeys unique = known->unique.keys();
  if (known->rows.size() < unique.count) known->rows.resize(unique.count);
  uint32_t* const numbers = known->rows.data();
  const auto row_out = [&](size_t j) DE_ALWAYS_INLINE {
    return out.data + static_cast<size_t>(unique.positions[j]) * bytes;
  };
  size_t absent = 0;  // number of distinct keys without a row
  uint64_t absent_words[kAbsentRows];
  void* absent_rows[kAbsentRows];
  for (size_t begin = 0; begin < unique.count; begin += kKeysPerHold) {
    const size_t end = std::min(unique.count, begin + kKeysPerHold);
    const std::shared_lock<ShardLock> guard(shard.lock);
    // Record the counter as of the first lock: if rows are renumbered before a later lock, the
    // recorded numbers are invalid.
    if (begin == 0) known->renumbered = shard.renumbered();
    const Shard::Reader reader = shard.reader(number);
    const Slab::Map map = shard.slab().map();
    uint64_t hashes[kPipelineRing];
    const IndexLine* lines[kPipelineRing];
    const char* rows[kPipelineRing];
    uint16_t away[kKeysPerHold + 1];
    size_t away_count = 0;
    const auto nothing = [](size_t, size_t) DE_ALWAYS_INLINE {};
    RunPipeline(
        begin, end,
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          hashes[at] = Mix64(unique.words[j]);
          lines[at] = reader.HomeLine(hashes[at]);
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE { PrefetchFar(lines[at]); },
        [&](size_t j, size_t at) DE_ALWAYS_INLINE {
          const HomeProbe probe = ProbeHome(*lines[at], unique.words[j]);
          numbers[j] = probe.row;
          rows[at] = map.Row(probe.row);
          // If keys went on from this line to the next one, the key may be there.
          const auto passed = static_cast<size_t>(HasPassed(*lines[at], hashes[at]));
          PrefetchFar(lines[at] + (passed & probe.away));
          away[away_count] = static_cast<uint16_t>(j - begin);
          away_count += probe.away;
        },
        [&](size_t, size_t at) DE_ALWAYS_INLINE {
          if constexpr (kRowBytes != 0) {
            PrefetchBytes<kRowBytes>(rows[at]);
          } else {
            PrefetchBytes(rows[at], bytes);
          }
        },
        nothing,
        [&](size_t j, size_t at) DE_ALWAYS_INLINE { CopyBytes(row_out(j), rows[at], bytes); });
    for (size_t i = 0; i < away_count; ++i) {
      const size_t j = begin + away[i];
      numbers[j] = shard.Find({unique.words[j], Mix64(unique.words[j]), nullptr});
      if (numbers[j] != kNoRow) PrefetchBytes(map.Row(numbers[j]), bytes);
    }
    const size_t absent_before = absent;
    for (size_t i = 0; i < away_count; ++i) {
      const size_t j = begin + away[i];
      if (numbers[j] != kNoRow) {
        CopyBytes(row_out(j), map.Row(numbers[j]), bytes);
        continue;
      }
      const size_t at = (absent - absent_before) % kAbsentRows;
      absent_words[at] = unique.words[j];
      absent_rows[at] = row_out(j);
      ++absent;
      if (at + 1 == kAbsentRows) initializer_->FillRows(absent_words, absent_rows, kAbsentRows);
    }
    initializer_->FillRows(absent_words, absent_rows, (absent - absent_before) % kAbsentRows);
  }
  const UniqueKeys::Repeats repeats = known->unique.repeats();
  const uint32_t* const positions = group.positions;
  const uint32_t* const first_positions = unique.positions;
  char* const data = out.data;
  for (size_t i = 0; i < repeats.count; ++i) {
    const uint32_t j = repeats.keys[i];
    CopyBytes(data + size_t{positions[j]} * bytes,
              data + size_t{first_positions[repeats.unique_of[j]]} * bytes, bytes);
  }
  if (absent == 0) return group.count;
  size_t misses = 0;
  for (size_t j = 0; j < group.count; ++j) {
    if (numbers[repeats.unique_of[j]] != kNoRow) continue;
    ++misses;
    if (found != nullptr) found[group.positions[j]] = false;
  }
  return group.count - misses;
}

Status Table::FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                          Executor* executor) const {
  std::unique_ptr<KnownKeys> known;
  if (keys.ints != nullptr && out.data != nullptr && keys.size >= kKeysWorthKnowing &&
      !policy_.watches_reads()) {
    DE_RETURN_IF_ERROR(Prepare(keys));
    DE_RETURN_IF_ERROR(Guarded([&] {
      known = memo_.Begin();
      return Status::Ok();
    }));
  }
  if (known == nullptr) return Find(keys, out, found, executor);
  const Status status = Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const auto find_group = [&] {
      switch (layout_.value_bytes()) {
        case 32:
          return &Table::FindGroup<32>;
        case 64:
          return &Table::FindGroup<64>;
        case 128:
          return &Table::FindGroup<128>;
        case 256:
          return &Table::FindGroup<256>;
        default:
          return &Table::FindGroup<0>;
      }
    }();
    if (found != nullptr) std::memset(found, true, keys.size);
    std::atomic<size_t> hits{0};
    const auto find = [&](uint32_t shard, const ShardKeys& group) {
      hits += (this->*find_group)(keys, shard, group, out, found, &known->of[shard]);
    };
    const Status done = ForEachGroup(keys, &known->partition, /*is_built=*/false, executor, find);
    hits_.fetch_add(hits, std::memory_order_relaxed);
    misses_.fetch_add(keys.size - hits, std::memory_order_relaxed);
    return done;
  });
  if (status.ok()) memo_.Put(std::move(known));
  return status;
}

}  // namespace de::engine
