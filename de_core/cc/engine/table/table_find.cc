// Verbs that read rows.
#include "de_core/cc/engine/table/table_find.h"

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/table/all_shards.h"
#include "de_core/cc/engine/table/key_batches.h"

namespace de::engine {
namespace {

// Use another thread only for at least this many keys per thread: fewer are not worth waking it.
constexpr size_t kKeysPerThread = 4096;
// Tasks per thread. Several, so that the other threads can take over tasks of a thread that starts
// late.
constexpr size_t kTasksPerThread = 4;

}  // namespace

Status Table::Prepare(const Keys& keys) const {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  const bool strings = options_.key_type == KeyType::kString;
  if (keys.size > 0 && (strings ? keys.strings == nullptr : keys.ints == nullptr)) {
    return Status::InvalidArgument("keys must be of the table's type, " +
                                   std::string(NameOf(options_.key_type)) +
                                   ". Received: keys of the other type");
  }
  return Status::Ok();
}

void Table::ReadRow(const char* row, size_t position, const ValuesOut& out) const {
  const size_t bytes = layout_.value_bytes();
  if (out.data != nullptr) CopyBytes(out.data + position * out.StrideOf(bytes), row, bytes);
  if (out.strings != nullptr) ReadStrings(row, position, out);
}

void Table::ReadInitial(const IndexKey& key, size_t position, const ValuesOut& out) const {
  if (out.data != nullptr) {
    initializer_->Fill(key.word, out.data + position * out.StrideOf(layout_.value_bytes()));
  }
  if (out.strings != nullptr) ReadStrings(nullptr, position, out);
}

void Table::ReadStrings(const char* row, size_t position, const ValuesOut& out) const {
  for (size_t i = 0; i < options_.dim; ++i) {
    const StringArena::Ref ref =
        row == nullptr ? 0 : StringArena::LoadRef(row + i * sizeof(StringArena::Ref));
    out.strings->Set(position * options_.dim + i, StringArena::Get(ref));
  }
}

// Returns false if a row that was found has expired. Otherwise records a use if `used` and the
// policy counts lookups as uses.
bool Table::UseRow(char* row, const Stamp& now, bool used) const noexcept {
  if (policy_.Expired(row, now)) return false;
  if (used && policy_.options().count_reads) policy_.TouchShared(row, now);
  return true;
}

template <FindKind kKind, typename Width>
void Table::FindRange(const Width& width, const Keys& keys, size_t begin, size_t end,
                      const ValuesOut& out, bool* found) const {
  size_t hits = 0;
  // The pass of plain values only tells which keys have no row.
  if (kKind == FindKind::kPlain && found != nullptr) std::memset(found + begin, true, end - begin);
  for (size_t at = begin; at < end; at += kKeysPerChunk) {
    const size_t count = std::min(kKeysPerChunk, end - at);
    const AllShards</*kWriter=*/false> all(shards_);
    if (all.held()) {
      const AllShardsKeys batch{shards_.data(), keys};
      hits += FindLocked<kKind>(width, batch, keys, at, at + count, out, found);
      continue;
    }
    // A writer holds the lock of some shard. Process the keys shard by shard, to wait only for that
    // shard.
    PickedKeys picked(keys, at, at + count, 0, kShards - 1, kKeysPerChunk);
    picked.Next();
    picked.ForEachShard([&](uint32_t shard, const ShardKeys& group) {
      const OneShardsKeys batch{shards_.data(), shard, group};
      const std::shared_lock<ShardLock> guard(shards_[shard]->lock);
      hits += FindLocked<kKind>(width, batch, keys, 0, group.count, out, found);
    });
  }
  hits_.fetch_add(hits, std::memory_order_relaxed);
  misses_.fetch_add(end - begin - hits, std::memory_order_relaxed);
}

Status Table::Find(const Keys& keys, const ValuesOut& out, bool* found, Executor* executor) const {
  DE_RETURN_IF_ERROR(Prepare(keys));
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const bool strings = options_.key_type == KeyType::kString;
    const bool plain = !strings && out.data != nullptr && !policy_.watches_reads();
    const size_t bytes = layout_.value_bytes(), row_stride = layout_.stride();
    const auto range = [&](size_t begin, size_t end) {
      if (plain) {
        WithRowWidth(bytes, row_stride, [&](const auto& width) {
          FindRange<FindKind::kPlain>(width, keys, begin, end, out, found);
        });
      } else if (strings) {
        FindRange<FindKind::kStrings>(RowWidth<0>(bytes, row_stride), keys, begin, end, out, found);
      } else {
        FindRange<FindKind::kInts>(RowWidth<0>(bytes, row_stride), keys, begin, end, out, found);
      }
    };
    const size_t threads = executor == nullptr ? 1 : executor->threads();
    const size_t worth = std::min(threads, keys.size / kKeysPerThread);
    const size_t tasks = std::min(worth * kTasksPerThread, keys.size / kKeysPerChunk);
    if (worth <= 1) {
      range(0, keys.size);
    } else {
      return RunGuarded(executor, tasks, [&](size_t task) {
        range(keys.size * task / tasks, keys.size * (task + 1) / tasks);
        return Status::Ok();
      });
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
