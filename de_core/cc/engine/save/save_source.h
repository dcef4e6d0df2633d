// Reads the rows of a live table for a save: one range of hashes at a time, while writers continue.
#ifndef DE_CORE_ENGINE_SAVE_SOURCE_H_
#define DE_CORE_ENGINE_SAVE_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/rows/pre_images.h"
#include "de_core/cc/engine/save/saved_rows.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Keeps only rows whose slot is at least this large in its first element.
struct KeepRule {
  std::string owner, slot;
  double at_least = 0;
};

/// Selects the part of a table that is saved.
struct SaveSelection {
  bool changes_only = false;
  uint64_t since = 0;          ///< with changes_only: the first generation of changes to save
  int64_t used_since = 0;      ///< if above 0, rows looked up since then count as changed too
  const Keys* keys = nullptr;  ///< if set, save only these keys
  std::vector<KeepRule> keep;  ///< rows must satisfy all
};

class SaveSource {
 public:
  /// A range of hashes that becomes one or a few sections of the file.
  struct Range {
    uint64_t begin;
    uint64_t last;
    uint64_t step;  ///< for a range without a list: hashes per piece, minus one
    bool listed;    ///< true if the range's keys are known: list[first, end)
    size_t first;
    size_t end;
  };

  /// `table` must outlive the source.
  explicit SaveSource(Table* table) : table_(table) {}
  ~SaveSource() { End(); }
  SaveSource(const SaveSource&) = delete;
  SaveSource& operator=(const SaveSource&) = delete;

  /// Fixes the layout and plans the ranges. With `held_bytes` > 0, waits for running verbs, and all
  /// rows are then saved as they are at this moment. With `undisturbed`, operations that would
  /// make the source obsolete wait until End, which the same thread must call.
  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed = false);

  /// Ascending and disjoint.
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

  /// Appends a piece, the first rows of `range`, to `rows`, and advances the range's begin past
  /// them. A piece is so small that it hardly delays a writer. `last` receives the last hash of the
  /// piece, `done` whether the range is finished. One thread must collect the ranges in order.
  /// Returns FailedPrecondition if the save must be repeated.
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done);

  /// Frees the copies of collected shards and removes the shards' observers.
  void FreeCollected() noexcept;

  /// True if copies of rows have nearly reached their limit. The save fails at the limit.
  bool urgent() const noexcept { return budget_ != nullptr && budget_->bytes > budget_->limit / 4; }

  /// Frees all copies and ends a consistent save's moment.
  void End() noexcept;

  const RowLayout& layout() const noexcept { return layout_; }
  const InitializerOptions& initializer() const noexcept { return initializer_; }
  /// With changes_only, true if the changes are unknown. Then all rows are included, and the file
  /// replaces all earlier files.
  bool everything() const noexcept { return everything_; }
  /// True if the table was cleared or its slots changed meanwhile. The save must then start again.
  bool outdated() const noexcept;
  double longest_hold_seconds() const noexcept { return 1e-9 * static_cast<double>(hold_nanos_); }
  uint64_t held_peak() const noexcept { return budget_ == nullptr ? 0 : budget_->peak.load(); }

 private:
  using Entry = SavedRows::Entry;
  /// A key to find.
  struct Listed {
    uint64_t hash = 0;
    uint64_t word = 0;
    /// for an erased string key, its bytes in `erased_texts_`
    const std::string* erased_text = nullptr;
  };
  struct Keep {
    size_t offset;
    DType dtype;
    double at_least;
  };
  class Hold;

  Status PlanKeep();
  void PlanKeys();
  void PlanChanges(uint32_t shard);
  void PlanUniform(uint32_t shard);
  void PlanList(size_t first);
  size_t RowsARange() const noexcept;
  size_t RowsAHold() const noexcept;
  bool SameLayout() const;
  Status Lost() const;
  void LetGo(Shard& shard) noexcept;
  bool IsKept(const char* row) const;
  bool IsSelected(const Entry& entry) const;
  std::string_view KeyOf(const Entry& entry) const;
  void Scan(Range* range, SavedRows* rows, uint64_t* last, bool* done) const;
  void LookUp(Range* range, SavedRows* rows, uint64_t* last, bool* done) const;
  void Gather(const Shard& shard, uint64_t hash, uint64_t word, std::vector<Entry>* entries) const;
  /// Takes entries until `rows` has enough bytes. Returns the last hash covered.
  uint64_t TakeAll(std::vector<Entry>* entries, uint64_t last, SavedRows* rows) const;
  void Take(const Entry& entry, SavedRows* rows) const;
  /// Takes the row, or a tombstone if the row must not be in the file.
  void TakeKept(const Entry& entry, SavedRows* rows) const;
  void TakeGone(uint64_t word, std::string_view text, SavedRows* rows) const;
  void TakeGone(const Listed& erased, SavedRows* rows) const;
  /// True if a listed key has a row.
  bool IsThere(const Shard& shard, const Listed& listed) const;

  Table* table_;
  std::unique_lock<std::mutex> replacing_;  ///< the table's lock, with `undisturbed`
  RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  InitializerOptions initializer_;
  SaveSelection selection_;
  std::vector<Keep> keep_;
  std::vector<Range> ranges_;
  std::vector<Listed> list_;  ///< ascending by hash
  std::deque<std::string> erased_texts_;
  std::vector<bool> by_bits_;          ///< per shard: whether to scan it for changed rows
  std::vector<std::string> selected_;  ///< the selected string keys, sorted
  std::unique_ptr<HeldBudget> budget_;
  size_t most_held_ = 0;  ///< bytes of copies of all rows
  bool everything_ = false;
  bool holding_ = false;  ///< this save owns the shards' copies
  uint32_t let_go_ = 0;   ///< number of shards whose copies were freed
  mutable std::atomic<uint64_t> hold_nanos_{0};
  mutable std::atomic<bool> relaid_{false};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_SOURCE_H_
