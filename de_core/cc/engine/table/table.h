// The table: a hash map from keys to rows that grows while it is read, written and exported.
//
// Threads. All verbs are thread-safe.
//  - Reads and writes of a row are atomic: no verb sees a partial write of a row's value, or of a
//    row's value and slots together.
//  - A batch is not a transaction: other verbs may run between two of its rows.
//  - Within one batch, several writes to one key take effect in the order of the batch.
//  - ExportBatch visits every row that exists throughout an enumeration exactly once. Rows that are
//    inserted or erased meanwhile are visited at most once.
//  - Clear, Reserve and ShrinkToFit wait for running verbs, shard by shard. Adding slots (the first
//    Apply of an optimizer) waits once for all shards. Adding slots, dropping slots and Clear also
//    wait for a save with `undisturbed`.
// The table never exposes addresses of rows. Rows move only in ShrinkToFit and when slots are
// added.
//
// Errors. No verb throws or aborts. A verb with invalid arguments changes nothing. A verb on a
// batch that runs out of memory may have applied a part of the batch. Then each row has either its
// old or its new contents. Reserve, ShrinkToFit, and adding or dropping slots change no row if they
// fail.
#ifndef DE_CORE_ENGINE_TABLE_H_
#define DE_CORE_ENGINE_TABLE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
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
#include "de_core/cc/engine/table/lookup_memo.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

struct TableOptions {
  KeyType key_type = KeyType::kInt64;
  DType value_dtype = DType::kFloat32;
  size_t dim = 1;          ///< values per row, 1 to kMaxDim
  uint64_t init_size = 0;  ///< number of rows to reserve memory for when the table is created
  InitializerOptions initializer;  ///< computes what a lookup returns for a key without a row
  RowPolicyOptions policy;         ///< admission, eviction and metadata
};

/// Greatest number of rows in a table: each shard numbers its rows with 32 bits.
inline constexpr uint64_t kMaxRows = uint64_t{kShards} * 0xffff0000;

struct TableStats {
  uint64_t rows = 0;
  uint64_t index_bytes = 0;
  uint64_t row_bytes = 0;     ///< values, padding and string references
  uint64_t slot_bytes = 0;    ///< optimizer slots
  uint64_t string_bytes = 0;  ///< arena of string keys and values
  uint64_t free_bytes = 0;    ///< memory reserved for future rows and index lines
  double load_factor = 0;     ///< rows divided by entries of the index, used or free
  uint64_t hits = 0;          ///< keys looked up that had a row
  uint64_t misses = 0;        ///< keys looked up that had none
  uint64_t policy_bytes = 0;  ///< memory of the admission policy, which counts keys without a row
  uint64_t evicted = 0;       ///< rows evicted by the policy since the table was created
  uint64_t expired = 0;       ///< the evicted rows that had expired
  uint64_t refused = 0;       ///< writes that the admission policy refused
  /// element i: number of rows whose key is in the (i + 1)-th index line that a lookup visits; the
  /// last element counts all later lines too. Estimated from a sample if there are many rows.
  std::vector<uint64_t> probes;
};

enum class FindKind;
class SaveChains;
class TableGate;
struct Ignored;
template <typename Width, bool kWatch>
struct PlainRows;
struct WriteTouches;

class Table {
 public:
  static Status Create(TableOptions options, std::unique_ptr<Table>* table);
  ~Table();

  /// Reads rows: out[i] is the row of keys[i], or the initial row of a key without a row. found[i]
  /// tells whether keys[i] has a row; `found` (keys.size) may be nullptr.
  Status Find(const Keys& keys, const ValuesOut& out, bool* found, Executor* executor) const;

  /// Like Find. If updates of the same keys have usually followed lookups, it also remembers where
  /// the rows are (LookupMemo), so that Apply need not find them again.
  Status FindToTrain(const Keys& keys, const ValuesOut& out, bool* found, Executor* executor) const;

