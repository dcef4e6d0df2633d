// FindToTrain: lookups that record what an update of the same keys needs.
#include <cstring>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/table/lookup_plan.h"
#include "de_core/cc/engine/table/table_find.h"
#include "de_core/cc/engine/table/table_spread.h"

namespace de::engine {
namespace {

// Distinct keys that are read while a shard's lock is held. Bounds how long a writer waits.
constexpr size_t kKeysPerHold = 1024;

}  // namespace

size_t& LeastKeysToRecord() noexcept {
  static size_t least = 2048;
  return least;
}

// Writes the row of each distinct key of a shard to the position in `out` where the key first
// occurs, and copies it to the key's other positions. Records the row numbers in `known`. Returns
// how many keys of the group have a row.
template <typename Width>
size_t Table::FindGroup(const Width& width, const Keys& keys, uint32_t number,
                        const ShardKeys& group, const ValuesOut& out, bool* found,
                        KnownKeys::OfShard* known) const {
  const Shard& shard = *shards_[number];
  const size_t bytes = width.bytes();
  known->unique.Find(keys, group);
  const ShardKeys unique = known->unique.keys();
  if (known->rows.size() < unique.count) known->rows.resize(unique.count);
  uint32_t* const numbers = known->rows.data();
  const OneShardsKeys batch{shards_.data(), number, unique};
  size_t hits = 0;  // number of distinct keys with a row
  for (size_t begin = 0; begin < unique.count; begin += kKeysPerHold) {
    const size_t end = std::min(unique.count, begin + kKeysPerHold);
    const std::shared_lock<ShardLock> guard(shard.lock);
    // Record the counter as of the first lock: if rows are renumbered before a later lock, the
    // recorded numbers are invalid.
    if (begin == 0) known->renumbered = shard.renumbered();
    hits += FindLocked<FindKind::kPlain, /*kRecord=*/true>(width, batch, keys, begin, end, out,
                                                           nullptr, numbers);
  }
  const UniqueKeys::Repeats repeats = known->unique.repeats();
  const uint32_t* const positions = group.positions;
  const uint32_t* const first_positions = unique.positions;
  char* const data = out.data;
  const size_t stride = out.StrideOf(bytes);
  for (size_t i = 0; i < repeats.count; ++i) {
    const uint32_t j = repeats.keys[i];
    width.Copy(data + size_t{positions[j]} * stride,
               data + size_t{first_positions[repeats.unique_of[j]]} * stride);
  }
  if (hits == unique.count) return group.count;
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
  LookupPlan::Record known;
  if (keys.ints != nullptr && out.data != nullptr && keys.size >= LeastKeysToRecord() &&
      !policy_.watches_reads()) {
    DE_RETURN_IF_ERROR(Prepare(keys));
    DE_RETURN_IF_ERROR(Guarded([&] {
      known = plan_.Begin();
      return Status::Ok();
    }));
  }
  if (known == nullptr) return Find(keys, out, found, executor);
  const Status status = Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    if (found != nullptr) std::memset(found, true, keys.size);
    std::atomic<size_t> hits{0};
    const auto find = [&](uint32_t shard, const ShardKeys& group) {
      hits += WithRowWidth(layout_.value_bytes(), layout_.stride(), [&](const auto& width) {
        return FindGroup(width, keys, shard, group, out, found, &known->of[shard]);
      });
    };
    const Status done = ForEachGroup(keys, &known->partition, /*is_built=*/false, executor, find);
    hits_.fetch_add(hits, std::memory_order_relaxed);
    misses_.fetch_add(keys.size - hits, std::memory_order_relaxed);
    return done;
  });
  if (status.ok()) plan_.Put(std::move(known));
  return status;
}

}  // namespace de::engine
