// ExportBatch: copies rows out of the table, one index segment at a time.
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Copies a row into a batch. `texts` are the row's string key and string values if the row was
/// copied out of its shard, otherwise nullptr. Requires the shard's lock.
void Table::CopyTo(uint64_t word, const char* row, const std::string* texts,
                   RowBatch* batch) const {
  const size_t stride = layout_.stride();
  policy_.CopyRow(batch->Add(word, stride), row, stride);
  const auto add_text = [&](const char* at) {
    batch->AddText(texts == nullptr ? StringArena::Get(StringArena::LoadRef(at)) : *texts++);
  };
  if (options_.key_type == KeyType::kString) add_text(row + layout_.key_offset());
  for (size_t i = 0; options_.value_dtype == DType::kString && i < options_.dim; ++i) {
    add_text(row + i * sizeof(StringArena::Ref));
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
        CopyTo(word, shard.Row(number), nullptr, batch);
      });
    }
    batch->Finish(layout_);
    cursor->done = batch->hash_last == ~uint64_t{0};
    cursor->next_hash = batch->hash_last + 1;
    return Status::Ok();
  });
}

}  // namespace de::engine
