// Distributes a verb's writes over shards and threads.
#ifndef DE_CORE_ENGINE_TABLE_SPREAD_H_
#define DE_CORE_ENGINE_TABLE_SPREAD_H_

#include <algorithm>

#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/batch/picked_keys.h"
#include "de_core/cc/engine/table/all_shards.h"
#include "de_core/cc/engine/table/shard_update.h"
#include "de_core/cc/engine/table/table_gate.h"

namespace de::engine {

/// A batch that touches fewer uncached bytes than this stays on one thread (about 100 us of work).
inline constexpr size_t kBytesWorthThreads = size_t{3} << 19;
/// Greatest number of threads that each read all keys of a batch. More threads would spend more
/// time reading than writing.
inline constexpr size_t kMostReaders = 4;

/// Calls per_shard(shard number, its keys) for every shard that has keys in the batch, on several
/// threads if that is worthwhile. Waits for all calls, then returns the Status of a failed call, or
/// OK. With `is_built`, `partition` already divides these keys by shard; otherwise this function
/// builds it.
template <typename PerShard>
Status ForEachGroup(const Keys& keys, Partition* partition, bool is_built, Executor* executor,
                    const PerShard& per_shard) {
  FirstFailure failure;
  const auto one = [&](size_t shard) {
    const ShardKeys group = partition->Of(static_cast<uint32_t>(shard));
    if (group.count == 0) return;
    failure.Run([&] {
      per_shard(static_cast<uint32_t>(shard), group);
      return Status::Ok();
    });
  };
  if (!is_built) {
    partition->BuildAndRun(keys, executor, kShards, one);
  } else {
    RunTasks(ThreadsFor(keys.size >= kKeysWorthThreads, executor), kShards, one);
  }
  return failure.Take();
}

// Calls per_shard(OneShardsKeys) for every shard that has keys in the batch. The callee takes the
// lock and writes.
template <typename PerShard>
Status Table::ForEachShard(const Keys& keys, Executor* executor, const PerShard& per_shard) {
  DE_RETURN_IF_ERROR(Prepare(keys));
  if (keys.size == 0) return Status::Ok();
  return Guarded([&]() -> Status {
    const auto scratch = scratch_.Lend();
    const auto group_of = [&](uint32_t shard, const ShardKeys& group) {
      per_shard(OneShardsKeys{shards_.data(), shard, group});
    };
    DE_RETURN_IF_ERROR(
        ForEachGroup(keys, &scratch->partition, /*is_built=*/false, executor, group_of));
    AfterWrite(keys.size);
    return Status::Ok();
  });
}

// Calls on_row and on_refused as UpdateShard does, for all keys; j is the position in the batch.
// There are two ways. (1) With a gate, with string keys on several threads, or with more than
// kMostReaders threads: sorts the keys by shard, and updates shard by shard. (2) Otherwise:
// processes keys in the order of the batch, on one thread, or on a few threads with some shards
// each. A thread holds the locks of all its shards. If another verb holds one of these locks, the
// thread sorts the keys by shard after all, which costs some time. Each thread calls on_release
// before it releases locks.
template <typename Plain, typename OnRow, typename OnRefused, typename OnRelease>
Status Table::UpdateRows(const Keys& keys, Executor* executor, const WriteTouches& touch,
                         const TableGate& gate, const OnRow& on_row, const OnRefused& on_refused,
                         const Plain& plain, const OnRelease& on_release) {
  DE_RETURN_IF_ERROR(Prepare(keys));
  const auto one_shard = [&](const OneShardsKeys& batch) {
    UpdateShard(
        batch, keys, touch, gate.active(),
        [&](Shard& shard, const IndexKey& key, char* row, size_t j, bool inserted) {
          on_row(shard, key, row, batch.position(j), inserted);
        },
        [&](const IndexKey& key, size_t j) { on_refused(key, batch.position(j)); }, on_release,
        plain);
  };
  // Each key touches its index line and some more memory, about two lines in total, and its
  // row. String keys are sorted by shard, so that each is hashed only once.
  const size_t bytes = keys.size * (2 * sizeof(IndexLine) + touch.row_bytes);
  const bool strings = keys.strings != nullptr;
  Executor* const threads =
      ThreadsFor(strings ? keys.size >= kKeysWorthThreads : bytes >= kBytesWorthThreads, executor);
  const bool sorted = threads != nullptr && (strings || threads->threads() > kMostReaders);
  if (sorted || gate.active() != nullptr) {
    return ForEachShard(keys, executor, one_shard);
  }
  // Returns false if another verb holds some of the locks.
  const auto as_they_come = [&](const auto& batch, size_t begin, size_t end) {
    for (uint32_t i = batch.first(); i <= batch.last(); ++i) shards_[i]->lock.LetReadersIn();
    arena_.Prefault();
    const AllShards</*kWriter=*/true> locks(shards_, batch.first(), batch.last());
    if (!locks.held()) return false;
    const auto row_at = [&](Shard& shard, const IndexKey& key, char* row, size_t j, bool inserted) {
      on_row(shard, key, row, batch.position(j), inserted);
    };
    UpdateLocked(batch, keys, begin, end, touch, gate.active(), row_at, Ignored{}, plain);
    on_release();
    return true;
  };
  const auto one_by_one = [&](const PickedKeys& picked) {
    picked.ForEachShard([&](uint32_t shard, const ShardKeys& group) {
      one_shard(OneShardsKeys{shards_.data(), shard, group});
    });
  };
  if (threads == nullptr) {
    return Guarded([&] {
      const AllShardsKeys batch{shards_.data(), keys};
      for (size_t begin = 0; begin < keys.size; begin += kKeysPerLock) {
        const size_t end = std::min(keys.size, begin + kKeysPerLock);
        if (as_they_come(batch, begin, end)) continue;
        PickedKeys picked(keys, begin, end, 0, kShards - 1);
        picked.Next();
        one_by_one(picked);
      }
      return Status::Ok();
    });
  }
  const size_t tasks = threads->threads();
  return RunGuarded(threads, tasks, [&](size_t task) {
    const auto first = static_cast<uint32_t>(task * kShards / tasks);
    const auto last = static_cast<uint32_t>((task + 1) * kShards / tasks - 1);
    PickedKeys picked(keys, 0, keys.size, first, last);
    while (picked.Next()) {
      const SomeShardsKeys batch(shards_.data(), keys, picked);
      if (!as_they_come(batch, 0, picked.count())) one_by_one(picked);
    }
    return Status::Ok();
  });
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_SPREAD_H_
