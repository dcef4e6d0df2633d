// Plans what a save reads and in which order: the first half of SaveSource.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/save/save_source.h"

namespace de::engine {
namespace {

constexpr size_t kRangeBytes = size_t{2} << 20;  // most bytes of rows in a range
constexpr size_t kRangeRows = 8192;
// number of ranges that the listed rows of a shard are divided into
constexpr size_t kLeastRanges = 8;
// Bytes that are copied while a shard's lock is held. Writers of the shard wait meanwhile: some
// tens of microseconds.
constexpr size_t kBytesPerHold = size_t{128} << 10;
constexpr size_t kMostRowsPerHold = 1024;

}  // namespace

Status SaveSource::Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed) {
  return Guarded([&]() -> Status {
    selection_ = std::move(selection);
    if (undisturbed) replacing_ = std::unique_lock<std::mutex>(table_->replacing_lock_);
    if (held_bytes > 0) {
      // Allocate before layout_lock_ is taken, because all verbs wait for that lock.
      std::vector<std::unique_ptr<BeforeImages>> held;
      std::vector<std::unique_ptr<ChangeObserver>> watches;
      const RowLayout layout = table_->layout();
      budget_ = std::make_unique<HeldBudget>(layout, held_bytes);
      for (const auto& shard : table_->shards_) most_held_ += shard->size();
      most_held_ *= BeforeImages::BytesACopy(layout);
      budget_->memory.Prepare(most_held_);
      for (const auto& shard : table_->shards_) {
        held.push_back(std::make_unique<BeforeImages>(layout, shard->size(), budget_.get()));
        watches.push_back(std::make_unique<ChangeObserver>());
      }
      const std::lock_guard<ShardLock> moment(table_->layout_lock_);
      layout_ = table_->layout_;
      initializer_ = table_->initializer_->options();
      relaid_ = layout_.generation() != layout.generation();
      for (const auto& shard : table_->shards_) {
        if (shard->watch != nullptr && shard->watch->held != nullptr) {
          return Status::FailedPrecondition(
              "a table can be in one consistent save at a time; wait for the "
              "one under way");
        }
      }
      for (uint32_t i = 0; i < kShards && !relaid_; ++i) {
        Shard& shard = *table_->shards_[i];
        if (shard.watch == nullptr) shard.watch = std::move(watches[i]);
        shard.watch->held = std::move(held[i]);
        holding_ = true;
      }
    } else {
      const std::shared_lock<ShardLock> hold(table_->layout_lock_);
      layout_ = table_->layout_;
      initializer_ = table_->initializer_->options();
    }
    DE_RETURN_IF_ERROR(kept_.Plan(layout_, selection_.keep));
    by_bits_.assign(kShards, false);
    if (selection_.keys != nullptr) {
      PlanKeys();
      return Status::Ok();
    }
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      if (selection_.changes_only) {
        PlanChanges(shard);
      } else {
        PlanUniform(shard);
      }
    }
    if (!everything_) return Status::Ok();
    list_.clear();
    ranges_.clear();
    by_bits_.assign(kShards, false);
    for (uint32_t shard = 0; shard < kShards; ++shard) PlanUniform(shard);
    return Status::Ok();
  });
}

size_t SaveSource::RowsARange() const noexcept {
  return std::clamp<size_t>(kRangeBytes / layout_.stride(), 1, kRangeRows);
}

size_t SaveSource::RowsAHold() const noexcept {
  return std::clamp<size_t>(kBytesPerHold / layout_.stride(), 16, kMostRowsPerHold);
}

void SaveSource::PlanKeys() {
  const Keys& keys = *selection_.keys;
  std::vector<uint64_t> words(keys.size);
  for (size_t i = 0; i < keys.size; ++i) words[i] = WordOf(keys, i);
  if (keys.strings != nullptr) {
    selected_.assign(keys.strings, keys.strings + keys.size);
    std::sort(selected_.begin(), selected_.end());
  }
  std::sort(words.begin(), words.end(), [](uint64_t a, uint64_t b) { return Mix64(a) < Mix64(b); });
  words.erase(std::unique(words.begin(), words.end()), words.end());
  for (size_t i = 0; i < words.size();) {
    const uint32_t shard = ShardOfHash(Mix64(words[i]));
    const size_t first = list_.size();
    for (; i < words.size() && ShardOfHash(Mix64(words[i])) == shard; ++i) {
      list_.push_back({Mix64(words[i]), words[i], nullptr});
    }
    PlanList(first);
  }
}

/// Plans the ranges of a shard so that all have the same number of hashes.
void SaveSource::PlanUniform(uint32_t number) {
  const Shard& shard = *table_->shards_[number];
  uint64_t rows = 0;
  {
    const std::shared_lock<ShardLock> guard(shard.lock);
    rows = shard.size();
  }
  uint32_t bits = 0;
  while ((rows >> bits) > RowsARange() && bits < 32) ++bits;
  const uint64_t width = LastHashOf(0) >> bits;  // number of hashes in a range, minus one
  const uint64_t step = width / std::max<uint64_t>((rows >> bits) / RowsAHold(), 1);
  auto at = list_.begin();
  for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) {
    const uint64_t begin = FirstHashOf(number) + i * (width + 1);
    // Give the range the erased keys in it. Only if the shard is scanned for changes, the list
    // contains erased keys.
    const auto by_hash = [](const Listed& a, uint64_t hash) { return a.hash < hash; };
    at = std::lower_bound(at, list_.end(), begin, by_hash);
    auto end = at;
    while (end != list_.end() && end->hash <= begin + width) ++end;
    ranges_.push_back({begin, begin + width, step, false, static_cast<size_t>(at - list_.begin()),
                       static_cast<size_t>(end - list_.begin())});
    at = end;
  }
}

/// Plans ranges for list_[first, end), whose keys are all in one shard. Keys of equal hash stay in
/// one range.
void SaveSource::PlanList(size_t first) {
  if (first == list_.size()) return;
  // Plan several ranges even for few rows, so that the threads can copy, encode and write different
  // ranges at the same time.
  const size_t even = (list_.size() - first) / kLeastRanges;
  const size_t rows = std::min(RowsARange(), std::max(even, RowsAHold()));
  uint64_t begin = FirstHashOf(ShardOfHash(list_[first].hash));
  while (first < list_.size()) {
    size_t end = std::min(list_.size(), first + rows);
    while (end < list_.size() && list_[end].hash == list_[end - 1].hash) ++end;
    const uint64_t last = list_[end - 1].hash;
    ranges_.push_back({begin, last, 0, true, first, end});
    begin = last + 1;
    first = end;
  }
}

}  // namespace de::engine
