// Reads the rows of a tiered table for a save. Hot and cold rows of a range of hashes are read at
// one moment, so a row that moves meanwhile is saved exactly once.
#ifndef DE_CORE_ENGINE_TIER_SOURCE_H_
#define DE_CORE_ENGINE_TIER_SOURCE_H_

#include <memory>
#include <mutex>
#include <vector>

#include "de_core/cc/engine/backend/row_source.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/save/kept_rows.h"
#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/tier/tiered_table.h"

namespace de::engine {

class TierSource final : public RowSource {
 public:
  /// `table` must outlive the source.
  explicit TierSource(TieredTable* table) : table_(table), hot_(table->hot_.get()) {}
  ~TierSource() override { End(); }

  /// FailedPrecondition with `held_bytes`: a tiered table cannot be saved as of one moment.
  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed) override;
  const std::vector<Range>& ranges() const noexcept override { return ranges_; }
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) override;
  void FreeCollected() noexcept override {}
  bool urgent() const noexcept override { return false; }
  void End() noexcept override;

  const RowLayout& layout() const noexcept override { return hot_.layout(); }
  const InitializerOptions& initializer() const noexcept override { return hot_.initializer(); }
  bool everything() const noexcept override { return hot_.everything(); }
  bool outdated() const noexcept override { return outdated_ || hot_.outdated(); }
  double longest_hold_seconds() const noexcept override { return hot_.longest_hold_seconds(); }
  uint64_t held_peak() const noexcept override { return 0; }

 private:
  void PlanAll();
  Status CollectAll(Range* range, SavedRows* rows, uint64_t* last, bool* done);
  Status CollectChanges(Range* range, SavedRows* rows, uint64_t* last, bool* done);
  void Add(uint64_t word, const char* row, const std::string_view* text, SavedRows* rows) const;

  TieredTable* table_;
  SaveSource hot_;  ///< for a delta, finds the changed keys
  SaveSelection selection_;
  KeptRows kept_;
  KeySet keys_;         ///< the keys of the selection
  RowBatch batch_;      ///< reused
  SavedRows hot_rows_;  ///< reused
  std::vector<Range> ranges_;
  std::unique_lock<std::mutex> replacing_;  ///< with `undisturbed`, the table's replacing_lock_
  bool outdated_ = false;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TIER_SOURCE_H_
