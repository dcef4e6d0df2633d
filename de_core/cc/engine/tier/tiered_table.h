// A table larger than memory: rows that are used are in memory (hot), the other rows elsewhere
// (cold).
//
//  - A verb that only reads takes hot rows as in a table in memory, and copies of cold rows. It
//    moves no row. A cache keeps the cold rows that it has read.
//  - Another verb on keys first moves their cold rows into memory, in one batch. A key without a
//    hot row is looked for among the cold rows before it is taken for new. If there is no memory
//    for the rows, other rows become cold: those written longest ago in the next parts of the
//    table, without the rows of the batch.
//  - A hot row may have an older cold copy. The hot row counts.
//
// Verbs that only read run at the same time. They find their rows in memory and on the disk under
// the lock, and read the disk without it. Other verbs run one after another, and have two parts.
// The first part reads and writes the disk, without the lock. The second part moves rows in memory
// and runs the verb, under the lock. So only writers wait while a writer uses the disk.
//
// A forked process cannot use the table: each verb returns an error there.
#ifndef DE_CORE_ENGINE_TIERED_TABLE_H_
#define DE_CORE_ENGINE_TIERED_TABLE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/fork_mark.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/table/shard_lock.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/missing_keys.h"
#include "de_core/cc/engine/tier/row_cache.h"

namespace de::engine {

class TieredTable final : public TableBackend {
 public:
  /// `memory_bytes` bounds the hot rows with their index, and the cache. One batch of keys may
  /// exceed the bound, until the next verb. `cold` must be empty. InvalidArgument for values of
  /// strings, and for policies that bound a table, expire rows or count lookups as uses.
  static Status Create(TableOptions options, uint64_t memory_bytes, std::unique_ptr<DiskRows> cold,
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
  EvictedKeys& evicted_keys() noexcept override { return hot_->evicted_keys(); }
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
  void LoadSteps(const std::map<std::string, std::string>& metadata) override {
    hot_->LoadSteps(metadata);
  }
  Status LoadCounts(const std::map<std::string, std::string>& metadata, uint32_t shard_index,
                    uint32_t shard_count) override {
    return hot_->LoadCounts(metadata, shard_index, shard_count);
  }

  /// True while any verb holds the table's lock. For tests.
  bool is_locked() const noexcept {
    return !std::unique_lock<ShardLock>(lock_, std::try_to_lock).owns_lock();
  }

 private:
  friend class TierSource;

  /// Cold rows of distinct keys: first those that the cache has, then those on the disk.
  struct ColdBatch {
    RowLayout layout{KeyType::kInt64, DType::kFloat32, 1};
    KeyList keys;                     ///< keys that have a cold row
    std::vector<uint32_t> positions;  ///< of `keys` among the keys that were looked for
    size_t cached = 0;                ///< number of rows that the cache has
    std::vector<char> rows;           // (keys, stride) of `layout`
    LocatedRows disk;                 ///< rows after the first `cached`

    /// The keys of the rows on the disk.
    Keys read_keys() const noexcept { return keys.keys().Slice(cached, positions.size() - cached); }
  };

  TieredTable(std::unique_ptr<Table> hot, uint64_t memory_bytes, std::unique_ptr<DiskRows> cold)
      : hot_(std::move(hot)),
        cold_(std::move(cold)),
        memory_bytes_(memory_bytes),
        cache_(memory_bytes / kCachePart) {}

  template <typename Verb>
  Status Run(const Verb& verb) const noexcept;
  template <typename Verb>
  Status Write(const Keys& keys, Executor* executor, const Verb& verb) noexcept;
  Status WriteHeld(const Keys& keys, Executor* executor, const std::function<Status()>& verb);
  Status PrepareMoves(const Keys& keys, Executor* executor, ColdBatch* incoming);
  Status StageRoom(uint64_t incoming, uint64_t most, const Keys& keys, const bool* is_hot);
  Status Move(const ColdBatch& incoming, Executor* executor);
  Status LocateCold(const Keys& keys, Executor* executor, ColdBatch* batch) const;
  Status ReadCold(Executor* executor, ColdBatch* batch) const;
  Status CacheRead(const ColdBatch& batch) const;
  template <typename Visit>
  Status VisitCold(std::shared_lock<ShardLock> hold, const Keys& keys, bool* found, bool with_rows,
                   Executor* executor, const Visit& visit) const;
  Status EraseRows(const Keys& keys, Executor* executor);
  Status ReadPart(uint64_t begin, RowBatch* batch) const;
  uint64_t HotRowsOf(size_t bytes) const noexcept;
  uint64_t MostHotRows(const Keys& incoming = {}) const;
  Status MakeRoomToChange(const RowLayout& changed);
  template <typename Visit>
  void ForEachRank(const RowBatch& batch, RowColumn by, const Visit& visit) const;

  /// The cache takes at most 1 / kCachePart of the memory.
  static constexpr uint64_t kCachePart = 8;
  /// Index of a hot row: its entry of a line that is partly full.
  static constexpr size_t kIndexBytesPerRow = 24;
  /// A shard keeps the memory of the most rows that it had. So hot rows have memory for up to 1 /
  /// kSparePart more rows.
  static constexpr uint64_t kSparePart = 32;
  /// At least so many rows usually become cold at once, so that writes to the disk are large.
  static constexpr uint64_t kLeastMoved = 1024;

  const std::unique_ptr<Table> hot_;
  const std::unique_ptr<DiskRows> cold_;
  const uint64_t memory_bytes_;
  /// Held while Clear removes all rows or while slots are added or dropped. A save with
  /// `undisturbed` holds it. Taken before lock_.
  std::mutex replacing_lock_;
  /// Held by a verb that may move rows, from its reads of the disk on. Taken before lock_.
  std::mutex writing_;
  /// Held while rows are found, and by a writer while it changes rows or says where they are. Never
  /// held while the disk is used. Lets a writer in before later readers.
  mutable ShardLock lock_;
  ForkMark fork_;
  std::atomic<uint64_t> rows_{0};  ///< keys with a hot or a cold row
  mutable RowCache cache_;
  std::deque<RowBatch> leaving_;  ///< rows that cold_ has staged, which become cold
  Table::ClockHand hand_;
  mutable std::atomic<uint64_t> hits_{0};
  mutable std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> evicted_{0};
  std::atomic<uint64_t> brought_in_{0};
  std::atomic<uint64_t> moved_out_{0};
};

/// Runs a verb, which returns a Status, in the process that made the table.
template <typename Verb>
Status TieredTable::Run(const Verb& verb) const noexcept {
  if (!fork_.forked()) return Guarded(verb);
  return FailedWith(Code::kFailedPrecondition,
                    "a table with a tier must be used in the process that made it; make a table in "
                    "the forked process, or start processes by spawn. Received: a verb in a forked "
                    "process");
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TIERED_TABLE_H_
