// Where the newest row of each key is on the disk: a table in memory from 64-bit words to places.
//
// An integer key is its word. A string key has two words: its hash, under which the table keeps it,
// and a check, a second hash with a secret seed. So the index needs no bytes of keys. The record on
// the disk has them, and decides. Of keys with equal hashes, the table keeps one, and a list with
// the bytes of the keys keeps the others.
#ifndef DE_CORE_ENGINE_DISK_INDEX_H_
#define DE_CORE_ENGINE_DISK_INDEX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/base/random_word.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

class DiskIndex {
 public:
  /// Places of the rows of keys. A place is a packed DiskRows::Place.
  struct Places {
    std::vector<int64_t> packed;    // (keys)
    std::unique_ptr<bool[]> found;  // (keys)
  };
  struct Entry {
    uint64_t word;
    int64_t place;
  };

  static Status Create(KeyType key_type, std::unique_ptr<DiskIndex>* index);

  // Find, Export and the numbers may run beside each other, but not beside the other calls.

  Status Find(const Keys& keys, Executor* executor, Places* places) const;
  /// Sets the places of distinct keys. Different keys with equal hashes must be adjacent. If it
  /// fails, some keys have their new places.
  Status Assign(const Keys& keys, const std::vector<int64_t>& places);
  Status Erase(const Keys& keys);
  /// Replaces `entries` by the next part of the index, and advances the cursor as
  /// TableBackend::ExportBatch does. The entries of a part are not sorted. Returns the last hash of
  /// the part in `last`.
  Status Export(ExportCursor* cursor, std::vector<Entry>* entries, uint64_t* last) const;

  KeyType key_type() const noexcept { return has_texts_ ? KeyType::kString : KeyType::kInt64; }
  bool empty() const noexcept { return table_->size() == 0 && others_.empty(); }
  uint64_t bytes() const;

 private:
  struct Words;
  DiskIndex(bool has_texts, std::unique_ptr<Table> table)
      : has_texts_(has_texts), table_(std::move(table)) {}
  Status FindWords(const Keys& keys, Executor* executor, Words* words) const;

  const bool has_texts_;
  const uint64_t seed_ = RandomWord();
  const std::unique_ptr<Table> table_;  // values: the place, and for a string key the check
  /// keys whose hash another key has in the table
  std::unordered_map<std::string, Entry> others_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DISK_INDEX_H_
