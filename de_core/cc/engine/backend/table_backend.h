// The interface of a table: ops, saves and restores know a table only as a TableBackend. A table in
// memory (Table) implements it. Another place for rows, such as a GPU or a disk, plugs in here.
//
// Threads. All verbs are thread-safe.
//  - Reads and writes of a row are atomic: no verb sees a partial write of a row's value, or of a
//    row's value and slots together.
//  - A batch is not a transaction: other verbs may run between two of its rows.
//  - Within one batch, several writes to one key take effect in the order of the batch.
//  - ExportBatch visits every row that exists throughout an enumeration exactly once. Rows that are
//    inserted or erased meanwhile are visited at most once.
//  - Adding slots, dropping slots and Clear wait for a save with `undisturbed`.
// A table never exposes addresses of rows.
//
// Errors. No verb throws or aborts. A verb with invalid arguments changes nothing. A verb on a
// batch that runs out of memory may have applied a part of the batch. Then each row has either its
// old or its new contents. Reserve, ShrinkToFit, and adding or dropping slots change no row if they
// fail.
#ifndef DE_CORE_ENGINE_TABLE_BACKEND_H_
#define DE_CORE_ENGINE_TABLE_BACKEND_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/row_source.h"
#include "de_core/cc/engine/backend/save_chains.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/policy/row_policy.h"
#include "de_core/cc/engine/policy/row_rank.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

struct TableOptions {
  /// The dtype of slots with an element per value.
  DType real_slot_dtype() const noexcept {
    return value_dtype == DType::kFloat64 ? DType::kFloat64 : slot_dtype;
  }

  KeyType key_type = KeyType::kInt64;
  DType value_dtype = DType::kFloat32;
  /// dtype of optimizer slots with `dim` elements: kFloat32, or kBFloat16 with stochastic rounding;
  /// float64 rows have float64 slots
  DType slot_dtype = DType::kFloat32;
  size_t dim = 1;          ///< values per row, 1 to kMaxDim
  uint64_t init_size = 0;  ///< number of rows to reserve memory for when the table is created
  InitializerOptions initializer;  ///< computes what a lookup returns for a key without a row
  RowPolicyOptions policy;         ///< admission, eviction and metadata
  /// Each shard has index segments of another size, from 512 down to 267 lines, so that the shards
  /// split one after another as the table grows. Then a row takes 22 to 24 bytes of index at any
  /// size of the table, otherwise 16 to 32. Lookups in the caches are slower, because the directory
  /// is larger.
  bool splits_in_turn = false;
};

/// Greatest number of rows in a table: each shard numbers its rows with 32 bits.
inline constexpr uint64_t kMaxRows = uint64_t{kShards} * 0xffff0000;

/// Where the rows of a tiered table are.
struct TierStats {
  uint64_t hot_rows = 0;      ///< rows in memory
  uint64_t cold_rows = 0;     ///< rows on disk only
  uint64_t disk_bytes = 0;    ///< bytes of the files
  uint64_t reads = 0;         ///< blocks read from the files
  uint64_t filter_bytes = 0;  ///< memory of the filters and indexes of the files
  uint64_t rows_in = 0;       ///< rows moved into memory since the table was created
  uint64_t rows_out = 0;      ///< rows moved out of memory since the table was created
};

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
  std::optional<TierStats> tier;  ///< if the table has a tier
};

class TableBackend {
 public:
  TableBackend() = default;
  virtual ~TableBackend() = default;
  TableBackend(const TableBackend&) = delete;
  TableBackend& operator=(const TableBackend&) = delete;

  // Verbs on batches of keys. An executor may be nullptr: then the verb uses the caller's thread.

  /// Reads rows: out[i] is the row of keys[i], or the initial row of a key without a row. found[i]
  /// tells whether keys[i] has a row. `found` (keys.size) may be nullptr; `out` may be empty if
  /// only `found` is needed. An Apply of the same keys may follow: a backend can remember where the
  /// rows are.
  virtual Status FindToTrain(const Keys& keys, const ValuesOut& out, bool* found,
                             Executor* executor) const = 0;

  /// Like FindToTrain, for keys whose Apply does not follow with exactly this batch.
  virtual Status Find(const Keys& keys, const ValuesOut& out, bool* found,
                      Executor* executor) const {
    return FindToTrain(keys, out, found, executor);
  }

