#include "de_core/cc/engine/backend/save_chains.h"

#include <algorithm>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {

Status SaveChains::Cut(uint64_t* generation) {
  return Guarded([&]() -> Status {
    const std::lock_guard<std::mutex> hold(mutex_);
    const uint64_t next = generation_ + 1;
    DE_RETURN_IF_ERROR(log_->Begin(next));
    generation_ = next;
    ++saves_;
    *generation = next;
    return Status::Ok();
  });
}

Status SaveChains::Last(const std::string& chain, SavePoint* point) const {
  const std::lock_guard<std::mutex> hold(mutex_);
  const auto at = chains_.find(chain);
  if (at == chains_.end() || !at->second.last.has_value()) {
    return Status::FailedPrecondition(
        "a delta needs an earlier save of its chain; write a base first. Received: "
        "chain=" +
        chain);
  }
  *point = *at->second.last;
  return Status::Ok();
}

Status SaveChains::Add(const std::string& chain, const SavePoint& point, bool commit) {
  return Guarded([&] {
    const std::lock_guard<std::mutex> hold(mutex_);
    Chain& known = chains_[chain];
    if (commit) {
      known.last = point;
      known.pending.reset();
    } else {
      known.pending = point;
    }
    --saves_;
    Tidy();
    return Status::Ok();
  });
}

Status SaveChains::Commit(const std::string& chain, const SnapshotId& id) {
  return Guarded([&] {
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto at = chains_.find(chain);
    if (at == chains_.end() || !at->second.pending.has_value() || at->second.pending->id != id) {
      return Status::NotFound(
          "a save can be committed only once, and only while it is the last of its chain. "
          "Received: chain=" +
          chain);
    }
    at->second.last = at->second.pending;
    at->second.pending.reset();
    Tidy();
    return Status::Ok();
  });
}

void SaveChains::Abandon() {
  const std::lock_guard<std::mutex> hold(mutex_);
  --saves_;
  Tidy();
}

/// Discards changes that no chain's next delta needs.
void SaveChains::Tidy() noexcept {
  // Keep all changes while a save runs, because it may need any generation, and if there is no
  // memory to list the chains' generations.
  if (saves_ > 0) return;
  (void)Guarded([this] {
    ForgetUnmarked();
    return Status::Ok();
  });
}

void SaveChains::ForgetUnmarked() {
  std::vector<uint64_t> marks;
  for (const auto& [name, chain] : chains_) {
    if (chain.last.has_value()) marks.push_back(chain.last->generation);
    if (chain.pending.has_value()) marks.push_back(chain.pending->generation);
  }
  std::sort(marks.begin(), marks.end());
  log_->Keep(marks);
}

std::vector<SaveChains::Entry> SaveChains::entries() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  std::vector<Entry> all;
  for (const auto& [name, chain] : chains_) all.push_back({name, chain.last, chain.pending});
  return all;
}

}  // namespace de::engine
