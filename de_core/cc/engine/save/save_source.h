// Reads the rows of a table in memory for a save: one range of hashes at a time, while other
// threads write to the table.
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

#include "de_core/cc/engine/backend/saved_rows.h"
#include "de_core/cc/engine/rows/pre_images.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"
#include "de_core/cc/engine/table/table.h"

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
  /// with changes_only: the generation (SaveChains::Cut) from which on changes are saved
  uint64_t since = 0;
  /// if above 0, a time in microseconds: rows looked up since then count as changed too
  int64_t used_since = 0;
  const Keys* keys = nullptr;  ///< if set, save only these keys
  std::vector<KeepRule> keep;  ///< save only rows that satisfy all these rules
};

class SaveSource {
 public:
  /// A range of hashes. Its rows become one or a few sections of the file.
  struct Range {
    uint64_t begin;
    uint64_t last;
    uint64_t step;  ///< if not `listed`: number of hashes to collect per piece, minus one
    bool listed;    ///< true if the keys to save are known: list_[first, end)
    size_t first;
    size_t end;
  };

  /// `table` must outlive the source.
  explicit SaveSource(Table* table) : table_(table) {}
  ~SaveSource() { End(); }
  SaveSource(const SaveSource&) = delete;
  SaveSource& operator=(const SaveSource&) = delete;

  /// Remembers the table's layout and plans the ranges. With `held_bytes` > 0, waits for running
  /// verbs, and all rows are then saved as they are at this moment: writers first copy rows that
  /// are not saved yet, and the copies may take `held_bytes`. With `undisturbed`, Clear and adding
  /// or dropping slots wait until End, which the thread that called Begin must call.
  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed = false);

  /// The planned ranges, in ascending order of hashes. They do not overlap.
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

  /// Appends the first rows of `range` to `rows`, and advances the beginning of the range past
  /// them. Copies so few rows that it hardly delays a writer. `last` receives the last hash
  /// covered, `done` whether the range is finished. One thread must collect the ranges in order.
  /// Returns FailedPrecondition if the save must start again, and ResourceExhausted if the copies
  /// need more than `held_bytes`.
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done);

  /// Frees the copies of rows in shards whose rows are all collected, and removes these shards'
  /// observers.
  void FreeCollected() noexcept;

  /// True if the copies of rows take more than a quarter of their limit. The save fails at the
  /// limit, so it should hurry.
  bool urgent() const noexcept { return budget_ != nullptr && budget_->bytes > budget_->limit / 4; }

  /// Frees all copies of rows. From now on, writers copy nothing for this save.
  void End() noexcept;

  const RowLayout& layout() const noexcept { return layout_; }
  const InitializerOptions& initializer() const noexcept { return initializer_; }
  /// With changes_only, true if the table does not know which rows changed. Then all rows are
  /// included, and the file replaces all earlier files.
  bool everything() const noexcept { return everything_; }
  /// True if, since Begin, the table was cleared or slots were added or dropped. The save must then
  /// start again.
  bool outdated() const noexcept;
  double longest_hold_seconds() const noexcept { return 1e-9 * static_cast<double>(hold_nanos_); }
  uint64_t held_peak() const noexcept { return budget_ == nullptr ? 0 : budget_->peak.load(); }

 private:
  using Entry = SavedRows::Entry;
  /// A key whose row is saved, or whose erasure is.
  struct Listed {
    uint64_t hash = 0;
    uint64_t word = 0;
    /// the bytes of an erased string key, in `erased_texts_`; otherwise nullptr
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
  /// Appends the rows of `entries` to `rows`, until all are appended or `rows` has enough bytes.
  /// Returns the last hash that is covered.
  uint64_t TakeAll(std::vector<Entry>* entries, uint64_t last, SavedRows* rows) const;
  void Take(const Entry& entry, SavedRows* rows) const;
  /// Appends the row, or if the keep rules exclude it and the file is a delta, a tombstone.
  void TakeKept(const Entry& entry, SavedRows* rows) const;
  void TakeGone(uint64_t word, std::string_view text, SavedRows* rows) const;
  void TakeGone(const Listed& erased, SavedRows* rows) const;
  /// True if the listed key has a row.
  bool IsThere(const Shard& shard, const Listed& listed) const;

  Table* table_;
  std::unique_lock<std::mutex> replacing_;  ///< with `undisturbed`, the table's replacing_lock_
  RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  InitializerOptions initializer_;
  SaveSelection selection_;
  std::vector<Keep> keep_;
  std::vector<Range> ranges_;
  std::vector<Listed> list_;  ///< ascending by hash
  std::deque<std::string> erased_texts_;
  /// per shard: true if it is scanned for changed rows, instead of listing them
  std::vector<bool> by_bits_;
  std::vector<std::string> selected_;  ///< selection_.keys if they are strings, sorted
  std::unique_ptr<HeldBudget> budget_;
  size_t most_held_ = 0;  ///< bytes that copies of all rows would take
  bool everything_ = false;
  bool holding_ = false;  ///< this save has observers in the shards, which copy rows
  uint32_t let_go_ = 0;   ///< number of shards whose copies were freed
  mutable std::atomic<uint64_t> hold_nanos_{0};
  mutable std::atomic<bool> relaid_{false};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_SOURCE_H_