  /// Like FindToTrain, but also stores the initial row of every key without a row.
  virtual Status FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found,
                              Executor* executor) = 0;

  /// Writes rows. If a key occurs several times, its last row wins. Existing rows keep their slots.
  virtual Status InsertOrAssign(const Keys& keys, const Values& values, Executor* executor) = 0;

  /// Adds `values - old_values` to existing rows, or `values` if `old_values` is nullptr. For a key
  /// without a row, `values` becomes the row. `values` and `old_values` are (keys.size, dim) of the
  /// table's dtype.
  virtual Status AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                               Executor* executor) = 0;

  /// Runs one optimizer step: sums the gradients of equal keys, then updates each key's row once.
  /// `grads` is (keys.size, dim) of floats, or of doubles for float64 rows. `hyper` are the
  /// settings of `rule`. Adds the slots of `owner`, the optimizer, if they do not exist yet. With
  /// `average_momentum`, also updates a moving average of the row in a slot.
  virtual Status Apply(const OptimizerRule& rule, const std::string& owner,
                       const std::vector<double>& hyper, const Keys& keys, const void* grads,
                       Executor* executor, const double* average_momentum) = 0;

  virtual Status Erase(const Keys& keys, Executor* executor) = 0;

  /// Inserts or replaces whole rows given in the layout `from`. Copies the slots that `from` and
  /// the table share; the table's other slots get their initial values.
  virtual Status LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                          Executor* executor) = 0;

  /// Reads one slot of each key into `out` (keys.size, bytes). `bytes` is the slot's size in a row.
  /// A metadata column, such as a count or a time that the policy keeps, is a slot of
  /// kMetadataOwner. A key without a row reads as the slot's initial value. NotFound if the slot
  /// does not exist, FailedPrecondition if its size differs.
  virtual Status FindSlot(const std::string& owner, const std::string& name, size_t bytes,
                          const Keys& keys, char* out, bool* found) const = 0;

  /// Writes one slot of the existing rows of `keys`; ignores keys without a row. `values` is
  /// (keys.size, bytes). Errors are the same as in FindSlot.
  virtual Status AssignSlot(const std::string& owner, const std::string& name, size_t bytes,
                            const Keys& keys, const char* values) = 0;

  /// Updates the metadata of the rows of `keys`, such as the time of the last use, as if the rows
  /// were written now. Ignores keys without a row.
  virtual Status Touch(const Keys& keys) = 0;

  // Verbs on all rows.

  /// Copies the next rows (a range of hashes, up to a few thousand rows) into `batch`, and advances
  /// the cursor. Start with a new cursor; cursor->done tells that all rows were copied.
  virtual Status ExportBatch(ExportCursor* cursor, RowBatch* batch) const = 0;

  virtual Status Clear() = 0;
  /// Reserves space for `rows` rows in total, at most kMaxRows.
  virtual Status Reserve(uint64_t rows) = 0;
  virtual Status ShrinkToFit() = 0;

  /// Adds the missing slots of an optimizer, and converts slots of another floating-point dtype.
  /// Existing rows get the slots' initial values.
  virtual Status EnsureSlots(const std::string& owner, const std::vector<SlotSpec>& specs) = 0;
  /// Removes an optimizer's slots from all rows and frees their memory.
  virtual Status DropSlots(const std::string& owner) = 0;
  /// Sets each row that `owner` trained to its moving average, which Apply with `average_momentum`
  /// keeps in a slot of `owner`. Does nothing if there is no such slot.
  virtual Status TakeAverages(const std::string& owner) = 0;

  /// Returns the rows of this table that `wanted` names, ranked by column `by`. FirstKept merges
  /// the rows of several tables to decide which rows all of them keep.
  virtual Status RankCandidates(RowColumn by, const Candidates& wanted,
                                std::vector<RowRank>* rows) const = 0;
  /// Erases the rows that rank below `kept` in column `by`. A row is ranked when it is visited, so
  /// a row that was used after RankCandidates may stay. `evicted` receives the number of erased
  /// rows.
  virtual Status EvictBelow(RowColumn by, const RowRank& kept, uint64_t* evicted) = 0;
  /// Erases all expired rows. `evicted` receives their number.
  virtual Status EvictExpired(uint64_t* evicted) = 0;
  /// The keys of rows that a policy removed. It never has keys that Erase or Clear removed.
  virtual EvictedKeys& evicted_keys() noexcept = 0;

  /// Changes the initial rows of keys without a row. Existing rows are unchanged.
  virtual Status SetInitializer(const InitializerOptions& options) = 0;

  // Description.

  virtual uint64_t size() const noexcept = 0;
  virtual TableStats Stats() const = 0;
  virtual const TableOptions& options() const noexcept = 0;
  virtual InitializerOptions initializer() const = 0;  ///< the current one; options() has the first
  virtual RowLayout layout() const = 0;

  // Saves.

  /// Returns a source that has not begun.
  virtual std::unique_ptr<RowSource> NewRowSource() = 0;

  /// Returns the time of a save in microseconds, or 0 if the policy does not count lookups as uses.
  /// If the save then reads the rows, every later lookup is stamped with this time or a later time.
  virtual int64_t MarkUses() noexcept = 0;

  /// The chains of saves. The table records which rows change, for the next delta of each chain.
  virtual SaveChains& chains() noexcept = 0;

  /// Saves or loads, as snapshot metadata, the policy's state that is not in the rows: the number
  /// of optimizer steps, and the admission counts of keys without a row. When several tables load
  /// one file, `shard_index` and `shard_count` select the keys (ShardOfKey) whose counts this table
  /// loads. From a base and its deltas, load only the last file: its state is complete. Load the
  /// steps before the rows, which may expire, and the counts after them: Erase drops counts.
  virtual void SaveState(std::map<std::string, std::string>* metadata) const = 0;
  virtual void LoadSteps(const std::map<std::string, std::string>& metadata) = 0;
  virtual Status LoadCounts(const std::map<std::string, std::string>& metadata,
                            uint32_t shard_index, uint32_t shard_count) = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_BACKEND_H_
