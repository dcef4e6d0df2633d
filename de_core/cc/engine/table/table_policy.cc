// Saves and loads the policy's state that is not in the rows.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {
namespace {

constexpr const char* kStepsKey = "de.steps";
constexpr const char* kAdmissionKey = "de.admission";

}  // namespace

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

void Table::LoadSteps(const std::map<std::string, std::string>& metadata) {
  if (const auto steps = metadata.find(kStepsKey); steps != metadata.end()) {
    policy_.WitnessSteps(std::strtoll(steps->second.c_str(), nullptr, 10));
  }
}

Status Table::LoadCounts(const std::map<std::string, std::string>& metadata, uint32_t shard_index,
                         uint32_t shard_count) {
  return Guarded([&]() -> Status {
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
      const std::lock_guard<ShardLock> guard(shards_[shard]->lock);
      DE_RETURN_IF_ERROR(
          policy_.filter(shard).Merge(parts.substr(0, size), shard_index, shard_count));
      parts.remove_prefix(size);
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
