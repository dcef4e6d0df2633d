// The rows of a tiered table that are not in memory.
#ifndef DE_CORE_ENGINE_COLD_ROWS_H_
#define DE_CORE_ENGINE_COLD_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// Where some rows are. The rows can be read until this is destroyed, as they were when they were
/// located.
struct LocatedRows {
  virtual ~LocatedRows() = default;
  std::vector<uint32_t> positions;  ///< Locate: ascending positions of the keys that have a row
  uint64_t hash_begin = 0;          ///< LocateRange: the range of hashes that is covered
  uint64_t hash_last = 0;
};

/// Keeps the newest row of each key. TieredTable locks: one thread at a time calls Stage; Locate,
/// LocateRange, AreNewest and Stats may run beside it. Commit, Erase, Clear and DropSlots exclude
/// all other calls, except Read and ReadRange. Only Stage, Read and ReadRange use the disk.
class ColdRows {
 public:
  virtual ~ColdRows() = default;

  /// Writes rows to the disk: ascending by hash, without repeated keys. Their keys keep their old
  /// rows until Commit. `rows` must live until then, or until Discard.
  virtual Status Stage(const RowBatch& rows) = 0;

  /// Lets the staged rows replace older rows of their keys, those that were staged last at last. If
  /// it fails, some keys have their staged rows.
  virtual Status Commit() = 0;

  /// Forgets the staged rows.
  virtual void Discard() noexcept = 0;

  /// Removes the rows of distinct keys.
  virtual Status Erase(const Keys& keys) = 0;

  /// Finds where the rows of distinct keys are.
  virtual Status Locate(const Keys& keys, Executor* executor,
                        std::unique_ptr<LocatedRows>* located) const = 0;

  /// Reads located rows and appends them to `rows`, converted to `layout`: slots that were added
  /// since get their initial values. `keys` are the located keys, and each must have its row.
  virtual Status Read(const Keys& keys, const LocatedRows& located, const RowLayout& layout,
                      Executor* executor, std::vector<char>* rows) const = 0;

  /// newest[i] receives whether located row i is its key's newest row still. `keys` are the located
  /// keys. May say false if the row was only moved.
  virtual Status AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const = 0;

  /// Finds where about `most` rows with hashes from `begin` to `last` are.
  virtual Status LocateRange(uint64_t begin, uint64_t last, size_t most,
                             std::unique_ptr<LocatedRows>* located) const = 0;

  /// Copies the rows of a located range into `batch`, ascending by hash, in the layout `layout`.
  virtual Status ReadRange(const LocatedRows& located, const RowLayout& layout,
                           RowBatch* batch) const = 0;

  /// Removes all rows, if `others`, which removes rows elsewhere, succeeds. If it fails, no row is
  /// removed.
  virtual Status Clear(const std::function<Status()>& others) = 0;

  /// Forgets an optimizer's slots: later reads return the initial values of slots of these names.
  virtual void DropSlots(const std::string& owner) = 0;

  /// Returns the numbers that the cold rows know: bytes on disk, reads, memory of filters.
  virtual TierStats Stats() const = 0;

  /// True if there is no row, and no key was erased.
  virtual bool empty() const noexcept = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_COLD_ROWS_H_
