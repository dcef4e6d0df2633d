// A table larger than memory: rows that are used are in memory (hot), the other rows elsewhere
// (cold).
//
//  - A lookup reads hot rows as in a table in memory, and cold rows into its output. It moves no
//    row.
//  - Another verb on keys first moves their cold rows into memory, in one batch. A key without a
//    hot row is looked for among the cold rows before it is taken for new. If there is no memory
//    for the rows, other rows become cold first: those written longest ago in the next parts of the
//    table.
//  - A hot row may have an older cold copy. The hot row counts.
//
// Lookups and exports run at the same time. Other verbs run alone.
#ifndef DE_CORE_ENGINE_TIERED_TABLE_H_
#define DE_CORE_ENGINE_TIERED_TABLE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/table/shard_lock.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/engine/tier/cold_rows.h"
#include "de_core/cc/engine/tier/recent_reads.h"

namespace de::engine {

class TieredTable final : public TableBackend {
 public:
  /// `memory_bytes` bounds the hot rows with their index. One batch of keys may exceed the bound,
  /// until the next verb. `cold` must be empty. InvalidArgument for values of strings, and for
  /// policies that bound a table, expire rows or count lookups as uses.
  static Status Create(TableOptions options, uint64_t memory_bytes, std::unique_ptr<ColdRows> cold,
                       std::unique_ptr<TableBackend>* table);

  Status FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                     Executor* executor) const override;
  Status FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found,
                      Executor* executor) override;
  Status InsertOrAssign(const Keys& keys, const Values& values, Executor* executor) override;
  Status AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                       Executor* executor) override;
  Status Apply(const OptimizerRule& rule, const std::string& owner,
               const std::vector<double>& hyper, const Keys& keys, const void* grads,
               Executor* executor, const double* average_momentum) override;
  Status Erase(const Keys& keys, Executor* executor) override;
  Status LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                  Executor* executor) override;
  Status FindSlot(const std::string& owner, const std::string& name, size_t bytes, const Keys& keys,
                  char* out, bool* found) const override;
  Status AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                    const Keys& keys, const char* values) override;
  Status ReadColumn(RowColumn column, const Keys& keys, int64_t* values,
                    bool* found) const override;
  Status WriteColumn(RowColumn column, const Keys& keys, const int64_t* values) override;
  Status Touch(const Keys& keys) override;

  /// Merges hot and cold rows.
  Status ExportBatch(ExportCursor* cursor, RowBatch* batch) const override;

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
  Status SetInitializer(const InitializerOptions& options) override;

  uint64_t size() const noexcept override { return rows_.load(std::memory_order_relaxed); }
  TableStats Stats() const override;
  const TableOptions& options() const noexcept override { return hot_->options(); }
  InitializerOptions initializer() const override { return hot_->initializer(); }
  RowLayout layout() const override { return hot_->layout(); }

  std::unique_ptr<RowSource> NewRowSource() override;
  int64_t MarkUses() noexcept override { return hot_->MarkUses(); }
  SaveChains& chains() noexcept override { return hot_->chains(); }
  void SaveState(std::map<std::string, std::string>* metadata) const override {
    hot_->SaveState(metadata);
  }
  Status LoadState(const std::map<std::string, std::string>& metadata, uint32_t shard_index,
                   uint32_t shard_count) override {
    return hot_->LoadState(metadata, shard_index, shard_count);
  }

 private:
  friend class TierSource;

  /// Holds lock_ as a verb that may move rows. Forgets the rows that lookups have read.
  class WriteHold {
   public:
    explicit WriteHold(const TieredTable& table) : table_(table), hold_(table.lock_) {}
    ~WriteHold() { table_.recent_.Clear(); }
    WriteHold(const WriteHold&) = delete;
    WriteHold& operator=(const WriteHold&) = delete;

   private:
    const TieredTable& table_;
    std::lock_guard<ShardLock> hold_;
  };

  TieredTable(std::unique_ptr<Table> hot, uint64_t memory_bytes, std::unique_ptr<ColdRows> cold)
      : hot_(std::move(hot)),
        cold_(std::move(cold)),
        memory_bytes_(memory_bytes),
        recent_(memory_bytes / kRecentPart) {}

  Status Write(const Keys& keys, Executor* executor, const std::function<Status()>& verb) const;
  Status BringIn(const Keys& keys, Executor* executor) const;
  Status MakeRoom(uint64_t incoming, Executor* executor, bool* moved) const;
  Status EraseRows(const Keys& keys, Executor* executor);
  Status ReadMerged(uint64_t begin, RowBatch* batch) const;
  uint64_t MostHotRows() const;
  template <typename Visit>
  void ForEachRank(const RowBatch& batch, RowColumn by, const Visit& visit) const;

  /// The rows that lookups have read take at most this fraction of the memory.
  static constexpr uint64_t kRecentPart = 16;

  // A verb that only reads a slot or a column moves rows too, so it must be able to change the
  // members that tell where rows are.
  const std::unique_ptr<Table> hot_;
  const std::unique_ptr<ColdRows> cold_;
  const uint64_t memory_bytes_;
  /// Held while Clear removes all rows or while slots are added or dropped. A save with
  /// `undisturbed` holds it. Taken before lock_.
  std::mutex replacing_lock_;
  mutable ShardLock lock_;                 // lets a writer in before later readers
  mutable std::atomic<uint64_t> rows_{0};  ///< keys with a hot or a cold row
  mutable RecentReads recent_;
  mutable uint64_t next_part_ = 0;         ///< hash where the search for cool rows goes on
  mutable std::unique_ptr<bool[]> found_;  // (found_size_), reused
  mutable size_t found_size_ = 0;
  mutable std::atomic<uint64_t> hits_{0};
  mutable std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> evicted_{0};
  mutable std::atomic<uint64_t> brought_in_{0};
  mutable std::atomic<uint64_t> moved_out_{0};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TIERED_TABLE_H_
