// Creation of a tiered table, and its verbs on batches of keys.
#include "de_core/cc/engine/tier/tiered_table.h"

#include <algorithm>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/optimizer/row_average.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr size_t kIndexBytesPerRow = 24;  // of a hot row: its entry of a line that is partly full
// If rows must become cold, at least one of so many hot rows does, so that runs have many rows.
constexpr uint64_t kMovedPart = 64;
constexpr size_t kRowsPerRun = 16384;  // most rows that become cold at once

Status CheckSupported(const TableOptions& options) {
  const auto refuse = [](const char* what, const char* received) {
    return Status::InvalidArgument(
        std::string("a table with a tier must not have ") + what +
        "; leave it out, or use a table without a tier. Received: " + received);
  };
  if (options.value_dtype == DType::kString) {
    return refuse("values of strings", "value_dtype='string'");
  }
  if (options.policy.evict_by != RowColumn::kNone) {
    return refuse("a policy that evicts rows", "a bound on rows or bytes");
  }
  if (options.policy.ttl_steps > 0 || options.policy.ttl_micros > 0) {
    return refuse("a policy that expires rows", "a time to live");
  }
  if (options.policy.count_reads) {
    return refuse("a policy that counts lookups as uses", "count_reads");
  }
  return Status::Ok();
}

}  // namespace

Status TieredTable::Create(TableOptions options, uint64_t memory_bytes,
                           std::unique_ptr<ColdRows> cold, std::unique_ptr<TableBackend>* table) {
  DE_RETURN_IF_ERROR(CheckSupported(options));
  if (memory_bytes == 0) {
    return Status::InvalidArgument("memory_bytes must be positive. Received: memory_bytes=0");
  }
  options.init_size = 0;  // the bound of memory says how many rows fit
  options.policy.columns[static_cast<size_t>(RowColumn::kTime)] = true;
  return Guarded([&]() -> Status {
    std::unique_ptr<Table> hot;
    DE_RETURN_IF_ERROR(Table::Create(std::move(options), &hot));
    table->reset(new TieredTable(std::move(hot), memory_bytes, std::move(cold)));
    return Status::Ok();
  });
}

uint64_t TieredTable::MostHotRows() const {
  return std::max<uint64_t>(1, memory_bytes_ / (hot_->layout().stride() + kIndexBytesPerRow));
}

Status TieredTable::FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                                Executor* executor) const {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(lock_);
    std::unique_ptr<bool[]> own;
    if (found == nullptr) {
      own = std::make_unique<bool[]>(keys.size);
      found = own.get();
    }
    DE_RETURN_IF_ERROR(hot_->FindToTrain(keys, out, found, executor));
    size_t misses = static_cast<size_t>(std::count(found, found + keys.size, false));
    if (misses > 0 && !cold_->empty()) {
      const MissingKeys missing(keys, found);
      const RowLayout layout = hot_->layout();
      FoundRows cold;
      DE_RETURN_IF_ERROR(cold_->Find(missing.keys(), layout, out.data != nullptr, executor, &cold));
      constexpr uint32_t kNone = ~uint32_t{0};
      std::vector<uint32_t> row_of(missing.keys().size, kNone);
      for (size_t i = 0; i < cold.positions.size(); ++i) {
        row_of[cold.positions[i]] = static_cast<uint32_t>(i);
      }
      if (out.data != nullptr) recent_.Add(missing.keys(), cold, layout.stride());
      const size_t bytes = layout.value_bytes();
      missing.ForEach([&](uint32_t position, uint32_t number) {
        if (row_of[number] == kNone) return;
        found[position] = true;
        --misses;
        if (out.data == nullptr) return;
        CopyBytes(out.data + position * out.StrideOf(bytes),
                  cold.rows.data() + row_of[number] * layout.stride(), bytes);
      });
    }
    hits_.fetch_add(keys.size - misses, std::memory_order_relaxed);
    misses_.fetch_add(misses, std::memory_order_relaxed);
    return Status::Ok();
  });
}

/// Moves rows out of memory, so that `incoming` rows fit. Sets `moved` if it moved any.
Status TieredTable::MakeRoom(uint64_t incoming, Executor* executor, bool* moved) const {
  const uint64_t most = MostHotRows();
  const uint64_t hot = hot_->size();
  if (hot + incoming <= most) return Status::Ok();
  RowBatch batch;
  for (uint64_t left = std::min(hot, std::max(hot + incoming - most, most / kMovedPart));
       left > 0;) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(left, kRowsPerRun));
    DE_RETURN_IF_ERROR(hot_->CopyCool(RowColumn::kTime, count, &next_part_, &batch));
    if (batch.size() == 0) break;
    // If the rows cannot be stored, they stay in memory.
    DE_RETURN_IF_ERROR(cold_->Append(batch));
    DE_RETURN_IF_ERROR(hot_->MoveOut(KeysOf(batch), executor));
    moved_out_.fetch_add(batch.size(), std::memory_order_relaxed);
    *moved = true;
    left -= std::min<uint64_t>(left, batch.size());
  }
  return Status::Ok();
}

