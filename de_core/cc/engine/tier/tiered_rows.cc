// The verbs of a tiered table on all rows.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/optimizer/row_average.h"
#include "de_core/cc/engine/rows/frozen_mark.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/tier/missing_keys.h"
#include "de_core/cc/engine/tier/tiered_table.h"

namespace de::engine {
namespace {

// Cold rows that are read at once.
constexpr uint64_t kRowsPerScan = 1024;

}  // namespace

/// Copies the next rows from hash `begin` on, hot and cold, as they are at one moment.
Status TieredTable::ReadPart(uint64_t begin, RowBatch* batch) const {
  ExportCursor cursor{begin, false};
  RowBatch hot, cold;
  LocatedRows located;
  {
    const std::shared_lock<ShardLock> hold(lock_);
    if (cold_->empty()) return hot_->ExportBatch(&cursor, batch);
    DE_RETURN_IF_ERROR(hot_->ExportBatch(&cursor, &hot));
    DE_RETURN_IF_ERROR(cold_->LocateRange(begin, hot.hash_last, kRowsPerScan, &located));
  }
  DE_RETURN_IF_ERROR(cold_->ReadRange(located, hot.layout, &cold));
  const auto text_of = [](const RowBatch& rows, size_t i) {
    return rows.keys.empty() ? nullptr : &rows.keys[i];
  };
  KeySet hot_keys;
  batch->Clear();
  batch->hash_begin = begin;
  batch->hash_last = cold.hash_last;
  const size_t stride = hot.layout.stride();
  const auto add = [&](const RowBatch& from, size_t i) {
    CopyBytes(batch->Add(from.words[i], stride), from.rows.data() + i * stride, stride);
    if (!from.keys.empty()) batch->AddText(from.keys[i]);
  };
  for (size_t i = 0; i < hot.size(); ++i) {
    if (Mix64(hot.words[i]) > cold.hash_last) continue;
    add(hot, i);
    if (hot.keys.empty()) hot_keys.Add(hot.words[i]);
    if (!hot.keys.empty()) hot_keys.Add(hot.keys[i]);
  }
  hot_keys.Seal();
  for (size_t i = 0; i < cold.size(); ++i) {
    if (!hot_keys.Contains(cold.words[i], text_of(cold, i))) add(cold, i);
  }
  batch->Finish(hot.layout);
  return Status::Ok();
}

Status TieredTable::ExportBatch(ExportCursor* cursor, RowBatch* batch) const {
  return Run([&]() -> Status {
    DE_RETURN_IF_ERROR(ReadPart(cursor->next_hash, batch));
    cursor->done = batch->hash_last == ~uint64_t{0};
    cursor->next_hash = batch->hash_last + 1;
    return Status::Ok();
  });
}

Status TieredTable::Clear() {
  return Run([&]() -> Status {
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::lock_guard<std::mutex> writing(writing_);
    const std::lock_guard<ShardLock> hold(lock_);
    DE_RETURN_IF_ERROR(cold_->Clear([&] { return hot_->Clear(); }));
    cache_.Clear();
    rows_ = 0;
    return Status::Ok();
  });
}

Status TieredTable::Reserve(uint64_t rows) {
  return Run([&] { return hot_->Reserve(rows > kMaxRows ? rows : std::min(rows, MostHotRows())); });
}

Status TieredTable::ShrinkToFit() {
  return Run([&] { return hot_->ShrinkToFit(); });
}

/// Moves so many rows to the disk that the others fit into the memory in both layouts at once,
/// because the hot table copies them. Requires writing_.
Status TieredTable::MakeRoomToChange(const RowLayout& changed) {
  const uint64_t first = hot_->size(), most = MostHotRows();
  const size_t texts = hot_->string_bytes() / std::max<uint64_t>(1, first);
  const uint64_t both =
      HotRowsOf(hot_->layout().stride() + kIndexBytesPerRow + changed.stride() + texts);
  while (hot_->size() > both) {  // in parts, because rows that leave are copied
    const uint64_t hot = hot_->size();
    const uint64_t part = std::min(hot - both, kLeastMoved);
    cold_->Discard();
    leaving_.clear();
    DE_RETURN_IF_ERROR(StageRoom(most + part > hot ? most + part - hot : 0, most, Keys(), nullptr));
    const std::lock_guard<ShardLock> hold(lock_);
    DE_RETURN_IF_ERROR(Move(ColdBatch(), nullptr));
    if (hot_->size() == hot) break;
  }
  return hot_->size() < first ? hot_->ShrinkToFit() : Status::Ok();
}

Status TieredTable::EnsureSlots(const std::string& owner, const std::vector<SlotSpec>& specs) {
  return Run([&]() -> Status {
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::lock_guard<std::mutex> writing(writing_);
    RowLayout changed = hot_->layout();
    std::vector<SlotSpec> changes;
    DE_RETURN_IF_ERROR(changed.FindChanges(owner, specs, &changes));
    if (changes.empty()) return Status::Ok();
    changed.Change(owner, changes);
    DE_RETURN_IF_ERROR(MakeRoomToChange(changed));
    const std::lock_guard<ShardLock> hold(lock_);
    return hot_->EnsureSlots(owner, specs);
  });
}

Status TieredTable::DropSlots(const std::string& owner) {
  return Run([&]() -> Status {
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::lock_guard<std::mutex> writing(writing_);
    RowLayout changed = hot_->layout();
    changed.Remove(owner);
    DE_RETURN_IF_ERROR(MakeRoomToChange(changed));
    const std::lock_guard<ShardLock> hold(lock_);
    DE_RETURN_IF_ERROR(hot_->DropSlots(owner));
    cold_->DropSlots(owner);
    return Status::Ok();
  });
}

Status TieredTable::TakeAverages(const std::string& owner) {
  return Run([&]() -> Status {
    const std::lock_guard<std::mutex> writing(writing_);
    const RowLayout layout = hot_->layout();
    const RowSlot* slot = layout.FindSlot(owner, AverageSlot(layout.value_dtype(), 1).name);
    if (slot == nullptr) return Status::Ok();  // no row was trained yet
    const RowSlot* const mark = layout.FindSlot(kFreezeOwner, kFrozenName);
    const AverageKernels average = AverageKernelsOf(layout.value_dtype());
    RowBatch batch;
    for (uint64_t begin = 0;; begin = batch.hash_last + 1) {
      DE_RETURN_IF_ERROR(ReadPart(begin, &batch));
      for (size_t i = 0; i < batch.size(); ++i) {
        char* const row = batch.rows.data() + i * layout.stride();
        if (!IsFrozen(row, mark)) average.take(row, row + slot->offset, layout.dim());
      }
      const Keys keys = KeysOf(batch);
      DE_RETURN_IF_ERROR(WriteHeld(keys, nullptr, [&] {
        return hot_->LoadRows(layout, keys, {batch.rows.data(), nullptr}, nullptr);
      }));
      if (batch.hash_last == ~uint64_t{0}) return Status::Ok();
    }
  });
}

/// Calls visit(number of the row, its rank) for the rows of a batch.
template <typename Visit>
void TieredTable::ForEachRank(const RowBatch& batch, RowColumn by, const Visit& visit) const {
  const RowSlot* slot = batch.layout.FindSlot(kMetadataOwner, NameOf(by));
  const size_t stride = batch.layout.stride();
  for (size_t i = 0; i < batch.size(); ++i) {
    int64_t value = 0;
    std::memcpy(&value, batch.rows.data() + i * stride + slot->offset, sizeof(value));
    visit(i, RowRank{RankOf(value), TieOf(batch.words[i])});
  }
}

Status TieredTable::RankCandidates(RowColumn by, const Candidates& wanted,
                                   std::vector<RowRank>* rows) const {
  return Run([&]() -> Status {
    // Checks the column.
    DE_RETURN_IF_ERROR(hot_->RankCandidates(by, Candidates(0, 0), rows));
    Selection selection(wanted.count, wanted.highest);
    RowBatch batch;
    for (ExportCursor cursor; wanted.count > 0 && !cursor.done;) {
      DE_RETURN_IF_ERROR(ExportBatch(&cursor, &batch));
      ForEachRank(batch, by, [&](size_t, const RowRank& rank) { selection.Offer(rank); });
    }
    *rows = selection.Take();
    return Status::Ok();
  });
}

Status TieredTable::EvictBelow(RowColumn by, const RowRank& kept, uint64_t* evicted) {
  return Run([&]() -> Status {
    *evicted = 0;
    std::vector<RowRank> none;
    DE_RETURN_IF_ERROR(hot_->RankCandidates(by, Candidates(0, 0), &none));
    RowBatch batch;
    for (uint64_t begin = 0;; begin = batch.hash_last + 1) {
      const std::lock_guard<std::mutex> writing(writing_);
      DE_RETURN_IF_ERROR(ReadPart(begin, &batch));
      KeyList victims;
      ForEachRank(batch, by, [&](size_t i, const RowRank& rank) {
        if (rank < kept) victims.Add(KeysOf(batch), i);
      });
      const Keys keys = victims.keys();
      const Status erased = Guarded([&] { return EraseRows(keys, nullptr); });
      for (size_t i = 0; evicted_keys().enabled() && i < keys.size; ++i) {
        // Also if it failed, because then some of the rows may be gone.
        evicted_keys().Add(WordOf(keys, i), keys.strings == nullptr ? nullptr : keys.strings + i);
      }
      DE_RETURN_IF_ERROR(erased);
      *evicted += keys.size;
      evicted_.fetch_add(keys.size, std::memory_order_relaxed);
      if (batch.hash_last == ~uint64_t{0}) return Status::Ok();
    }
  });
}

Status TieredTable::EvictExpired(uint64_t* evicted) {
  *evicted = 0;  // Create refuses policies that expire rows
  return Status::Ok();
}

Status TieredTable::SetInitializer(const InitializerOptions& options) {
  return Run([&] { return hot_->SetInitializer(options); });
}

TableStats TieredTable::Stats() const {
  if (fork_.forked()) return {};
  const std::shared_lock<ShardLock> hold(lock_);
  TableStats stats = hot_->Stats();
  const uint64_t hot = stats.rows;
  stats.rows = rows_;
  stats.hits = hits_;
  stats.misses = misses_;
  stats.evicted = evicted_;
  stats.tier = cold_->Stats();
  stats.tier->hot_rows = hot;
  stats.tier->cold_rows = stats.rows - hot;
  stats.tier->rows_in = brought_in_;
  stats.tier->rows_out = moved_out_;
  return stats;
}

}  // namespace de::engine
