// The table in memory: a hash map from keys to rows that grows while it is read, written and
// exported. TableBackend describes its verbs, threads and errors. Moreover:
//
//  - Clear, Reserve and ShrinkToFit wait for running verbs, shard by shard. Adding slots (the first
//    Apply of an optimizer) waits once for all shards.
//  - Rows move only in ShrinkToFit and when slots are added.
#ifndef DE_CORE_ENGINE_TABLE_H_
#define DE_CORE_ENGINE_TABLE_H_

#include <array>
#include <atomic>
#include <bitset>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/object_pool.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/gradient_sum.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/policy/row_policy.h"
#include "de_core/cc/engine/policy/row_rank.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/engine/table/lookup_plan.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

enum class FindKind;
class TableGate;
struct Ignored;
template <typename Width>
struct PlainRows;
struct WriteTouches;

class Table final : public TableBackend {
 public:
  static Status Create(TableOptions options, std::unique_ptr<Table>* table);
  ~Table() override;

  /// Like FindToTrain, but remembers nothing.
  Status Find(const Keys& keys, const ValuesOut& out, bool* found,
              Executor* executor) const override;

  /// If updates of the same keys have usually followed lookups, remembers where the rows are
  /// (LookupPlan), so that Apply need not find them again.
  Status FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                     Executor* executor) const override;

  Status FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found,
                      Executor* executor) override;
  Status InsertOrAssign(const Keys& keys, const Values& values, Executor* executor) override;
  Status AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                       Executor* executor) override;
  Status Apply(const OptimizerRule& rule, const std::string& owner,
               const std::vector<double>& hyper, const Keys& keys, const void* grads,
               Executor* executor, const double* average_momentum = nullptr) override;
  Status Erase(const Keys& keys, Executor* executor) override;
  /// Erases rows that a tier keeps. A delta lists only those keys whose rows changed.
  Status MoveOut(const Keys& keys, Executor* executor);
  Status LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                  Executor* executor) override;
  Status FindSlot(const std::string& owner, const std::string& name, size_t bytes, const Keys& keys,
                  char* out, bool* found) const override;
  Status AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                    const Keys& keys, const char* values) override;
  Status Touch(const Keys& keys) override;

  /// Copies the rows of one index segment.
  Status ExportBatch(ExportCursor* cursor, RowBatch* batch) const override;

  /// Erases every row for which `predicate(word, row)` holds. `erased`, which may be nullptr,
  /// receives the number of erased rows. `word` is the integer key, or the hash of the string key.
  Status EraseIf(const std::function<bool(uint64_t word, const char* row)>& predicate,
                 uint64_t* erased);

  /// Where a search for cool rows goes on: a hash per shard, and the next shard. It takes the
  /// shards in turn. If it took one shard after another, each would first grow and then shrink, and
  /// keep the memory of its most rows.
  struct ClockHand {
    std::array<uint64_t, kShards> next{};
    uint32_t shard = 0;
    /// Shards whose end was reached. CopyCool leaves them out, so that no row comes twice until the
    /// caller resets this.
    std::bitset<kShards> ended;
  };
  /// Copies at most `most` rows that are lowest in column `by`, and at most the fraction `part`,
  /// among some thousand rows, and moves the hand on. `batch` receives the rows ascending by
  /// hash.
  Status CopyCool(RowColumn by, size_t most, double part, ClockHand* at, RowBatch* batch) const;

  Status Clear() override;
  Status Reserve(uint64_t rows) override;
  Status ShrinkToFit() override;
  Status EnsureSlots(const std::string& owner, const std::vector<SlotSpec>& specs) override;
  Status DropSlots(const std::string& owner) override;
  Status TakeAverages(const std::string& owner) override;
  Status RankCandidates(RowColumn by, const Candidates& wanted,
                        std::vector<RowRank>* rows) const override;
  Status EvictBelow(RowColumn by, const RowRank& kept, uint64_t* evicted) override;
  Status EvictExpired(uint64_t* evicted) override;
  EvictedKeys& evicted_keys() noexcept override { return policy_.evicted_keys; }
  Status SetInitializer(const InitializerOptions& options) override;

  uint64_t size() const noexcept override;
  /// Bytes of the strings that rows refer to, with the arena's overhead.
  uint64_t string_bytes() const noexcept;
  TableStats Stats() const override;
  const TableOptions& options() const noexcept override { return options_; }
  InitializerOptions initializer() const override;
  RowLayout layout() const override;

  /// Defined with SaveSource, in the folder `save`, which uses this folder.
  std::unique_ptr<RowSource> NewRowSource() override;
  int64_t MarkUses() noexcept override {
    return policy_.count_reads() ? policy_.BeginWrite().micros : 0;
  }
  SaveChains& chains() noexcept override { return *chains_; }
  void SaveState(std::map<std::string, std::string>* metadata) const override;
  void LoadSteps(const std::map<std::string, std::string>& metadata) override;
  Status LoadCounts(const std::map<std::string, std::string>& metadata, uint32_t shard_index = 0,
                    uint32_t shard_count = 1) override;

 private:
  friend class SaveSource;
  friend class TableGate;

  explicit Table(TableOptions options);

  /// Working memory of one verb. Later verbs reuse it, so that an optimizer step allocates nothing.
  struct Scratch {
    Partition partition;
    std::vector<uint32_t> positions;  ///< 0, 1, 2 …
    /// One per running task. The next task gets the last one that was returned, because it is still
    /// in the cache.
    ObjectPool<GradientSum> sums;
  };

  Status Prepare(const Keys& keys) const;
  Status Step(const OptimizerRule& rule, const std::string& owner,
              const std::vector<SlotSpec>& specs, const std::vector<double>& hyper,
              const Keys& keys, const void* grads, Executor* executor,
              const double* average_momentum);
  Status EraseKeys(const Keys& keys, bool moved, Executor* executor);
  Status CheckColumn(RowColumn column) const;
  uint64_t RowsTooMany() const noexcept;
  void Relayout(RowLayout layout);
  void ShrinkIndexes();
  void MakeRoom();
  void SweepExpired(uint64_t rows);
  void AfterWrite(size_t keys);
  void EvictFromPart(uint64_t too_many, uint64_t* begin);
  template <typename Lock, typename Visit>
  void VisitRanked(const std::vector<RowRank>& ranked, const Visit& visit) const;
  void CopyTo(uint64_t word, const char* row, const std::string* texts, RowBatch* batch) const;
  template <typename Which>
  uint64_t EraseRows(const Which& which);
  template <typename Which>
  uint64_t EraseListed(Shard& shard, const std::vector<std::pair<uint64_t, uint32_t>>& rows,
                       const Which& which);
  template <typename Which>
  uint64_t EraseSegment(uint64_t* hash, const Which& which);
  template <typename Visit>
  uint64_t VisitRows(uint64_t first, const Visit& visit) const;
  template <typename OnRow>
  Status ForEachFound(const Keys& keys, bool write, const OnRow& on_row) const;
  template <typename Plain = PlainRows<void>, typename OnRow, typename OnRefused = Ignored,
            typename OnRelease = Ignored>
  Status UpdateRows(const Keys& keys, Executor* executor, const WriteTouches& touch,
                    const TableGate& gate, const OnRow& on_row, const OnRefused& on_refused = {},
                    const Plain& plain = {}, const OnRelease& on_release = {});
  template <typename PerShard>
  Status ForEachShard(const Keys& keys, Executor* executor, const PerShard& per_shard);
  template <FindKind kKind, typename Width>
  void FindRange(const Width& width, const Keys& keys, size_t begin, size_t end,
                 const ValuesOut& out, bool* found) const;
  template <FindKind kKind, bool kRecord = false, typename Width, typename Batch>
  size_t FindLocked(const Width& width, const Batch& batch, const Keys& keys, size_t begin,
                    size_t end, const ValuesOut& out, bool* found,
                    uint32_t* numbers = nullptr) const;
  template <typename Width>
  size_t FindGroup(const Width& width, const Keys& keys, uint32_t number, const ShardKeys& group,
                   const ValuesOut& out, bool* found, KnownKeys::OfShard* known) const;
  bool UseRow(char* row, const Stamp& now, bool used) const noexcept;
  void ReadStrings(const char* row, size_t position, const ValuesOut& out) const;
  void ReadRow(const char* row, size_t position, const ValuesOut& out) const;
  void ReadInitial(const IndexKey& key, size_t position, const ValuesOut& out) const;
  void WriteInitial(Shard& shard, const IndexKey& key, char* row) const;
  void WriteStrings(Shard& shard, const IndexKey& key, char* row, size_t position,
                    const Values& values, bool inserted) const;

  TableOptions options_;
  RowLayout layout_;
  RowPolicy policy_;
  std::unique_ptr<const Initializer> initializer_;
  Arena arena_;                                 ///< memory of all shards' rows and index lines
  std::vector<std::unique_ptr<Shard>> shards_;  // (kShards)
  /// Held while Clear removes all rows or while slots are added or dropped, because a running save
  /// must then start again. A save with `undisturbed` holds it to prevent that. Taken before all
  /// other locks.
  std::mutex replacing_lock_;
  /// guards layout_ and initializer_; every verb holds it as a reader
  mutable ShardLock layout_lock_;
  mutable std::atomic<uint64_t> hits_{0};
  mutable std::atomic<uint64_t> misses_{0};
  std::unique_ptr<SaveChains> chains_;
  mutable LookupPlan plan_;
  mutable ObjectPool<Scratch> scratch_{8};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_H_
