// The rows of a tiered table that are not in memory.
#ifndef DE_CORE_ENGINE_COLD_ROWS_H_
#define DE_CORE_ENGINE_COLD_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

/// Where the rows of some keys are. The rows can be read until this is destroyed, as they were when
/// they were located.
struct LocatedRows {
  virtual ~LocatedRows() = default;
  std::vector<uint32_t> positions;  ///< ascending positions of the keys that have a row
};

/// Keeps the newest row of each key. TieredTable locks: one thread at a time calls Stage; Locate,
/// AreNewest, Scan and Stats may run beside it. Commit, Erase, Clear and DropSlots exclude all
/// other calls, except Read.
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

  /// Finds where the rows of distinct keys are. Touches no disk.
  virtual Status Locate(const Keys& keys, Executor* executor,
                        std::unique_ptr<LocatedRows>* located) const = 0;

  /// Reads located rows and appends them to `rows`, converted to `layout`: slots that were added
  /// since get their initial values. Runs beside all other calls.
  virtual Status Read(const LocatedRows& located, const RowLayout& layout, Executor* executor,
                      std::vector<char>* rows) const = 0;

  /// newest[i] receives whether located row i is its key's newest row still. `keys` are the located
  /// keys. May say false if the row was only moved.
  virtual Status AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const = 0;

  /// Locates and reads the rows of distinct keys.
  Status Find(const Keys& keys, const RowLayout& layout, Executor* executor,
              FoundRows* found) const {
    std::unique_ptr<LocatedRows> located;
    DE_RETURN_IF_ERROR(Locate(keys, executor, &located));
    found->rows.clear();
    found->positions = std::move(located->positions);
    return Read(*located, layout, executor, &found->rows);
  }

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
