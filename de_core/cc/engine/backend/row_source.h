// Reads the rows of a table for a save: one range of hashes at a time, in ascending order, while
// other threads write to the table.
#ifndef DE_CORE_ENGINE_ROW_SOURCE_H_
#define DE_CORE_ENGINE_ROW_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/saved_rows.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// Saves only rows whose first element of slot `slot` is at least `at_least`. `owner` is the slot's
/// optimizer, or kMetadataOwner for a metadata column.
struct KeepRule {
  std::string owner, slot;
  double at_least = 0;
};

/// Selects the part of a table that is saved.
struct SaveSelection {
  bool changes_only = false;
  /// with changes_only: the first generation (SaveChains::Cut) to save
  uint64_t since = 0;
  uint64_t current = 0;  ///< with changes_only: the generation that began with this save
  /// if above 0, a time in microseconds: rows looked up since then count as changed too
  int64_t used_since = 0;
  const Keys* keys = nullptr;  ///< if set, save only these keys
  std::vector<KeepRule> keep;  ///< save only rows that satisfy all these rules
};

/// The rows of one save. The table must outlive the source. The destructor calls End.
class RowSource {
 public:
  /// A range of hashes. Its rows become one or a few sections of the file.
  struct Range {
    uint64_t begin;
    uint64_t last;
    uint64_t step;  ///< if not `listed`: number of hashes to collect per piece, minus one
    bool listed;    ///< true if the keys to save are known: those numbered `first` to `end` - 1
    size_t first;
    size_t end;
  };

  RowSource() = default;
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  /// Remembers the table's layout and plans the ranges. With `held_bytes` > 0, waits for running
  /// verbs, and all rows are then saved as they are at this moment: writers first copy rows that
  /// are not saved yet, and the copies may take `held_bytes`. With `undisturbed`, Clear and adding
  /// or dropping slots wait until End, which the thread that called Begin must call.
  virtual Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed) = 0;

  /// The planned ranges, in ascending order of hashes. They do not overlap.
  virtual const std::vector<Range>& ranges() const noexcept = 0;

  /// Appends the first rows of `range` to `rows`, and advances the beginning of the range past
  /// them. Copies so few rows that it hardly delays a writer. `last` receives the last hash
  /// covered, `done` whether the range is finished. One thread must collect the ranges in order.
  /// Returns FailedPrecondition if the save must start again, and ResourceExhausted if the copies
  /// need more than `held_bytes`.
  virtual Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) = 0;

  /// Frees the copies of rows that the save no longer needs, because their part of the table is
  /// collected.
  virtual void FreeCollected() noexcept = 0;

  /// True if the copies of rows take more than a quarter of their limit. The save fails at the
  /// limit, so it should hurry.
  virtual bool urgent() const noexcept = 0;

  /// Frees all copies of rows. From now on, writers copy nothing for this save.
  virtual void End() noexcept = 0;

  virtual const RowLayout& layout() const noexcept = 0;
  virtual const InitializerOptions& initializer() const noexcept = 0;
  /// With changes_only, true if the table does not know which rows changed. Then all rows are
  /// included, and the file replaces all earlier files.
  virtual bool everything() const noexcept = 0;
  /// True if, since Begin, the table was cleared or slots were added or dropped. The save must then
  /// start again.
  virtual bool outdated() const noexcept = 0;
  /// Longest time, in seconds, that the save made a writer wait for a lock.
  virtual double longest_hold_seconds() const noexcept = 0;
  /// Greatest number of bytes that the copies of changed rows used.
  virtual uint64_t held_peak() const noexcept = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_SOURCE_H_
