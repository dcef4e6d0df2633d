// ExportBatch: copies rows out of the table, one index segment at a time.
#include <cstring>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/table_scratch.h"

namespace de::engine {

Status Table::ExportBatch(ExportCursor* cursor, RowBatch* batch) const {
  return Guarded([&] {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const size_t stride = layout_.stride();
    batch->layout = layout_;
    const Stamp now = policy_.Now();
    const bool string_keys = options_.key_type == KeyType::kString;
    const bool string_values = options_.value_dtype == DType::kString;
    batch->words.clear();
    batch->rows.clear();
    batch->keys.clear();
    batch->values.clear();
    batch->bytes.clear();
    batch->hash_begin = cursor->next_hash;
    std::vector<size_t> lengths;  // row by row: the length of its key, then of its values
    {
      const Shard& shard = *shards_[ShardOfHash(cursor->next_hash)];
      const std::shared_lock<ShardLock> guard(shard.lock);
      batch->hash_last = shard.VisitSegment(cursor->next_hash, [&](uint64_t word, uint32_t number) {
        // A segment that grew after the cursor entered it may begin before the cursor.
        if (Mix64(word) < cursor->next_hash) return;
        const char* row = shard.Row(number);
        if (policy_.Expired(row, now)) return;
        batch->words.push_back(word);
        batch->rows.resize(batch->rows.size() + stride);
        policy_.CopyRow(batch->rows.data() + batch->rows.size() - stride, row, stride);
        const auto append = [&](std::string_view bytes) {
          lengths.push_back(bytes.size());
          batch->bytes.append(bytes);
        };
        if (string_keys) append(shard.KeyBytes(number));
        if (string_values) {
          for (size_t i = 0; i < options_.dim; ++i) {
            append(StringArena::Get(StringArena::LoadRef(row + i * sizeof(StringArena::Ref))));
          }
        }
      });
    }
    const char* next = batch->bytes.data();
    size_t at = 0;
    for (size_t row = 0; row < batch->words.size(); ++row) {
      const auto take = [&](std::vector<std::string_view>* views) {
        views->emplace_back(next, lengths[at]);
        next += lengths[at++];
      };
      if (string_keys) take(&batch->keys);
      for (size_t i = 0; string_values && i < options_.dim; ++i) take(&batch->values);
    }
    cursor->done = batch->hash_last == ~uint64_t{0};
    cursor->next_hash = batch->hash_last + 1;
    return Status::Ok();
  });
}

}  // namespace de::engine
