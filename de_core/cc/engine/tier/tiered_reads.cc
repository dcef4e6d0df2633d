// The verbs of a tiered table that only read rows of keys.
#include <algorithm>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/tier/missing_keys.h"
#include "de_core/cc/engine/tier/tiered_table.h"

namespace de::engine {
namespace {

/// Returns `found`, or new memory for `count` flags if it is nullptr.
bool* FlagsOr(bool* found, size_t count, std::unique_ptr<bool[]>* own) {
  if (found != nullptr) return found;
  *own = std::make_unique<bool[]>(count);
  return own->get();
}

}  // namespace

/// Finds the cold rows of distinct keys, and copies those that the cache has. Requires lock_
/// or writing_.
Status TieredTable::LocateCold(const Keys& keys, Executor* executor, ColdBatch* batch) const {
  batch->layout = hot_->layout();
  const size_t stride = batch->layout.stride();
  std::vector<bool> cached(keys.size);
  cache_.Find(keys, batch->layout, [&](size_t i, const char* row) {
    cached[i] = true;
    batch->keys.Add(keys, i);
    batch->positions.push_back(static_cast<uint32_t>(i));
    batch->rows.insert(batch->rows.end(), row, row + stride);
  });
  batch->cached = batch->positions.size();
  KeyList others;
  std::vector<uint32_t> position_of;
  for (size_t i = 0; i < keys.size; ++i) {
    if (cached[i]) continue;
    others.Add(keys, i);
    position_of.push_back(static_cast<uint32_t>(i));
  }
  if (position_of.empty()) return Status::Ok();
  DE_RETURN_IF_ERROR(cold_->Locate(others.keys(), executor, &batch->disk));
  for (const uint32_t other : batch->disk.positions) {
    batch->keys.Add(others.keys(), other);
    batch->positions.push_back(position_of[other]);
  }
  return Status::Ok();
}

/// Reads the located rows from the disk. Needs no lock.
Status TieredTable::ReadCold(Executor* executor, ColdBatch* batch) const {
  if (batch->disk.positions.empty()) return Status::Ok();
  return cold_->Read(batch->read_keys(), batch->disk, batch->layout, executor, &batch->rows);
}

/// Lets the cache keep the rows that were read, except those that a writer replaced meanwhile.
Status TieredTable::CacheRead(const ColdBatch& batch) const {
  const Keys keys = batch.read_keys();
  if (keys.size == 0) return Status::Ok();
  const std::shared_lock<ShardLock> hold(lock_);
  if (hot_->layout().generation() != batch.layout.generation()) return Status::Ok();
  const std::unique_ptr<bool[]> is_hot = std::make_unique<bool[]>(keys.size);
  const std::unique_ptr<bool[]> kept = std::make_unique<bool[]>(keys.size);
  DE_RETURN_IF_ERROR(hot_->Find(keys, {}, is_hot.get(), nullptr));
  DE_RETURN_IF_ERROR(cold_->AreNewest(keys, batch.disk, kept.get()));
  for (size_t i = 0; i < keys.size; ++i) kept[i] = kept[i] && !is_hot[i];
  cache_.Add(keys, kept.get(), batch.rows.data() + batch.cached * batch.layout.stride(),
             batch.layout);
  return Status::Ok();
}

/// Calls visit(position, row) for each key for which `found` is unset and that has a cold row, and
/// sets `found`. Without `with_rows`, `row` is nullptr. `hold` holds lock_ since the hot rows were
/// found, and is released before the disk is read.
template <typename Visit>
Status TieredTable::VisitCold(std::shared_lock<ShardLock> hold, const Keys& keys, bool* found,
                              bool with_rows, Executor* executor, const Visit& visit) const {
  if (cold_->empty()) return Status::Ok();
  const MissingKeys missing(keys, found);
  if (missing.empty()) return Status::Ok();
  ColdBatch cold;
  DE_RETURN_IF_ERROR(LocateCold(missing.keys(), executor, &cold));
  hold.unlock();
  if (with_rows) DE_RETURN_IF_ERROR(ReadCold(executor, &cold));
  constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> row_of(missing.keys().size, kNone);
  for (size_t i = 0; i < cold.positions.size(); ++i) {
    row_of[cold.positions[i]] = static_cast<uint32_t>(i);
  }
  const size_t stride = cold.layout.stride();
  missing.ForEach([&](uint32_t position, uint32_t number) {
    if (row_of[number] == kNone) return;
    found[position] = true;
    visit(position, with_rows ? cold.rows.data() + row_of[number] * stride : nullptr);
  });
  return with_rows ? CacheRead(cold) : Status::Ok();
}

Status TieredTable::FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                                Executor* executor) const {
  return Run([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    std::shared_lock<ShardLock> hold(lock_);
    std::unique_ptr<bool[]> own;
    found = FlagsOr(found, keys.size, &own);
    DE_RETURN_IF_ERROR(hot_->FindToTrain(keys, out, found, executor));
    const bool with_rows = out.data != nullptr;
    const size_t bytes = hot_->layout().value_bytes();
    DE_RETURN_IF_ERROR(VisitCold(
        std::move(hold), keys, found, with_rows, executor, [&](uint32_t position, const char* row) {
          if (with_rows) CopyBytes(out.data + position * out.StrideOf(bytes), row, bytes);
        }));
    const auto hits = static_cast<size_t>(std::count(found, found + keys.size, true));
    hits_.fetch_add(hits, std::memory_order_relaxed);
    misses_.fetch_add(keys.size - hits, std::memory_order_relaxed);
    return Status::Ok();
  });
}

Status TieredTable::FindSlot(const std::string& owner, const std::string& name, size_t bytes,
                             const Keys& keys, char* out, bool* found) const {
  return Run([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    std::shared_lock<ShardLock> hold(lock_);
    std::unique_ptr<bool[]> own;
    found = FlagsOr(found, keys.size, &own);
    DE_RETURN_IF_ERROR(hot_->FindSlot(owner, name, bytes, keys, out, found));
    const size_t offset = hot_->layout().FindSlot(owner, name)->offset;
    return VisitCold(std::move(hold), keys, found, true, nullptr,
                     [&](uint32_t position, const char* row) {
                       CopyBytes(out + position * bytes, row + offset, bytes);
                     });
  });
}

}  // namespace de::engine
