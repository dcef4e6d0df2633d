// Cold rows that lookups have read since the last write. A step writes the rows that its lookup has
// read, so it need not read them again.
#ifndef DE_CORE_ENGINE_RECENT_READS_H_
#define DE_CORE_ENGINE_RECENT_READS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/tier/cold_rows.h"

namespace de::engine {

/// Thread-safe. The rows are valid until a row becomes hot or cold: clear them then.
class RecentReads {
 public:
  /// Keeps at most `most_bytes` of rows.
  explicit RecentReads(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Keeps rows of `stride` bytes that were found for `keys`.
  void Add(const Keys& keys, const FoundRows& found, size_t stride) noexcept;

  /// Returns the row of key i, or nullptr. Requires that no other thread calls Add.
  const char* Find(const Keys& keys, size_t i) const;

  bool empty() const noexcept { return rows_.empty(); }
  void Clear() noexcept;

 private:
  const uint64_t most_bytes_;
  std::mutex mutex_;
  std::unordered_map<int64_t, size_t> ints_;         ///< offset in `rows_` by key
  std::unordered_map<std::string, size_t> strings_;  ///< the same for string keys
  std::vector<char> rows_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RECENT_READS_H_