  /// Like Find, but also stores the initial row of every key without a row.
  Status FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found, Executor* executor);

  Status Contains(const Keys& keys, bool* found, Executor* executor) const;

  /// Writes rows. If a key occurs several times, its last row wins. Existing rows keep their slots.
  Status InsertOrAssign(const Keys& keys, const Values& values, Executor* executor);

  /// Adds `values - old_values` to existing rows, or `values` if `old_values` is nullptr. For a key
  /// without a row, `values` becomes the row. `values` and `old_values` are (keys.size, dim) of the
  /// table's dtype.
  Status AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                       Executor* executor);

  /// Runs one optimizer step: sums the gradients of equal keys, then updates each key's row once.
  /// `grads` is (keys.size, dim) of floats, or of doubles for float64 rows. `hyper` are the
  /// settings of `rule`. Adds the slots of `owner`, the optimizer, if they do not exist yet. With
  /// `average_momentum`, also updates a moving average of the row in a slot.
  Status Apply(const OptimizerRule& rule, const std::string& owner,
               const std::vector<double>& hyper, const Keys& keys, const void* grads,
               Executor* executor, const double* average_momentum = nullptr);

  Status Erase(const Keys& keys, Executor* executor);

  /// Erases every row for which `predicate(word, row)` holds. `erased`, which may be nullptr,
  /// receives the number of erased rows. `word` is the integer key, or the hash of the string key.
  Status EraseIf(const std::function<bool(uint64_t word, const char* row)>& predicate,
                 uint64_t* erased);

  Status Clear();
  /// Reserves space for `rows` rows in total, at most kMaxRows.
  Status Reserve(uint64_t rows);
  Status ShrinkToFit();

  /// Adds those of an optimizer's slots that do not exist yet. Existing rows get the slots' initial
  /// values.
  Status EnsureSlots(const std::string& owner, const std::vector<SlotSpec>& specs);

  /// Updates the metadata of the rows of `keys`, such as the time of the last use, as if the rows
  /// were written now. Ignores keys without a row.
  Status Touch(const Keys& keys);

  /// Reads or writes a metadata column of the rows of `keys`: a count, a score or a time that the
  /// policy keeps for each row. Keys without a row read as 0 and are not written. `values` and
  /// `found` are (keys.size); `found` may be nullptr.
  Status ReadColumn(RowColumn column, const Keys& keys, int64_t* values, bool* found) const;
  Status WriteColumn(RowColumn column, const Keys& keys, const int64_t* values);

  /// Returns the rows of this table that `wanted` asks for, ranked by column `by`. FirstKept merges
  /// the rows of several tables to decide which rows all of them keep.
  Status RankCandidates(RowColumn by, const Candidates& wanted, std::vector<RowRank>* rows) const;

  /// Erases the rows that rank below `kept` in column `by`. A row is ranked when it is visited, so
  /// a row that was used after RankCandidates may stay. `evicted` receives the number of erased
  /// rows.
  Status EvictBelow(RowColumn by, const RowRank& kept, uint64_t* evicted);

  /// Erases all expired rows. `evicted` receives their number.
  Status EvictExpired(uint64_t* evicted);

  /// Saves or loads, as snapshot metadata, the policy's state that is not in the rows: the number
  /// of optimizer steps, and the admission counts of keys without a row. When several tables load
  /// one file, `shard_index` and `shard_count` select the keys (ShardOfKey) whose counts this table
  /// loads. From a base and its deltas, load only the last file: its state is complete.
  void SaveState(std::map<std::string, std::string>* metadata) const;
  Status LoadState(const std::map<std::string, std::string>& metadata, uint32_t shard_index = 0,
                   uint32_t shard_count = 1);

  /// Reads one slot of each key into `out` (keys.size, bytes). `bytes` is the slot's size in a row.
  /// A key without a row reads as the slot's initial value. NotFound if the slot does not exist,
  /// FailedPrecondition if its size differs.
  Status FindSlot(const std::string& owner, const std::string& name, size_t bytes, const Keys& keys,
                  char* out, bool* found) const;

  /// Writes one slot of the existing rows of `keys`; ignores keys without a row. `values` is
  /// (keys.size, bytes). Errors are the same as in FindSlot.
  Status AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                    const Keys& keys, const char* values);

  /// Sets each row that `owner` trained to its moving average, which Apply with `average_momentum`
  /// keeps in a slot of `owner`. Does nothing if there is no such slot.
  Status TakeAverages(const std::string& owner);

  /// Removes an optimizer's slots from all rows and frees their memory.
  Status DropSlots(const std::string& owner);

  /// Copies the next rows (one index segment, up to a few thousand) into `batch`, and advances the
  /// cursor. Start with a new cursor; cursor->done tells that all rows were copied.
  Status ExportBatch(ExportCursor* cursor, RowBatch* batch) const;

  /// Inserts or replaces whole rows given in the layout `from`. Copies the slots that `from` and
  /// the table share; the table's other slots get their initial values.
  Status LoadRows(const RowLayout& from, const Keys& keys, const Values& rows, Executor* executor);

  /// Changes the initial rows of keys without a row. Existing rows are unchanged.
  Status SetInitializer(const InitializerOptions& options);

  uint64_t size() const noexcept;
  TableStats Stats() const;
  const TableOptions& options() const noexcept { return options_; }
  InitializerOptions initializer() const;  ///< the current one; options() has the first one
  RowLayout layout() const;

  /// Returns the time of a save in microseconds, or 0 if the policy does not count lookups as uses.
  /// If the save then locks each shard once, every later lookup is stamped with this time or a
  /// later time.
  int64_t MarkUses() noexcept { return policy_.count_reads() ? policy_.BeginWrite().micros : 0; }

  /// The chains of saves. The table records which rows change, for the next delta of each chain.
  SaveChains& chains() noexcept { return *chains_; }

 private:
  friend class SaveSource;
  friend class TableGate;

  explicit Table(TableOptions options);

  /// Working memory of one verb. Later verbs reuse it, so that an optimizer step allocates nothing.
  struct Scratch {
    /// Lends one of `gradients` to a task. Tasks that run one after another get the same object,
    /// because it is still in the cache.
    class SumLease;
    Partition partition;
    GradientSum gradients[kShards];  ///< one per running task, at most one per shard
    std::atomic<uint32_t> lent{0};   ///< bit i: gradients[i] is lent
  };
  class ScratchLease;

  Status Prepare(const Keys& keys) const;
  Status Step(const OptimizerRule& rule, const std::string& owner,
              const std::vector<SlotSpec>& specs, const std::vector<double>& hyper,
              const Keys& keys, const void* grads, Executor* executor,
              const double* average_momentum);
  Status CheckColumn(RowColumn column) const;
  uint64_t RowsTooMany() const noexcept;
  void Relayout(RowLayout layout);
  void MakeRoom();
  void SweepExpired(uint64_t rows);
  void AfterWrite(size_t keys);
  std::vector<RowRank> Choose(RowColumn by, const Candidates& wanted) const;
  void EvictFromPart(uint64_t too_many, uint64_t* begin);
  template <typename Which>
  uint64_t EraseRanked(const std::vector<RowRank>& ranked, const Which& which);
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
  template <typename Plain = PlainRows<void, false>, typename OnRow, typename OnRefused = Ignored>
  Status UpdateRows(const Keys& keys, Executor* executor, const WriteTouches& touch,
                    const TableGate& gate, const OnRow& on_row, const OnRefused& on_refused = {},
                    const Plain& plain = {});
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
  mutable LookupMemo memo_;
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> scratch_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_H_
