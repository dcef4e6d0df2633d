// A table's metadata per row, its admission policy and its eviction policy.
//
// The metadata are ordinary columns of the row layout with owner "de", one int64 each: `time`
// (microseconds since 1970 of the last write; every operation gets a later time), `step` (the
// table's number of optimizer steps at that time), `uses` (writes; several in one optimizer step
// count once) and `score` (set by the caller). So snapshots, restores and changes of the row layout
// handle them like optimizer slots. A table without a policy has no such column. A table whose
// lookups count as uses always has `time`, because deltas then include the rows that were only
// looked up.
#ifndef DE_CORE_ENGINE_ROW_POLICY_H_
#define DE_CORE_ENGINE_ROW_POLICY_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/policy/admission.h"
#include "de_core/cc/engine/policy/evicted_keys.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

/// The owner of the metadata columns.
inline constexpr std::string_view kMetadataOwner = "de";

/// Metadata columns. The text that ParseRowPolicy reads contains these numbers: never renumber.
enum class RowColumn : uint8_t { kNone = 0, kTime = 1, kUses = 2, kScore = 3, kStep = 4 };
inline constexpr size_t kRowColumns = 5;

std::string_view NameOf(RowColumn column) noexcept;
/// Returns kNone for an unknown name.
RowColumn RowColumnOf(std::string_view name) noexcept;

struct RowPolicyOptions {
  bool columns[kRowColumns] = {};         ///< columns kept in addition to those that policies need
  AdmissionOptions admission;             ///< decides which keys get a row
  RowColumn evict_by = RowColumn::kNone;  ///< a full table evicts the rows lowest in this column
  uint64_t max_rows = 0;                  ///< 0: no bound
  uint64_t max_bytes = 0;    ///< bound on the memory of rows, index and strings; 0: none
  int64_t ttl_steps = 0;     ///< a row expires after this many steps without a write; 0: never
  int64_t ttl_micros = 0;    ///< a row expires after this many microseconds; 0: never
  bool count_reads = false;  ///< lookups count as uses too

  Status Check() const;
};

/// Parses "name=number;name=number…". An empty text means no policy.
Status ParseRowPolicy(std::string_view text, RowPolicyOptions* options);

/// The time and step of an event on a row.
struct Stamp {
  int64_t micros = 0;  ///< since 1970; 0 if the table has no `time` column
  int64_t step = 0;    ///< number of optimizer steps of the table
};

class RowPolicy {
 public:
  /// Appends the policy's columns to the layout of an empty table.
  RowPolicy(const RowPolicyOptions& options, RowLayout* layout);

  const RowPolicyOptions& options() const noexcept { return options_; }
  bool tracks() const noexcept { return end_ > 0; }
  bool expires() const noexcept { return options_.ttl_steps > 0 || options_.ttl_micros > 0; }
  bool bounded() const noexcept { return options_.evict_by != RowColumn::kNone; }
  bool admits_all() const noexcept {
    return options_.admission.kind == AdmissionOptions::Kind::kAll;
  }
  /// True if a read must access the metadata.
  bool watches_reads() const noexcept { return expires() || options_.count_reads; }
  bool count_reads() const noexcept { return options_.count_reads; }

  /// A column's offset from the row's start in bytes, or 0 if the table does not have it.
  size_t offset(RowColumn column) const noexcept { return offsets_[static_cast<size_t>(column)]; }
  /// Offset of the end of the metadata from the row's start in bytes; 0 without metadata.
  size_t end() const noexcept { return end_; }

  /// Returns the stamp of an optimizer step (and counts the step), of another write, or of a read.
  Stamp BeginStep() noexcept;
  Stamp BeginWrite() noexcept;
  Stamp Now() const noexcept;

  /// Records a write. Requires the shard's lock.
  void Touch(char* row, const Stamp& stamp) const noexcept {
    if (!tracks()) return;
    Store(row, RowColumn::kTime, stamp.micros);
    Store(row, RowColumn::kStep, stamp.step);
    if (const size_t at = offset(RowColumn::kUses); at != 0)
      StoreAt(row + at, LoadAt(row + at) + 1);
  }

  /// Records a use by one of several concurrent readers.
  void TouchShared(char* row, const Stamp& stamp) const noexcept;

  bool Expired(const char* row, const Stamp& now) const noexcept {
    if (options_.ttl_steps > 0 &&
        now.step - ReadShared(row, RowColumn::kStep) > options_.ttl_steps) {
      return true;
    }
    return options_.ttl_micros > 0 &&
           now.micros - ReadShared(row, RowColumn::kTime) > options_.ttl_micros;
  }

