#include "de_core/cc/engine/tier/row_cache.h"

#include <cstring>
#include <mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/batch/partition.h"

namespace de::engine {
namespace {

// A row's key, and its entry of the hash map.
constexpr size_t kCacheIndexBytes = 96;

}  // namespace

size_t RowCache::HashOfKey::operator()(const Key& key) const noexcept {
  return static_cast<size_t>(Mix64(key.word));
}

RowCache::Key RowCache::KeyOf(const Keys& keys, size_t i) const noexcept {
  return {WordOf(keys, i), keys.strings == nullptr ? 0 : HashBytes(keys.strings[i], seed_)};
}

void RowCache::Add(const Keys& keys, const bool* kept, const char* rows,
                   const RowLayout& layout) noexcept {
  const std::lock_guard<ShardLock> hold(lock_);
  const Status status = Guarded([&] {
    Use(layout);
    for (size_t i = 0; most_rows_ > 0 && i < keys.size; ++i) {
      const Key key = KeyOf(keys, i);
      if (kept[i] && places_.count(key) == 0) Put(key, rows + i * stride_);
    }
    return Status::Ok();
  });
  if (!status.ok()) Forget();  // no memory: a step reads the rows again
}

/// Makes the cache one for rows of `layout`.
void RowCache::Use(const RowLayout& layout) {
  if (layout.generation() == generation_) return;
  Forget();
  stride_ = layout.stride();
  most_rows_ = static_cast<size_t>(most_bytes_ / (stride_ + kCacheIndexBytes));
  // The system backs memory at the first use.
  rows_.reserve(most_rows_ * stride_);
  keys_.reserve(most_rows_);
  generation_ = layout.generation();
}

void RowCache::Put(const Key& key, const char* row) {
  const size_t at = next_;
  if (at < keys_.size()) {
    const auto old = places_.find(keys_[at]);
    if (old != places_.end() && old->second == at) places_.erase(old);
    std::memcpy(rows_.data() + at * stride_, row, stride_);
    keys_[at] = key;
  } else {
    rows_.insert(rows_.end(), row, row + stride_);
    keys_.push_back(key);
  }
  places_.emplace(keys_[at], at);
  next_ = (at + 1) % most_rows_;
}

void RowCache::Remove(const Keys& keys) noexcept {
  const std::lock_guard<ShardLock> hold(lock_);
  for (size_t i = 0; !places_.empty() && i < keys.size; ++i) places_.erase(KeyOf(keys, i));
}

void RowCache::Clear() noexcept {
  const std::lock_guard<ShardLock> hold(lock_);
  Forget();
}

void RowCache::Forget() noexcept {
  places_.clear();
  keys_.clear();
  rows_.clear();
  next_ = 0;
  generation_ = ~uint64_t{0};
}

}  // namespace de::engine
