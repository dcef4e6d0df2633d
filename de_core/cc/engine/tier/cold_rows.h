// The rows of a tiered table that are not in memory.
#ifndef DE_CORE_ENGINE_COLD_ROWS_H_
#define DE_CORE_ENGINE_COLD_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// Rows that were found for some keys of a batch.
struct FoundRows {
  std::vector<uint32_t> positions;  ///< ascending positions in the batch
  std::vector<char> rows;           // (positions, stride) of the layout that the caller named
};

/// Keeps the newest row of each key. TieredTable locks: one thread at a time calls Stage; Find,
/// Scan and Stats may run beside it. Commit, Erase, Clear and DropSlots exclude all other calls.
class ColdRows {
 public:
  virtual ~ColdRows() = default;

  /// Writes rows to the disk: ascending by hash, without repeated keys. Their keys keep their old
  /// rows until Commit. `rows` must live until then, or until Discard.
  virtual Status Stage(const RowBatch& rows) = 0;

  /// Lets the staged rows replace older rows of their keys, those that were staged last at last.
  /// Touches no disk. If it fails, some keys have their staged rows.
  virtual Status Commit() = 0;

  /// Forgets the staged rows.
  virtual void Discard() noexcept = 0;

  /// Stages and commits rows.
  Status Append(const RowBatch& rows) {
    Discard();
    DE_RETURN_IF_ERROR(Stage(rows));
    return Commit();
  }

  /// Removes the rows of distinct keys.
  virtual Status Erase(const Keys& keys) = 0;

  /// Finds the rows of distinct keys. Converts them to `layout`: slots that were added since get
  /// their initial values. With `with_rows` unset, finds only the positions.
  virtual Status Find(const Keys& keys, const RowLayout& layout, bool with_rows, Executor* executor,
                      FoundRows* found) const = 0;

  /// Copies about `most` rows with hashes from `begin` to `last` into `batch`, ascending by hash,
  /// in the layout `layout`. batch->hash_last receives the last hash that is covered.
  virtual Status Scan(uint64_t begin, uint64_t last, size_t most, const RowLayout& layout,
                      RowBatch* batch) const = 0;

  /// Removes all rows.
  virtual Status Clear() = 0;

  /// Forgets an optimizer's slots: later reads return the initial values of slots of these names.
  virtual void DropSlots(const std::string& owner) = 0;

  /// Returns the numbers that the cold rows know: bytes on disk, reads, memory of filters.
  virtual TierStats Stats() const = 0;

  /// True if there is no row, and no key was erased.
  virtual bool empty() const noexcept = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_COLD_ROWS_H_