  /// Copies a row of `bytes` while readers may record uses.
  void CopyRow(char* to, const char* row, size_t bytes) const noexcept {
    if (!count_reads()) return CopyBytes(to, row, bytes);
    CopyBytes(to, row, begin_);
    for (size_t at = begin_; at < end_; at += sizeof(int64_t)) {
      StoreAt(to + at, LoadShared(row + at));
    }
    CopyBytes(to + end_, row + end_, bytes - end_);
  }

  /// Copies a slot of a row while readers may record uses.
  void CopySlot(char* to, const char* row, size_t offset, size_t bytes) const noexcept {
    if (!count_reads() || offset < begin_ || offset >= end_) {
      return CopyBytes(to, row + offset, bytes);
    }
    StoreAt(to, LoadShared(row + offset));
  }

  /// True if the row was written or used at `micros` or later. Call it only if reads count as uses.
  bool UsedSince(const char* row, int64_t micros) const noexcept {
    return ReadShared(row, RowColumn::kTime) >= micros;
  }

  /// Counts an occurrence of a key without a row. Returns true if the key gets a row now. Requires
  /// the lock of the key's shard.
  bool Admit(const IndexKey& key, const Stamp& stamp) {
    if (filters_[ShardOfHash(key.hash)].Admit(key.word, key.hash, stamp.step)) return true;
    refused_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  /// Returns the column's value in a row. The column must exist.
  int64_t Read(const char* row, RowColumn column) const noexcept {
    return LoadAt(row + offset(column));
  }
  /// Like Read, while readers may record uses.
  int64_t ReadShared(const char* row, RowColumn column) const noexcept {
    return LoadShared(row + offset(column));
  }

  /// The filter of a shard. Requires its lock.
  AdmissionFilter& filter(size_t shard) noexcept { return filters_[shard]; }
  const AdmissionFilter& filter(size_t shard) const noexcept { return filters_[shard]; }
  bool has_filters() const noexcept { return !filters_.empty(); }
  size_t filter_bytes(size_t shard) const noexcept {
    return has_filters() ? filters_[shard].bytes() : 0;
  }
  /// Clears the shard's counts, after its rows were removed. Requires the shard's lock.
  void Forget(size_t shard) {
    if (has_filters()) filters_[shard].Clear();
    weights[shard].store(0, std::memory_order_relaxed);
  }

  /// Drops the count of a key. Requires the lock of the key's shard.
  void Forget(const IndexKey& key) noexcept {
    if (has_filters()) filters_[ShardOfHash(key.hash)].Forget(key.word, key.hash);
  }

  /// Counts optimizer steps from 0 again, after all rows were removed.
  void ForgetSteps() noexcept { step_.store(0, std::memory_order_relaxed); }

  int64_t steps() const noexcept { return step_.load(std::memory_order_relaxed); }
  /// Raises the step counter to at least `steps`, read from a snapshot.
  void WitnessSteps(int64_t steps) noexcept;

  uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  uint64_t evicted() const noexcept { return evicted_.load(std::memory_order_relaxed); }
  uint64_t expired() const noexcept { return expired_.load(std::memory_order_relaxed); }
  void CountEvicted(uint64_t rows) noexcept { evicted_.fetch_add(rows, std::memory_order_relaxed); }
  /// Counts evicted rows that had expired.
  void CountExpired(uint64_t rows) noexcept {
    CountEvicted(rows);
    expired_.fetch_add(rows, std::memory_order_relaxed);
  }

  EvictedKeys evicted_keys;
  std::mutex evicting;                       ///< held by the one writer that evicts rows
  uint64_t evict_hash = 0;                   ///< hash where the next eviction starts
  std::atomic<uint64_t> sweep_hash{0};       ///< hash where the next sweep for expired rows starts
  std::atomic<int64_t> sweep_credit{0};      ///< rows that sweeps may still visit; may be negative
  std::atomic<uint64_t> weights[kShards]{};  ///< bytes of each shard after its last write

 private:
  static int64_t LoadShared(const char* at) noexcept {
    return __atomic_load_n(reinterpret_cast<const int64_t*>(at), __ATOMIC_RELAXED);
  }
  static int64_t LoadAt(const char* at) noexcept {
    int64_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  static void StoreAt(char* at, int64_t value) noexcept { std::memcpy(at, &value, sizeof(value)); }
  void Store(char* row, RowColumn column, int64_t value) const noexcept {
    if (const size_t at = offset(column); at != 0) StoreAt(row + at, value);
  }

  RowPolicyOptions options_;
  size_t offsets_[kRowColumns] = {};
  size_t begin_ = 0;  ///< offset of the first metadata column; the columns are contiguous
  size_t end_ = 0;
  std::vector<AdmissionFilter> filters_;  // (kShards), or empty if all keys are admitted
  std::atomic<int64_t> last_micros_{0};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> evicted_{0};
  std::atomic<uint64_t> expired_{0};  // part of evicted_
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_POLICY_H_