/// Moves the cold rows of `keys` into memory. Requires lock_ as the writer.
Status TieredTable::BringIn(const Keys& keys, Executor* executor) const {
  if (cold_->empty() && hot_->size() + keys.size <= MostHotRows()) return Status::Ok();
  if (found_size_ < keys.size) {
    found_ = std::make_unique<bool[]>(keys.size);
    found_size_ = keys.size;
  }
  bool moved = false;
  DE_RETURN_IF_ERROR(
      MakeRoom(0, executor, &moved));  // an earlier batch may have exceeded the bound
  do {
    moved = false;
    DE_RETURN_IF_ERROR(hot_->Contains(keys, found_.get(), executor));
    const MissingKeys missing(keys, found_.get());
    if (missing.empty()) return Status::Ok();
    DE_RETURN_IF_ERROR(MakeRoom(missing.keys().size, executor, &moved));
    // The rows that moved out may be rows of `keys`.
    if (moved || cold_->empty()) continue;
    const RowLayout layout = hot_->layout();
    const size_t stride = layout.stride();
    const Keys all = missing.keys();
    KeyList chosen, unread;
    std::vector<char> rows;
    for (size_t i = 0; i < all.size; ++i) {
      const char* const row = recent_.Find(all, i);
      if (row == nullptr) {
        unread.Add(all, i);
      } else {
        chosen.Add(all, i);
        rows.insert(rows.end(), row, row + stride);
      }
    }
    FoundRows cold;
    if (unread.keys().size > 0) {
      DE_RETURN_IF_ERROR(cold_->Find(unread.keys(), layout, /*with_rows=*/true, executor, &cold));
    }
    for (const uint32_t position : cold.positions) chosen.Add(unread.keys(), position);
    rows.insert(rows.end(), cold.rows.begin(), cold.rows.end());
    if (rows.empty()) return Status::Ok();
    DE_RETURN_IF_ERROR(hot_->LoadRows(layout, chosen.keys(), {rows.data(), nullptr}, executor));
    brought_in_.fetch_add(chosen.keys().size, std::memory_order_relaxed);
  } while (moved);
  return Status::Ok();
}

/// Runs a verb of the hot table once all rows of `keys` are hot.
Status TieredTable::Write(const Keys& keys, Executor* executor,
                          const std::function<Status()>& verb) const {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  return Guarded([&]() -> Status {
    const WriteHold hold(*this);
    DE_RETURN_IF_ERROR(BringIn(keys, executor));
    const uint64_t before = hot_->size();
    const Status status = verb();
    rows_.fetch_add(hot_->size() - before, std::memory_order_relaxed);
    return status;
  });
}

Status TieredTable::FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found,
                                 Executor* executor) {
  return Write(keys, executor, [&] { return hot_->FindOrInsert(keys, out, found, executor); });
}

Status TieredTable::InsertOrAssign(const Keys& keys, const Values& values, Executor* executor) {
  return Write(keys, executor, [&] { return hot_->InsertOrAssign(keys, values, executor); });
}

Status TieredTable::AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                                  Executor* executor) {
  return Write(keys, executor,
               [&] { return hot_->AccumOrAssign(keys, values, old_values, executor); });
}

Status TieredTable::Apply(const OptimizerRule& rule, const std::string& owner,
                          const std::vector<double>& hyper, const Keys& keys, const void* grads,
                          Executor* executor, const double* average_momentum) {
  // The first step of an optimizer adds its slots, which must wait for an undisturbed save.
  const RowLayout layout = hot_->layout();
  const bool adds = !layout.HasOwner(owner) ||
                    (average_momentum != nullptr &&
                     layout.FindSlot(owner, AverageSlot(layout.value_dtype(), 1).name) == nullptr);
  std::unique_lock<std::mutex> replacing(replacing_lock_, std::defer_lock);
  if (adds) replacing.lock();
  return Write(keys, executor, [&] {
    return hot_->Apply(rule, owner, hyper, keys, grads, executor, average_momentum);
  });
}

Status TieredTable::LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                             Executor* executor) {
  return Write(keys, executor, [&] { return hot_->LoadRows(from, keys, rows, executor); });
}

Status TieredTable::FindSlot(const std::string& owner, const std::string& name, size_t bytes,
                             const Keys& keys, char* out, bool* found) const {
  return Write(keys, nullptr, [&] { return hot_->FindSlot(owner, name, bytes, keys, out, found); });
}

Status TieredTable::AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                               const Keys& keys, const char* values) {
  return Write(keys, nullptr, [&] { return hot_->AssignSlot(owner, name, bytes, keys, values); });
}

Status TieredTable::ReadColumn(RowColumn column, const Keys& keys, int64_t* values,
                               bool* found) const {
  return Write(keys, nullptr, [&] { return hot_->ReadColumn(column, keys, values, found); });
}

Status TieredTable::WriteColumn(RowColumn column, const Keys& keys, const int64_t* values) {
  return Write(keys, nullptr, [&] { return hot_->WriteColumn(column, keys, values); });
}

Status TieredTable::Touch(const Keys& keys) {
  return Write(keys, nullptr, [&] { return hot_->Touch(keys); });
}

Status TieredTable::Erase(const Keys& keys, Executor* executor) {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  return Guarded([&]() -> Status {
    const WriteHold hold(*this);
    return EraseRows(keys, executor);
  });
}

/// Requires lock_ as the writer.
Status TieredTable::EraseRows(const Keys& keys, Executor* executor) {
  if (keys.size == 0) return Status::Ok();
  // The hot table records changes for deltas. So it must have the rows that it erases.
  DE_RETURN_IF_ERROR(BringIn(keys, executor));
  if (!cold_->empty()) {  // an older cold copy of a hot row must not come back
    std::fill_n(found_.get(), keys.size, false);
    const MissingKeys distinct(keys, found_.get());
    FoundRows cold;
    DE_RETURN_IF_ERROR(
        cold_->Find(distinct.keys(), hot_->layout(), /*with_rows=*/false, executor, &cold));
    KeyList copies;
    for (const uint32_t position : cold.positions) copies.Add(distinct.keys(), position);
    if (!cold.positions.empty()) DE_RETURN_IF_ERROR(cold_->Erase(copies.keys()));
  }
  const uint64_t before = hot_->size();
  const Status status = hot_->Erase(keys, executor);
  rows_.fetch_add(hot_->size() - before, std::memory_order_relaxed);
  return status;
}

}  // namespace de::engine
