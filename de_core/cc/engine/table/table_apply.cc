// Optimizer steps.
#include <algorithm>

#include "de_core/cc/engine/optimizer/row_average.h"
#include "de_core/cc/engine/optimizer/slot_rounding.h"
#include "de_core/cc/engine/rows/frozen_mark.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/table/lookup_plan.h"
#include "de_core/cc/engine/table/table_gate.h"
#include "de_core/cc/engine/table/table_spread.h"

namespace de::engine {
namespace {

// On one thread, a batch with at most this many keys is not divided by shard: its fixed costs per
// shard would be more than its work.
constexpr size_t kKeysSummedAtOnce = 16384;
// Rows that one call of an optimizer's kernel updates: few enough to stay in the first-level cache.
constexpr size_t kRowsPerKernel = 8;

/// Like UpdateShard without a gate, for keys whose row numbers an earlier lookup recorded in
/// `known`. `gradient(j)` points to the `bytes` of the gradient of key j, to prefetch them. If the
/// shard's row numbers have changed since the lookup, finds the rows again.
template <typename Gradient, typename OnRow, typename OnRelease>
void UpdateKnown(const OneShardsKeys& batch, const Keys& keys, const KnownKeys::OfShard& known,
                 size_t row_bytes, size_t bytes, const Gradient& gradient, const OnRow& on_row,
                 const OnRelease& on_release) {
  constexpr const TableGate* kNoGate = nullptr;
  Shard& shard = *batch.shards[batch.shard];
  const uint32_t* const numbers = known.rows.data();
  for (size_t begin = 0; begin < batch.count(); begin += kKeysPerLock) {
    const size_t end = std::min(batch.count(), begin + kKeysPerLock);
    if (begin > 0) shard.lock.LetReadersIn();
    shard.Prefault();
    const std::lock_guard<ShardLock> guard(shard.lock);
    if (shard.renumbered() != known.renumbered) {
      UpdateLocked(batch, keys, begin, end, row_bytes, kNoGate, on_row, Ignored{},
                   PlainRows<void>{});
      on_release();
      continue;
    }
    const Slab::Map map = shard.slab().map();
    const auto ask_for = [&](size_t j) {
      PrefetchBytes(static_cast<const char*>(gradient(j)), bytes);
      if (numbers[j] == kNoRow) return;
      PrefetchBytes(map.Row(numbers[j]), row_bytes);
      if (shard.watch != nullptr) shard.watch->Prefetch(numbers[j]);
    };
    // The keys for which the recorded lookup found no row.
    uint32_t unknown[kKeysPerLock], positions[kKeysPerLock];
    uint64_t words[kKeysPerLock];
    size_t unknown_count = 0;
    for (size_t j = begin; j < std::min(end, begin + kPrefetchAhead); ++j) ask_for(j);
    for (size_t j = begin; j < end; ++j) {
      if (j + kPrefetchAhead < end) ask_for(j + kPrefetchAhead);
      if (numbers[j] == kNoRow) {
        words[unknown_count] = batch.word(j);
        positions[unknown_count] = static_cast<uint32_t>(batch.position(j));
        unknown[unknown_count++] = static_cast<uint32_t>(j);
        continue;
      }
      const IndexKey key{batch.word(j), Mix64(batch.word(j)), nullptr};
      char* const row = map.Row(numbers[j]);
      if (shard.watch != nullptr) {
        shard.watch->BeforeWrite(key.word, key.hash, numbers[j], row, /*inserted=*/false);
      }
      on_row(shard, key, row, j, false);
    }
    if (unknown_count != 0) {
      UpdateLocked(
          OneShardsKeys{batch.shards, batch.shard, {words, positions, unknown_count}}, keys, 0,
          unknown_count, row_bytes, kNoGate,
          [&](Shard& of, const IndexKey& key, char* row, size_t i, bool inserted) {
            on_row(of, key, row, unknown[i], inserted);
          },
          Ignored{}, PlainRows<void>{});
    }
    on_release();
  }
}

}  // namespace

Status Table::Apply(const OptimizerRule& rule, const std::string& owner,
                    const std::vector<double>& hyper, const Keys& keys, const void* grads,
                    Executor* executor, const double* average_momentum) {
  return Guarded([&]() -> Status {
    if (!IsFloating(options_.value_dtype)) {
      return Status::InvalidArgument(
          "an optimizer needs a table of floating-point values. Received: value_dtype=" +
          std::string(NameOf(options_.value_dtype)));
    }
    DE_RETURN_IF_ERROR(CheckHyper(rule, hyper.data(), hyper.size()));
    DE_RETURN_IF_ERROR(Prepare(keys));
    std::vector<SlotSpec> specs =
        rule.slots(options_.dim, options_.real_slot_dtype(), hyper.data(), hyper.size());
    if (average_momentum != nullptr) {
      specs.push_back(AverageSlot(options_.value_dtype, options_.dim));
    }
    DE_RETURN_IF_ERROR(EnsureSlots(owner, specs));
    return Step(rule, owner, specs, hyper, keys, grads, executor, average_momentum);
  });
}

/// Runs Apply's step once the slots exist. The last of `specs` is the moving average, if there is
/// one.
Status Table::Step(const OptimizerRule& rule, const std::string& owner,
                   const std::vector<SlotSpec>& specs, const std::vector<double>& hyper,
                   const Keys& keys, const void* grads, Executor* executor,
                   const double* average_momentum) {
  const bool averaged = average_momentum != nullptr;
  const RuleKernel kernel = rule.kernel(options_.value_dtype, options_.real_slot_dtype());
  const AverageKernels average = AverageKernelsOf(options_.value_dtype);
  const std::shared_lock<ShardLock> hold(layout_lock_);
  std::vector<size_t> offsets;
  const bool doubles = options_.value_dtype == DType::kFloat64;
  const size_t gradient_bytes = options_.dim * (doubles ? sizeof(double) : sizeof(float));
  size_t touched = layout_.value_bytes();
  const Stamp stamp = policy_.BeginStep();
  const uint64_t rounding_seed = RoundingSeed(initializer_->options().seed, stamp.step);
  const TableGate gate(this, stamp, /*admits_all=*/false);
  touched = std::max(touched, policy_.end());
  for (const SlotSpec& spec : specs) {
    const RowSlot* slot = layout_.FindSlot(owner, spec.name);
    if (slot == nullptr) {
      return Status::FailedPrecondition("slots must not be dropped while '" + owner +
                                        "' trains the table. Received: a step without its slot '" +
                                        spec.name + "'");
    }
    offsets.push_back(slot->offset);
    touched = std::max(touched, slot->offset + slot->bytes());
  }
  const RowSlot* const mark = layout_.FindSlot(kFreezeOwner, kFrozenName);
  if (mark != nullptr) touched = std::max(touched, mark->offset + mark->bytes());
  // The record of a lookup of the same keys, or nullptr.
  const LookupPlan::Record known = plan_.Take(keys);
  return Guarded([&]() -> Status {
    if (keys.size == 0) return Status::Ok();
    const auto scratch = scratch_.Lend();
    Partition* const partition = known == nullptr ? &scratch->partition : &known->partition;
    // Sums the gradients of `group`, and calls write(distinct keys, sum, on_row, on_release), which
    // finds the rows of the distinct keys.
    const auto step = [&](const ShardKeys& group, const UniqueKeys* unique, const auto& write) {
      const auto lease = scratch->sums.Lend();
      GradientSum& sum = *lease;
      if (doubles) {
        sum.Build(keys, group, unique, static_cast<const double*>(grads), options_.dim);
      } else {
        sum.Build(keys, group, unique, static_cast<const float*>(grads), options_.dim);
      }
      char* rows[kRowsPerKernel];
      uint64_t words[kRowsPerKernel];
      const void* gradients[kRowsPerKernel];
      size_t waiting = 0;
      const auto update = [&] {
        kernel({hyper.data(), hyper.size(), options_.dim, rows, offsets.data(), gradients, words,
                rounding_seed, waiting});
        for (size_t i = 0; averaged && i < waiting; ++i) {
          average.blend(rows[i], rows[i] + offsets.back(), options_.dim, *average_momentum);
        }
        waiting = 0;
      };
      const auto on_row = [&](Shard& shard, const IndexKey& key, char* row, size_t j,
                              bool inserted) {
        if (inserted) WriteInitial(shard, key, row);
        policy_.Touch(row, stamp);  // a frozen row is in use too
        if (IsFrozen(row, mark)) return;
        if (averaged) average.begin(row, row + offsets.back(), options_.dim);
        rows[waiting] = row;
        words[waiting] = key.word;
        gradients[waiting] = sum.gradient(j);
        if (++waiting == kRowsPerKernel) update();
      };
      return write(sum, on_row, update);
    };
    if (known == nullptr && gate.active() == nullptr && keys.ints != nullptr &&
        keys.size <= kKeysSummedAtOnce &&
        ThreadsFor(keys.size >= kKeysWorthThreads, executor) == nullptr) {
      std::vector<uint32_t>& positions = scratch->positions;
      for (size_t i = positions.size(); i < keys.size; ++i) {
        positions.push_back(static_cast<uint32_t>(i));
      }
      const ShardKeys all{reinterpret_cast<const uint64_t*>(keys.ints), positions.data(),
                          keys.size};
      return step(all, nullptr,
                  [&](const GradientSum& sum, const auto& on_row, const auto& update) {
                    const ShardKeys unique = sum.unique();
                    const auto* ints = reinterpret_cast<const int64_t*>(unique.words);
                    return UpdateRows({ints, nullptr, unique.count}, nullptr, touched, gate, on_row,
                                      Ignored{}, PlainRows<void>{}, update);
                  });
    }
    const auto one = [&](uint32_t shard_number, const ShardKeys& group) {
      const KnownKeys::OfShard* const of = known == nullptr ? nullptr : &known->of[shard_number];
      step(group, of == nullptr ? nullptr : &of->unique,
           [&](const GradientSum& sum, const auto& on_row, const auto& update) {
             const OneShardsKeys batch{shards_.data(), shard_number, sum.unique()};
             if (of != nullptr && gate.active() == nullptr) {
               UpdateKnown(
                   batch, keys, *of, touched, gradient_bytes,
                   [&sum](size_t j) { return sum.gradient(j); }, on_row, update);
             } else {
               UpdateShard(batch, keys,
                           WriteTouches(touched, static_cast<const char*>(grads), gradient_bytes),
                           gate.active(), on_row, Ignored{}, update);
             }
           });
    };
    DE_RETURN_IF_ERROR(ForEachGroup(keys, partition, known != nullptr, executor, one));
    AfterWrite(keys.size);
    return Status::Ok();
  });
}

}  // namespace de::engine
