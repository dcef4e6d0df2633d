// Verbs on slots. Optimizers and the policy keep their state for each row in slots.
#include <algorithm>
#include <mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/optimizer/row_average.h"
#include "de_core/cc/engine/rows/frozen_mark.h"
#include "de_core/cc/engine/table/shard_update.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {
namespace {

Status NoSuchSlot(const std::string& owner, const std::string& name) {
  return Status::NotFound("slot must name a slot of this table as 'owner/slot'. Received: '" +
                          owner + "/" + name + "'");
}

/// Checks that a slot still exists with the `bytes` per row that the caller has read from the
/// layout. Another thread may meanwhile have dropped an optimizer's slots and added others of the
/// same name.
Status CheckSlot(const RowSlot* slot, const std::string& owner, const std::string& name,
                 size_t bytes) {
  if (slot == nullptr) return NoSuchSlot(owner, name);
  if (slot->bytes() == bytes) return Status::Ok();
  return Status::FailedPrecondition(
      "slot '" + owner + "/" + name +
      "' must not change while it is read or written; read the table's slots again. Received: "
      "bytes=" +
      std::to_string(bytes) + " where the table holds bytes=" + std::to_string(slot->bytes()));
}

}  // namespace

// Calls on_row(row, position) for every key that has a row, with the key's position in the batch.
// Holds the lock of the shard: the writer lock with `write`, otherwise the reader lock.
template <typename OnRow>
Status Table::ForEachFound(const Keys& keys, bool write, const OnRow& on_row) const {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&] {
    const auto scratch = scratch_.Lend();
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

Status Table::FindSlot(const std::string& owner, const std::string& name, size_t bytes,
                       const Keys& keys, char* out, bool* found) const {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const RowSlot* slot = layout_.FindSlot(owner, name);
    DE_RETURN_IF_ERROR(CheckSlot(slot, owner, name, bytes));
    std::vector<char> fresh(layout_.stride());
    layout_.FillSlots(fresh.data(), 0);
    for (size_t i = 0; i < keys.size; ++i) {
      CopyBytes(out + i * bytes, fresh.data() + slot->offset, bytes);
    }
    if (found != nullptr) std::fill_n(found, keys.size, false);
    const Stamp now = policy_.Now();
    return ForEachFound(keys, /*write=*/false, [&](const char* row, uint32_t position) {
      if (policy_.Expired(row, now)) return;
      policy_.CopySlot(out + position * bytes, row, slot->offset, bytes);
      if (found != nullptr) found[position] = true;
    });
  });
}

Status Table::AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                         const Keys& keys, const char* values) {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const RowSlot* slot = layout_.FindSlot(owner, name);
    DE_RETURN_IF_ERROR(CheckSlot(slot, owner, name, bytes));
    return ForEachFound(keys, /*write=*/true, [&](char* row, uint32_t position) {
      CopyBytes(row + slot->offset, values + position * bytes, bytes);
    });
  });
}

Status Table::TakeAverages(const std::string& owner) {
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const RowSlot* slot = layout_.FindSlot(owner, AverageSlot(options_.value_dtype, 1).name);
    if (slot == nullptr) return Status::Ok();  // no row was trained yet
    const RowSlot* const mark = layout_.FindSlot(kFreezeOwner, kFrozenName);
    const AverageKernels average = AverageKernelsOf(options_.value_dtype);
    for (uint64_t hash = 0;; ++hash) {
      Shard& shard = *shards_[ShardOfHash(hash)];
      const std::lock_guard<ShardLock> guard(shard.lock);
      hash = shard.VisitSegment(hash, [&](uint64_t word, uint32_t number) {
        char* const row = shard.Row(number);
        if (IsFrozen(row, mark)) return;
        if (shard.watch != nullptr) {
          shard.watch->BeforeWrite(word, Mix64(word), number, row, /*inserted=*/false);
        }
        average.take(row, row + slot->offset, options_.dim);
      });
      if (hash == ~uint64_t{0}) break;
    }
    return Status::Ok();
  });
}

Status Table::DropSlots(const std::string& owner) {
  if (owner == kMetadataOwner) {
    return Status::InvalidArgument("owner must be an optimizer. Received: owner='" + owner +
                                   "', whose columns belong to the table");
  }
  return Guarded([&]() -> Status {
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::lock_guard<ShardLock> hold(layout_lock_);
    if (!layout_.HasOwner(owner)) return Status::Ok();
    RowLayout narrower = layout_;
    narrower.Remove(owner);
    Relayout(std::move(narrower));
    return Status::Ok();
  });
}

/// Copies all rows to a layout with slots added or removed. Changes nothing if it throws
/// std::bad_alloc. Needs memory for a second copy of the rows. The caller must hold layout_lock_ as
/// the writer.
void Table::Relayout(RowLayout layout) {
  // Files saved before have the dropped slots, so the next delta must replace all rows.
  const bool dropped = layout.slots().size() < layout_.slots().size();
  std::vector<Slab> rows;
  rows.reserve(kShards);
  for (const auto& shard : shards_) rows.push_back(shard->Relaid(layout_, layout));
  for (size_t i = 0; i < kShards; ++i) {
    ChangeObserver* const watch = shards_[i]->watch.get();
    if (watch != nullptr && dropped) watch->Cleared();
    if (watch != nullptr && watch->held != nullptr) watch->held->Cleared();
    shards_[i]->Adopt(&rows[i], layout);
  }
  layout_ = std::move(layout);
  rows.clear();  // free the rows of the old layout: no observer refers to them any more
  arena_.Trim();
}

}  // namespace de::engine
