// The rows of a live table as a save reads them: a range of hashes at a time,
// while writers go on.
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

/// Only rows whose slot holds at least this much in its first element.
struct KeepRule {
  std::string owner, slot;
  double at_least = 0;
};

/// What of a table is saved.
struct SaveSelection {
  bool changes_only = false;
  uint64_t since = 0;          ///< generation of SaveChains, with changes_only
  int64_t used_since = 0;      ///< above 0: rows that were looked up since then changed, too
  const Keys* keys = nullptr;  ///< only these, where set
  std::vector<KeepRule> keep;  ///< rows must satisfy all
};

class SaveSource {
 public:
  /// A range of hashes that makes a section of the file, or a few.
  struct Range {
    uint64_t begin;
    uint64_t last;
    uint64_t step;  ///< hashes, less one, that a piece of a range not listed covers
    bool listed;    ///< its keys are known: list[first, end)
    size_t first;
    size_t end;
  };

  /// `table` outlives the source.
  explicit SaveSource(Table* table) : table_(table) {}
  ~SaveSource() { End(); }
  SaveSource(const SaveSource&) = delete;
  SaveSource& operator=(const SaveSource&) = delete;

  /// Fixes the layout and plans the ranges; with `held_bytes` > 0 also fixes
  /// the moment that all rows will be of, for which it waits for the verbs
  /// under way. `undisturbed`: what would outdate the source waits until End,
  /// which the same thread must call.
  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed = false);

  /// Ascending, without overlap.
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

  /// Adds the first rows of `range` to `rows`, and moves its begin behind them:
  /// a piece of so few that a writer who waits for them hardly notices. `last`
  /// receives the last hash that was covered, `done` whether that was all. The
  /// ranges are collected in order, by one thread. FailedPrecondition where the
  /// save must begin anew.
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done);

  /// Frees the copies of shards that were collected, and lets their writers
  /// watch no more.
  void FreeCollected() noexcept;

  /// The moment will be lost if the rest is not collected soon.
  bool urgent() const noexcept { return budget_ != nullptr && budget_->bytes > budget_->limit / 4; }

  /// Lets go of the moment.
  void End() noexcept;

  const RowLayout& layout() const noexcept { return layout_; }
  const InitializerOptions& initializer() const noexcept { return initializer_; }
  /// With changes_only: what changed is not known, so all rows are in and no
  /// others are left.
  bool everything() const noexcept { return everything_; }
  /// The table was cleared or got slots meanwhile: begin anew.
  bool outdated() const noexcept;
  double longest_hold_seconds() const noexcept { return 1e-9 * static_cast<double>(hold_nanos_); }
  uint64_t held_peak() const noexcept { return budget_ == nullptr ? 0 : budget_->peak.load(); }

 private:
  using Entry = SavedRows::Entry;
  /// A key to look for.
  struct Listed {
    uint64_t hash = 0;
    uint64_t word = 0;
    const std::string* erased_text = nullptr;  ///< of an erased string key, in `erased_texts_`
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
  /// Takes entries until rows have enough bytes; returns the last hash they
  /// cover.
  uint64_t TakeAll(std::vector<Entry>* entries, uint64_t last, SavedRows* rows) const;
  void Take(const Entry& entry, SavedRows* rows) const;
  /// Takes the row, or a tombstone where it shall not be in the file.
  void TakeKept(const Entry& entry, SavedRows* rows) const;
  void TakeGone(uint64_t word, std::string_view text, SavedRows* rows) const;
  void TakeGone(const Listed& erased, SavedRows* rows) const;
  /// Whether a listed key has a row.
  bool IsThere(const Shard& shard, const Listed& listed) const;

  Table* table_;
  std::unique_lock<std::mutex> replacing_;  ///< the table's, where nothing may outdate the source
  RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  InitializerOptions initializer_;
  SaveSelection selection_;
  std::vector<Keep> keep_;
  std::vector<Range> ranges_;
  std::vector<Listed> list_;  ///< ascending by hash
  std::deque<std::string> erased_texts_;
  std::vector<bool> by_bits_;          ///< by shard: scanned for changed rows
  std::vector<std::string> selected_;  ///< the wanted string keys, sorted
  std::unique_ptr<HeldBudget> budget_;
  size_t most_held_ = 0;  ///< bytes of copies of all rows
  bool everything_ = false;
  bool holding_ = false;  ///< the shards' held rows are this save's
  uint32_t let_go_ = 0;   ///< but for the first so many
  mutable std::atomic<uint64_t> hold_nanos_{0};
  mutable std::atomic<bool> relaid_{false};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_SOURCE_H_
