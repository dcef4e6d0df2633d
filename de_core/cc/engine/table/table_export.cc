// ExportBatch: copies rows out of the table, one index segment at a time.
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Copies a row into a batch. Requires the shard's lock.
void Table::CopyTo(const Shard& shard, uint64_t word, uint32_t number, RowBatch* batch) const {
  const char* const row = shard.Row(number);
  const size_t stride = layout_.stride();
  policy_.CopyRow(batch->Add(word, stride), row, stride);
  if (options_.key_type == KeyType::kString) batch->AddText(shard.KeyBytes(number));
  for (size_t i = 0; options_.value_dtype == DType::kString && i < options_.dim; ++i) {
    batch->AddText(StringArena::Get(StringArena::LoadRef(row + i * sizeof(StringArena::Ref))));
  }
}

Status Table::ExportBatch(ExportCursor* cursor, RowBatch* batch) const {
  return Guarded([&] {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const Stamp now = policy_.Now();
    batch->Clear();
    batch->hash_begin = cursor->next_hash;
    {
      const Shard& shard = *shards_[ShardOfHash(cursor->next_hash)];
      const std::shared_lock<ShardLock> guard(shard.lock);
      batch->hash_last = shard.VisitSegment(cursor->next_hash, [&](uint64_t word, uint32_t number) {
        // A segment that grew after the cursor entered it may begin before the cursor.
        if (Mix64(word) < cursor->next_hash) return;
        if (policy_.Expired(shard.Row(number), now)) return;
        CopyTo(shard, word, number, batch);
      });
    }
    batch->Finish(layout_);
    cursor->done = batch->hash_last == ~uint64_t{0};
    cursor->next_hash = batch->hash_last + 1;
    return Status::Ok();
  });
}

}  // namespace de::engine
