// Verbs on the metadata of rows.
#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/table/shard_update.h"
#include "de_core/cc/engine/table/table_gate.h"
#include "de_core/cc/engine/table/table_scratch.h"

namespace de::engine {
namespace {

constexpr const char* kStepsKey = "de.steps";
constexpr const char* kAdmissionKey = "de.admission";

}  // namespace

Status Table::CheckColumn(RowColumn column) const {
  if (column != RowColumn::kNone && policy_.offset(column) != 0) return Status::Ok();
  return Status::FailedPrecondition(
      "the table must have the column: create it with a policy that keeps the column. "
      "Received: column='" +
      std::string(NameOf(column)) + "'");
}

// Calls on_row(row, position) for every key that has a row, with the key's position in the batch.
// Holds the lock of the shard: the writer lock with `write`, otherwise the reader lock.
template <typename OnRow>
Status Table::ForEachFound(const Keys& keys, bool write, const OnRow& on_row) const {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&] {
    ScratchLease scratch(*this);
    scratch->partition.Build(keys, nullptr);
    for (uint32_t at = 0; at < kShards; ++at) {
      Shard& shard = *shards_[at];
      const ShardKeys group = scratch->partition.Of(at);
      for (size_t begin = 0; begin < group.count; begin += kKeysPerLock) {
        const size_t end = std::min(group.count, begin + kKeysPerLock);
        const auto body = [&] {
          for (size_t j = begin; j < end; ++j) {
            const size_t ahead = j + kPrefetchAhead;
            if (ahead < end) shard.PrefetchLine(Mix64(group.words[ahead]));
            const uint64_t word = group.words[j];
            const uint64_t hash = Mix64(word);
            const uint32_t position = group.positions[j];
            const auto* string = keys.strings == nullptr ? nullptr : keys.strings + position;
            const uint32_t row = shard.Find({word, hash, string});
            if (row == kNoRow) continue;
            if (write && shard.watch != nullptr) {
              shard.watch->BeforeWrite(word, hash, row, shard.Row(row), /*inserted=*/false);
            }
            on_row(shard.Row(row), position);
          }
        };
        if (write) {
          const std::lock_guard<ShardLock> guard(shard.lock);
          body();
        } else {
          const std::shared_lock<ShardLock> guard(shard.lock);
          body();
        }
      }
    }
    return Status::Ok();
  });
}

Status Table::Touch(const Keys& keys) {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  const Stamp stamp = policy_.BeginWrite();
  return ForEachFound(keys, /*write=*/true, [&](char* row, uint32_t) {
    if (!policy_.Expired(row, stamp)) policy_.Touch(row, stamp);
  });
}

Status Table::ReadColumn(RowColumn column, const Keys& keys, int64_t* values, bool* found) const {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  DE_RETURN_IF_ERROR(CheckColumn(column));
  DE_RETURN_IF_ERROR(Prepare(keys));
  std::fill_n(values, keys.size, int64_t{0});
  if (found != nullptr) std::fill_n(found, keys.size, false);
  const Stamp now = policy_.Now();
  return ForEachFound(keys, /*write=*/false, [&](const char* row, uint32_t position) {
    if (policy_.Expired(row, now)) return;
    values[position] = policy_.ReadShared(row, column);
    if (found != nullptr) found[position] = true;
  });
}

Status Table::WriteColumn(RowColumn column, const Keys& keys, const int64_t* values) {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  DE_RETURN_IF_ERROR(CheckColumn(column));
  return ForEachFound(keys, /*write=*/true, [&](char* row, uint32_t position) {
    policy_.Write(row, column, values[position]);
  });
}

void Table::SaveState(std::map<std::string, std::string>* metadata) const {
  // The number of the step decides how bfloat16 slots are rounded.
  const bool rounds = options_.slot_dtype == DType::kBFloat16;
  if (!policy_.tracks() && !policy_.has_filters() && !rounds) return;
  (*metadata)[kStepsKey] = std::to_string(policy_.steps());
  if (!policy_.has_filters()) return;
  std::string parts;
  for (size_t shard = 0; shard < kShards; ++shard) {
    std::string part;
    {
      const std::shared_lock<ShardLock> guard(shards_[shard]->lock);
      policy_.filter(shard).Save(&part);
    }
    const uint64_t size = part.size();
    parts.append(reinterpret_cast<const char*>(&size), sizeof(size));
    parts.append(part);
  }
  (*metadata)[kAdmissionKey] = std::move(parts);
}

Status Table::LoadState(const std::map<std::string, std::string>& metadata, uint32_t shard_index,
                        uint32_t shard_count) {
  return Guarded([&]() -> Status {
    if (const auto steps = metadata.find(kStepsKey); steps != metadata.end()) {
      policy_.WitnessSteps(std::strtoll(steps->second.c_str(), nullptr, 10));
    }
    const auto admission = metadata.find(kAdmissionKey);
    if (admission == metadata.end() || !policy_.has_filters()) return Status::Ok();
    std::string_view parts = admission->second;
    for (size_t shard = 0; shard < kShards; ++shard) {
      uint64_t size = 0;
      if (parts.size() < sizeof(size))
        return Status::DataLoss("the counts of keys without a row are truncated");
      std::memcpy(&size, parts.data(), sizeof(size));
      parts.remove_prefix(sizeof(size));
      if (parts.size() < size)
        return Status::DataLoss("the counts of keys without a row are truncated");
      bool merged = false;
      const std::lock_guard<ShardLock> guard(shards_[shard]->lock);
      DE_RETURN_IF_ERROR(
          policy_.filter(shard).Merge(parts.substr(0, size), shard_index, shard_count, &merged));
      parts.remove_prefix(size);
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
