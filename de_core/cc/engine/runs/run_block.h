// A block of a run: a section of the snapshot format (snapshot_format.h) of about 4 KiB, so that
// one read of the disk finds a key's row.
#ifndef DE_CORE_ENGINE_RUN_BLOCK_H_
#define DE_CORE_ENGINE_RUN_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"

namespace de::engine {

/// The bytes that a block has if more than one row fits.
inline constexpr uint64_t kRunBlockBytes = 4096;

/// A key's entry in a block.
struct BlockEntry {
  enum class Kind : uint8_t { kAbsent, kRow, kTombstone, kCorrupt };
  Kind kind = Kind::kAbsent;
  const char* row = nullptr;  ///< (stride), for kRow
};

/// A view of a block whose checksum and sizes were checked.
class BlockView {
 public:
  /// Checks a block. `bytes` must be aligned to 64 bytes. DataLoss without the file's name.
  Status Open(const char* bytes, uint64_t size, uint64_t number, uint64_t hash_begin,
              const RowLayout& layout);

  /// Finds a key. `text` is the string key, or nullptr for an integer key.
  BlockEntry Find(uint64_t word, uint64_t hash, const std::string_view* text) const noexcept;

  /// Lists the entries in the order of their hashes: (hash, entry). Entries from count() on are
  /// tombstones. `words` receives the word of each entry.
  Status List(std::vector<std::pair<uint64_t, uint32_t>>* order,
              std::vector<uint64_t>* words) const;

  uint32_t count() const noexcept { return record_.count; }
  uint32_t tombstones() const noexcept { return record_.tombstones; }
  const char* row(uint32_t entry) const noexcept { return rows_ + uint64_t{entry} * stride_; }
  /// Reads the string key of an entry. Returns false if it is corrupt.
  bool Text(uint32_t entry, std::string_view* text) const noexcept;

 private:
  SectionRecord record_{};
  size_t stride_ = 0;
  size_t key_offset_ = 0;
  bool strings_ = false;
  const IndexLine* lines_ = nullptr;
  const char* rows_ = nullptr;
  const char* gone_ = nullptr;   ///< references of tombstones
  const char* texts_ = nullptr;  ///< the string area
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_BLOCK_H_
