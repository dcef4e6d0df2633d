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

/// To fill a batch: Clear, then Add for each row and AddText for its strings, then Finish.
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
  std::vector<size_t> lengths;           ///< of the strings in `bytes`: of each row key and values

  size_t size() const noexcept { return words.size(); }

  /// Empties the batch, and keeps its memory.
  void Clear() noexcept {
    words.clear();
    rows.clear();
    bytes.clear();
    lengths.clear();
  }

  /// Adds a row. The caller writes its `stride` bytes to the returned address before the next call,
  /// and calls AddText for a string key, then for each string value.
  char* Add(uint64_t word, size_t stride) {
    words.push_back(word);
    rows.resize(rows.size() + stride);
    return rows.data() + rows.size() - stride;
  }

  void AddText(std::string_view text) {
    lengths.push_back(text.size());
    bytes.append(text);
  }

  /// Sets the layout of the rows, and the views of their strings.
  void Finish(const RowLayout& of_rows) {
    layout = of_rows;
    keys.clear();
    values.clear();
    const bool has_keys = layout.key_type() == KeyType::kString;
    const size_t texts = layout.value_dtype() == DType::kString ? layout.dim() : 0;
    const char* next = bytes.data();
    const size_t* length = lengths.data();
    const auto take = [&](std::vector<std::string_view>* views) {
      views->emplace_back(next, *length);
      next += *length++;
    };
    for (size_t row = 0; row < words.size(); ++row) {
      if (has_keys) take(&keys);
      for (size_t i = 0; i < texts; ++i) take(&values);
    }
  }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_BATCH_H_
