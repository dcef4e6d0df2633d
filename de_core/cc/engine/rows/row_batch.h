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

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_BATCH_H_
