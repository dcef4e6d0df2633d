#include "de_core/cc/engine/tier/recent_reads.h"

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {

void RecentReads::Add(const Keys& keys, const FoundRows& found, size_t stride) noexcept {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (rows_.size() + found.rows.size() > most_bytes_) return;
  const Status status = Guarded([&] {
    size_t at = rows_.size();
    rows_.insert(rows_.end(), found.rows.begin(), found.rows.end());
    for (const uint32_t position : found.positions) {
      if (keys.strings != nullptr) {
        strings_[std::string(keys.strings[position])] = at;
      } else {
        ints_[keys.ints[position]] = at;
      }
      at += stride;
    }
    return Status::Ok();
  });
  if (!status.ok()) Clear();  // no memory: the step reads the rows again
}

const char* RecentReads::Find(const Keys& keys, size_t i) const {
  if (keys.strings != nullptr) {
    const auto at = strings_.find(std::string(keys.strings[i]));
    return at == strings_.end() ? nullptr : rows_.data() + at->second;
  }
  const auto at = ints_.find(keys.ints[i]);
  return at == ints_.end() ? nullptr : rows_.data() + at->second;
}

void RecentReads::Clear() noexcept {
  ints_.clear();
  strings_.clear();
  rows_.clear();
}

}  // namespace de::engine
