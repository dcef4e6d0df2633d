// Saving a live table: what is written, the chain it belongs to, and the threads that do it.
#ifndef DE_CORE_ENGINE_TABLE_SAVE_H_
#define DE_CORE_ENGINE_TABLE_SAVE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"
#include "de_core/cc/engine/table/save_chains.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

struct SaveOptions {
  SnapshotId id{};             ///< random, of this save
  int64_t created_micros = 0;  ///< since 1970-01-01 UTC
  std::map<std::string, std::string> metadata;
  bool values_only = false;  ///< leave the slots out
  std::optional<DType> store_as;
  std::string chain;           ///< the series of saves it belongs to; empty for none
  bool delta = false;          ///< only what changed since the chain's last save
  bool commit = true;          ///< whether Done makes it the chain's last save
  uint64_t held_bytes = 0;     ///< above 0: all rows of one moment, at the cost of so many bytes
  bool undisturbed = false;    ///< what would outdate the save waits until the rows are read
  const Keys* keys = nullptr;  ///< only these, where set; without a chain
  std::vector<KeepRule> keep;
  std::function<bool()> rest;  ///< see SavePipeline
};

struct SaveReport {
  SnapshotId parent{};
  uint64_t sequence = 0;
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  uint64_t bytes = 0;
  uint64_t held_peak = 0;   ///< bytes that were held to keep the moment
  double longest_hold = 0;  ///< seconds for which writers of a shard waited at most
  ConversionError error;
};

/// Use, by one thread: Begin, Write, then, when the file is where it shall be, Done. Dropped before
/// Done, the chain is as if there had been no save. Memory beside the table: some tens of MiB, and
/// 64 bytes a section of about 2 MiB; for a delta 64 bytes a changed row; `held_bytes`.
class TableSave {
 public:
  /// `table` outlives the save. Errors: FailedPrecondition for a delta without an earlier save of
  /// its chain or a second consistent save; NotFound for a `keep` rule without its slot.
  static Status Begin(Table* table, SaveOptions options, std::unique_ptr<TableSave>* save);
  ~TableSave();

  /// Writes the file. `executor` may be nullptr; only its task 0 holds the table's shards.
  Status Write(ByteSink* sink, Executor* executor);

  /// Whether Write failed only because the table was cleared or laid out anew meanwhile.
  bool outdated() const noexcept { return source_.outdated(); }

  Status Done();

  const SaveReport& report() const noexcept { return report_; }

 private:
  TableSave(Table* table, SaveOptions options)
      : table_(table), options_(std::move(options)), source_(table) {}

  Status Start();

  Table* table_;
  SaveOptions options_;
  SaveSource source_;
  SaveReport report_;
  SavePoint point_;
  bool cut_ = false;  ///< a generation was begun and neither kept nor abandoned
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_SAVE_H_
