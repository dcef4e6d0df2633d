// Rows copied out of a table. A batch has all rows whose hashes are in one range (a segment of the
// index); the next batch has the next range.
#ifndef DE_CORE_ENGINE_ROW_BATCH_H_
#define DE_CORE_ENGINE_ROW_BATCH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// How far the copying of a table has come: the next batch begins at `next_hash`.
struct ExportCursor {
  uint64_t next_hash = 0;
  bool done = false;
};

struct RowBatch {
  uint64_t hash_begin = 0;
  uint64_t hash_last = 0;       ///< inclusive
  std::vector<uint64_t> words;  // (count)
  std::vector<char> rows;       // (count, stride) of `layout`
  /// the table's layout at the time of the copy
  RowLayout layout{KeyType::kInt64, DType::kFloat32, 1};
  std::vector<std::string_view> keys;    // (count) for string keys
  std::vector<std::string_view> values;  // (count, dim) for string values
  std::string bytes;                     ///< the bytes that `keys` and `values` refer to

  size_t size() const noexcept { return words.size(); }
};

/// Fills a batch row by row. The views of the batch are valid after Finish.
class RowBatchBuilder {
 public:
  /// Empties the batch, and keeps its memory.
  RowBatchBuilder(const RowLayout& layout, RowBatch* batch) : batch_(batch) {
    batch->layout = layout;
    batch->words.clear();
    batch->rows.clear();
    batch->keys.clear();
    batch->values.clear();
    batch->bytes.clear();
  }

  /// Adds a row. The caller writes its bytes to the returned address before the next call, and
  /// calls AddText for a string key, then for each string value.
  char* Add(uint64_t word) {
    const size_t stride = batch_->layout.stride();
    batch_->words.push_back(word);
    batch_->rows.resize(batch_->rows.size() + stride);
    return batch_->rows.data() + batch_->rows.size() - stride;
  }

  void AddText(std::string_view text) {
    lengths_.push_back(text.size());
    batch_->bytes.append(text);
  }

  void Finish() {
    const bool keys = batch_->layout.key_type() == KeyType::kString;
    const size_t values = batch_->layout.value_dtype() == DType::kString ? batch_->layout.dim() : 0;
    const char* next = batch_->bytes.data();
    const size_t* length = lengths_.data();
    const auto take = [&](std::vector<std::string_view>* views) {
      views->emplace_back(next, *length);
      next += *length++;
    };
    for (size_t row = 0; row < batch_->words.size(); ++row) {
      if (keys) take(&batch_->keys);
      for (size_t i = 0; i < values; ++i) take(&batch_->values);
    }
  }

 private:
  RowBatch* batch_;
  std::vector<size_t> lengths_;  ///< of all texts, row by row
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_BATCH_H_
