// Saves a table to a file: what to save, the chain that the file belongs to, and the
// threads.
#ifndef DE_CORE_ENGINE_TABLE_SAVE_H_
#define DE_CORE_ENGINE_TABLE_SAVE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

namespace de::engine {

struct SaveOptions {
  SnapshotId id{};             ///< random id of this save
  int64_t created_micros = 0;  ///< time in microseconds since 1970-01-01 UTC
  std::map<std::string, std::string> metadata;
  bool values_only = false;  ///< save keys and values without slots
  std::optional<DType> store_as;
  std::string chain;   ///< the chain of saves that the file belongs to; empty for none
  bool delta = false;  ///< save only the changes since the chain's last save
  /// true: Done makes this file the last of the chain. false: SaveChains::Commit does so later
  bool commit = true;
  /// if above 0, all rows are saved as they are at the start of the save. Rows that change
  /// meanwhile are copied first; the copies take at most this many bytes
  uint64_t held_bytes = 0;
  /// true: Clear and adding or dropping slots, after which the save would have to start again, wait
  /// until all rows are read
  bool undisturbed = false;
  const Keys* keys = nullptr;  ///< if set, save only these keys; requires an empty chain
  std::vector<KeepRule> keep;
  std::function<bool()> rest;  ///< see SavePipeline
};

struct SaveReport {
  SnapshotId parent{};
  uint64_t sequence = 0;
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  uint64_t bytes = 0;
  uint64_t held_peak = 0;   ///< greatest number of bytes that copies of changed rows used
  double longest_hold = 0;  ///< longest time, in seconds, that the save held the lock of a shard
  ConversionError error;
};

/// Use from one thread: Begin, Write, and Done once the file is in its place. If the object is
/// destroyed before Done, the chain is unchanged. Memory in addition to the table: some tens of
/// MiB, 64 bytes per section of about 2 MiB, 64 bytes per changed row for a delta, and
/// `held_bytes`.
class TableSave {
 public:
  /// `table` must outlive the save. Errors: FailedPrecondition for a delta whose chain has no
  /// earlier save, and for a second consistent save; NotFound for a `keep` rule whose slot does not
  /// exist.
  static Status Begin(TableBackend* table, SaveOptions options, std::unique_ptr<TableSave>* save);
  ~TableSave();

  /// Writes the file. `executor` may be nullptr. Only its task 0 locks the table's shards.
  Status Write(ByteSink* sink, Executor* executor);

  /// True if Write failed only because the table was cleared or slots were added or dropped
  /// meanwhile. A new save may then succeed.
  bool outdated() const noexcept { return source_->outdated(); }

  Status Done();

  const SaveReport& report() const noexcept { return report_; }

 private:
  TableSave(TableBackend* table, SaveOptions options)
      : table_(table), options_(std::move(options)), source_(table->NewRowSource()) {}

  Status Start();

  TableBackend* table_;
  SaveOptions options_;
  std::unique_ptr<RowSource> source_;
  SaveReport report_;
  SavePoint point_;
  bool cut_ = false;  ///< true while Begin's generation is neither kept nor abandoned
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_SAVE_H_
