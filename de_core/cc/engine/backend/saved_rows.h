// Rows that a save has copied out of a table, before they are encoded as a section.
#ifndef DE_CORE_ENGINE_SAVED_ROWS_H_
#define DE_CORE_ENGINE_SAVED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"

namespace de::engine {

/// Copied rows and erased keys. Reuse an object to reuse its memory.
class SavedRows {
 public:
  void Clear() noexcept {
    batch_.Clear();
    gone_.clear();
    gone_texts_.clear();
  }

  /// Adds a row as RowBatch::Add does.
  char* AddRow(uint64_t word, size_t stride) { return batch_.Add(word, stride); }
  void AddText(std::string_view text) { batch_.AddText(text); }
  /// Adds an erased key. `text` is the string key, or nullptr.
  void AddGone(uint64_t word, const std::string_view* text) {
    gone_.push_back(word);
    if (text != nullptr) gone_texts_.emplace_back(*text);
  }

  size_t count() const noexcept { return batch_.size() + gone_.size(); }
  size_t bytes() const noexcept {
    return batch_.rows.size() + batch_.bytes.size() + 8 * gone_.size();
  }
  /// Returns the copied rows and erased keys as a section of hashes `begin` to `last`. The section
  /// refers to this object's memory.
  SnapshotSection section(const RowLayout& layout, uint64_t begin, uint64_t last);

 private:
  friend class SaveSource;

  /// A row to copy: a row in the table, or the copy of a row that changed since a consistent save
  /// began.
  struct Entry {
    uint64_t hash;
    uint64_t word;
    const char* row;
    /// the key and the values of the copy of a row of strings; otherwise nullptr
    const std::string* texts;
  };

  /// Reserves memory for rows, so that none is allocated or mapped while a shard is locked.
  void Reserve(size_t rows, size_t stride);

  std::vector<Entry> entries_;  ///< the rows of the piece that is being read
  /// rows of the piece that were not written since the last save, but may have been looked up
  std::vector<Entry> others_;
  RowBatch batch_;
  std::vector<uint64_t> gone_;
  std::vector<std::string> gone_texts_;      // (gone) for string keys
  std::vector<std::string_view> gone_keys_;  // (gone) `gone_texts_`, once section is called
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVED_ROWS_H_
