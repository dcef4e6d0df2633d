#include "de_core/cc/engine/table/table.h"

#include <algorithm>
#include <cmath>

#include "de_core/cc/engine/backend/save_chains.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/random_word.h"
#include "de_core/cc/engine/base/simd_level.h"
#include "de_core/cc/engine/table/shard_changes.h"

namespace de::engine {
namespace {

/// Returns the greatest number of lines of a segment of a shard's index.
uint32_t SegmentLines(const TableOptions& options, uint32_t shard) noexcept {
  if (!options.splits_in_turn) return Shard::kSegmentLines;
  return static_cast<uint32_t>(std::exp2(9.0 - static_cast<double>(shard) / kShards) + 0.5);
}

}  // namespace

Table::Table(TableOptions options)
    : options_(std::move(options)),
      layout_(options_.key_type, options_.value_dtype, options_.dim),
      policy_(options_.policy, &layout_) {
  const uint64_t seed = RandomWord() | 1;
  shards_.reserve(kShards);
  for (uint32_t i = 0; i < kShards; ++i)
    shards_.push_back(std::make_unique<Shard>(layout_, &arena_, seed, SegmentLines(options_, i)));
  chains_ = std::make_unique<SaveChains>(std::make_unique<ShardChanges>(&shards_));
}

Table::~Table() = default;

Status Table::Create(TableOptions options, std::unique_ptr<Table>* table) {
  if (options.dim < 1 || options.dim > kMaxDim) {
    return Status::InvalidArgument("dim must be from 1 to " + std::to_string(kMaxDim) +
                                   ". Received: dim=" + std::to_string(options.dim));
  }
  if (options.slot_dtype != DType::kFloat32 &&
      (options.slot_dtype != DType::kBFloat16 || RealOf(options.value_dtype) != DType::kFloat32 ||
       !IsFloating(options.value_dtype))) {
    return Status::InvalidArgument(
        "slots must be float32, or bfloat16 if the values are float32, half or bfloat16. "
        "Received: slot_dtype=" +
        std::string(NameOf(options.slot_dtype)) +
        ", value_dtype=" + std::string(NameOf(options.value_dtype)));
  }
  DE_RETURN_IF_ERROR(options.policy.Check());
  DE_RETURN_IF_ERROR(SimdLevelStatus());
  return Guarded([&]() -> Status {
    std::unique_ptr<Table> made(new Table(std::move(options)));
    DE_RETURN_IF_ERROR(Initializer::Create(made->options_.initializer, made->options_.value_dtype,
                                           made->options_.dim, &made->initializer_));
    if (made->options_.init_size > 0) DE_RETURN_IF_ERROR(made->Reserve(made->options_.init_size));
    *table = std::move(made);
    return Status::Ok();
  });
}

Status Table::SetInitializer(const InitializerOptions& options) {
  return Guarded([&]() -> Status {
    std::unique_ptr<const Initializer> made;
    DE_RETURN_IF_ERROR(Initializer::Create(options, options_.value_dtype, options_.dim, &made));
    const std::lock_guard<ShardLock> hold(layout_lock_);
    initializer_.swap(made);
    return Status::Ok();
  });
}

InitializerOptions Table::initializer() const {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  return initializer_->options();
}

RowLayout Table::layout() const {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  return layout_;
}

uint64_t Table::size() const noexcept {
  uint64_t rows = 0;
  for (const auto& shard : shards_) {
    const std::shared_lock<ShardLock> guard(shard->lock);
    rows += shard->size();
  }
  return rows;
}

uint64_t Table::string_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const auto& shard : shards_) {
    const std::shared_lock<ShardLock> guard(shard->lock);
    bytes += shard->arena().live_bytes();
  }
  return bytes;
}

TableStats Table::Stats() const {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  TableStats stats;
  stats.probes.assign(8, 0);
  uint64_t places = 0, bytes = 0;
  for (const auto& shard : shards_) {
    const std::shared_lock<ShardLock> guard(shard->lock);
    stats.policy_bytes += policy_.filter_bytes(static_cast<size_t>(&shard - shards_.data()));
    stats.rows += shard->size();
    stats.index_bytes += shard->index_bytes();
    stats.string_bytes += shard->arena().bytes();
    bytes += shard->slab().bytes();
    places += shard->index_lines() * kEntriesPerLine;
    shard->CountProbes(&stats.probes);
  }
  size_t slots = 0;
  for (const RowSlot& slot : layout_.slots()) slots += slot.bytes();
  stats.slot_bytes = bytes / layout_.stride() * slots;
  stats.row_bytes = bytes - stats.slot_bytes;
  stats.load_factor =
      places == 0 ? 0 : static_cast<double>(stats.rows) / static_cast<double>(places);
  stats.free_bytes = arena_.free_bytes();
  stats.evicted = policy_.evicted();
  stats.expired = policy_.expired();
  stats.refused = policy_.refused();
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  return stats;
}

Status Table::Clear() {
  return Guarded([&] {
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::shared_lock<ShardLock> hold(layout_lock_);
    std::vector<std::unique_ptr<Shard>> empty;  // allocate all of them first: all rows go, or none
    for (const auto& shard : shards_) {
      const std::shared_lock<ShardLock> guard(shard->lock);
      empty.push_back(shard->Emptied());
    }
    for (size_t i = 0; i < shards_.size(); ++i) {
      const std::lock_guard<ShardLock> guard(shards_[i]->lock);
      shards_[i]->Clear(std::move(empty[i]));
      policy_.Forget(i);
    }
    policy_.ForgetSteps();  // a restore sets the number of the saved rows
    arena_.Trim();
    return Status::Ok();
  });
}

Status Table::Reserve(uint64_t rows) {
  if (rows > kMaxRows) {
    return Status::InvalidArgument(
        "a table must hold at most " + std::to_string(kMaxRows) +
        " rows: reserve only the rows that you need. Received: rows=" + std::to_string(rows));
  }
  return Guarded([&] {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const RowPolicyOptions& bounds = policy_.options();
    if (bounds.max_rows > 0) rows = std::min(rows, bounds.max_rows);
    if (bounds.max_bytes > 0) {
      rows = std::min(rows, bounds.max_bytes / (layout_.stride() + Shard::kIndexBytesPerRow));
    }
    for (auto& shard : shards_) {
      const std::lock_guard<ShardLock> guard(shard->lock);
      shard->Rebuild(rows / kShards + 1, /*compact=*/false);
    }
    return Status::Ok();
  });
}

Status Table::ShrinkToFit() {
  return Guarded([&] {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    for (auto& shard : shards_) {
      const std::lock_guard<ShardLock> guard(shard->lock);
      shard->Rebuild(0, /*compact=*/true);
    }
    arena_.Trim();
    return Status::Ok();
  });
}

Status Table::EnsureSlots(const std::string& owner, const std::vector<SlotSpec>& specs) {
  return Guarded([&]() -> Status {
    std::vector<SlotSpec> changes;
    {
      const std::shared_lock<ShardLock> hold(layout_lock_);
      DE_RETURN_IF_ERROR(layout_.FindChanges(owner, specs, &changes));
      if (changes.empty()) return Status::Ok();
    }
    const std::lock_guard<std::mutex> replacing(replacing_lock_);
    const std::lock_guard<ShardLock> hold(layout_lock_);
    changes.clear();
    DE_RETURN_IF_ERROR(layout_.FindChanges(owner, specs, &changes));
    if (changes.empty()) return Status::Ok();
    RowLayout changed = layout_;
    changed.Change(owner, changes);
    Relayout(std::move(changed));
    return Status::Ok();
  });
}

}  // namespace de::engine
