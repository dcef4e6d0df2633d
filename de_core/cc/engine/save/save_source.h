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

#include "de_core/cc/engine/backend/row_source.h"
#include "de_core/cc/engine/rows/before_images.h"
#include "de_core/cc/engine/save/kept_rows.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

class SaveSource final : public RowSource {
 public:
  /// `table` must outlive the source.
  explicit SaveSource(Table* table) : table_(table) {}
  ~SaveSource() override { End(); }

  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed = false) override;
  const std::vector<Range>& ranges() const noexcept override { return ranges_; }
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) override;
  void FreeCollected() noexcept override;
  bool urgent() const noexcept override {
    return budget_ != nullptr && budget_->bytes > budget_->limit / 4;
  }
  void End() noexcept override;

  const RowLayout& layout() const noexcept override { return layout_; }
  const InitializerOptions& initializer() const noexcept override { return initializer_; }
  bool everything() const noexcept override { return everything_; }
  bool outdated() const noexcept override;
  double longest_hold_seconds() const noexcept override {
    return 1e-9 * static_cast<double>(hold_nanos_);
  }
  uint64_t held_peak() const noexcept override {
    return budget_ == nullptr ? 0 : budget_->peak.load();
  }

 private:
  using Entry = SavedRows::Entry;
  /// A key whose row is saved, or whose erasure is.
  struct Listed {
    uint64_t hash = 0;
    uint64_t word = 0;
    /// the bytes of an erased string key; otherwise nullptr
    const std::string* erased_text = nullptr;
  };
  class Hold;

  void PlanKeys();
  void PlanChanges(uint32_t shard);
  void PlanUniform(uint32_t shard);
  void PlanList(size_t first);
  size_t RowsARange() const noexcept;
  size_t RowsAHold() const noexcept;
  Status Lost() const;
  void LetGo(Shard& shard) noexcept;
  bool IsSelected(const Entry& entry) const;
  std::string_view KeyOf(const Entry& entry) const;
  void Scan(Range* range, SavedRows* rows, uint64_t* last, bool* done) const;
  void LookUp(Range* range, SavedRows* rows, uint64_t* last, bool* done) const;
  void Gather(const Shard& shard, uint64_t hash, uint64_t word, std::vector<Entry>* entries) const;
  /// Appends the rows of `entries` to `rows`, until all are appended or `rows` has enough bytes.
  /// Returns the last hash that is covered.
  uint64_t TakeAll(std::vector<Entry>* entries, uint64_t last, SavedRows* rows) const;
  /// Appends the row, or if the keep rules exclude it and the file is a delta, a tombstone.
  void TakeKept(const Entry& entry, SavedRows* rows) const;
  void TakeGone(uint64_t word, std::string_view text, SavedRows* rows) const;
  /// Appends tombstones of the keys of `erased`, and of those erased since the save began, that
  /// have no row. The hashes of all of them are in [begin, last].
  void TakeErased(const Shard& shard, uint64_t begin, uint64_t last, std::vector<Listed> erased,
                  SavedRows* rows) const;
  /// True if the listed key has a row.
  bool IsThere(const Shard& shard, const Listed& listed) const;

  Table* table_;
  std::unique_lock<std::mutex> replacing_;  ///< with `undisturbed`, the table's replacing_lock_
  RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  InitializerOptions initializer_;
  SaveSelection selection_;
  KeptRows kept_;
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
