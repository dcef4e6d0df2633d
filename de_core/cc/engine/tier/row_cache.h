// Copies of cold rows in memory. Lookups and prefetches add the rows that they read. A step takes
// the rows that it changes from here, so it need not read them again.
#ifndef DE_CORE_ENGINE_ROW_CACHE_H_
#define DE_CORE_ENGINE_ROW_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/base/random_word.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/table/shard_lock.h"

namespace de::engine {

/// Thread-safe. If it is full, new rows replace the rows that were added first. A row is valid
/// until its key's row becomes hot: remove it then.
class RowCache {
 public:
  /// Keeps at most `most_bytes` of rows and their index.
  explicit RowCache(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Keeps row i of `keys`, in `layout`, if kept[i] is set. Forgets all rows if memory is
  /// exhausted, or if they have another layout.
  void Add(const Keys& keys, const bool* kept, const char* rows, const RowLayout& layout) noexcept;

  /// Calls visit(i, row) for each key i whose row is here in `layout`.
  template <typename Visit>
  void Find(const Keys& keys, const RowLayout& layout, const Visit& visit) const {
    const std::shared_lock<ShardLock> hold(lock_);
    if (places_.empty() || layout.generation() != generation_) return;
    for (size_t i = 0; i < keys.size; ++i) {
      const auto at = places_.find(KeyOf(keys, i));
      if (at != places_.end()) visit(i, rows_.data() + at->second * stride_);
    }
  }

  void Remove(const Keys& keys) noexcept;
  void Clear() noexcept;

 private:
  /// The word of a key, and a second hash of a string key, with a secret seed.
  struct Key {
    uint64_t word;
    uint64_t check;
    bool operator==(const Key& other) const noexcept {
      return word == other.word && check == other.check;
    }
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const noexcept;
  };

  Key KeyOf(const Keys& keys, size_t i) const noexcept;
  void Forget() noexcept;
  void Use(const RowLayout& layout);
  void Put(const Key& key, const char* row);

  const uint64_t most_bytes_;
  const uint64_t seed_ = RandomWord();
  mutable ShardLock lock_;
  std::unordered_map<Key, size_t, HashOfKey> places_;
  std::vector<char> rows_;  // (most_rows_, stride_) at most
  std::vector<Key> keys_;   // the keys of the rows, also of removed rows
  size_t next_ = 0;         ///< the row that is replaced next
  size_t most_rows_ = 0;
  size_t stride_ = 0;
  uint64_t generation_ = ~uint64_t{0};  ///< generation of the rows' layout
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_CACHE_H_
