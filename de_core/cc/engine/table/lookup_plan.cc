#include "de_core/cc/engine/table/lookup_plan.h"

#include <algorithm>
#include <utility>

namespace de::engine {

LookupPlan::Record LookupPlan::Begin() {
  if (!wanted_.load(std::memory_order_relaxed)) return nullptr;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (begun_ == kKept || pause_ != 0) return nullptr;
    if (++begun_ == kKept) wanted_ = false;
  }
  return spare_.Lend();
}

void LookupPlan::Put(Record known) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::swap(kept_[1], kept_[0]);
  std::swap(kept_[0], known);
}

LookupPlan::Record LookupPlan::Take(const Keys& keys) noexcept {
  if (keys.ints == nullptr) return nullptr;
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = std::find_if(std::begin(kept_), std::end(kept_), [&](const auto& known) {
    return known != nullptr && known->partition.IsOf(keys);
  });
  const bool missed = found == std::end(kept_);
  if (!missed) {
    failures_ = pause_ = 0;
  } else if (pause_ != 0) {
    --pause_;
  } else if (begun_ != 0) {
    pause_ = std::min(kMostPause, 1U << std::min(failures_, 31U));
    ++failures_;
  }
  begun_ = 0;
  wanted_ = pause_ == 0;
  return missed ? nullptr : std::move(*found);
}

}  // namespace de::engine
