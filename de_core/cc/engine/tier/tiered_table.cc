// Creation of a tiered table, and its verbs that may move rows.
#include "de_core/cc/engine/tier/tiered_table.h"

#include <algorithm>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/optimizer/row_average.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

// If rows must become cold, at least one of so many hot rows does, up to kLeastMoved.
constexpr uint64_t kMovedPart = 64;
constexpr double kCoolPart = 0.25;  // usual fraction of a part's rows that become cold at once

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

/// Removes the rows of a batch for which keep(word) is false.
template <typename Keep>
void KeepRows(RowBatch* batch, const Keep& keep) {
  const size_t stride = batch->layout.stride();
  size_t kept = 0;
  for (size_t i = 0; i < batch->size(); ++i) {
    if (!keep(batch->words[i])) continue;
    if (kept != i) {
      batch->words[kept] = batch->words[i];
      CopyBytes(batch->rows.data() + kept * stride, batch->rows.data() + i * stride, stride);
      if (!batch->keys.empty()) batch->keys[kept] = batch->keys[i];
    }
    ++kept;
  }
  batch->words.resize(kept);
  batch->rows.resize(kept * stride);
  if (!batch->keys.empty()) batch->keys.resize(kept);
}

}  // namespace

Status TieredTable::Create(TableOptions options, uint64_t memory_bytes,
                           std::unique_ptr<DiskRows> cold, std::unique_ptr<TableBackend>* table) {
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

/// Returns how many rows of `bytes`, without their index, fit into memory.
uint64_t TieredTable::HotRowsOf(size_t bytes) const noexcept {
  const uint64_t all = memory_bytes_ - memory_bytes_ / kCachePart;
  return std::max<uint64_t>(1, all / (bytes + bytes / kSparePart + kIndexBytesPerRow));
}

/// Returns how many rows fit into memory. String keys take the average bytes of the hot rows' keys
/// and of `incoming`.
uint64_t TieredTable::MostHotRows(const Keys& incoming) const {
  const RowLayout layout = hot_->layout();
  if (layout.key_type() != KeyType::kString) return HotRowsOf(layout.stride());
  uint64_t bytes = hot_->string_bytes();
  for (size_t i = 0; i < incoming.size; ++i)
    bytes += StringArena::CellSize(incoming.strings[i].size());
  return HotRowsOf(layout.stride() + bytes / std::max<uint64_t>(1, hot_->size() + incoming.size));
}

/// Writes rows to the disk that become cold, so that `incoming` rows fit, where memory is for
/// `most` rows, but no rows of `keys`. is_hot[i] says if key i has a hot row. Requires writing_.
Status TieredTable::StageRoom(uint64_t incoming, uint64_t most, const Keys& keys,
                              const bool* is_hot) {
  const uint64_t hot = hot_->size();
  if (hot + incoming <= most) return Status::Ok();
  std::vector<uint64_t> kept;
  for (size_t i = 0; i < keys.size; ++i) {
    if (is_hot[i]) kept.push_back(WordOf(keys, i));
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  uint64_t left =
      std::min(hot, std::max(hot + incoming - most, std::min(most / kMovedPart, kLeastMoved)));
  // Rows of the batch may be among the coolest.
  const double part =
      std::max(kCoolPart, static_cast<double>(left + kept.size()) / static_cast<double>(hot));
  hand_.ended.reset();
  while (left > 0 && !hand_.ended.all()) {
    RowBatch& batch = leaving_.emplace_back();
    const uint64_t wanted = left + std::min<uint64_t>(left, kept.size());
    DE_RETURN_IF_ERROR(
        hot_->CopyCool(RowColumn::kTime, wanted, std::min(part, 1.0), &hand_, &batch));
    KeepRows(&batch, [&](uint64_t word) {
      return left > 0 && !std::binary_search(kept.begin(), kept.end(), word) && left-- > 0;
    });
    if (batch.size() == 0) {
      leaving_.pop_back();
    } else {
      DE_RETURN_IF_ERROR(cold_->Stage(batch));
    }
  }
  return Status::Ok();
}

/// Reads the cold rows of `keys`, and writes rows to the disk that become cold. Requires writing_:
/// so no row moves, and lock_ is not needed.
Status TieredTable::PrepareMoves(const Keys& keys, Executor* executor, ColdBatch* incoming) {
  cold_->Discard();
  leaving_.clear();
  if (cold_->empty() && hot_->size() + keys.size <= MostHotRows(keys)) return Status::Ok();
  const std::unique_ptr<bool[]> is_hot = std::make_unique<bool[]>(keys.size);
  DE_RETURN_IF_ERROR(hot_->Find(keys, {}, is_hot.get(), executor));
  const MissingKeys missing(keys, is_hot.get());
  const Keys incoming_keys = missing.keys();
  DE_RETURN_IF_ERROR(StageRoom(incoming_keys.size, MostHotRows(incoming_keys), keys, is_hot.get()));
  if (missing.empty() || cold_->empty()) return Status::Ok();
  DE_RETURN_IF_ERROR(LocateCold(incoming_keys, executor, incoming));
  return ReadCold(executor, incoming);
}

/// Lets the staged rows become cold, and `incoming` hot. Requires lock_ as the writer.
Status TieredTable::Move(const ColdBatch& incoming, Executor* executor) {
  if (!leaving_.empty()) {
    // If a row cannot be moved, it stays in memory.
    DE_RETURN_IF_ERROR(cold_->Commit());
    for (const RowBatch& batch : leaving_) {
      DE_RETURN_IF_ERROR(hot_->MoveOut(KeysOf(batch), executor));
      moved_out_.fetch_add(batch.size(), std::memory_order_relaxed);
    }
    leaving_.clear();
  }
  const Keys keys = incoming.keys.keys();
  if (keys.size == 0) return Status::Ok();
  cache_.Remove(keys);
  DE_RETURN_IF_ERROR(
      hot_->LoadRows(incoming.layout, keys, {incoming.rows.data(), nullptr}, executor));
  brought_in_.fetch_add(keys.size, std::memory_order_relaxed);
  return Status::Ok();
}

/// Runs a verb of the hot table once all rows of `keys` are hot. Requires writing_.
Status TieredTable::WriteHeld(const Keys& keys, Executor* executor,
                              const std::function<Status()>& verb) {
  ColdBatch incoming;
  DE_RETURN_IF_ERROR(PrepareMoves(keys, executor, &incoming));
  const std::lock_guard<ShardLock> hold(lock_);
  DE_RETURN_IF_ERROR(Move(incoming, executor));
  const uint64_t before = hot_->size();
  const Status status = verb();
  rows_.fetch_add(hot_->size() - before, std::memory_order_relaxed);
  return status;
}

template <typename Verb>
Status TieredTable::Write(const Keys& keys, Executor* executor, const Verb& verb) noexcept {
  return Run([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    const std::lock_guard<std::mutex> writing(writing_);
    return WriteHeld(keys, executor, std::cref(verb));
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
  const TableOptions& options = hot_->options();
  DE_RETURN_IF_ERROR(Run([&]() -> Status {
    // If the arguments are wrong, the hot table says so.
    if (!IsFloating(options.value_dtype)) return Status::Ok();
    if (!CheckHyper(rule, hyper.data(), hyper.size()).ok()) return Status::Ok();
    // The first step of an optimizer adds its slots.
    std::vector<SlotSpec> changes;
    std::vector<SlotSpec> specs =
        rule.slots(options.dim, options.real_slot_dtype(), hyper.data(), hyper.size());
    if (average_momentum != nullptr) specs.push_back(AverageSlot(options.value_dtype, options.dim));
    DE_RETURN_IF_ERROR(hot_->layout().FindChanges(owner, specs, &changes));
    return changes.empty() ? Status::Ok() : EnsureSlots(owner, specs);
  }));
  return Write(keys, executor, [&] {
    return hot_->Apply(rule, owner, hyper, keys, grads, executor, average_momentum);
  });
}

Status TieredTable::LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                             Executor* executor) {
  return Write(keys, executor, [&] { return hot_->LoadRows(from, keys, rows, executor); });
}

Status TieredTable::AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                               const Keys& keys, const char* values) {
  return Write(keys, nullptr, [&] { return hot_->AssignSlot(owner, name, bytes, keys, values); });
}

Status TieredTable::Touch(const Keys& keys) {
  return Write(keys, nullptr, [&] { return hot_->Touch(keys); });
}

Status TieredTable::Erase(const Keys& keys, Executor* executor) {
  return Run([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    const std::lock_guard<std::mutex> writing(writing_);
    return EraseRows(keys, executor);
  });
}

/// Requires writing_.
Status TieredTable::EraseRows(const Keys& keys, Executor* executor) {
  if (keys.size == 0) return Status::Ok();
  // The hot table records changes for deltas. So it must have the rows that it erases.
  return WriteHeld(keys, executor, [&]() -> Status {
    if (!cold_->empty()) {  // an older cold copy of a hot row must not come back
      const std::unique_ptr<bool[]> none = std::make_unique<bool[]>(keys.size);
      const MissingKeys distinct(keys, none.get());
      LocatedRows cold;
      DE_RETURN_IF_ERROR(cold_->Locate(distinct.keys(), executor, &cold));
      KeyList copies;
      for (const uint32_t position : cold.positions) copies.Add(distinct.keys(), position);
      if (!cold.positions.empty()) DE_RETURN_IF_ERROR(cold_->Erase(copies.keys()));
    }
    return hot_->Erase(keys, executor);
  });
}

}  // namespace de::engine
